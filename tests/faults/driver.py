"""Starts workers, listens to them, and kills them."""

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from tests.faults.worker import ROOT

__all__ = ["Ack", "Worker"]

_PATIENCE_S = 120.0


class Ack(NamedTuple):
    """An answer that a client was given."""

    key: str
    receipt_id: str
    receipt_hash: str
    decision: str


class Worker:
    """A worker process, and every line it has said."""

    def __init__(self, home: Path, token: str, prefix: str, *options: object, under: Sequence[str] = ()) -> None:
        command = [*under, sys.executable, "-m", "tests.faults.worker", str(home), token, prefix, *map(str, options)]
        self._lines: list[list[str]] = []
        self._heard = threading.Condition()
        self._over = False
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A last line without an end was not said.
            if line.endswith(b"\n"):
                with self._heard:
                    self._lines.append(line.decode().split())
                    self._heard.notify_all()
        with self._heard:
            self._over = True
            self._heard.notify_all()

    def said(self, word: str) -> list[list[str]]:
        """Return what follows this word, in every line that begins with it."""
        with self._heard:
            return [line[1:] for line in self._lines if line[0] == word]

    @property
    def acks(self) -> list[Ack]:
        """Return all answers, in the order they were given."""
        return [Ack(*line) for line in self.said("ack")]

    @property
    def unanswered(self) -> list[str]:
        """Return the keys of the calls that have had no answer."""
        answered = {ack.key for ack in self.acks}
        return [key for (key,) in self.said("submit") if key not in answered]

    def wait_for(self, word: str, times: int = 1) -> bool:
        """Wait until a line that begins so was said so often; tell whether it was, or the process ended before."""
        with self._heard:
            heard = self._heard.wait_for(lambda: self._over or self._count(word) >= times, _PATIENCE_S)
            assert heard, self._lines[-3:]
            return self._count(word) >= times

    def require(self, word: str) -> None:
        """Wait until a line that begins so was said; raise with what it complained of if it ended before."""
        if not self.wait_for(word):
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read().decode())

    def _count(self, word: str) -> int:
        return sum(line[0] == word for line in self._lines)

    def begin(self) -> None:
        """Open the gate."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"!")
        self.process.stdin.flush()

    def wait_for_more(self) -> None:
        """Wait until it says anything, or ends."""
        with self._heard:
            known = len(self._lines)
            assert self._heard.wait_for(lambda: self._over or len(self._lines) > known, _PATIENCE_S)

    def kill_after(self, delay_s: float) -> None:
        """Let it run on for a moment, and kill it."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(delay_s)
        self.kill()

    def kill(self) -> None:
        """Kill it if it still runs, and hear what it has said up to then."""
        self.process.send_signal(signal.SIGKILL)
        self._close()

    def finish(self) -> str:
        """Wait for its end and return what it complained of."""
        assert self.process.stderr is not None
        complaint = self.process.stderr.read().decode()
        assert self.process.wait(_PATIENCE_S) == 0, complaint
        self._close()
        return complaint

    def _close(self) -> None:
        self.process.wait(_PATIENCE_S)
        self._listener.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
