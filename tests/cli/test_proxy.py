"""`remit proxy`: one line when it is ready, an exit code when it is not, and a life in the background."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import piped, run
from tests.faults.proxy_driver import is_running, until
from tests.proxy.service import HTTP, Running, command


@contextmanager
def in_background(home: Path, *options: str) -> Iterator[dict[str, Any]]:
    """Give what a proxy in the background was told to be, and see that it is gone in the end."""
    told = json.loads(piped(home, "proxy", "--background", "--json", *options).stdout)
    try:
        yield told
    finally:
        if is_running(told["pid"]):
            os.kill(told["pid"], signal.SIGKILL)
        until(lambda: not is_running(told["pid"]))


@pytest.fixture(scope="module")
def background(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("background") / "home"
    with in_background(home, "--log-level", "debug") as told:
        yield Running(told["listening"], told["pid"], home, home / "log" / "proxy.log")


@contextmanager
def taken_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield str(listening.getsockname()[1])


def told_by(result: "subprocess.CompletedProcess[bytes]") -> dict[str, Any]:
    """Return the one document of a command that failed."""
    (line,) = result.stdout.decode().splitlines()
    told: dict[str, Any] = json.loads(line)
    assert told["ok"] is False
    return told


@pytest.mark.parametrize("words", [["proxy"], ["proxy", "--json"], ["hub", "start"]], ids=" ".join)
def test_it_prints_one_line_when_it_is_ready_and_logs_elsewhere(tmp_path: Path, words: list[str]) -> None:
    given = [sys.executable, "-m", "remit", *words, "--home", str(tmp_path / "home"), HTTP, "--log-level", "debug"]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = json.loads(line)["listening"] if "--json" in words else line.removeprefix("proxy listening on ").strip()
        assert Running(url, process.pid, tmp_path, tmp_path).ask("GET", "/health").status == 200
        process.terminate()
        rest, log = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert [json.loads(logged)["event"] for logged in log.splitlines()] == ["answered"]


@pytest.mark.parametrize("options", [[], ["--background"], ["--processes", "3"]], ids=str)
def test_a_port_in_use_is_named(tmp_path: Path, options: list[str]) -> None:
    with taken_port() as port:
        result = piped(tmp_path / "home", "proxy", HTTP, "--port", port, "--json", *options)
    told = told_by(result)
    assert (result.returncode, told["error_code"]) == (78, "port_in_use")
    assert f":{port}" in told["error"]


@pytest.mark.parametrize(
    "options",
    [
        (HTTP, "--host", "0.0.0.0"),
        (HTTP, "--host", "192.0.2.1"),
        (HTTP, "--client-ca", "ca.pem"),
        ("--tls-cert", "cert.pem"),
        ("--tls-key", "key.pem"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_made(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    result = run(tmp_path / "home", "proxy", "--json", *options)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["error_code"]) == (2, "field_invalid")
    assert told["error"].startswith("--")
    assert not (tmp_path / "home").exists()


def test_options_that_do_not_go_together_are_refused_in_the_background_too(tmp_path: Path) -> None:
    result = piped(tmp_path / "home", "proxy", "--background", "--tls-cert", "cert.pem", "--json")
    assert (result.returncode, told_by(result)["error_code"]) == (2, "field_invalid")


def test_a_certificate_that_is_none_is_refused_with_advice(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----\nno\n", encoding="ascii")
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    result = piped(tmp_path / "home", "proxy", *files)
    assert (result.returncode, result.stdout) == (78, b"")
    assert b"PEM" in result.stderr


@pytest.mark.parametrize(
    ("mode", "code", "error_code"), [(0o777, 77, "home_unsafe"), (0o000, 78, "state_missing")], ids=["open", "missing"]
)
def test_a_home_that_cannot_be_used_is_refused(tmp_path: Path, mode: int, code: int, error_code: str) -> None:
    home = tmp_path / "home"
    if mode:
        home.mkdir()
        home.chmod(mode)
    result = piped(home if mode else home / "within", "proxy", HTTP, "--json")
    assert (result.returncode, told_by(result)["error_code"]) == (code, error_code)


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    result = piped(tmp_path / "file" / "home", "proxy", HTTP, "--json")
    assert result.returncode in (77, 78)
    assert told_by(result)["error_code"] in ("home_unsafe", "ledger_unavailable", "state_missing")


def test_the_one_in_the_background_is_found_again(background: Running) -> None:
    again = run(background.home, "proxy", "--background", "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (0, {"listening": background.url, "pid": background.pid})
    (note,) = (background.home / "run").glob("proxy-*.json")
    assert json.loads(again.stdout).items() <= json.loads(note.read_bytes()).items()


def test_two_that_are_started_at_once_are_one(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "remit", "proxy", "--home", str(tmp_path / "home"), "--background", "--json", HTTP]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    first, second = (json.loads(one.communicate(timeout=60)[0]) for one in both)
    with in_background(tmp_path / "home", HTTP) as third:
        assert first == second == third


def test_its_log_is_its_owners_alone_and_no_token_is_seen_anywhere(background: Running) -> None:
    admin = background.token("admin")
    for token in (admin, admin[::-1]):
        background.ask("POST", "/kill-switch", {"on": False}, authorization=f"Bearer {token}")
    passport = background.passport()
    background.ask("POST", "/session/start", {"token": passport})
    assert stat.S_IMODE(background.log_path.stat().st_mode) == 0o600
    log = background.log_to_here()
    assert "/session/start" in log
    seen = log + Path(f"/proc/{background.pid}/cmdline").read_text(encoding="utf-8")
    assert not [secret for secret in (admin, admin[::-1], passport) if secret in seen]


def test_the_tour_can_be_taken_live(background: Running) -> None:
    tour = piped(background.home, "demo", "--live", "--json")
    assert tour.returncode == 0, tour.stderr
    verdicts = [receipt["claims"]["verdict"] for receipt in json.loads(tour.stdout)["receipts"]]
    assert verdicts == ["compliant", "violation", "compliant", "violation"]
    assert background.url in run(background.home, "demo", "--live").stdout


def test_the_live_tour_without_a_proxy_says_what_to_do(tmp_path: Path) -> None:
    command("issue", "--home", str(tmp_path / "home"), "--agent-id", "agent:me", "--mission", "be there")
    tour = run(tmp_path / "home", "demo", "--live")
    assert (tour.exit_code, tour.stdout) == (69, "")
    assert "remit proxy --background" in tour.stderr


def test_it_is_stopped_and_only_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with in_background(home, HTTP, "--processes", "3") as told:
        stopped = piped(home, "proxy", "--stop", "--json")
        until(lambda: not is_running(told["pid"]))
    assert json.loads(stopped.stdout) == {"ok": True, "stopped": [told["listening"]]}
    assert list((home / "run").glob("proxy-*")) == []
    again = run(home, "proxy", "--stop")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "no proxy" in again.stderr


def test_one_that_was_killed_is_not_found_and_another_takes_its_place(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with in_background(home, HTTP) as first:
        os.kill(first["pid"], signal.SIGKILL)
        until(lambda: not is_running(first["pid"]))
        assert (home / "run" / f"proxy-{first['pid']}.json").exists()
        with in_background(home, HTTP) as second:
            assert second["pid"] != first["pid"]
            assert Running(second["listening"], second["pid"], home, home).ask("GET", "/health").status == 200


@pytest.mark.parametrize("note", ["of another", "of the dead", "{}", "\0"])
def test_a_note_that_was_left_behind_harms_nobody(tmp_path: Path, note: str) -> None:
    home = tmp_path / "home"
    for folder in (home, home / "run"):
        folder.mkdir(mode=0o700)
    with subprocess.Popen(["sleep", "60"]) as other:
        pid = {"of another": other.pid}.get(note, 2**22 - 1)
        said = {"listening": "http://127.0.0.1:9", "pid": pid, "since_ms": 1, "asked": {}}
        left = home / "run" / f"proxy-{pid}.json"
        left.write_text(json.dumps(said) if note.startswith("of") else note, encoding="utf-8")
        left.chmod(0o600)
        result = run(home, "proxy", "--stop", "--json")
        assert json.loads(result.stdout) == {"ok": True, "stopped": []}
        assert not left.exists()
        assert other.poll() is None
        other.kill()


def test_one_with_other_options_is_not_taken_for_the_one_that_is_asked_for(background: Running) -> None:
    refused = run(background.home, "proxy", "--background", "--require-token", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (78, "ledger_in_use")
    assert background.ask("GET", "/health").status == 200


def test_all_proxies_of_a_home_are_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = [sys.executable, "-m", "remit", "proxy", "--home", str(home), "--json", HTTP]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    addresses = {json.loads(one.stdout.readline())["listening"] for one in both if one.stdout}
    stopped = piped(home, "proxy", "--stop", "--json")
    assert set(json.loads(stopped.stdout)["stopped"]) == addresses
    assert [one.wait(60) for one in both] == [0, 0]
    for one in both:
        if one.stdout:
            one.stdout.close()


@pytest.mark.parametrize("processes", ["1", "2", "3"])
def test_modules_in_the_current_folder_are_not_ours(tmp_path: Path, processes: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("click", "json", "pickle", "remit", "socket"):
        (project / f"{name}.py").write_text("open('taken', 'w').close()", encoding="utf-8")
    remit = Path(sys.executable).with_name("remit")
    words = [str(remit), "proxy", "--home", str(tmp_path / "home"), HTTP, "--processes", processes]
    subprocess.run([*words, "--background"], cwd=project, check=True, capture_output=True, timeout=60)
    subprocess.run([*words, "--stop"], cwd=project, check=True, capture_output=True, timeout=60)
    assert not (project / "taken").exists()


def test_the_option_of_before_names_the_one_of_now(tmp_path: Path) -> None:
    told = run(tmp_path / "home", "proxy", "--workers", "2")
    assert told.exit_code == 2
    assert "--processes" in told.stderr
    assert not (tmp_path / "home").exists()
