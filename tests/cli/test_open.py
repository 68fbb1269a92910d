"""`remit open`: a browser is sent to the dashboard, and no process shows the token."""

import json
import stat
import sys
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from remit.cli.errors import DONE, STATE, UNAVAILABLE
from tests.cli.running import piped, run
from tests.hub.service import Hub, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("open") / "home") as hub:
        yield hub


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A browser that writes down what it is started with."""
    program, opened = tmp_path / "browser", tmp_path / "opened"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(opened)!r}, 'w').write('\\0'.join(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    program.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    return opened


def test_the_browser_gets_a_file_that_sends_it_to_the_dashboard(hub: Hub, browser: Path) -> None:
    result = piped(hub.home, "open")
    assert result.returncode == DONE, result.stderr
    given = browser.read_text(encoding="utf-8")
    file = Path(unquote(urlsplit(given).path))
    assert (urlsplit(given).scheme, file) == ("file", hub.home / "run" / "open.html")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = unescape(file.read_text(encoding="utf-8"))
    assert f"0; url={hub.url}/dashboard?token={hub.token}" in page
    assert hub.token.encode() not in given.encode() + result.stdout + result.stderr


def test_the_file_is_gone_with_the_hub(tmp_path: Path, browser: Path) -> None:
    with running(tmp_path / "home") as hub:
        assert piped(hub.home, "open").returncode == DONE
        assert (hub.home / "run" / "open.html").exists()
    assert not (hub.home / "run" / "open.html").exists()


def test_the_address_is_printed_for_a_browser_elsewhere_and_opens(hub: Hub, browser: Path) -> None:
    address = run(hub.home, "open", "--print").stdout.strip()
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/html")
    told = json.loads(run(hub.home, "open", "--print", "--json").stdout)
    assert told == {"ok": True, "dashboard": f"{hub.url}/dashboard", "address": address}
    assert not browser.exists()


def test_without_a_browser_it_says_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/nowhere/browser %s")
    monkeypatch.setenv("PATH", "/nowhere")
    result = piped(hub.home, "open")
    assert (result.returncode, result.stdout) == (STATE, b"")
    assert b"remit open --print" in result.stderr


@pytest.mark.parametrize("words", [[], ["--json"]], ids=str)
def test_what_a_browser_prints_is_not_what_the_command_says(
    hub: Hub, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "talkative"
    program.write_text("#!/bin/sh\necho opened in a session that exists\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    result = piped(hub.home, "open", *words)
    assert (result.returncode, b"opened in a" in result.stdout, b"opened in a" in result.stderr) == (DONE, False, True)
    assert not words or json.loads(result.stdout) == {"ok": True, "dashboard": f"{hub.url}/dashboard"}


@pytest.mark.parametrize("words", [["open"], ["status"], ["status", "--export"]], ids=" ".join)
def test_without_a_home_it_says_how_to_make_one(tmp_path: Path, words: list[str]) -> None:
    result = run(tmp_path / "home", *words)
    assert (result.exit_code, result.stdout) == (STATE, "")
    assert "remit up" in result.stderr
    assert json.loads(run(tmp_path / "home", *words, "--json").stdout)["error_code"] == "state_missing"


def test_a_hub_that_does_not_run_is_not_opened(tmp_path: Path, browser: Path) -> None:
    run(tmp_path / "home", "setup")
    result = run(tmp_path / "home", "open", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (UNAVAILABLE, "hub_unavailable")
    assert not browser.exists()
