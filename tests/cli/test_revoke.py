"""`remit revoke`: passports, sessions and lineages, by id or by token."""

import json
import time
from pathlib import Path

import pytest

from remit.cli.errors import DONE, NO, STATE, USAGE
from tests.cli.running import ASKED, issued, lines, run, started
from tests.ledger.service import Service
from tests.world import register

UNKNOWN = f"pass:{'0' * 32}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


def jti_of(place: Path, token: str) -> str:
    jti: str = json.loads(run(place, "inspect", token, "--json").stdout)["id"]
    return jti


def test_a_session_ends_with_its_passport(place: Path) -> None:
    session_id = started(place)
    told = run(place, "revoke", session_id, "--reason", "laptop lost")
    assert (told.exit_code, lines(told.stdout)) == (
        DONE,
        ["REVOKED", "passport     <pass>", "session      revoked (passport_revoked)"],
    )
    service = Service(place)
    denied = service.call(session_id)
    service.close()
    assert denied.claims.internal_denial_code == "passport_revoked"


def test_a_passport_that_was_never_used_is_revoked_in_advance(place: Path) -> None:
    token = issued(place)
    told = run(place, "revoke", jti_of(place, token), "--json")
    assert json.loads(told.stdout) == {
        "ok": True,
        "revoked": "passport",
        "id": jti_of(place, token),
        "known": False,
        "in_advance": True,
    }
    told = run(place, "revoke", UNKNOWN)
    assert (told.exit_code, told.stdout.splitlines()[0]) == (
        DONE,
        "REVOKED IN ADVANCE: it was not used here yet",
    )
    assert json.loads(run(place, "inspect", token, "--json").stdout)["revoked"] is True


@pytest.mark.parametrize("which", ["pass:of-nobody-here", "pass:0123456789ABCDEF0123456789ABCDEF", UNKNOWN[:-1]])
def test_an_id_that_nothing_has_and_no_passport_of_ours_could_have_is_not_revoked(place: Path, which: str) -> None:
    issued(place)
    refused = run(place, "revoke", which, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (NO, "session_not_found")
    assert "REVOKED" not in run(place, "revoke", which).stdout


def test_a_session_under_a_passport_of_another_form_is_known(place: Path) -> None:
    from remit import Mission, issue_passport
    from remit.ledger.embedded import open_embedded_ledger

    issued(place)
    embedded = open_embedded_ledger(place)
    key = embedded.keys.signing(embedded.reader.ledger_state().kid)
    embedded.close()
    mission, now = Mission(agent_id="a", mission="b"), int(time.time())
    tokens = [
        issue_passport(mission, key, issuer=f"remit:{key.kid}", jti=f"urn:else:{n}", now=now).token for n in (1, 2)
    ]
    service = Service(place)
    service.start(register(service.open.ledger, tokens[0]))
    service.close()
    assert json.loads(run(place, "revoke", "urn:else:1", "--json").stdout)["known"] is True
    assert run(place, "revoke", "urn:else:2").exit_code == NO
    assert json.loads(run(place, "revoke", tokens[1], "--json").stdout)["known"] is False


def test_a_delegate_that_has_not_started_is_known(place: Path) -> None:
    token = run(place, "delegate", started(place), *ASKED, "--max-tool-calls", "5").stdout.strip()
    told = json.loads(run(place, "revoke", jti_of(place, token), "--json").stdout)
    assert (told["known"], told["in_advance"]) == (True, True)


@pytest.mark.parametrize("way", ["word", "pipe", "file"])
def test_a_token_that_verifies_names_its_passport(place: Path, tmp_path: Path, way: str) -> None:
    token = issued(place)
    (tmp_path / "token").write_text(f"{token}\n", encoding="ascii")
    given = {"word": token, "pipe": "-", "file": f"@{tmp_path / 'token'}"}[way]
    told = run(place, "revoke", given, "--json", given=f"{token}\n")
    assert json.loads(told.stdout)["id"] == jti_of(place, token)


def test_a_token_that_does_not_verify_revokes_nothing(place: Path, tmp_path: Path) -> None:
    issued(place)
    foreign = issued(tmp_path / "elsewhere")
    for token in (foreign, issued(place)[:-5] + "AAAAA", "x" * 65):
        refused = run(place, "revoke", token, "--json")
        assert refused.exit_code == NO
    assert json.loads(run(place, "revoke", foreign, "--json").stdout)["error_code"] == "key_unknown"


@pytest.mark.parametrize("which", ["short", "with space", "\x1b[31mredred", "", "@/nowhere", "größer-als-acht"])
def test_what_is_no_id_is_refused(place: Path, which: str) -> None:
    issued(place)
    refused = run(place, "revoke", which, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (USAGE, "field_invalid")


def test_a_session_is_revoked_alone_only_if_it_is_there(place: Path) -> None:
    session_id = started(place)
    refused = run(place, "revoke", "pass:of-nobody-here", "--session", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (NO, "session_not_found")
    told = json.loads(run(place, "revoke", session_id, "--session", "--json").stdout)
    assert (told["revoked"], told["session_state"], told["cause"]) == ("session", "revoked", "session_revoked")


def test_a_lineage_is_revoked_from_its_first_passport_on(place: Path) -> None:
    parent = started(place)
    token = run(place, "delegate", parent, *ASKED, "--max-tool-calls", "5").stdout.strip()
    service = Service(place)
    child = service.start(token)
    service.close()
    told = json.loads(run(place, "revoke", child, "--lineage", "--json").stdout)
    assert (told["session_state"], told["first"]) == ("revoked", parent)
    again = json.loads(run(place, "revoke", parent, "--session", "--json").stdout)
    assert again["session_state"] == "revoked"


def test_a_session_that_has_ended_is_said_to_have(place: Path) -> None:
    from remit.governor.sessions import EndSession

    session_id = started(place)
    service = Service(place)
    service.governor.run(EndSession(session_id))
    service.close()
    assert run(place, "revoke", session_id).stdout.splitlines()[-1] == "session      was already ended"


def test_a_session_that_has_ended_is_revoked_all_the_same(place: Path) -> None:
    from remit.governor.sessions import EndSession

    session_id = started(place)
    service = Service(place)
    service.governor.run(EndSession(session_id))
    session = service.governor.context.reader.session(session_id)
    assert session is not None
    service.close()
    told = run(place, "revoke", session_id, "--session")
    assert told.stdout.splitlines()[0] == "REVOKED"
    assert told.stdout.splitlines()[-1] == "session      was already ended"
    assert json.loads(run(place, "inspect", session.passport, "--json").stdout)["revoked"] is True


def test_options_that_exclude_each_other_and_reasons_that_are_not_kept(place: Path) -> None:
    session_id = started(place)
    assert run(place, "revoke", "pass:01234567", "--session", "--lineage").exit_code == USAGE
    told = run(place, "revoke", session_id, "--session", "--reason", "x")
    assert (told.exit_code, "not stored" in told.stderr) == (DONE, True)
    long = run(place, "revoke", UNKNOWN, "--reason", "x" * 1025, "--json")
    assert (long.exit_code, json.loads(long.stdout)["error_code"]) == (USAGE, "field_invalid")


def test_nothing_is_revoked_in_a_home_that_is_not_there(place: Path) -> None:
    assert run(place, "revoke", "pass:01234567").exit_code == STATE
    assert not place.exists()
