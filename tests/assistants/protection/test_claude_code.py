"""The plan for Claude Code: what is written where, and what would keep it from working."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from remit.assistants.claude_code.settings import ClaudeCodePlanner, parse_version
from remit.assistants.install.plan import (
    InstallTarget,
    JsonEdit,
    OwnFile,
    Plan,
)
from remit.assistants.records import Level
from remit.errors import FieldInvalid, JsonDuplicateMember
from tests.assistants.protection.places import ID, NEW, OLD, wire

EVENTS = {
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "SubagentStop",
    "SessionStart",
    "SessionEnd",
}
LEVELS: tuple[Level, ...] = ("local", "project", "user", "managed")
SKILLS = "disableSkillShellExecution"
LAYERS = (
    "user/.claude/settings.json",
    "project/.claude/settings.json",
    "project/.claude/settings.local.json",
    "machine/managed-settings.json",
    "machine/managed-settings.d/other.json",
)


def planned(tmp_path: Path, level: Level = "local", version: str = NEW, **members: Any) -> Plan:
    managed = str(tmp_path / "machine")
    place = InstallTarget(level, str(tmp_path / "project"), str(tmp_path / "user"), managed=managed, version=version)
    return ClaudeCodePlanner().plan(place._replace(**members), wire())


def groups_of(plan: Plan) -> dict[str, Any]:
    """Return what is added for each event."""
    change = plan.changes[0]
    assert isinstance(change, JsonEdit)
    return {entry.where[1]: entry.value for entry in change.entries}


def hooks_of(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the one hook of each event."""
    return {name: group["hooks"][0] for name, group in groups_of(plan).items()}


@pytest.mark.parametrize("level", LEVELS[:3])
@pytest.mark.parametrize("version", [NEW, "2.1.294", OLD, "1.0.128", ""])
def test_every_version_gets_a_command_that_blocks_by_itself(version: str, level: Level, tmp_path: Path) -> None:
    plan = planned(tmp_path, level, version=version)
    hooks = hooks_of(plan)
    assert (plan.form, set(hooks)) == ("command", EVENTS)
    assert {hook["type"] for hook in hooks.values()} == {"command"}
    assert hooks["PreToolUse"]["command"].endswith("exit 2; }")
    assert hooks["PreToolUse"]["onFailure"] == "block"
    assert bool(plan.warnings) == (version in ("", "1.0.128"))


@pytest.mark.parametrize("level", LEVELS)
def test_no_file_that_claude_code_can_read_holds_a_token(level: Level, tmp_path: Path) -> None:
    assert "secret-of" not in str(planned(tmp_path, level).changes)


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


def test_shared_settings_name_no_path_of_this_machine(tmp_path: Path) -> None:
    text = json.dumps(hooks_of(planned(tmp_path, "project")))
    assert ID in text
    assert "/home/" not in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("name", ["PATH", "HOME", "REMIT_HOME"])
def test_no_layer_may_say_where_the_command_of_shared_settings_is_found(name: str, tmp_path: Path) -> None:
    written(tmp_path, "user/.claude/settings.json", env={name: "/elsewhere"})
    with pytest.raises(FieldInvalid) as refused:
        planned(tmp_path, "project")
    assert refused.value.place.split()[-1] == "env"
    assert planned(tmp_path, "local").changes


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
    script, settings = plan.changes
    assert all(isinstance(change, OwnFile) and change.mode == 0o644 and ID in change.text for change in plan.changes)
    assert isinstance(settings, OwnFile)
    said = json.loads(settings.text)
    assert (said["allowManagedHooksOnly"], set(said["hooks"])) == (True, EVENTS)
    assert said[SKILLS] is True
    command = said["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    # The wire file, in which the token is, stays in the home.
    assert {script.path, wire().path} < set(shlex.split(command.split("||")[0]))
    assert settings.path == str(tmp_path / "machine" / "managed-settings.d" / "remit.json")


def test_what_steers_it_is_guarded_in_the_folder_or_wherever_it_is_started(tmp_path: Path) -> None:
    guards = planned(tmp_path).guards
    for name in ("project/.claude/settings.json", "project/.claude/settings.local.json", "project/.mcp.json"):
        assert str(tmp_path / name) in guards
    for name in ("user/.claude/settings.json", "user/.claude/agents", "user/.claude.json", "machine"):
        assert str(tmp_path / name) in guards
    for level in LEVELS:
        guards = planned(tmp_path, level).guards
        # It reads those of folders below, too.
        for name in ("settings.json", "skills", "workflows", "output-styles", "rules"):
            assert f"**/.claude/{name}" in guards
    assert "**/.mcp.json" in planned(tmp_path, "user", folder=None).guards


def written(tmp_path: Path, path: str, **settings: Any) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\ufeff" + json.dumps(settings))


@pytest.mark.parametrize("path", LAYERS)
def test_hooks_are_not_written_where_any_layer_turns_them_off(path: str, tmp_path: Path) -> None:
    written(tmp_path, path, disableAllHooks=True)
    with pytest.raises(FieldInvalid) as refused:
        planned(tmp_path)
    assert (refused.value.code, refused.value.place) == ("field_invalid", "/".join(Path(path).parts[-2:]))
    assert planned(tmp_path, "managed").form == "command"


def test_a_stronger_layer_can_turn_them_on_again(tmp_path: Path) -> None:
    written(tmp_path, "user/.claude/settings.json", disableAllHooks=True)
    written(tmp_path, "project/.claude/settings.local.json", disableAllHooks=False)
    assert planned(tmp_path).warnings == ()


def test_only_managed_hooks_run_where_the_machine_says_so(tmp_path: Path) -> None:
    written(tmp_path, "machine/managed-settings.json", allowManagedHooksOnly=True)
    with pytest.raises(FieldInvalid) as refused:
        planned(tmp_path)
    assert refused.value.code == "field_invalid"
    assert planned(tmp_path, "managed").form == "command"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", LAYERS)
def test_a_layer_that_is_not_understood_may_turn_hooks_off_and_is_refused(
    path: str, level: Level, tmp_path: Path
) -> None:
    written(tmp_path, path)
    (tmp_path / path).write_text('{"disableAllHooks": false, "disableAllHooks": true}')
    with pytest.raises(JsonDuplicateMember) as refused:
        planned(tmp_path, level)
    assert refused.value.place == "/".join(Path(path).parts[-2:])


@pytest.mark.parametrize("path", LAYERS)
@pytest.mark.parametrize(
    "name",
    [
        "CLAUDE_CODE_SIMPLE",
        "CLAUDE_CODE_SAFE_MODE",
        "LD_PRELOAD",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
    ],
)
def test_no_layer_may_set_variables_that_lead_past_hooks(name: str, path: str, tmp_path: Path) -> None:
    written(tmp_path, path, env={"LANG": "C", name: "1"})
    for level in LEVELS:
        with pytest.raises(FieldInvalid) as refused:
            planned(tmp_path, level)
        assert (refused.value.code, refused.value.place.split()[-1]) == ("field_invalid", "env")
    written(tmp_path, path, env={name: ""})
    assert planned(tmp_path).changes


def members_of(plan: Plan) -> dict[tuple[str, ...], Any]:
    """Return what is set beside hooks."""
    change = plan.changes[0]
    assert isinstance(change, JsonEdit)
    return {member.where: member.value for member in change.members}


def test_a_proxy_in_settings_is_no_obstacle_to_a_command(tmp_path: Path) -> None:
    written(tmp_path, "user/.claude/settings.json", env={"HTTP_PROXY": "http://proxy.example", "NO_PROXY": "x"})
    for level in LEVELS:
        assert planned(tmp_path, level).warnings == ()


def test_hooks_that_a_repository_turns_off_later_stay_on(tmp_path: Path) -> None:
    said = {level: members_of(planned(tmp_path, level)).get(("disableAllHooks",)) for level in LEVELS[:3]}
    assert said == {"local": False, "project": None, "user": None}


def test_what_a_folder_may_overrule_is_told_where_settings_are_of_a_user(tmp_path: Path) -> None:
    told = {level: any("folder whose own" in one for one in planned(tmp_path, level).not_protected) for level in LEVELS}
    assert told == {"local": False, "project": False, "user": True, "managed": False}


@pytest.mark.parametrize("level", ["local", "project", "user"])
def test_commands_in_skills_are_turned_off_beside_the_hooks(level: Level, tmp_path: Path) -> None:
    assert members_of(planned(tmp_path, level))[SKILLS,] is True


@pytest.mark.parametrize(
    ("level", "path", "warnings"),
    [
        ("local", "project/.claude/settings.json", 0),
        ("local", "project/.claude/settings.local.json", 0),
        ("local", "machine/managed-settings.json", 1),
        ("project", "user/.claude/settings.json", 0),
        ("project", "project/.claude/settings.local.json", 1),
        ("user", "project/.claude/settings.json", 1),
        ("user", "machine/managed-settings.d/a.json", 1),
        ("managed", "project/.claude/settings.local.json", 0),
        ("managed", "machine/managed-settings.json", 0),
        ("managed", "machine/managed-settings.d/a.json", 0),
        ("managed", "machine/managed-settings.d/remit.json", 0),
        ("managed", "machine/managed-settings.d/z.json", 1),
    ],
)
def test_a_stronger_layer_that_lets_skills_run_commands_is_warned_of(
    level: Level, path: str, warnings: int, tmp_path: Path
) -> None:
    written(tmp_path, path, **{SKILLS: False})
    assert len(planned(tmp_path, level).warnings) == warnings
    written(tmp_path, path, **{SKILLS: True})
    assert planned(tmp_path, level).warnings == ()


def test_of_several_stronger_layers_the_strongest_says_whether_skills_run_commands(tmp_path: Path) -> None:
    written(tmp_path, "project/.claude/settings.json", **{SKILLS: False})
    written(tmp_path, "project/.claude/settings.local.json", **{SKILLS: True})
    assert planned(tmp_path, "user").warnings == ()
    written(tmp_path, "machine/managed-settings.json", **{SKILLS: None})
    assert len(planned(tmp_path, "user").warnings) == 1


@pytest.mark.parametrize(("text", "version"), [("2.1.325 (Claude Code)", (2, 1, 325)), ("v3.0", (3, 0)), ("none", ())])
def test_versions_compare_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("level", LEVELS[:3])
def test_hooks_are_not_written_to_a_file_that_would_be_dropped(level: Level, tmp_path: Path) -> None:
    name = {"local": "project/.claude/settings.local.json", "project": "project/.claude/settings.json"}.get(level)
    file = tmp_path / (name or "user/.claude/settings.json")
    file.parent.mkdir(parents=True)
    file.write_text('{"permissions": {"defaultMode": "all"}}', encoding="utf-8")
    with pytest.raises(FieldInvalid) as refused:
        planned(tmp_path, level)
    assert refused.value.place == f".claude/{file.name} permissions.defaultMode"
