"""Rotating the Hub token: hooks of protected assistants show a token of the new one, and nothing else changes."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from remit.adapters.protection.records import Protections, wire_name
from remit.cli.errors import DONE
from remit.config import load_settings
from remit.http.record import noted
from remit.hub.doors import hook_token
from remit.ledger.home import open_home
from tests.cli.running import run
from tests.cli.test_protect import OLD, Desk, answered, asked, desk, hook_of
from tests.hub.service import running

__all__ = ["desk"]


def tokens_of(place: Path) -> tuple[str, set[str]]:
    """Return the token that hooks must show, and those in the wire files."""
    with open_home(place) as home:
        token = load_settings(home).hub_token or ""
        wires = [place / "protections" / wire_name(one.id) for one in Protections(home).all()]
    return hook_token(token), {json.loads(wire.read_bytes())["token"] for wire in wires}


def test_hooks_go_on_working_after_the_token_of_the_hub_was_rotated(desk: Desk) -> None:
    with running(desk.home) as hub:
        desk.told()
        before, text = hook_of(desk), desk.settings.read_text()
        result = run(desk.home, "setup", "--rotate-token")
        assert result.exit_code == DONE
        after = hook_of(desk)
        read = asked(desk.project, "Read", file_path=str(desk.project / "a"))
        assert answered(hub, after, read) == {}
        refused = answered(hub, before, read)["hookSpecificOutput"]
        assert "does not show the token of this Hub" in refused["permissionDecisionReason"]
    right, wires = tokens_of(desk.home)
    assert wires == {right}
    old = before["headers"]["Authorization"].removeprefix("Bearer ")
    assert desk.settings.read_text() == text.replace(old, right)
    assert stat.S_IMODE(desk.settings.stat().st_mode) == 0o600
    assert "start them anew" in result.stderr
    assert right not in result.output


def test_a_rotation_leaves_no_trace_of_it_when_the_protection_is_undone(desk: Desk) -> None:
    desk.settings.parent.mkdir()
    desk.settings.write_text('{"model": "x"}  ')
    desk.told()
    run(desk.home, "token", "hub", "--rotate")
    assert desk.protect("--undo").exit_code == DONE
    assert desk.settings.read_text() == '{"model": "x"}  '


def test_what_others_have_changed_in_the_settings_stays_through_a_rotation(desk: Desk) -> None:
    desk.told()
    changed = json.loads(desk.settings.read_bytes()) | {"model": "x"}
    desk.settings.write_text(json.dumps(changed))
    run(desk.home, "token", "hub", "--rotate")
    right, _ = tokens_of(desk.home)
    assert hook_of(desk)["headers"]["Authorization"] == f"Bearer {right}"
    assert json.loads(desk.settings.read_bytes())["model"] == "x"
    assert desk.protect("--undo").exit_code == DONE
    assert json.loads(desk.settings.read_bytes()) == {"model": "x"}


def test_hooks_that_are_commands_read_the_new_token_from_their_wire_file(desk: Desk) -> None:
    desk.install(OLD)
    desk.told()
    before = desk.settings.read_bytes()
    run(desk.home, "token", "hub", "--rotate")
    right, wires = tokens_of(desk.home)
    assert (wires, desk.settings.read_bytes()) == ({right}, before)


def test_a_protection_whose_settings_cannot_be_changed_is_named_with_what_to_do(desk: Desk) -> None:
    desk.told()
    os.link(desk.settings, desk.project / "second-name")
    result = run(desk.home, "setup", "--rotate-token")
    assert result.exit_code == DONE
    assert f"run remit protect claude-code --settings local --scope {desk.project}" in result.stderr


def test_everyone_is_told_of_shared_settings_that_name_a_variable(desk: Desk) -> None:
    desk.told("--settings", "project")
    assert "remit token hook" in run(desk.home, "setup", "--rotate-token").stderr


def test_a_hub_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.cli.rotation._WAIT_S", 0.3)
    place = tmp_path / "home"
    run(place, "setup")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with open_home(place) as home, noted(home, "hub", url, {}) as write:
            write()
            told = run(place, "setup", "--rotate-token").stderr
    assert f"careful: the Hub at {url} may still accept the token before" in told
