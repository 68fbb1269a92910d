"""`remit doctor ASSISTANT`: a protection that works passes, and each thing that breaks it is found; signed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from remit.assistants.records import Protections
from remit.claims.canonical import canonicalize, sha256_base64url
from remit.claims.receipt import Receipt, verify_receipt
from remit.cli.errors import DONE, STATE, USAGE
from remit.config import ensure_token, rotate_token
from remit.governor.assistants import BeginAssistantSession
from remit.governor.sources import Reporter
from remit.governor.tampering import RevokeTamperedSessions
from remit.ledger.home import open_home
from remit.ledger.keys import build_keyring
from remit.server.hook_tokens import hook_token, shared_hook_token
from remit.wiring import build_service
from tests.assistants.hooks.scenes import Scene
from tests.cli.running import run
from tests.governor.world import mission
from tests.hub.service import running

NAMES = [
    "protection",
    "version",
    "settings",
    "registration",
    "hub",
    "token",
    "canary",
    "others",
    "processes",
    "evidence",
    "signed",
]
HTTP, COMMAND = "2.1.325", "2.1.197"


class Protected:
    """A home, a folder with an assistant in it, and the program of the assistant."""

    def __init__(self, place: Path) -> None:
        self.home, self.folder, self.program = place / "home", place / "project", place / "bin" / "claude"
        for folder in (self.folder, self.program.parent, place / "user"):
            folder.mkdir()

    @property
    def settings(self) -> Path:
        """The file that hooks are written to."""
        return self.folder / ".claude" / "settings.local.json"

    def install(self, version: str) -> None:
        """Put a program of this version in the place of the assistant."""
        self.program.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n", encoding="ascii")
        self.program.chmod(0o755)

    def protect(self, version: str = HTTP, **members: str) -> None:
        """Protect the assistant, by its own command."""
        self.install(version)
        options = [word for name, value in members.items() for word in (f"--{name}", value)]
        result = run(self.home, "protect", "claude-code", "--scope", str(self.folder), "--no-start", *options)
        assert result.exit_code == DONE, result.output

    def checks(self, code: int = DONE) -> dict[str, dict[str, str]]:
        """Return what is found, by name; it must be signed."""
        result = run(self.home, "doctor", "claude-code", "--json")
        assert result.exit_code == code, result.output
        listed = json.loads(result.stdout)["checks"]
        assert all(check["advice"] for check in listed if check["state"] != "ok")
        claims = self.receipt(listed[-1]["said"])
        assert claims.result_hash.value == sha256_base64url(canonicalize(listed[:-1]))
        bad = any(check["state"] == "problem" for check in listed)
        assert (claims.tool, claims.verdict) == ("remit.doctor", "violation" if bad else "compliant")
        return {check["name"]: check for check in listed}

    def receipt(self, name: str) -> Receipt:
        """Return a receipt of the ledger, verified."""
        service = build_service(self.home)
        try:
            kept = service.reader.receipt(name)
            assert kept is not None
            return verify_receipt(kept.token, build_keyring(service.reader.keys())).claims
        finally:
            service.close()

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what the settings say."""
        settings = json.loads(self.settings.read_bytes())
        change(settings)
        self.settings.write_text(json.dumps(settings), encoding="utf-8")


@pytest.fixture
def protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Protected:
    built = Protected(tmp_path)
    monkeypatch.setenv("PATH", f"{built.program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return built


@pytest.fixture
def scene(protected: Protected) -> Iterator[Scene]:
    """The Hub of the home, which runs before anything is protected."""
    with running(protected.home) as hub:
        yield Scene(hub, protected.folder)


def states(found: dict[str, dict[str, str]], *names: str) -> list[str]:
    return [found[name]["state"] for name in names]


@pytest.mark.parametrize("version", [HTTP, COMMAND])
def test_a_protection_that_works_passes_by_a_call_that_nobody_makes(
    protected: Protected, scene: Scene, version: str
) -> None:
    protected.protect(version)
    found = protected.checks()
    assert list(found) == NAMES
    assert {check["state"] for check in found.values()} == {"ok"}
    canary = protected.receipt(found["canary"]["said"].split()[-1])
    assert (canary.tool, canary.verdict) == ("remit_canary", "violation")


def test_the_session_of_the_canary_is_ended(protected: Protected, scene: Scene) -> None:
    protected.protect()
    canary = protected.receipt(protected.checks()["canary"]["said"].split()[-1])
    service = build_service(protected.home)
    session = service.reader.session(canary.grant_id)
    service.close()
    assert session is not None
    assert session.state == "ended"


def test_an_assistant_that_is_not_protected_is_a_problem(protected: Protected, scene: Scene) -> None:
    assert list(protected.checks(STATE)) == ["protection", "signed"]


def test_without_the_hub_the_exit_code_says_so_and_the_hook_still_blocks(protected: Protected) -> None:
    with running(protected.home):
        protected.protect()
    found = protected.checks(STATE)
    assert states(found, "hub", "canary", "registration") == ["problem", "warning", "ok"]
    assert "blocks" in found["canary"]["said"]


def without_asking(settings: dict[str, Any]) -> None:
    del settings["hooks"]["PreToolUse"]


def another_matcher(settings: dict[str, Any]) -> None:
    settings["hooks"]["PreToolUse"][0]["matcher"] = "Nothing"


def letting_failures_through(settings: dict[str, Any]) -> None:
    del settings["hooks"]["PreToolUse"][0]["hooks"][0]["onFailure"]


@pytest.mark.parametrize("change", [without_asking, another_matcher, letting_failures_through])
def test_a_hook_that_was_changed_is_a_problem(
    protected: Protected, scene: Scene, change: Callable[[dict[str, Any]], None]
) -> None:
    protected.protect()
    protected.edit(change)
    assert states(protected.checks(STATE), "registration", "canary") == ["problem", "problem"]


def test_a_command_in_the_name_of_a_protection_is_not_run(protected: Protected, scene: Scene) -> None:
    protected.protect(COMMAND)

    def replace(settings: dict[str, Any]) -> None:
        hook = settings["hooks"]["PreToolUse"][0]["hooks"][0]
        hook["command"] = f"touch {protected.folder}/ran; {hook['command']}"

    protected.edit(replace)
    assert states(protected.checks(STATE), "registration", "canary") == ["problem", "problem"]
    assert not (protected.folder / "ran").exists()


def test_settings_that_others_have_changed_are_a_warning_until_it_is_protected_again(
    protected: Protected, scene: Scene
) -> None:
    protected.protect()
    protected.edit(lambda settings: settings.update(model="opus"))
    assert states(protected.checks(), "registration", "canary") == ["warning", "ok"]
    protected.protect()
    assert states(protected.checks(), "registration", "canary") == ["ok", "ok"]


def hooks_elsewhere(settings: dict[str, Any]) -> None:
    settings["hooks_off"] = settings.pop("hooks")


def dropped_as_a_whole(settings: dict[str, Any]) -> None:
    settings["permissions"] = 5


@pytest.mark.parametrize("change", [hooks_elsewhere, dropped_as_a_whole])
def test_settings_that_the_assistant_does_not_take_are_a_problem(
    protected: Protected, scene: Scene, change: Callable[[dict[str, Any]], None]
) -> None:
    protected.protect()
    protected.edit(change)
    assert protected.checks(STATE)["registration"]["state"] == "problem"


def test_hooks_of_others_that_can_change_a_call_are_a_warning(protected: Protected, scene: Scene) -> None:
    protected.protect()
    theirs = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}]}}
    path = protected.folder / ".claude" / "settings.json"
    path.write_text(json.dumps(theirs), encoding="utf-8")
    assert states(protected.checks(), "others", "registration") == ["warning", "ok"]


def test_hooks_that_are_turned_off_are_a_problem(protected: Protected, scene: Scene) -> None:
    protected.protect()
    protected.edit(lambda settings: settings.update(disableAllHooks=True))
    assert protected.checks(STATE)["settings"]["state"] == "problem"


def of_first_release(protected: Protected) -> None:
    """Make the record and the wire file those of the first release, over HTTP."""
    with open_home(protected.home) as opened:
        token = shared_hook_token(ensure_token(opened, "hub"))
        protections = Protections(opened)
        kept = protections.all()[0]
        wire = json.loads(Path(protections.wire_path(kept.id)).read_bytes())
        del wire["proof"]
        protections.put(structs.replace(kept, form="http", generation=0), wire | {"token": token})


def test_a_program_that_does_not_tell_its_version_gets_hooks_that_all_versions_block_by(
    protected: Protected, scene: Scene
) -> None:
    protected.protect(HTTP)
    of_first_release(protected)
    protected.program.write_text("#!/bin/sh\necho 9.9.9\n", encoding="ascii")
    assert protected.checks(STATE)["version"]["state"] == "problem"
    run(protected.home, "protect", "claude-code", "--scope", str(protected.folder), "--no-start")
    assert states(protected.checks(), "version", "canary") == ["warning", "ok"]


def test_a_version_that_lets_calls_run_when_a_hook_fails_is_a_problem(protected: Protected, scene: Scene) -> None:
    protected.protect(HTTP)
    of_first_release(protected)
    protected.install(COMMAND)
    assert protected.checks(STATE)["version"]["state"] == "problem"


def test_a_token_in_a_file_that_the_assistant_can_read_is_a_problem(protected: Protected, scene: Scene) -> None:
    protected.protect()
    of_first_release(protected)
    token = protected.checks(STATE)["token"]
    assert (token["state"], token["said"]) == ("problem", "its token is in a file that the assistant can read")
    assert "remit protect claude-code" in token["advice"]
    protected.protect()
    assert protected.checks()["token"]["state"] == "ok"


@pytest.mark.parametrize("version", [HTTP, COMMAND])
@pytest.mark.usefixtures("scene")
def test_hooks_are_in_force_after_the_token_was_rotated(protected: Protected, version: str) -> None:
    protected.protect(version)
    assert run(protected.home, "token", "hub", "--rotate").exit_code == DONE
    assert states(protected.checks(), "token", "canary") == ["ok", "ok"]


@pytest.mark.usefixtures("scene")
def test_hooks_that_show_another_token_than_that_of_the_home_are_a_problem(protected: Protected) -> None:
    protected.protect()
    with open_home(protected.home) as home:
        rotate_token(home, "hub")
    assert states(protected.checks(STATE), "token", "canary") == ["problem", "problem"]


def test_hooks_of_shared_settings_look_for_the_home_in_the_environment(
    protected: Protected, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected.protect(settings="project")
    monkeypatch.delenv("REMIT_HOME", raising=False)
    assert states(protected.checks(STATE), "token", "canary") == ["ok", "problem"]
    monkeypatch.setenv("REMIT_HOME", str(protected.home))
    assert states(protected.checks(), "token", "canary") == ["ok", "ok"]


def test_under_the_kill_switch_the_canary_is_denied_with_a_receipt_as_ever(protected: Protected, scene: Scene) -> None:
    protected.protect()
    protected.checks()
    run(protected.home, "kill-switch", "on")
    assert protected.checks()["canary"]["state"] == "ok"


def test_a_hub_at_another_address_is_a_problem(protected: Protected) -> None:
    with running(protected.home):
        protected.protect()
    with running(protected.home):
        assert protected.checks(STATE)["hub"]["state"] == "problem"


def test_a_profile_that_was_changed_since_is_a_warning(protected: Protected, scene: Scene) -> None:
    profile = protected.folder / "REMIT.md"
    run(protected.home, "profile", "init", "--path", str(profile))
    protected.protect(profile=str(profile))
    assert protected.checks()["protection"]["state"] == "ok"
    profile.write_text(profile.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert protected.checks()["protection"]["state"] == "warning"


def protection_of(home: Path) -> str:
    with open_home(home) as opened:
        return Protections(opened).all()[0].id


def test_a_call_past_its_hooks_is_a_problem_until_it_was_seen_to(protected: Protected, scene: Scene) -> None:
    protected.protect()
    path = f"/v1/hooks/claude-code/{protection_of(protected.home)}"
    call = {"tool_name": "Bash", "tool_input": {"command": "true"}, "tool_use_id": "toolu_1", "tool_response": {}}
    token = hook_token(scene.hub.token, protection_of(protected.home))
    shown = {"authorization": f"Bearer {token}", "x_service_hub_token": None, "x_remit_session": "0" * 64}
    assert scene.hub.post(path, scene.payload("PostToolUse", **call), **shown).status == 200
    assert protected.checks(STATE)["evidence"]["state"] == "problem"


def test_permissions_that_were_bypassed_are_a_warning(protected: Protected, scene: Scene) -> None:
    protected.protect()
    path = f"/v1/hooks/claude-code/{protection_of(protected.home)}"
    call = {"tool_name": "Bash", "tool_input": {"command": "true"}, "tool_use_id": "toolu_1"}
    token = hook_token(scene.hub.token, protection_of(protected.home))
    shown = {"authorization": f"Bearer {token}", "x_service_hub_token": None, "x_remit_session": "0" * 64}
    body = scene.payload("PreToolUse", **call) | {"permission_mode": "bypassPermissions"}
    assert scene.hub.post(path, body, **shown).status == 200
    assert protected.checks()["evidence"]["state"] == "warning"


def test_a_protection_that_is_damaged_is_a_problem(protected: Protected, scene: Scene) -> None:
    protected.protect()
    record = protected.home / "protections" / f"{protection_of(protected.home)}.json"
    record.write_bytes(b"{")
    assert protected.checks(STATE)["protection"]["state"] == "problem"


def test_no_token_is_shown(protected: Protected, scene: Scene) -> None:
    protected.protect()
    shown = run(protected.home, "doctor", "claude-code").output
    assert scene.token not in shown
    assert scene.hub.token not in shown


def test_without_a_home_it_says_so_and_makes_none(tmp_path: Path) -> None:
    assert run(tmp_path / "nowhere", "doctor", "claude-code").exit_code == STATE
    assert list(tmp_path.iterdir()) == []


def test_an_assistant_and_a_proxy_are_not_asked_about_at_once(tmp_path: Path) -> None:
    assert run(tmp_path / "home", "doctor", "claude-code", "--url", "http://127.0.0.1:1").exit_code == USAGE


def test_sessions_that_were_ended_for_tampering_are_a_problem_until_it_is_protected_again(
    protected: Protected, scene: Scene
) -> None:
    protected.protect()
    protected.checks()
    with open_home(protected.home) as home:
        (kept,) = Protections(home).all()
    service = build_service(protected.home)
    told = {"app": "claude-code", "id": "s1", "protection": kept.id, "generation": str(kept.generation)}
    service.governor.run(
        BeginAssistantSession(Reporter("hook:s1", json.dumps(told), mission(), generation=kept.generation))
    )
    service.governor.run(RevokeTamperedSessions(kept.id))
    service.close()
    found = protected.checks(STATE)["evidence"]
    assert (found["state"], "tampered" in found["said"]) == ("problem", True)
    protected.protect()
    assert protected.checks()["evidence"]["state"] == "ok"
