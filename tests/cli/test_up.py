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
from remit.cli.program import READER_GONE
from tests.cli.running import piped, run
from tests.faults.proxy_driver import freeze, is_running, until


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
        assert process.wait(60) == DONE
        assert not any(map(is_running, pids(told)))


@pytest.mark.parametrize("name", ["hub", "proxy"])
def test_if_one_ends_by_itself_the_other_is_stopped_too(tmp_path: Path, name: str) -> None:
    with in_foreground(tmp_path / "home") as (process, told):
        os.kill(told[name]["pid"], signal.SIGKILL)
        assert process.wait(60) == UNAVAILABLE
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
        again = json.loads(run(place, "up", "--background", "--port", "0", "--json").stdout)
        assert again["hub"]["listening"] in shown
        assert again["proxy"]["listening"] in shown
        assert again["dashboard"] == f"{again['hub']['listening']}/dashboard"
        assert run(place, "token", "hub").stdout.strip() not in shown
    finally:
        stopped = json.loads(piped(place, "up", "--stop", "--json").stdout)
    assert stopped["stopped"] == [again["hub"]["listening"], again["proxy"]["listening"]]
    until(lambda: not any(map(is_running, pids(again))))
    assert "of this home is running" in run(place, "up", "--stop").stderr


def test_if_the_second_does_not_start_the_first_is_stopped(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = piped(place, "up", "--background", "--port", "0", "--proxy-port", port, "--json")
    told = json.loads(result.stdout)
    assert (result.returncode, told["error_code"]) == (STATE, "port_in_use")
    assert json.loads(run(place, "up", "--stop", "--json").stdout)["stopped"] == []


OUTPUTS = {"full": STATE, "closed": STATE, "gone": READER_GONE}


@contextmanager
def broken_output(kind: str) -> Iterator[dict[str, Any]]:
    """Give how a process is started whose output cannot be written."""
    if kind == "closed":
        yield {"stdout": None, "preexec_fn": lambda: os.close(1)}
    elif kind == "full":
        with Path("/dev/full").open("wb") as full:
            yield {"stdout": full}
    else:
        reading, writing = os.pipe()
        os.close(reading)
        yield {"stdout": writing}
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(("kind", "words"), [*((kind, []) for kind in OUTPUTS), ("full", ["--json"])], ids=str)
def test_in_the_foreground_output_that_is_lost_ends_both(tmp_path: Path, kind: str, words: list[str]) -> None:
    place = tmp_path / "home"
    with broken_output(kind) as output:
        ended = piped(place, "up", "--port", "0", *words, **output)
    left = json.loads(run(place, "up", "--stop", "--json").stdout)["stopped"]
    assert (ended.returncode, left) == (OUTPUTS[kind], [])
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_background_a_signal_leaves_both_or_neither(tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "home"
    run(place, "setup")
    words = [sys.executable, "-m", "remit", "up", "--background", "--home", str(place), "--port", "0"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, children ignore it too
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        signal.signal(signal.SIGINT, before)
        until(lambda: bool(list(place.glob("run/hub-*.json"))))
        process.send_signal(number)
        ended = process.wait(60)
    stopped = json.loads(run(place, "up", "--stop", "--json").stdout)["stopped"]
    assert (ended, len(stopped)) in {(128 + number, 0), (DONE, 2)}


def test_what_does_not_stop_is_named_and_the_other_is_stopped(tmp_path: Path) -> None:
    place = tmp_path / "home"
    told = json.loads(piped(place, "up", "--background", "--port", "0", "--json").stdout)
    hub, proxy = pids(told)
    freeze(hub)
    try:
        stopped = run(place, "up", "--stop", "--json")
        assert (stopped.exit_code, json.loads(stopped.stdout)["error_code"]) == (UNAVAILABLE, "service_unavailable")
        assert str(hub) in json.loads(stopped.stdout)["error"]
        assert not is_running(proxy)
    finally:
        os.kill(hub, signal.SIGCONT)
        run(place, "up", "--stop")


def test_in_the_foreground_it_does_not_stay_for_what_runs_already(tmp_path: Path) -> None:
    place = tmp_path / "home"
    first = json.loads(piped(place, "up", "--background", "--port", "0", "--json").stdout)
    try:
        again = run(place, "up", "--port", "0", "--json")
        assert (again.exit_code, json.loads(again.stdout)) == (DONE, first)
        assert "already running" in again.stderr
        assert all(map(is_running, pids(first)))
    finally:
        run(place, "up", "--stop")


def test_no_token_stands_in_the_arguments_of_a_process(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with in_foreground(place) as (process, told):
        token = run(place, "token", "hub").stdout.strip().encode()
        for pid in (process.pid, *pids(told)):
            seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert token not in seen
