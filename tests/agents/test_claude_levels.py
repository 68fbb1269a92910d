"""Real Claude Code, protected elsewhere than in a user's own settings of one folder."""

from tests.agents.governed import Governed, home_of
from tests.agents.plays import few, play
from tests.agents.scenario import INSIDE


def test_settings_of_a_user_hold_wherever_claude_code_is_started(world: Governed) -> None:
    world.protect("--settings", "user")
    assert play(world).made == INSIDE
    assert not (world.place.project / ".claude").exists()


def test_shared_settings_work_for_whoever_has_protected_the_folder(world: Governed) -> None:
    told = world.protect("--settings", "project")
    token = world.remit("token", "hook", told["protection"]).stdout.strip()
    settings = world.place.project / ".claude" / "settings.json"
    assert token not in settings.read_text(encoding="utf-8")
    assert play(world, REMIT_HOME=str(home_of(world.place))).made == INSIDE


def test_shared_settings_let_nothing_run_for_whoever_has_not(world: Governed) -> None:
    world.protect("--settings", "project")
    assert play(world, script=few(world.place)).made == set()


def test_two_protections_hold_together(new_world: Governed) -> None:
    new_world.protect("--settings", "user")
    new_world.protect()
    assert play(new_world).made == INSIDE
    assert new_world.told("ledger", "check")["ok"]
