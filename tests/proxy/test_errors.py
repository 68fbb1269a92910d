"""What goes wrong, as the proxy says it: every status and code of the table, asked for on a real one."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remit import Confirmation, issue_passport
from remit.server.statuses import STATUSES
from tests.proxy.service import HTTP
from tests.proxy.visitor import MISSION, README, Visitor, error_of, visiting

CALL = {"session_id": "pass:nobody", "tool_name": "Read", "arguments": {"file_path": README}}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(tmp_path_factory.mktemp("proxy") / "home", HTTP) as visitor:
        yield visitor


@contextmanager
def _held(visitor: Visitor) -> Iterator[sqlite3.Connection]:
    """Hold the ledger as another process that does not let go of it."""
    with closing(sqlite3.connect(visitor.proxy.home / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other
        other.execute("ROLLBACK")


def _past(visitor: Visitor) -> str:
    """Return a passport that was good an hour ago."""
    now = int(time.time()) - 3600
    issuer = f"remit:{visitor.key.kid}"
    return issue_passport(MISSION, visitor.key, issuer=issuer, jti="pass:past", now=now, lifetime_s=60).token


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/evaluate", b"", "400 bad_request"),
        ("/evaluate", b"{", "400 bad_request"),
        ("/evaluate", b"[]", "400 bad_request"),
        ("/evaluate", b'{"session_id": "a", "session_id": "b"}', "400 bad_request"),
        ("/evaluate", b'{"session_id": NaN}', "400 bad_request"),
        ("/evaluate", b"\xff", "400 bad_request"),
        ("/evaluate", b"[" * 100_000, "400 bad_request"),
        ("/evaluate", msgspec.json.encode({"session_id": "pass:nobody"}), "400 bad_request"),
        ("/evaluate", msgspec.json.encode(CALL | {"unknown": 1}), "400 bad_request"),
        ("/evaluate", msgspec.json.encode(CALL | {"arguments": []}), "400 bad_request"),
        ("/evaluate", msgspec.json.encode(CALL | {"idempotency_key": ""}), "400 bad_request"),
        ("/evaluate", msgspec.json.encode(CALL | {"arguments": {"n": 10**64}}), "400 bad_request"),
        ("/evaluate", msgspec.json.encode(CALL), "404 session_not_found"),
        ("/result", b"{}", "400 bad_request"),
        ("/session/end", b'{"session_id": "pass:nobody"}', "404 session_not_found"),
        ("/session/start", b'{"token": ""}', "400 bad_request"),
        ("/session/start", b'{"token": "a.b.c"}', "401 passport_invalid"),
        ("/sessions/pass:nobody/attest", b"", "404 session_not_found"),
        ("/sessions/pass:nobody/attest", b'{"end": 1}', "400 bad_request"),
        ("/revoke", b"{}", "401 auth_required"),
        ("/kill-switch", b'{"on": true}', "401 auth_required"),
        ("/nowhere", b"{}", "404 not_found"),
        ("/evaluate/", b"{}", "404 not_found"),
        ("//evaluate", b"{}", "404 not_found"),
        ("/%65valuate", b"{}", "404 not_found"),
        ("/health", b"{}", "405 method_not_allowed"),
        ("/evaluate", b" " * (1024 * 1024 + 1), "413 body_too_large"),
    ],
)
def test_a_request_that_cannot_be_served_is_told_why(visitor: Visitor, path: str, body: bytes, error: str) -> None:
    assert visitor.refused(path, body) == error


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"passport_id": "pass:one", "session_id": "pass:one"},
        {"passport_id": "pass:one", "lineage": True},
        {"session_id": "pass:one", "reason": "lost"},
        {"passport_id": "short"},
        {"passport_id": "pass:one", "reason": "x" * 1025},
    ],
    ids=str,
)
def test_a_revocation_names_one_thing(visitor: Visitor, body: dict[str, Any]) -> None:
    bearer = f"Bearer {visitor.admin}"
    assert visitor.refused("/revoke", body, authorization=bearer) == "400 bad_request"
    assert visitor.refused("/revoke", {"session_id": "pass:nobody"}, authorization=bearer) == "404 session_not_found"


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Basic {admin}", "{admin}", "Bearer {admin}x", "Bearer"])
def test_what_is_the_administrators_needs_the_token(visitor: Visitor, authorization: str) -> None:
    shown = authorization.format(admin=visitor.admin)
    assert visitor.refused("/kill-switch", {"on": True}, authorization=shown) == "401 auth_required"
    assert visitor.metric("remit_kill_switch") == 0


def test_wrong_tokens_are_slowed_down_and_the_right_one_is_not(visitor: Visitor) -> None:
    errors = {visitor.refused("/kill-switch", {"on": True}, authorization=f"Bearer {n}") for n in range(30)}
    assert errors == {"401 auth_required", "429 too_many_tries"}
    assert visitor.as_admin("/kill-switch", {"on": False})["on"] is False


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"host": "evil.example"}, "403 host_not_allowed"),
        ({"content_type": "text/plain"}, "415 unsupported_media_type"),
        ({"content_type": None}, "415 unsupported_media_type"),
        ({"content_encoding": "gzip"}, "415 unsupported_media_type"),
        ({"x_filler": "x" * 20_000}, "431 headers_too_large"),
    ],
)
def test_headers_are_looked_at_before_anything_is_decided(
    visitor: Visitor, headers: dict[str, str | None], error: str
) -> None:
    assert visitor.refused("/evaluate", CALL, **headers) == error


def test_a_method_that_is_not_served_is_told_which_are(visitor: Visitor) -> None:
    answer = visitor.proxy.ask("DELETE", "/health")
    assert (error_of(answer), answer.headers["allow"]) == ("405 method_not_allowed", "GET, HEAD")


def test_a_passport_that_is_over_or_bound_to_another_starts_nothing(visitor: Visitor) -> None:
    for token, error in (
        (_past(visitor), "401 passport_expired"),
        (visitor.passport(bound_to=Confirmation(certificate="A" * 43)), "403 holder_mismatch"),
        (visitor.passport(bound_to=Confirmation(jkt="A" * 43)), "403 holder_mismatch"),
    ):
        assert visitor.refused("/session/start", {"token": token}) == error


def test_a_lineage_ends_somewhere(visitor: Visitor) -> None:
    session = visitor.start(max_tool_calls=100)
    asked: dict[str, Any] = {"request_id": "deeper", "mission": msgspec.to_builtins(MISSION)}
    for depth in range(8):
        asked["mission"]["max_tool_calls"] = 90 - depth
        token = visitor.told("/delegate", asked | {"session_id": session})["token"]
        session = visitor.told("/session/start", {"token": token})["session_id"]
    asked["mission"]["max_tool_calls"] = 1
    assert visitor.refused("/delegate", asked | {"session_id": session}) == "403 delegation_too_deep"


@pytest.mark.parametrize("mission", [{"max_tool_calls": 0}, {"agent_id": ""}, {"agent_id": "a\u202eb"}, {"cnf": {}}])
def test_a_delegation_that_makes_no_sense_is_refused(visitor: Visitor, mission: dict[str, Any]) -> None:
    asked = {"session_id": visitor.start(), "request_id": "r", "mission": msgspec.to_builtins(MISSION) | mission}
    assert visitor.refused("/delegate", asked) == "400 bad_request"
    bound = asked | {"mission": msgspec.to_builtins(MISSION), "cnf": {"jkt": "A" * 43, "x5t#S256": "A" * 43}}
    assert visitor.refused("/delegate", bound) == "400 bad_request"


@pytest.mark.parametrize(
    "digest",
    [{"alg": "sha-256", "value": "A" * 100_000}, {"alg": "sha-256", "value": "A"}, {"alg": "md5", "value": "A" * 43}],
    ids=["long", "short", "md5"],
)
def test_an_outcome_is_a_digest_or_nothing(visitor: Visitor, digest: dict[str, str]) -> None:
    session = visitor.start()
    asked = {"session_id": session, "receipt_id": visitor.read(session)["receipt_id"], "result_hash": digest}
    assert visitor.refused("/result", asked) == "400 bad_request"


@pytest.mark.parametrize(
    "call",
    [
        {"tool_name": "T" * 200_000},
        {"tool_name": "Read\x00\u202e\n"},
        {"arguments": {"file_path": "/" + "a/" * 100_000}},
        {"arguments": {"command": "a;" * 100_000}, "tool_name": "Bash"},
        {"arguments": {"file_path": "\x00\x1b[2J"}},
        {"cwd": "\x00"},
        {"cwd": "relative/../.."},
    ],
    ids="-".join,
)
def test_a_call_that_is_strange_is_denied_like_any_other(visitor: Visitor, call: dict[str, Any]) -> None:
    told = visitor.told("/evaluate", CALL | {"session_id": visitor.start()} | call)
    assert told["decision"] == "DENY"
    assert len(told["receipt"]) < 65_536


def test_without_a_ledger_there_is_no_decision(visitor: Visitor) -> None:
    session, token = visitor.start(), visitor.passport()
    before = visitor.metric("remit_evidence_write_failures_total")
    call = CALL | {"session_id": session}
    with _held(visitor):
        asked = time.monotonic()
        answer = visitor.post("/evaluate", call)
        assert time.monotonic() - asked < 30
        assert error_of(answer) == "503 ledger_unavailable"
        assert answer.headers["retry-after"] == "1"
        assert visitor.refused("/session/start", {"token": token}) == "503 ledger_unavailable"
        assert visitor.get("/health").status == 200
    assert visitor.metric("remit_evidence_write_failures_total") > before
    told = visitor.told("/evaluate", call)
    assert (told["decision"], told["budget_remaining"]["tool_calls"]) == ("PERMIT", 4)
    assert visitor.told(f"/sessions/{session}/attest")["claims"]["receipts"] == 1


def _write(visitor: Visitor, sql: str, *values: str) -> None:
    with closing(sqlite3.connect(visitor.proxy.home / "ledger.db")) as ledger, ledger:
        ledger.execute(sql, values)


def test_a_passport_that_was_damaged_where_it_is_kept_is_not_the_clients_fault(visitor: Visitor) -> None:
    session = visitor.start()
    _write(visitor, "UPDATE sessions SET passport = ? WHERE id = ?", visitor.passport()[:-86] + "A" * 86, session)
    assert visitor.refused("/evaluate", CALL | {"session_id": session}) == "500 state_corrupt"
    assert visitor.refused(f"/sessions/{session}/attest") == "500 state_corrupt"


def test_a_receipt_that_was_damaged_where_it_is_kept_is_not_given_again(visitor: Visitor) -> None:
    session = visitor.start()
    receipt = visitor.read(session, idempotency_key="k")
    forged = receipt["receipt"][:-86] + "A" * 86
    _write(visitor, "UPDATE receipts SET token = ? WHERE id = ?", forged, receipt["receipt_id"])
    again = CALL | {"session_id": session, "idempotency_key": "k"}
    assert visitor.refused("/evaluate", again) == "500 state_corrupt"


def test_a_session_of_an_older_copy_of_the_ledger_is_sealed(visitor: Visitor) -> None:
    session = visitor.start()
    _write(visitor, "UPDATE sessions SET cause = 'restored' WHERE id = ?", session)
    assert visitor.refused("/evaluate", CALL | {"session_id": session}) == "409 session_sealed"
    assert visitor.refused("/session/end", {"session_id": session}) == "409 session_sealed"


def test_every_status_has_its_place_in_the_table() -> None:
    """Those that no client can bring about by itself, or only at the Hub, are tested where they come from."""
    elsewhere = {"busy", "internal_error", "request_too_slow", "hub_auth_required", "origin_not_allowed"}
    # Of hooks, and of passports: test_handlers.py and test_authority_of_keys.py.
    elsewhere |= {"hook_secret_wrong", "passport_unregistered", "audience_mismatch"}
    here = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in ("test_errors.py", "test_routes.py"))
    assert {status.error_code for status in STATUSES.values() if status.error_code not in here} <= elsewhere
