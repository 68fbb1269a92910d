"""`remit hub`: one line when it is ready, an exit code when it is not, and a life in the background."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from remit.cli.errors import DONE, STATE, USAGE
from remit.config import service_environment
from tests.cli.running import piped, run
from tests.faults.proxy_driver import is_running, until
from tests.hub.service import running


@pytest.mark.parametrize("words", [[], ["--json"]], ids=str)
def test_it_prints_one_line_when_it_is_ready_and_stops_cleanly(tmp_path: Path, words: list[str]) -> None:
    given = [sys.executable, "-m", "remit", "hub", "--home", str(tmp_path / "home"), "--port", "0", *words]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (DONE, "")
    if words:
        assert json.loads(line)["pid"] == process.pid
    assert "hub listening on http://127.0.0.1:" in line or "http://127.0.0.1:" in json.loads(line)["listening"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("name", ["hub", "proxy"])
def test_a_service_that_cannot_say_where_it_listens_ends(tmp_path: Path, name: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = piped(tmp_path / "home", name, "--port", "0", stdout=full)
    assert (ended.returncode, b"unforeseen" in ended.stderr) == (STATE, False)


@pytest.mark.parametrize("options", [[], ["--background"]], ids=str)
def test_a_port_in_use_is_named(tmp_path: Path, options: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = piped(tmp_path / "home", "hub", "--port", port, "--json", *options)
    told = json.loads(result.stdout)
    assert (result.returncode, told["error_code"]) == (STATE, "port_in_use")
    assert f":{port}" in told["error"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "127.0.0.2"])
def test_an_address_that_others_could_reach_is_refused_before_anything_is_made(tmp_path: Path, host: str) -> None:
    result = run(tmp_path / "home", "hub", "--host", host, "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["error_code"]) == (USAGE, "field_invalid")
    assert told["error"].startswith("--host")
    assert not (tmp_path / "home").exists()


def test_without_a_port_it_listens_where_it_was_set_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        run(tmp_path / "home", "setup", "--port", port)
        result = piped(tmp_path / "home", "hub", "--json")
    assert f":{port}" in json.loads(result.stdout)["error"]


def test_in_the_background_it_is_found_again_and_stopped(tmp_path: Path) -> None:
    place = tmp_path / "home"
    first = json.loads(piped(place, "hub", "--background", "--port", "0", "--json").stdout)
    try:
        again = run(place, "hub", "--background", "--port", "0", "--json")
        assert json.loads(again.stdout) == first
        other = run(place, "hub", "--background", "--port", "0", "--policies", "elsewhere", "--json")
        assert (other.exit_code, json.loads(other.stdout)["error_code"]) == (STATE, "ledger_in_use")
    finally:
        stopped = piped(place, "hub", "--stop", "--json")
    until(lambda: not is_running(first["pid"]))
    assert json.loads(stopped.stdout) == {"ok": True, "stopped": [first["listening"]]}
    assert "no Hub of this home is running" in run(place, "hub", "--stop").stderr


def test_stopping_it_leaves_the_proxy_alone_and_the_other_way_round(tmp_path: Path) -> None:
    with running(tmp_path / "home") as hub:
        assert json.loads(run(tmp_path / "home", "proxy", "--stop", "--json").stdout)["stopped"] == []
        assert is_running(hub.pid)


@pytest.mark.parametrize("words", [["hub"], ["proxy"], ["up"]], ids=" ".join)
def test_without_a_home_nothing_runs_that_could_be_stopped(tmp_path: Path, words: list[str]) -> None:
    result = run(tmp_path / "home", *words, "--stop")
    assert (result.exit_code, result.stdout) == (DONE, "")
    assert "of this home is running" in result.stderr
    assert json.loads(run(tmp_path / "home", *words, "--stop", "--json").stdout) == {"ok": True, "stopped": []}
    assert not (tmp_path / "home").exists()


def test_options_before_another_command_are_not_lost_without_a_word(tmp_path: Path) -> None:
    told = run(tmp_path / "home", "hub", "--port", "0", "start")
    assert told.exit_code == USAGE
    assert "must come after" in told.stderr


def test_a_token_that_was_rotated_opens_at_once(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with running(place) as hub:
        renewed = run(place, "token", "hub", "--rotate")
        assert run(place, "status").exit_code == DONE
        assert "another token" not in run(place, "doctor").stdout
        token = renewed.stdout.strip()
        assert token not in hub.log_to_here()


@pytest.mark.parametrize(
    ("given", "kept"),
    [("", None), (":/x", "/x"), (".", None), ("/a:relative:/b:", "/a:/b"), (None, None)],
)
def test_what_runs_in_the_background_imports_nothing_from_the_current_folder(
    given: str | None, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if given is not None:
        monkeypatch.setenv("PYTHONPATH", given)
    assert service_environment().get("PYTHONPATH") == kept
    assert service_environment()["PATH"] == os.environ["PATH"]


def test_a_hub_in_the_background_does_not_take_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken from the current folder')")
    # Set once everything is imported, as it is for whoever has started the command elsewhere.
    program = (
        "import os, sys; from remit.cli import main; os.environ['PYTHONPATH'] = ':/nowhere';"
        f" os.chdir({str(tmp_path)!r}); main()"
    )
    words = ["hub", "--background", "--port", "0", "--home", str(tmp_path / "home"), "--json"]
    started = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, check=False, timeout=60)
    assert (started.returncode, run(tmp_path / "home", "hub", "--stop").exit_code) == (DONE, DONE), started.stderr
