"""What a signature is worth to running services: nothing by itself, once its key has handed over or was stolen.

The services run as they do for people; `remit keys` and `remit issue` are run beside them.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import issue_passport
from remit.claims.jws import unsafe_peek
from tests.cli.running import issued, run
from tests.hub import service as hub_service
from tests.proxy.service import HTTP
from tests.proxy.visitor import MISSION, Visitor, visiting

EVERYTHING = {
    "agent_id": "agent:thief",
    "mission": "anything",
    "allowed_tools": ["*"],
    "resource_scope": ["**"],
}
CALL = {"tool_name": "Bash", "arguments": {"command": "id"}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def visitor(home: Path) -> Iterator[Visitor]:
    with visiting(home, HTTP) as visitor:
        yield visitor


def command(home: Path, *words: str) -> dict[str, Any]:
    done = run(home, *words, "--json")
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _dated_now(visitor: Visitor, jti: str) -> str:
    """Return a passport that the first key of the home signs, dated this second."""
    key = visitor.key
    return issue_passport(MISSION, key, issuer=f"remit:{key.kid}", jti=jti, now=int(time.time())).token


def test_a_key_that_has_handed_over_starts_no_session_any_more(visitor: Visitor, home: Path) -> None:
    running = visitor.start()
    command(home, "keys", "rotate")
    token = _dated_now(visitor, "pass:stolen:0001")
    assert visitor.refused("/session/start", {"token": token}) == "403 passport_unregistered"
    assert visitor.refused("/evaluate", {"session_id": "pass:stolen:0001", **CALL}) == "404 session_not_found"
    assert visitor.read(running)["decision"] == "PERMIT"


def test_a_stolen_key_signs_nothing_under_an_id_that_waits(visitor: Visitor, home: Path) -> None:
    waiting = issued(home)
    jti = str((unsafe_peek(waiting).claims or {})["jti"])
    assert visitor.refused("/session/start", {"token": _dated_now(visitor, jti)}) == "403 passport_unregistered"
    assert visitor.told("/session/start", {"token": waiting})["session_id"] == jti
    assert visitor.refused("/session/start", {"token": _dated_now(visitor, jti)}) == "409 request_conflict"


def test_a_stolen_key_makes_no_delegate_wider(visitor: Visitor) -> None:
    parent = visitor.start()
    mission = {"agent_id": "agent:child", "mission": "read", "max_tool_calls": 1, "max_duration_s": 60}
    body = {"session_id": parent, "mission": mission, "request_id": "one"}
    granted = visitor.told("/delegate", body)["token"]
    claims = dict(unsafe_peek(granted).claims or {}) | {"allowed_tools": ["*"], "resource_scope": ["**"]}
    from vectors.making.world import mint

    header = dict(unsafe_peek(granted).header or {})
    assert visitor.refused("/session/start", {"token": mint(header, claims, visitor.key)}) == "401 passport_invalid"
    assert visitor.told("/session/start", {"token": granted})["existing"] is False


def test_passports_issued_beside_a_running_proxy_start_at_once(visitor: Visitor, home: Path) -> None:
    for _ in range(3):
        assert visitor.told("/session/start", {"token": issued(home)})["existing"] is False


def test_a_running_proxy_sees_a_distrust_at_its_next_request(visitor: Visitor, home: Path) -> None:
    session, waiting = visitor.start(), visitor.passport()
    assert visitor.read(session)["decision"] == "PERMIT"
    told = command(home, "keys", "distrust", visitor.key.kid, "--from", "1970-01-02T00:00:00Z", "--yes")
    assert (told["rotated"], told["distrusted"]) == (True, visitor.key.kid)
    denied = visitor.read(session)
    assert (denied["decision"], denied["public_denial_reason"]) == ("DENY", "revoked")
    assert visitor.refused("/session/start", {"token": waiting}) == "403 passport_revoked"
    assert visitor.told("/session/start", {"token": issued(home)})["existing"] is False


@pytest.mark.parametrize("with_mission", [True, False])
def test_what_the_hub_token_starts_is_nothing_to_the_proxy(visitor: Visitor, home: Path, *, with_mission: bool) -> None:
    with hub_service.running(home) as hub:
        more = {"mission": EVERYTHING} if with_mission else {}
        session = hub.start("a thief", "cli", **more)["ardur_session_id"]
        _refused_everywhere(visitor, home, session)
        observed = hub.observe("a thief", "cli", command="id")
        assert observed["ok"] is True
        _refused_everywhere(visitor, home, session)


def _refused_everywhere(visitor: Visitor, home: Path, session: str) -> None:
    """Try all that the proxy does with sessions, and the passport itself, as the ledger keeps it."""
    refusal = "403 audience_mismatch"
    token = _passport_of(home, session)
    assert (unsafe_peek(token).claims or {})["aud"] == "remit:observe"
    assert visitor.refused("/session/start", {"token": token}) == refusal
    assert visitor.refused("/evaluate", {"session_id": session, **CALL}) == refusal
    delegate = {"mission": EVERYTHING | {"max_tool_calls": 1, "max_duration_s": 60}, "request_id": "one"}
    assert visitor.refused("/delegate", {"session_id": session, **delegate}) == refusal
    assert visitor.refused("/session/end", {"session_id": session}) == refusal
    assert visitor.refused(f"/sessions/{session}/attest", {}) == refusal
    digest = {"alg": "sha-256", "value": "A" * 43, "canonicalization": "none", "scope": "result"}
    result = {"session_id": session, "receipt_id": "rcpt:" + "0" * 32, "result_hash": digest}
    assert visitor.refused("/result", result) == refusal


def _passport_of(home: Path, session: str) -> str:
    from contextlib import closing

    from remit.ledger.embedded import open_embedded_ledger

    with closing(open_embedded_ledger(home)) as embedded:
        kept = embedded.reader.session(session)
        assert kept is not None
        return kept.passport


def test_delegation_from_observation_is_refused_on_the_command_line_too(home: Path) -> None:
    with hub_service.running(home) as hub:
        session = hub.start("a thief", "cli", mission=EVERYTHING)["ardur_session_id"]
        asked = ("--agent-id", "agent:x", "--mission", "m", "--max-tool-calls", "1", "--max-duration-s", "60")
        refused = run(home, "delegate", session, *asked)
    assert refused.exit_code != 0
    assert refused.stdout == ""
    assert "audience_mismatch" in refused.stderr or "only records observations" in refused.stderr
