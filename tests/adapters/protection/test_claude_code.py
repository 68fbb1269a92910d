"""The plan for Claude Code: which form for which version, where it is written, and what would keep it from working."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.protection.plan import Added, Level, Place, Plan, Whole
from remit.adapters.protection.plans.claude_code import ClaudeCode, version_of
from remit.errors import FieldInvalid, JsonDuplicateMember
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
    assert said[SKILLS] is True
    command = said["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    assert {script.path, wired.path} < set(shlex.split(command.split("||")[0]))
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


def test_a_list_of_addresses_is_warned_of(tmp_path: Path) -> None:
    written(tmp_path, "user/.claude/settings.json", allowedHttpHookUrls=[])
    assert len(planned(tmp_path).warnings) == 1


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
        "HTTP_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "CLAUDE_CODE_SIMPLE",
        "CLAUDE_CODE_SAFE_MODE",
        "LD_PRELOAD",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
    ],
)
def test_no_layer_may_set_variables_that_lead_past_hooks(name: str, path: str, tmp_path: Path) -> None:
    written(tmp_path, path, env={"PATH": "/bin", name: "1"})
    for level in LEVELS:
        with pytest.raises(FieldInvalid) as refused:
            planned(tmp_path, level)
        assert (refused.value.code, refused.value.place.split()[-1]) == ("field_invalid", "env")
    written(tmp_path, path, env={name: ""})
    assert planned(tmp_path).changes


def members_of(plan: Plan) -> dict[tuple[str, ...], Any]:
    """Return what is set beside hooks."""
    change = plan.changes[0]
    assert isinstance(change, Added)
    return {member.where: member.value for member in change.members}


@pytest.mark.parametrize(
    ("own", "around", "hosts"),
    [
        (None, "", "127.0.0.1,localhost"),
        (None, "corp.example, .lan", "corp.example,.lan,127.0.0.1,localhost"),
        ("a.example", "b.example", "a.example,b.example,127.0.0.1,localhost"),
        ("localhost", "localhost", "localhost,127.0.0.1"),
        ("*", "", "*"),
    ],
)
def test_the_hub_is_asked_past_every_proxy_and_others_stay_left_out_too(
    own: str | None, around: str, hosts: str, tmp_path: Path
) -> None:
    written(tmp_path, "project/.claude/settings.local.json", **({"env": {"NO_PROXY": own}} if own else {}))
    members = members_of(planned(tmp_path, unproxied=around))
    assert (members["env", "NO_PROXY"], members["env", "no_proxy"]) == (hosts, hosts)
    # Who looks at it later, from another environment, would write the same.
    written(tmp_path, "project/.claude/settings.local.json", env={"NO_PROXY": hosts, "no_proxy": hosts})
    assert members_of(planned(tmp_path)) == members


def test_where_the_hub_has_another_name_that_is_left_out_too(tmp_path: Path) -> None:
    elsewhere = replace(wire(), url=f"http://[::1]:8765/v1/hooks/claude-code/{ID}")
    place = Place("user", None, str(tmp_path / "user"), managed=str(tmp_path / "machine"), version=NEW)
    members = members_of(ClaudeCode().plan(place, elsewhere))
    assert members["env", "NO_PROXY"] == "127.0.0.1,localhost,[::1]"


def test_only_hooks_over_http_need_to_go_past_proxies_and_shared_settings_name_no_hosts(tmp_path: Path) -> None:
    for plan in (planned(tmp_path, version=OLD), planned(tmp_path, "project")):
        assert not any(where[0] == "env" for where in members_of(plan))
    settings = planned(tmp_path, "managed").changes[-1]
    assert isinstance(settings, Whole)
    assert json.loads(settings.text)["env"]["no_proxy"] == "127.0.0.1,localhost"


def test_a_stronger_layer_that_sends_hooks_to_a_proxy_again_is_warned_of(tmp_path: Path) -> None:
    written(tmp_path, "machine/managed-settings.json", env={"NO_PROXY": "corp.example"})
    assert len(planned(tmp_path).warnings) == 1
    written(tmp_path, "machine/managed-settings.json", env={"NO_PROXY": "127.0.0.1 localhost"})
    assert planned(tmp_path).warnings == ()


def test_hooks_that_a_repository_turns_off_later_stay_on(tmp_path: Path) -> None:
    said = {level: members_of(planned(tmp_path, level)).get(("disableAllHooks",)) for level in LEVELS[:3]}
    assert said == {"local": False, "project": None, "user": None}


@pytest.mark.parametrize(
    ("level", "version", "is_secret"),
    [("local", NEW, True), ("user", NEW, True), ("project", NEW, False), ("local", OLD, False)],
)
def test_a_file_with_a_token_in_it_is_for_its_owner_alone(
    level: Level, version: str, is_secret: bool, tmp_path: Path
) -> None:
    change = planned(tmp_path, level, version).changes[0]
    assert isinstance(change, Added)
    assert (change.is_secret, "secret-of-hooks" in str(change.entries)) == (is_secret, is_secret)


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
    assert version_of(text) == version
