"""The plan for Copilot CLI: what it would read, and what keeps it from running hooks."""

import json
from pathlib import Path

import pytest

from remit.assistants.copilot.settings import CopilotPlanner
from remit.assistants.records import Level
from remit.errors import FieldInvalid, JsonDuplicateMember
from tests.assistants.protection.planning import Drawing

EVENTS = {
    "preToolUse",
    "postToolUse",
    "postToolUseFailure",
    "subagentStart",
    "subagentStop",
    "sessionStart",
    "sessionEnd",
}


@pytest.fixture
def copilot(tmp_path: Path) -> Drawing:
    """Where Copilot CLI is planned for."""
    return Drawing(tmp_path, CopilotPlanner())


@pytest.mark.parametrize(
    ("level", "path"),
    [
        ("local", "project/.github/hooks/remit.json"),
        ("user", "user/.copilot/hooks/remit.json"),
        ("managed", "machine/policy.d/remit.json"),
    ],
)
def test_hooks_are_commands_that_block_by_themselves(copilot: Drawing, level: Level, path: str) -> None:
    whole = json.loads(copilot.written(copilot.plan(level))[path])
    assert (whole["version"], set(whole["hooks"])) == (1, EVENTS)
    (asking,) = whole["hooks"]["preToolUse"]
    assert (asking["type"], asking["bash"].endswith("exit 2; }")) == ("command", True)


def test_the_usual_place_is_the_users_because_folders_are_often_not_trusted() -> None:
    assert CopilotPlanner().levels[0] == "user"


def test_its_patience_is_longer_than_that_of_the_command(copilot: Drawing) -> None:
    # One that is run out of lets the call run.
    (text,) = copilot.written(copilot.plan("user")).values()
    assert json.loads(text)["hooks"]["preToolUse"][0]["timeoutSec"] > float(str(copilot.wire.content()["deadline_s"]))


def test_managed_hooks_have_their_script_beside_them_and_their_token_in_the_home(copilot: Drawing) -> None:
    written = copilot.written(copilot.plan("managed"))
    assert set(written) == {"machine/remit/hook.py", "machine/policy.d/remit.json"}
    assert copilot.wire.path in written["machine/policy.d/remit.json"]
    assert copilot.wire.token not in str(written)


def test_the_folder_of_its_settings_can_be_named(copilot: Drawing) -> None:
    plan = copilot.plan("user", config=str(copilot.root / "elsewhere"))
    assert set(copilot.written(plan)) == {"elsewhere/hooks/remit.json"}


@pytest.mark.parametrize("name", ["settings.json", "config.json", "hooks/other.json"])
def test_hooks_that_are_turned_off_are_not_written(copilot: Drawing, name: str) -> None:
    copilot.write(f"user/.copilot/{name}", '{"disableAllHooks": true}')
    with pytest.raises(FieldInvalid):
        copilot.plan("user")
    assert copilot.plan("managed").changes


@pytest.mark.parametrize("name", ["settings.json", "config.json", "hooks/other.json"])
def test_settings_that_are_not_understood_are_refused(copilot: Drawing, name: str) -> None:
    copilot.write(f"user/.copilot/{name}", '{"disableAllHooks": false, "disableAllHooks": true}')
    with pytest.raises(JsonDuplicateMember) as refused:
        copilot.plan("user")
    assert refused.value.place == "/".join(Path(".copilot", name).parts[-2:])


def test_the_comments_that_it_writes_itself_are_no_obstacle(copilot: Drawing) -> None:
    copilot.write("user/.copilot/config.json", '// managed automatically\r\n  // by it\n{"a": "// b"}\n')
    assert copilot.plan("user").changes


def test_what_steers_copilot_is_guarded(copilot: Drawing) -> None:
    here, anywhere = copilot.guarded(copilot.plan("local")), copilot.guarded(copilot.plan("user"))
    assert {"project/.github/hooks", "user/.copilot/hooks", "user/.copilot/settings.json", "machine"} <= here
    assert {"**/.github/hooks", "**/.claude/settings.json"} <= anywhere


def test_a_plan_for_a_folder_needs_one(copilot: Drawing) -> None:
    with pytest.raises(FieldInvalid) as refused:
        copilot.plan("local", folder=None)
    assert refused.value.place == "--settings"
