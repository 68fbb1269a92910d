"""What a repository brings along in settings of its own, with real Claude Code: it must not take calls past hooks."""

import json

from tests.agents.claude import write
from tests.agents.governed import Governed, verdicts
from tests.agents.plays import play
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
