"""Every endpoint of the proxy, asked as a client asks it: what comes back, to the member."""

import base64
import hashlib
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import jwt
import msgspec
import pytest

from remit import Keyring, TrustedKey, VerifyingKey, verify_chain, verify_session
from remit.schemas.proxy import (
    AttestAnswer,
    DelegateAnswer,
    EvaluateAnswer,
    KillSwitchAnswer,
    ResultAnswer,
    RevokeAnswer,
    SessionAnswer,
    StartAnswer,
)
from remit.version import __version__
from tests.proxy.service import HTTP
from tests.proxy.visitor import MISSION, PROJECT, README, Visitor, error_of, visiting

DIGEST: Final = {"alg": "sha-256", "value": base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")}
OTHER_DIGEST: Final = DIGEST | {"value": base64.urlsafe_b64encode(b"1" * 32).decode().rstrip("=")}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(tmp_path_factory.mktemp("proxy") / "home", HTTP) as visitor:
        yield visitor


@pytest.fixture
def session(visitor: Visitor) -> str:
    return visitor.start()


def _members(kind: type[msgspec.Struct], told: dict[str, Any], *, without: str = "") -> None:
    """Check that an answer has exactly the members of its type, each of its type."""
    msgspec.convert(told, kind)
    assert told.keys() == {*kind.__struct_encode_fields__} - set(without.split())


def _sub_mission(**changes: Any) -> dict[str, Any]:
    mission = {"agent_id": "agent:delegate", "mission": "Read one file", "allowed_tools": ["Read"]}
    return mission | {"resource_scope": [PROJECT], "max_tool_calls": 2, "max_duration_s": 60} | changes


def _delegation(session_id: str, request_id: str = "request-1", **changes: Any) -> dict[str, Any]:
    return {"session_id": session_id, "request_id": request_id, "mission": _sub_mission(**changes)}


def _keyring(visitor: Visitor) -> Keyring:
    keys = visitor.get("/.well-known/jwks.json").json["keys"]
    return Keyring(TrustedKey(VerifyingKey.from_jwk(key), f"remit:{key['kid']}") for key in keys)


def test_a_start_tells_what_the_passport_allows(visitor: Visitor) -> None:
    told = visitor.told("/session/start", {"token": visitor.passport()})
    _members(StartAnswer, told)
    for name in ("agent_id", "mission", "max_tool_calls", "max_duration_s"):
        assert told[name] == getattr(MISSION, name)
    for name in ("allowed_tools", "forbidden_tools", "resource_scope", "allowed_side_effect_classes"):
        assert told[name] == list(getattr(MISSION, name))
    assert told["session_id"].startswith("pass:")
    assert told["started_at"] < told["expires_at"]
    assert (told["existing"], told["state"]) == (False, "active")
    assert told["budget_remaining"]["tool_calls"] == 5


def test_the_same_passport_again_is_the_same_session_with_what_it_has_used(visitor: Visitor) -> None:
    token = visitor.passport()
    first = visitor.told("/session/start", {"token": token})
    visitor.read(first["session_id"])
    again = visitor.told("/session/start", {"token": token})
    assert again["session_id"] == first["session_id"]
    assert again["existing"] is True
    assert again["started_at"] == first["started_at"]
    assert again["budget_remaining"]["tool_calls"] == 4


def test_a_permit_consumes_and_a_denial_does_not(visitor: Visitor, session: str) -> None:
    permitted = visitor.read(session)
    _members(EvaluateAnswer, permitted, without="public_denial_reason remedy")
    assert (permitted["decision"], permitted["verdict"]) == ("PERMIT", "compliant")
    assert permitted["budget_remaining"]["tool_calls"] == 4
    denied = visitor.read(session, "/etc/passwd")
    _members(EvaluateAnswer, denied)
    assert (denied["decision"], denied["verdict"]) == ("DENY", "violation")
    assert denied["public_denial_reason"] == "policy_denied"
    assert denied["budget_remaining"]["tool_calls"] == 4


def test_what_nobody_can_tell_is_denied_for_want_of_evidence(visitor: Visitor, session: str) -> None:
    call = {"session_id": session, "tool_name": "Bash", "arguments": {"command": "cat 'unclosed"}}
    told = visitor.told("/evaluate", call)
    assert (told["decision"], told["verdict"]) == ("DENY", "insufficient_evidence")
    assert told["public_denial_reason"] == "insufficient_evidence"


def test_the_last_call_is_the_last(visitor: Visitor) -> None:
    session = visitor.start(max_tool_calls=1)
    assert visitor.read(session)["decision"] == "PERMIT"
    assert visitor.read(session)["public_denial_reason"] == "budget_exhausted"


def test_relative_paths_start_where_the_request_says(visitor: Visitor, session: str) -> None:
    assert visitor.read(session, "README.md")["decision"] == "PERMIT"
    assert visitor.read(session, "README.md", cwd="/etc")["decision"] == "DENY"


def test_receipts_are_a_chain_by_our_verifier_and_by_another(visitor: Visitor, session: str) -> None:
    answers = [visitor.read(session, path) for path in (README, "/etc/passwd", README)]
    tokens = [answer["receipt"] for answer in answers]
    head = verify_chain(tokens, _keyring(visitor))
    assert head is not None
    assert (head.length, head.receipt_hash) == (3, answers[-1]["receipt_hash"])
    keys = {key["kid"]: jwt.PyJWK(key).key for key in visitor.get("/.well-known/jwks.json").json["keys"]}
    parent = None
    for answer in answers:
        key = keys[jwt.get_unverified_header(answer["receipt"])["kid"]]
        claims = jwt.decode(answer["receipt"], key, algorithms=["ES256"])
        assert (claims["receipt_id"], claims["parent_receipt_hash"]) == (answer["receipt_id"], parent)
        parent = hashlib.sha256(answer["receipt"].encode()).hexdigest()
        assert parent == answer["receipt_hash"]


def test_a_call_again_under_its_key_gets_the_same_bytes_and_costs_nothing(visitor: Visitor, session: str) -> None:
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": README}, "idempotency_key": "k1"}
    first, again = visitor.post("/evaluate", call), visitor.post("/evaluate", call)
    assert first.body == again.body
    assert visitor.read(session)["budget_remaining"]["tool_calls"] == 3


def test_a_denial_again_under_its_key_is_the_same_but_for_its_advice(visitor: Visitor, session: str) -> None:
    first, again = (visitor.read(session, "/etc/passwd", idempotency_key="k1") for _ in range(2))
    assert {name: value for name, value in first.items() if name != "remedy"} == again


@pytest.mark.parametrize("change", [{"tool_name": "Write"}, {"arguments": {"file_path": f"{README}x"}}, {"cwd": "/"}])
def test_another_call_under_a_key_that_was_used_is_a_conflict(
    visitor: Visitor, session: str, change: dict[str, Any]
) -> None:
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": README}, "idempotency_key": "k1"}
    visitor.told("/evaluate", call)
    assert visitor.refused("/evaluate", call | change) == "409 request_conflict"


def test_a_permit_that_is_asked_for_again_after_the_end_is_a_denial_with_the_old_receipt(
    visitor: Visitor, session: str
) -> None:
    first = visitor.read(session, idempotency_key="k1")
    visitor.told("/session/end", {"session_id": session})
    again = visitor.read(session, idempotency_key="k1")
    assert again["receipt"] == first["receipt"]
    assert (again["decision"], again["verdict"]) == ("DENY", "violation")
    assert again["public_denial_reason"] == "revoked"


def test_an_outcome_is_bound_to_its_decision_once(visitor: Visitor, session: str) -> None:
    decision = visitor.read(session)
    result = {"session_id": session, "receipt_id": decision["receipt_id"], "result_hash": DIGEST}
    told = visitor.told("/result", result)
    _members(ResultAnswer, told)
    assert (told["verdict"], told["repeated"]) == ("compliant", False)
    claims = jwt.decode(told["receipt"], options={"verify_signature": False})
    assert claims["result_hash"] == DIGEST
    assert claims["evidence_proof_ref"]["receipt_hash"] == decision["receipt_hash"]
    assert visitor.told("/result", result) == told | {"repeated": True}
    assert visitor.refused("/result", result | {"result_hash": OTHER_DIGEST}) == "409 request_conflict"
    assert visitor.refused("/result", result | {"receipt_id": "rcpt:" + "0" * 32}) == "404 receipt_not_found"


def test_an_outcome_of_a_denied_call_is_a_violation(visitor: Visitor, session: str) -> None:
    denied = visitor.read(session, "/etc/passwd")
    told = visitor.told("/result", {"session_id": session, "receipt_id": denied["receipt_id"], "result_hash": DIGEST})
    assert told["verdict"] == "violation"


def test_a_session_that_is_ended_denies_and_stays_ended(visitor: Visitor, session: str) -> None:
    visitor.read(session)
    ended = visitor.told("/session/end", {"session_id": session})
    _members(SessionAnswer, ended)
    assert (ended["state"], ended["receipts"]) == ("ended", 1)
    assert ended["verdicts"] == {"compliant": 1, "violation": 0, "insufficient_evidence": 0}
    assert ended["ended_at"] >= ended["started_at"]
    assert visitor.read(session)["public_denial_reason"] == "revoked"
    assert visitor.told("/session/end", {"session_id": session})["ended_at"] == ended["ended_at"]


@pytest.mark.parametrize("body", [None, {}, {"end": False}])
def test_an_attestation_describes_the_receipts_and_ends_nothing(visitor: Visitor, session: str, body: Any) -> None:
    tokens = [visitor.read(session)["receipt"], visitor.read(session, "/etc/passwd")["receipt"]]
    told = visitor.told(f"/sessions/{session}/attest", body)
    _members(AttestAnswer, told, without="broken_at fault")
    assert told["claims"] == msgspec.to_builtins(verify_session(told["token"], tokens, _keyring(visitor)))
    assert (told["claims"]["receipts"], told["claims"]["state"]) == (2, "active")
    assert told["claims"]["chain_verified"] is True


def test_an_attestation_ends_the_session_where_that_is_asked_for(visitor: Visitor, session: str) -> None:
    told = visitor.told(f"/sessions/{session}/attest", {"end": True})
    assert told["claims"]["state"] == "ended"
    assert visitor.read(session)["decision"] == "DENY"


def test_an_id_may_have_a_slash_which_is_escaped_in_a_path(visitor: Visitor) -> None:
    visitor.told("/session/start", {"token": visitor.passport(jti="pass/of/this:one")})
    told = visitor.told("/sessions/pass%2Fof%2fthis%3Aone/attest")
    assert told["claims"]["session_id"] == "pass/of/this:one"
    assert visitor.refused("/sessions/pass/of/this:one/attest") == "404 not_found"


@pytest.mark.parametrize("session_id", ["unknown", "pass%2F", "%00", "%ff%fe", "..", "x" * 4000, ""])
def test_an_id_that_nobody_has_is_not_found(visitor: Visitor, session_id: str) -> None:
    assert visitor.refused(f"/sessions/{session_id}/attest") == "404 session_not_found"


def test_a_delegate_gets_a_passport_that_starts_a_session_of_its_own(visitor: Visitor, session: str) -> None:
    told = visitor.told("/delegate", _delegation(session))
    _members(DelegateAnswer, told, without="public_denial_reason")
    assert (told["decision"], told["repeated"]) == ("PERMIT", False)
    child = visitor.told("/session/start", {"token": told["token"]})
    assert child["session_id"] == told["delegate_id"]
    assert (child["agent_id"], child["allowed_tools"]) == ("agent:delegate", ["Read"])
    assert visitor.read(child["session_id"])["decision"] == "PERMIT"
    assert visitor.read(session)["budget_remaining"]["tool_calls"] == 2


def test_a_delegation_again_gives_the_same_passport(visitor: Visitor, session: str) -> None:
    first = visitor.told("/delegate", _delegation(session))
    again = visitor.told("/delegate", _delegation(session))
    assert again == first | {"repeated": True}
    other = _delegation(session, max_tool_calls=1)
    assert visitor.refused("/delegate", other) == "409 request_conflict"


@pytest.mark.parametrize(
    "wider",
    [{"allowed_tools": ["Edit"]}, {"resource_scope": ["/"]}, {"max_tool_calls": 6}, {"max_duration_s": 901}],
    ids=str,
)
def test_a_delegate_that_is_to_have_more_is_refused(visitor: Visitor, session: str, wider: dict[str, Any]) -> None:
    assert visitor.refused("/delegate", _delegation(session, **wider)) == "403 mission_widened"


def test_a_delegation_that_cannot_be_paid_for_is_denied_with_a_receipt(visitor: Visitor, session: str) -> None:
    assert visitor.told("/delegate", _delegation(session, max_tool_calls=4))["decision"] == "PERMIT"
    told = visitor.told("/delegate", _delegation(session, "request-2", max_tool_calls=2))
    _members(DelegateAnswer, told, without="token delegate_id")
    assert (told["decision"], told["public_denial_reason"]) == ("DENY", "budget_exhausted")
    assert told["receipt"].count(".") == 2


def test_a_delegation_that_was_granted_is_denied_after_the_end(visitor: Visitor, session: str) -> None:
    first = visitor.told("/delegate", _delegation(session))
    visitor.told("/session/end", {"session_id": session})
    again = visitor.told("/delegate", _delegation(session))
    assert (again["decision"], again["receipt"]) == ("DENY", first["receipt"])
    assert "token" not in again
    assert visitor.refused("/session/start", {"token": first["token"]}) == "403 passport_revoked"


def test_a_passport_that_was_never_used_can_be_revoked(visitor: Visitor) -> None:
    token = visitor.passport()
    passport_id = jwt.decode(token, options={"verify_signature": False})["jti"]
    told = visitor.as_admin("/revoke", {"passport_id": passport_id, "reason": "lost"})
    _members(RevokeAnswer, told)
    assert told == {"ok": True, "revoked": passport_id, "session": None}
    assert visitor.refused("/session/start", {"token": token}) == "403 passport_revoked"


def test_a_passport_that_is_used_is_revoked_with_its_session(visitor: Visitor, session: str) -> None:
    told = visitor.as_admin("/revoke", {"passport_id": session})
    _members(SessionAnswer, told["session"])
    assert told["session"]["state"] == "revoked"
    assert visitor.read(session)["public_denial_reason"] == "revoked"


def test_a_revoked_passport_is_refused_although_it_was_started_before(visitor: Visitor) -> None:
    token = visitor.passport()
    session_id = visitor.told("/session/start", {"token": token})["session_id"]
    visitor.as_admin("/revoke", {"passport_id": session_id})
    assert visitor.refused("/session/start", {"token": token}) == "403 passport_revoked"


def test_after_the_end_every_call_is_decided_on_or_refused_and_counted(visitor: Visitor, session: str) -> None:
    visitor.told("/session/end", {"session_id": session})
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": README}}
    answers = [visitor.post("/evaluate", call) for _ in range(200)]
    decided = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert {answer.json["decision"] for answer in decided} == {"DENY"}
    assert {error_of(answer) for answer in refused} <= {"429 rate_limited"}
    assert {answer.headers["retry-after"] for answer in refused} <= {"1"}
    visitor.told(f"/sessions/{session}/attest", {})
    with closing(sqlite3.connect(visitor.proxy.home / "ledger.db")) as ledger:
        sql = "SELECT r.code, r.token FROM receipts r JOIN sessions s ON s.number = r.session WHERE s.id = ?"
        rows = ledger.execute(sql, (session,)).fetchall()
    counted = [jwt.decode(token, options={"verify_signature": False}) for code, token in rows if code == "rate_limited"]
    assert len(rows) == len(decided) + len(counted)
    assert sum(int(claims["reason"].split()[0]) for claims in counted) == len(refused)


@pytest.mark.parametrize("number", [2**53, -(2**63) - 1, 10**64 - 1])
def test_large_integers_in_arguments_are_hashed_digit_by_digit(visitor: Visitor, session: str, number: int) -> None:
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": README, "number": number}}
    told = visitor.told("/evaluate", call)
    claims = jwt.decode(told["receipt"], options={"verify_signature": False})
    form = f'{{"file_path":"{README}","number":{number}}}'
    assert claims["arguments_hash"] == hashlib.sha256(form.encode()).hexdigest()
    assert "canonicalization" not in claims["invocation_digest"]


def test_an_integer_of_more_than_64_digits_is_refused_by_the_name_of_its_member(visitor: Visitor, session: str) -> None:
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": README, "number": 10**64}}
    answer = visitor.post("/evaluate", call)
    assert error_of(answer) == "400 bad_request"
    assert "$.arguments.number" in answer.json["error"]


def test_large_integers_elsewhere_are_refused_by_the_name_of_their_member(visitor: Visitor, session: str) -> None:
    answer = visitor.post("/delegate", _delegation(session, max_tool_calls=10**20))
    assert error_of(answer) == "400 bad_request"
    assert "$.mission.max_tool_calls" in answer.json["error"]


def test_revoking_a_session_spares_its_parent_and_revoking_its_lineage_does_not(visitor: Visitor, session: str) -> None:
    children = [visitor.told("/delegate", _delegation(session, f"request-{n}", max_tool_calls=1)) for n in range(2)]
    one, two = (visitor.told("/session/start", {"token": child["token"]})["session_id"] for child in children)
    assert visitor.as_admin("/revoke", {"session_id": one})["session"]["state"] == "revoked"
    assert visitor.read(session)["decision"] == "PERMIT"
    assert visitor.as_admin("/revoke", {"session_id": two, "lineage": True})["revoked"] == two
    assert visitor.read(session)["public_denial_reason"] == "revoked"


def test_the_kill_switch_stops_everything_until_it_is_released(visitor: Visitor, session: str) -> None:
    told = visitor.as_admin("/kill-switch", {"on": True})
    try:
        _members(KillSwitchAnswer, told)
        assert told["on"] is True
        assert told["revoked"] >= 1
        assert visitor.metric("remit_kill_switch") == 1
        assert visitor.read(session)["public_denial_reason"] == "revoked"
        assert visitor.refused("/session/start", {"token": visitor.passport()}) == "403 kill_switch"
    finally:
        assert visitor.as_admin("/kill-switch", {"on": False}) == {"ok": True, "on": False, "revoked": 0}
    assert visitor.read(session)["decision"] == "DENY"
    assert visitor.read(visitor.start())["decision"] == "PERMIT"


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_health_tells_three_things_and_no_more(visitor: Visitor, path: str) -> None:
    assert visitor.get(path).json == {"ok": True, "schema_version": "remit.proxy.v0.1", "version": __version__}


def test_the_public_keys_are_public(visitor: Visitor) -> None:
    (key,) = visitor.get("/.well-known/jwks.json").json["keys"]
    assert key.keys() == {"kty", "crv", "x", "y", "alg", "use", "kid"}
    assert (key["alg"], key["kid"]) == ("ES256", visitor.key.kid)


def test_every_answer_says_that_it_is_not_to_be_kept_and_has_an_id_of_its_own(visitor: Visitor) -> None:
    answers = [visitor.get("/health"), visitor.get("/nowhere"), visitor.post("/evaluate", {})]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len({*ids}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{8}", one) for one in ids)
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}


def test_secrets_stay_out_of_the_log(visitor: Visitor) -> None:
    session = visitor.start()
    visitor.read(session, f"{PROJECT}/very-secret-name")
    visitor.as_admin("/revoke", {"session_id": session})
    log = visitor.proxy.log_to_here()
    assert visitor.admin not in log
    assert "very-secret-name" not in log
