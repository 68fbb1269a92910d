"""The plan for Codex CLI: what it would read, what it would trust, and what keeps it from running hooks."""

import json
import tomllib
from pathlib import Path

import pytest

from remit.assistants.codex.settings import CodexPlanner
from remit.errors import FieldInvalid
from tests.assistants.protection.places import ID
from tests.assistants.protection.planning import Drawing

EVENTS = {"PreToolUse", "PostToolUse", "SubagentStart", "SubagentStop", "SessionStart", "SessionEnd"}
OFF = {"features": {"unified_exec_tty": False}}


@pytest.fixture
def codex(tmp_path: Path) -> Drawing:
    """Where Codex is planned for."""
    return Drawing(tmp_path, CodexPlanner())


@pytest.mark.parametrize(("level", "folder"), [("local", "project/.codex"), ("user", "user/.codex")])
def test_hooks_are_commands_that_block_by_themselves(codex: Drawing, level: str, folder: str) -> None:
    written = codex.written(codex.plan(level))  # type: ignore[arg-type]
    hooks = json.loads(written[f"{folder}/hooks.json"])
    assert set(hooks) == EVENTS
    assert {hook["type"] for group in hooks.values() for hook in group["hooks"]} == {"command"}
    assert hooks["PreToolUse"]["matcher"] == "*"
    assert hooks["PreToolUse"]["hooks"][0]["command"].endswith("exit 2; }")
    assert tomllib.loads(written[f"{folder}/config.toml"]) == OFF


def test_the_folder_of_its_settings_can_be_named(codex: Drawing) -> None:
    plan = codex.plan("user", config=str(codex.root / "elsewhere"))
    assert set(codex.written(plan)) == {"elsewhere/hooks.json", "elsewhere/config.toml"}


def test_settings_with_features_of_their_own_are_left_to_a_person(codex: Drawing) -> None:
    codex.write("user/.codex/config.toml", "[features]\ngoals = true\n")
    plan = codex.plan("user")
    assert set(codex.written(plan)) == {"user/.codex/hooks.json"}
    assert len(plan.warnings) == 1


def test_settings_that_turn_the_terminal_off_already_need_nothing(codex: Drawing) -> None:
    codex.write("user/.codex/config.toml", "[features]\nunified_exec_tty = false\n")
    plan = codex.plan("user")
    assert set(codex.written(plan)) == {"user/.codex/hooks.json"}
    assert plan.warnings == ()


def test_what_remit_has_written_before_does_not_count_as_a_persons(codex: Drawing) -> None:
    block = f"# >>> remit {ID} terminal: x\n[features]\nunified_exec_tty = false\n# <<< remit {ID} terminal\n"
    codex.write("user/.codex/config.toml", block)
    assert "user/.codex/config.toml" in codex.written(codex.plan("user"))


@pytest.mark.parametrize("settings", ["user/.codex/config.toml", "project/.codex/config.toml"])
def test_hooks_that_are_turned_off_are_not_written(codex: Drawing, settings: str) -> None:
    codex.write(settings, "[features]\nhooks = false\n")
    with pytest.raises(FieldInvalid) as refused:
        codex.plan("local")
    assert refused.value.place == "features.hooks"


def test_managed_hooks_need_no_trust_and_cannot_be_turned_off(codex: Drawing) -> None:
    plan = codex.plan("managed")
    written = codex.written(plan)
    settings = tomllib.loads(written["machine/requirements.toml"])
    assert settings["features"] == {"unified_exec_tty": False, "hooks": True}
    assert set(settings["hooks"]) == EVENTS
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert f"{codex.root}/machine/remit/hook.py" in command
    assert codex.wire.path in command
    assert plan.settle is None


def test_nothing_that_codex_reads_shows_the_token(codex: Drawing) -> None:
    for level in ("local", "user", "managed"):
        assert codex.wire.token not in str(codex.plan(level))


def test_what_steers_codex_is_guarded(codex: Drawing) -> None:
    here, anywhere = codex.guarded(codex.plan("local")), codex.guarded(codex.plan("user"))
    assert {"project/.codex", "user/.codex/hooks.json", "user/.codex/config.toml", "machine"} <= here
    assert "**/.codex" in anywhere


def test_a_plan_for_a_folder_needs_one(codex: Drawing) -> None:
    with pytest.raises(FieldInvalid) as refused:
        codex.plan("local", folder=None)
    assert refused.value.place == "--settings"


def test_without_its_program_codex_cannot_be_made_to_trust(codex: Drawing) -> None:
    settle = codex.plan("user").settle
    assert settle is not None
    with pytest.raises(FieldInvalid) as refused:
        settle()
    assert refused.value.place == "--program"
