"""`remit attest`: a statement over a session, with its token as the last line."""

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from remit.cli.errors import DONE, NO, UNAVAILABLE, USAGE
from tests.cli.running import run, started
from tests.hub.service import Hub, claims_of, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("attest") / "home") as hub:
        yield hub


def test_the_token_is_the_last_line_and_verifies(hub: Hub) -> None:
    session_id = hub.observe("first")["ardur_session_id"]
    result = run(hub.home, "attest", session_id)
    *facts, token = result.stdout.splitlines()
    claims = claims_of(hub, token, "attestation")
    assert (result.exit_code, claims["session_id"], claims["receipts"]) == (DONE, session_id, 1)
    assert facts[0] == "CHAIN VERIFIED"
    assert hub.token not in result.output


def test_without_an_id_it_is_the_newest_session_and_says_so(hub: Hub) -> None:
    hub.observe("second")
    newest = hub.observe("third")["ardur_session_id"]
    result = run(hub.home, "attest", "--end", "--json")
    told = json.loads(result.stdout)
    assert set(told) == {"ok", "token", "claims"}
    assert (told["claims"]["session_id"], told["claims"]["state"]) == (newest, "ended")
    assert newest in result.stderr


def test_an_unknown_session_is_a_negative_answer(hub: Hub) -> None:
    result = run(hub.home, "attest", "pass:nobody:0001", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["error_code"]) == (NO, "session_not_found")
    assert told == hub.post("/v1/sessions/pass:nobody:0001/attest").json
    assert "proxy" not in run(hub.home, "attest", "pass:nobody:0001").stderr


def test_an_empty_id_is_not_taken_for_the_newest_session(hub: Hub) -> None:
    newest = hub.observe("not to be ended")["ardur_session_id"]
    result = run(hub.home, "attest", "", "--end", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (USAGE, "usage")
    assert hub.attest(newest)["claims"]["state"] == "active"


def test_a_broken_chain_is_attested_as_such_with_exit_code_1(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with running(place) as hub:
        (session_id,) = {hub.observe("it")["ardur_session_id"] for _ in range(3)}
        connection = apsw.Connection(str(place / "ledger.db"))
        connection.execute("UPDATE receipts SET token = replace(token, '.', '.x') WHERE seq = 2")
        connection.close()
        result = run(place, "attest", session_id)
    assert result.exit_code == NO
    assert result.stdout.splitlines()[0] == "CHAIN BROKEN"
    assert "receipt 2 of 3" in result.stdout


def test_a_hub_that_does_not_run_is_unavailable(tmp_path: Path) -> None:
    started(tmp_path / "home")
    result = run(tmp_path / "home", "attest", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (UNAVAILABLE, "hub_unavailable")


def test_a_home_without_a_session_has_nothing_to_attest(tmp_path: Path) -> None:
    with running(tmp_path / "home"):
        result = run(tmp_path / "home", "attest", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (NO, "session_not_found")
