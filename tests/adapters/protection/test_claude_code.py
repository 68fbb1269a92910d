"""The plan for Claude Code: which form for which version, where it is written, and what would keep it from working."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.protection.plan import Added, Level, Place, Plan, Whole
from remit.adapters.protection.plans.claude_code import ClaudeCode, version_of
from remit.errors import FieldInvalid
from tests.adapters.protection.places import ID, NEW, OLD, wire

EVENTS = {
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "SubagentStop",
    "SessionStart",
    "SessionEnd",
}


def planned(tmp_path: Path, level: Level = "local", version: str = NEW, **members: Any) -> Plan:
    managed = str(tmp_path / "machine")
    place = Place(level, str(tmp_path / "project"), str(tmp_path / "user"), managed=managed, version=version)
    return ClaudeCode().plan(place._replace(**members), wire())


def groups_of(plan: Plan) -> dict[str, Any]:
    """Return what is added for each event."""
    change = plan.changes[0]
    assert isinstance(change, Added)
    return {entry.where[1]: entry.value for entry in change.entries}


def hooks_of(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the one hook of each event."""
    return {name: group["hooks"][0] for name, group in groups_of(plan).items()}


@pytest.mark.parametrize("version", ["2.1.295", NEW, "3.0.0"])
def test_versions_that_can_block_on_failure_are_asked_over_http(version: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, version=version)
    hooks = hooks_of(plan)
    assert (plan.form, set(hooks)) == ("http", EVENTS)
    assert {name for name, hook in hooks.items() if hook["type"] == "command"} == {"SessionStart"}
    asking = hooks["PreToolUse"]
    assert (asking["url"], asking["onFailure"]) == (wire().url, "block")
    assert asking["headers"] == {"Authorization": "Bearer secret-of-hooks"}


@pytest.mark.parametrize("version", ["2.1.294", OLD, "1.0.128", ""])
def test_older_and_unknown_versions_get_a_command_that_blocks_by_itself(version: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, version=version)
    hooks = hooks_of(plan)
    assert (plan.form, {hook["type"] for hook in hooks.values()}) == ("command", {"command"})
    assert hooks["PreToolUse"]["command"].endswith("exit 2; }")
    assert "secret" not in json.dumps(hooks)
    assert bool(plan.warnings) == (version in ("", "1.0.128"))


def test_every_tool_is_matched(tmp_path: Path) -> None:
    matchers = {name: group.get("matcher", "") for name, group in groups_of(planned(tmp_path)).items()}
    assert {name for name, matcher in matchers.items() if matcher == "*"} == {
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
    }


def test_our_command_gives_up_before_claude_code_does(tmp_path: Path) -> None:
    hook = hooks_of(planned(tmp_path, version=OLD))["PreToolUse"]
    assert int(str(wire().content()["deadline_s"])) < hook["timeout"]


def test_shared_settings_hold_no_secret_and_no_path_of_this_machine(tmp_path: Path) -> None:
    hooks = hooks_of(planned(tmp_path, "project"))
    assert set(hooks) == EVENTS - {"SessionStart"}
    assert hooks["PreToolUse"]["headers"] == {"Authorization": "Bearer $REMIT_HOOK_TOKEN"}
    assert hooks["PreToolUse"]["allowedEnvVars"] == ["REMIT_HOOK_TOKEN"]
    text = json.dumps(hooks)
    assert "secret" not in text
    assert "/home/" not in text
    for version in (OLD, ""):
        with pytest.raises(FieldInvalid) as refused:
            planned(tmp_path, "project", version)
        assert (refused.value.code, refused.value.place) == ("field_invalid", "--settings")


@pytest.mark.parametrize(
    ("level", "members", "path"),
    [
        ("local", {}, "project/.claude/settings.local.json"),
        ("project", {}, "project/.claude/settings.json"),
        ("user", {"folder": None}, "user/.claude/settings.json"),
        ("user", {}, "user/.claude/settings.json"),
    ],
)
def test_each_level_has_its_file(level: Level, members: dict[str, Any], path: str, tmp_path: Path) -> None:
    assert planned(tmp_path, level, **members).changes[0].path == str(tmp_path / path)


def test_another_folder_of_settings_counts_where_one_is_named(tmp_path: Path) -> None:
    plan = planned(tmp_path, "user", config=str(tmp_path / "elsewhere"))
    assert plan.changes[0].path == str(tmp_path / "elsewhere" / "settings.json")
    assert str(tmp_path / "elsewhere" / "settings.json") in plan.guards


def test_managed_settings_are_files_of_ours_that_shut_out_all_other_hooks(tmp_path: Path) -> None:
    plan = planned(tmp_path, "managed", folder=None)
    script, wired, settings = plan.changes
    assert all(isinstance(change, Whole) and change.mode == 0o644 and ID in change.text for change in plan.changes)
    assert isinstance(settings, Whole)
    said = json.loads(settings.text)
    assert (said["allowManagedHooksOnly"], set(said["hooks"])) == (True, EVENTS)
    command = said["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    assert {script.path, wired.path} < set(shlex.split(command.split("||")[0]))
    assert settings.path == str(tmp_path / "machine" / "managed-settings.d" / "remit.json")


def test_what_steers_it_is_guarded_in_the_folder_or_wherever_it_is_started(tmp_path: Path) -> None:
    guards = planned(tmp_path).guards
    for name in ("project/.claude/settings.json", "project/.claude/settings.local.json", "project/.mcp.json"):
        assert str(tmp_path / name) in guards
    for name in ("user/.claude/settings.json", "user/.claude/agents", "user/.claude.json", "machine"):
        assert str(tmp_path / name) in guards
    assert "**/.claude/settings.json" in planned(tmp_path, "user", folder=None).guards


def written(tmp_path: Path, path: str, **settings: Any) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\ufeff" + json.dumps(settings))


@pytest.mark.parametrize(
    "path",
    [
        "user/.claude/settings.json",
        "project/.claude/settings.json",
        "project/.claude/settings.local.json",
        "machine/managed-settings.json",
        "machine/managed-settings.d/other.json",
    ],
)
def test_hooks_are_not_written_where_any_layer_turns_them_off(path: str, tmp_path: Path) -> None:
    written(tmp_path, path, disableAllHooks=True)
    with pytest.raises(FieldInvalid) as refused:
        planned(tmp_path)
    assert (refused.value.code, refused.value.place) == ("field_invalid", "/".join(Path(path).parts[-2:]))
    assert planned(tmp_path, "managed").form == "http"


def test_a_stronger_layer_can_turn_them_on_again(tmp_path: Path) -> None:
    written(tmp_path, "user/.claude/settings.json", disableAllHooks=True)
    written(tmp_path, "project/.claude/settings.local.json", disableAllHooks=False)
    assert planned(tmp_path).warnings == ()


def test_only_managed_hooks_run_where_the_machine_says_so(tmp_path: Path) -> None:
    written(tmp_path, "machine/managed-settings.json", allowManagedHooksOnly=True)
    with pytest.raises(FieldInvalid) as refused:
        planned(tmp_path)
    assert refused.value.code == "field_invalid"
    assert planned(tmp_path, "managed").form == "http"


def test_a_list_of_addresses_is_warned_of_and_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    written(tmp_path, "user/.claude/settings.json", allowedHttpHookUrls=[])
    (tmp_path / "project" / ".claude").mkdir(parents=True)
    (tmp_path / "project" / ".claude" / "settings.json").write_text("// no JSON")
    assert len(planned(tmp_path).warnings) == 1


@pytest.mark.parametrize(("text", "version"), [("2.1.325 (Claude Code)", (2, 1, 325)), ("v3.0", (3, 0)), ("none", ())])
def test_versions_compare_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert version_of(text) == version
