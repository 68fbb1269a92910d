"""The plan for Gemini CLI: what it would read, and what keeps it from running hooks."""

import json
from pathlib import Path

import pytest

from remit.assistants.gemini.settings import GeminiPlanner
from remit.assistants.records import Level
from remit.errors import FieldInvalid, JsonSyntax
from tests.assistants.protection.planning import Drawing


@pytest.fixture
def gemini(tmp_path: Path) -> Drawing:
    """Where Gemini CLI is planned for."""
    return Drawing(tmp_path, GeminiPlanner())


@pytest.mark.parametrize(
    ("level", "path"),
    [
        ("local", "project/.gemini/settings.json"),
        ("user", "user/.gemini/settings.json"),
        ("managed", "machine/settings.json"),
    ],
)
def test_hooks_are_commands_that_block_by_themselves(gemini: Drawing, level: Level, path: str) -> None:
    hooks = json.loads(gemini.written(gemini.plan(level))[path])
    assert set(hooks) == {"BeforeTool", "AfterTool", "SessionStart", "SessionEnd"}
    asking = hooks["BeforeTool"]["hooks"][0]
    assert (hooks["BeforeTool"]["matcher"], asking["type"]) == ("*", "command")
    assert asking["command"].endswith("exit 2; }")


def test_its_patience_is_in_milliseconds_and_longer_than_that_of_the_command(gemini: Drawing) -> None:
    (text,) = gemini.written(gemini.plan("local")).values()
    waits_s = json.loads(text)["BeforeTool"]["hooks"][0]["timeout"] / 1000
    assert waits_s > float(str(gemini.wire.content()["deadline_s"]))


def test_no_hook_has_a_name_by_which_settings_could_turn_it_off(gemini: Drawing) -> None:
    assert '"name"' not in str(gemini.written(gemini.plan("local")))


def test_managed_hooks_have_their_script_beside_them_and_their_token_in_the_home(gemini: Drawing) -> None:
    written = gemini.written(gemini.plan("managed"))
    assert set(written) == {"machine/remit/hook.py", "machine/settings.json"}
    assert gemini.wire.path in written["machine/settings.json"]
    assert gemini.wire.token not in str(written)


def test_the_home_of_its_settings_can_be_named(gemini: Drawing) -> None:
    plan = gemini.plan("user", config=str(gemini.root / "elsewhere"))
    assert set(gemini.written(plan)) == {"elsewhere/.gemini/settings.json"}


@pytest.mark.parametrize("settings", ["user/.gemini/settings.json", "project/.gemini/settings.json"])
def test_hooks_that_are_turned_off_are_not_written(gemini: Drawing, settings: str) -> None:
    gemini.write(settings, '\ufeff{"hooksConfig": {"enabled": false}}')
    with pytest.raises(FieldInvalid) as refused:
        gemini.plan("local")
    assert refused.value.place == "hooksConfig.enabled"


@pytest.mark.parametrize("level", ["local", "user", "managed"])
@pytest.mark.parametrize("settings", ["user/.gemini/settings.json", "machine/settings.json"])
def test_hooks_that_are_turned_off_by_their_name_are_not_written(gemini: Drawing, settings: str, level: Level) -> None:
    gemini.write(settings, json.dumps({"hooksConfig": {"disabled": [gemini.wire.command()]}}))
    with pytest.raises(FieldInvalid) as refused:
        gemini.plan(level)
    assert refused.value.place == "hooksConfig.disabled"


def test_what_a_folder_turns_off_counts_for_settings_of_a_user_too(gemini: Drawing) -> None:
    gemini.write("project/.gemini/settings.json", '{"hooksConfig": {"enabled": false}}')
    assert gemini.plan("user").changes
    with pytest.raises(FieldInvalid) as refused:
        gemini.plan("user", folder=str(gemini.root / "project"))
    assert refused.value.code == "field_invalid"


@pytest.mark.parametrize(
    "text",
    [
        '{"hooksConfig": {"enabled": true, "disabled": ["another"]}}',
        '{"hooksConfig": []}',
        '// mine\n{"a": 1}',
        "",
    ],
)
def test_other_settings_are_no_obstacle(gemini: Drawing, text: str) -> None:
    gemini.write("user/.gemini/settings.json", text)
    assert gemini.plan("local").changes


@pytest.mark.parametrize("settings", ["user/.gemini/settings.json", "project/.gemini/settings.json"])
def test_settings_that_are_not_understood_are_refused(gemini: Drawing, settings: str) -> None:
    gemini.write(settings, '{"hooksConfig": /* off */ {"enabled": false}}')
    with pytest.raises(JsonSyntax) as refused:
        gemini.plan("local")
    assert refused.value.place == ".gemini/settings.json"


def test_what_steers_gemini_is_guarded(gemini: Drawing) -> None:
    here, anywhere = gemini.guarded(gemini.plan("local")), gemini.guarded(gemini.plan("user"))
    assert {"project/.gemini", "user/.gemini/settings.json", "machine"} <= here
    assert "**/.gemini" in anywhere


def test_a_plan_for_a_folder_needs_one(gemini: Drawing) -> None:
    with pytest.raises(FieldInvalid) as refused:
        gemini.plan("local", folder=None)
    assert refused.value.place == "--settings"
