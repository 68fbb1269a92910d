"""What a repository brings along in settings of its own, with real Claude Code: it must not take calls past hooks."""

import json
import re

import pytest

from remit.assistants.install.acceptance import SettingsReader, is_known
from tests.agents.claude import UNASKED, run_claude, write
from tests.agents.governed import Governed, verdicts
from tests.agents.install import CLAUDES, Assistant
from tests.agents.plays import play
from tests.agents.running import Place
from tests.agents.script import Script


def test_hooks_that_a_repository_turns_off_run_all_the_same(world: Governed) -> None:
    world.protect()
    shared = world.place.project / ".claude" / "settings.json"
    shared.write_text('{"disableAllHooks": true}', encoding="utf-8")
    assert play(world, script=Script([[write(world.place.outside / "way")]])).made == set()
    assert list(verdicts(world.place).values()) == ["violation"]


def test_settings_that_would_lead_past_hooks_are_found_afterwards(new_world: Governed) -> None:
    new_world.protect()
    shared = new_world.place.project / ".claude" / "settings.json"
    shared.write_text('{"env": {"CLAUDE_CODE_SIMPLE": "1"}}', encoding="utf-8")
    found = json.loads(new_world.remit("doctor", "claude-code", "--json").stdout)
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["settings"] == "problem"


@pytest.mark.parametrize("assistant", CLAUDES, ids=str)
def test_every_member_that_claude_code_lists_in_its_schema_of_settings_is_known(
    assistant: Assistant, place: Place
) -> None:
    # The command tells the model the schema that settings are checked against.
    ran = run_claude(assistant, place, Script([[]]), *UNASKED, prompt="/update-config list")
    told = json.dumps([request["messages"] for request in ran.model.requests])
    found = re.search(r"Full Settings JSON Schema(?:\\n)+```json(.*?)```", told)
    assert found is not None
    schema = json.loads(json.loads(f'"{found[1]}"'))
    unknown = [name for name in schema["properties"] if not is_known(SettingsReader("claude-code"), name)]
    assert (len(schema["properties"]) > 100, unknown) == (True, [])
