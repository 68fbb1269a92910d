"""Several processes: watched, told and stopped together, and given up when they cannot live."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 60.0


class Crew(NamedTuple):
    """A service that runs, and what it has said so far."""

    process: "subprocess.Popen[str]"
    lines: list[str]

    def hear(self, *words: str) -> list[str]:
        """Return what follows these words, in the order in which they are heard; others may come between."""
        left, found = list(words), list[str]()
        while left:
            assert self.process.stdout is not None
            line = self.process.stdout.readline().strip()
            assert line, self.lines
            self.lines.append(line)
            word, _, rest = line.partition(" ")
            if word in left:
                left.remove(word)
                found.append(rest)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Tell the one who watches."""
        self.process.send_signal(number)


@contextmanager
def crew(target: str, count: int) -> Iterator[Crew]:
    """Run a crew, and see that none of it is left."""
    command = [sys.executable, "-m", "tests.server.crew", target, str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        watchdog = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            yield Crew(process, [])
            # Whoever may write to it holds it open: its end is the end of all.
            assert process.stdout is not None
            process.stdout.read()
            assert process.wait() == 0
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            watchdog.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_are_ready_before_it_is_said_and_a_signal_ends_all(number: signal.Signals) -> None:
    with crew("steady", 3) as them:
        them.hear("begun", "begun", "begun", "ready")
        assert them.lines[-1] == "ready"
        them.signal(number)
        them.hear("stopping", "over")
        assert not [line for line in them.lines if line.startswith(("lost", "error"))]


def test_a_hang_up_signal_is_passed_on_to_each_once() -> None:
    with crew("steady", 2) as them:
        begun = them.hear("begun", "begun")
        them.hear("ready")
        them.signal(signal.SIGHUP)
        assert sorted(them.hear("told", "told")) == sorted(begun)
        them.signal(signal.SIGTERM)
        them.hear("over")
        assert len([line for line in them.lines if line.startswith("told")]) == 2


def test_a_hang_up_signal_reaches_one_that_was_starting_as_soon_as_it_is_ready() -> None:
    with crew("late", 1) as them:
        (starting,) = them.hear("late")
        them.signal(signal.SIGHUP)
        os.kill(int(starting), signal.SIGUSR1)
        assert them.hear("told") == [starting]
        them.signal(signal.SIGTERM)
        them.hear("over")


def test_one_that_is_lost_is_named_and_replaced() -> None:
    with crew("steady", 2) as them:
        begun = them.hear("begun", "begun")
        them.hear("ready")
        os.kill(int(begun[0]), signal.SIGKILL)
        lost, replaced = them.hear("lost", "begun")
        assert lost == begun[0]
        assert replaced not in begun
        them.signal(signal.SIGTERM)
        them.hear("over")


def test_one_that_cannot_start_ends_the_service_before_it_was_ready() -> None:
    with crew("failing", 2) as them:
        assert them.hear("error", "over")[0] == "service_unavailable"
        assert "ready" not in them.lines


def test_those_that_do_not_stay_alive_are_given_up() -> None:
    with crew("brief", 1) as them:
        assert them.hear("ready", "error", "over")[1] == "service_unavailable"
        assert len([line for line in them.lines if line.startswith("lost")]) == 6


def test_a_signal_ends_those_that_are_still_starting() -> None:
    with crew("sleepy", 2) as them:
        them.hear("begun", "begun")
        them.signal(signal.SIGTERM)
        them.hear("stopping", "over")
        assert "ready" not in them.lines
