"""Rotating the Hub token: hooks of protected assistants show a token of the new one, and nothing else changes."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from remit.assistants.records import Protections, wire_name
from remit.cli.errors import DONE
from remit.config import load_settings
from remit.ledger.home import open_home
from remit.server.hook_tokens import hook_token, proof_key, shared_hook_token
from remit.server.run_files import run_file
from tests.cli.running import run
from tests.cli.test_protect import Desk, asked, desk, hook_of
from tests.hub.service import running
from tests.releases.home import Kept, first_release

__all__ = ["desk"]


def told_by_the_hook(desk: Desk, tool: str, **arguments: str) -> str:
    """Return what the hook of the settings answers to a call: nothing where it has no objection."""
    command = hook_of(desk)["command"]
    said = asked(desk.project, tool, **arguments)
    done = subprocess.run(["/bin/sh", "-c", command], input=said, capture_output=True, check=True)
    return done.stdout.decode()


def test_hooks_go_on_working_after_the_token_of_the_hub_was_rotated(desk: Desk) -> None:
    with running(desk.home):
        desk.told()
        settings = desk.settings.read_bytes()
        result = run(desk.home, "setup", "--rotate-token")
        assert result.exit_code == DONE
        assert told_by_the_hook(desk, "Read", file_path=str(desk.project / "a")) == "{}"
        assert "deny" in told_by_the_hook(desk, "Write", file_path="/etc/x", content="x")
    assert desk.settings.read_bytes() == settings


def test_the_wire_file_of_a_protection_holds_the_new_secrets_and_the_output_none_of_them(desk: Desk) -> None:
    name = desk.told()["protection"]
    result = run(desk.home, "token", "hub", "--rotate")
    with open_home(desk.home) as home:
        token = load_settings(home).hub_token or ""
    wire = json.loads((desk.home / "protections" / wire_name(name)).read_bytes())
    assert (wire["token"], wire["proof"]) == (hook_token(token, name), proof_key(token, name))
    assert wire["token"] not in result.output
    assert wire["proof"] not in result.output


def test_a_rotation_leaves_no_trace_of_it_when_the_protection_is_undone(desk: Desk) -> None:
    desk.settings.parent.mkdir()
    desk.settings.write_text('{"model": "x"}  ')
    desk.told()
    run(desk.home, "token", "hub", "--rotate")
    assert desk.protect("--undo").exit_code == DONE
    assert desk.settings.read_text() == '{"model": "x"}  '


class TestHooksOfTheFirstRelease:
    """Its settings hold the token itself, one for all protections."""

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Kept:
        return first_release(tmp_path)

    @staticmethod
    def _tokens(kept: Kept) -> tuple[str, set[str]]:
        """Return the token that hooks must show, and those in the wire files."""
        with open_home(kept.home) as home:
            token = load_settings(home).hub_token or ""
            wires = [kept.home / "protections" / wire_name(one.id) for one in Protections(home).all()]
        return shared_hook_token(token), {json.loads(wire.read_bytes())["token"] for wire in wires}

    def test_the_token_is_replaced_where_it_stands(self, kept: Kept) -> None:
        settings = kept.project / ".claude/settings.local.json"
        old, _ = self._tokens(kept)
        text = settings.read_text(encoding="utf-8")
        result = run(kept.home, "token", "hub", "--rotate")
        right, wires = self._tokens(kept)
        assert wires == {right}
        assert settings.read_text(encoding="utf-8") == text.replace(old, right)
        assert "restart them" in result.stderr
        assert right not in result.output

    def test_what_others_have_changed_in_the_settings_stays(self, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(kept.project)
        settings = kept.project / ".claude/settings.local.json"
        settings.write_text(json.dumps(json.loads(settings.read_bytes()) | {"model": "x"}), encoding="utf-8")
        run(kept.home, "token", "hub", "--rotate")
        right, _ = self._tokens(kept)
        assert f"Bearer {right}" in settings.read_text(encoding="utf-8")
        assert run(kept.home, "protect", "claude-code", "--undo").exit_code == DONE
        assert json.loads(settings.read_bytes()) == {"permissions": {"allow": ["Bash(ls)"]}, "model": "x"}

    def test_a_protection_whose_settings_cannot_be_changed_is_named_with_what_to_do(self, kept: Kept) -> None:
        os.link(kept.project / ".claude/settings.local.json", kept.project / "second-name")
        result = run(kept.home, "setup", "--rotate-token")
        assert result.exit_code == DONE
        assert f"run remit protect claude-code --settings local --scope {kept.project}" in result.stderr


def test_a_hub_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.cli.rotation._WAIT_S", 0.3)
    place = tmp_path / "home"
    run(place, "setup")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with open_home(place) as home, run_file(home, "hub", url, {}) as write:
            write()
            told = run(place, "setup", "--rotate-token").stderr
    assert f"careful: the Hub at {url} may still accept the old token" in told
