"""`remit kill-switch`: everything ends at once, and nothing starts until it is released."""

import json
from pathlib import Path

from remit.cli.errors import DONE, STATE, USAGE
from tests.cli.running import issued, run, started
from tests.ledger.service import Service


def test_the_switch_revokes_all_sessions_and_stays_until_it_is_released(tmp_path: Path) -> None:
    place = tmp_path / "home"
    first, _ = started(place), started(place)
    assert run(place, "kill-switch", "status").stdout.splitlines() == [
        "the kill switch is off",
        "active       2 sessions",
    ]
    assert run(place, "kill-switch", "on").stdout.splitlines() == [
        "the kill switch is ON",
        "active       0 sessions",
        "revoked      2 sessions",
    ]
    released = json.loads(run(place, "kill-switch", "off", "--json").stdout)
    assert released == {"ok": True, "kill_switch": False, "active_sessions": 0, "revoked_sessions": 0}
    service = Service(place)
    assert service.call(first).claims.internal_denial_code == "kill_switch"
    service.close()


def test_the_switch_is_turned_while_a_service_runs(tmp_path: Path) -> None:
    service = Service(tmp_path / "home")
    session_id = service.start()
    on = run(tmp_path / "home", "kill-switch", "on", "--json")
    denied = service.call(session_id)
    service.close()
    assert json.loads(on.stdout)["revoked_sessions"] == 1
    assert denied.claims.internal_denial_code == "kill_switch"


def test_twice_is_once_and_status_for_programs_counts_what_is_active(tmp_path: Path) -> None:
    issued(tmp_path / "home")
    assert [run(tmp_path / "home", "kill-switch", "on").exit_code for _ in range(2)] == [DONE, DONE]
    status = json.loads(run(tmp_path / "home", "kill-switch", "status", "--json").stdout)
    assert status == {"ok": True, "kill_switch": True, "active_sessions": 0}


def test_a_wrong_word_or_home_turns_nothing(tmp_path: Path) -> None:
    assert run(tmp_path / "home", "kill-switch", "maybe").exit_code == USAGE
    assert run(tmp_path / "home", "kill-switch", "on").exit_code == STATE
    assert not (tmp_path / "home").exists()
