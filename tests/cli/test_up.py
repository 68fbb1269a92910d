"""`remit up`: both services by one word, and neither is left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.cli.errors import DONE, STATE, UNAVAILABLE
from tests.cli.running import piped, run
from tests.faults.proxy_driver import is_running, until


def pids(told: dict[str, Any]) -> list[int]:
    return [told["hub"]["pid"], told["proxy"]["pid"]]


@contextmanager
def in_foreground(home: Path) -> Iterator[tuple["subprocess.Popen[bytes]", dict[str, Any]]]:
    """Give a command that runs both, and what it has said; whatever happens, nothing of it is left."""
    words = [sys.executable, "-m", "remit", "up", "--home", str(home), "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = b""
        while not said.endswith(b"\n}\n"):
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            said += line
        try:
            yield process, json.loads(said)
        finally:
            for pid in (process.pid, *pids(json.loads(said))):
                if is_running(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_in_the_foreground_a_signal_stops_both(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, children ignore it too
    with in_foreground(tmp_path / "home") as (process, told):
        signal.signal(signal.SIGINT, before)
        assert all(map(is_running, pids(told)))
        process.send_signal(number)
        assert process.wait(30) == DONE
        assert not any(map(is_running, pids(told)))


@pytest.mark.parametrize("name", ["hub", "proxy"])
def test_if_one_ends_by_itself_the_other_is_stopped_too(tmp_path: Path, name: str) -> None:
    with in_foreground(tmp_path / "home") as (process, told):
        os.kill(told[name]["pid"], signal.SIGKILL)
        assert process.wait(30) == UNAVAILABLE
        assert not any(map(is_running, pids(told)))
        assert process.stdout is not None
        assert f"log/{name}.log" in json.loads(process.stdout.read())["error"]


def test_in_the_background_both_stay_are_found_again_and_stopped(tmp_path: Path) -> None:
    place = tmp_path / "home"
    first = piped(place, "up", "--background", "--port", "0")
    assert first.returncode == DONE, first.stderr
    try:
        shown = first.stdout.decode()
        assert all(f"remit {word}" in shown for word in ("open", "demo --live", "status"))
        again = json.loads(piped(place, "up", "--background", "--port", "0", "--json").stdout)
        assert again["hub"]["listening"] in shown
        assert again["proxy"]["listening"] in shown
        assert again["dashboard"] == f"{again['hub']['listening']}/dashboard"
        assert run(place, "token", "hub").stdout.strip() not in shown
    finally:
        stopped = json.loads(piped(place, "up", "--stop", "--json").stdout)
    assert stopped["stopped"] == [again["hub"]["listening"], again["proxy"]["listening"]]
    until(lambda: not any(map(is_running, pids(again))))
    assert b"neither" in piped(place, "up", "--stop").stderr


def test_if_the_second_does_not_start_the_first_is_stopped(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = piped(place, "up", "--background", "--port", "0", "--proxy-port", port, "--json")
    told = json.loads(result.stdout)
    assert (result.returncode, told["error_code"]) == (STATE, "port_in_use")
    assert json.loads(run(place, "up", "--stop", "--json").stdout)["stopped"] == []


def test_no_token_stands_in_the_arguments_of_a_process(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with in_foreground(place) as (process, told):
        token = run(place, "token", "hub").stdout.strip().encode()
        for pid in (process.pid, *pids(told)):
            seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert token not in seen
