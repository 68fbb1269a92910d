"""What can be asked, and which answers belong to it."""

import math
from typing import Any
from urllib.parse import unquote

import pytest
from msgspec import to_builtins

from remit import Keyring, TrustedKey, VerifyingKey, verifier_id
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest
from remit.client import Proxy, calls
from remit.errors import (
    FieldInvalid,
    InputError,
    JsonTooDeep,
    JsonTooLarge,
    NotCanonicalizable,
    ServiceRefused,
    ServiceUnavailable,
)
from tests.client.conftest import Connect
from tests.client.service import DELEGATE, FORBIDDEN, PASSPORT, SESSION, Desk, statement
from tests.world import KEYRING, MISSION

ARGUMENTS = {"path": "/srv/project/README.md", "lines": [1, 2.5, None, True], "ü": {"\U0001f600": "\u2028"}}
OUTCOME = Digest(alg="sha-256", value="A" * 43)


def test_everything_that_can_be_asked_is_answered(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.start(PASSPORT.token).session_id == SESSION
    permit = proxy.evaluate(SESSION, "read_file", ARGUMENTS, cwd="/srv")
    assert permit.decision == "PERMIT"
    assert proxy.evaluate(SESSION, FORBIDDEN, {}).decision == "DENY"
    assert proxy.result(SESSION, permit.receipt_id, OUTCOME).verdict == "compliant"
    assert proxy.delegate(SESSION, MISSION, request_id="one", cnf=Confirmation(jkt="A" * 43)).delegate_id == DELEGATE
    assert proxy.attest(SESSION).claims.state == "active"
    assert proxy.attest(SESSION, end=True).claims.state == "ended"
    assert proxy.end(SESSION).state == "ended"
    assert proxy.revoke(session_id=SESSION, lineage=True).revoked == SESSION
    assert proxy.revoke(passport_id=SESSION, reason="lost").revoked == SESSION
    assert proxy.kill_switch(on=True).on
    assert not proxy.kill_switch(on=False).on
    assert proxy.health().ok
    assert len({seen.connection for seen in desk.seen}) == 1


def test_the_keys_of_the_service_verify_its_receipts(connect: Connect, port: int) -> None:
    keys = [VerifyingKey.from_jwk(jwk) for jwk in connect(port).keys().keys]
    keyring = Keyring([TrustedKey(key, verifier_id(key)) for key in keys])
    assert connect(port, keyring=keyring).evaluate(SESSION, "read_file", {}).decision == "PERMIT"


def test_tokens_are_shown_where_they_belong(connect: Connect, desk: Desk, port: int) -> None:
    both, one, none = connect(port, token="t", admin_token="a"), connect(port, token="t"), connect(port)
    for proxy in (both, one, none):
        proxy.evaluate(SESSION, "read_file", {})
        proxy.revoke(session_id=SESSION)
        proxy.kill_switch(on=True)
    shown = [seen.headers.get("Authorization", "").removeprefix("Bearer ") for seen in desk.seen]
    assert shown == ["t", "a", "a", "t", "t", "t", "", "", ""]


def test_a_call_without_a_key_gets_one_of_its_own(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port)
    for _ in range(3):
        proxy.evaluate(SESSION, "read_file", {})
    assert len(desk.decided) == 3


def test_the_same_key_gets_the_same_receipt(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port)
    receipts = {proxy.evaluate(SESSION, "read_file", {}, idempotency_key="mine").receipt for _ in range(3)}
    assert (len(receipts), desk.decided) == (1, {"mine": 1})


NESTED: dict[str, Any] = {}
for _ in range(100):
    NESTED = {"in": NESTED}

REFUSED: dict[str, tuple[type[InputError], Any]] = {
    "not a number": (NotCanonicalizable, lambda: calls.evaluate(SESSION, "t", {"x": math.nan})),
    "beyond doubles": (NotCanonicalizable, lambda: calls.evaluate(SESSION, "t", {"x": 10**64})),
    "bytes": (NotCanonicalizable, lambda: calls.evaluate(SESSION, "t", {"x": b""})),
    "half a character": (NotCanonicalizable, lambda: calls.evaluate(SESSION, "t", {"x": "\ud800"})),
    "names that are numbers": (NotCanonicalizable, lambda: calls.evaluate(SESSION, "t", {1: ""})),  # type: ignore[dict-item]
    "too deep": (JsonTooDeep, lambda: calls.evaluate(SESSION, "t", NESTED)),
    "too large": (JsonTooLarge, lambda: calls.evaluate(SESSION, "t", {"x": "x" * 2**20})),
    "half a tool": (FieldInvalid, lambda: calls.evaluate(SESSION, "\ud800", {})),
    "no tool": (FieldInvalid, lambda: calls.evaluate(SESSION, "", {})),
    "no key": (FieldInvalid, lambda: calls.evaluate(SESSION, "t", {}, idempotency_key="")),
    "no session": (FieldInvalid, lambda: calls.end("")),
    "a name": (FieldInvalid, lambda: calls.attest("..")),
    "a query": (FieldInvalid, lambda: calls.attest("session?end=true")),
    "a line": (FieldInvalid, lambda: calls.attest("session1\n")),
    "no passport": (FieldInvalid, lambda: calls.start("")),
    "nothing to revoke": (FieldInvalid, calls.revoke),
    "two to revoke": (FieldInvalid, lambda: calls.revoke(passport_id=SESSION, session_id=SESSION)),
    "no request id": (FieldInvalid, lambda: calls.delegate(SESSION, MISSION, request_id="")),
    "not a digest": (FieldInvalid, lambda: calls.result(SESSION, "r", Digest(alg="sha-256", value="="))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_service_would_not_take_is_not_sent(case: str) -> None:
    error, build = REFUSED[case]
    with pytest.raises(error) as caught:
        build()
    assert caught.value.code == error.code


@pytest.mark.parametrize("session_id", ["session/a:b", "../../..", "/health/", "........"])
def test_a_session_id_stays_one_part_of_the_path(session_id: str, connect: Connect, desk: Desk, port: int) -> None:
    with pytest.raises(ServiceRefused):
        connect(port).attest(session_id)
    parts = desk.seen[0].path.split("/")
    assert [unquote(part) for part in parts] == ["", "sessions", session_id, "attest"]


def test_a_passport_that_cannot_be_read_starts_nothing(connect: Connect, port: int) -> None:
    for token in ("passport", PASSPORT.token.replace(".", "." * 2), f"{'e30.' * 2}e30"):
        with pytest.raises(ServiceUnavailable):
            connect(port).start(token)


def test_a_release_is_not_repeated_and_all_else_is() -> None:
    assert not calls.kill_switch(on=False).may_repeat
    assert calls.kill_switch(on=True).may_repeat
    assert calls.evaluate(SESSION, "t", {}).may_repeat


def test_a_call_shows_neither_passport_nor_body() -> None:
    assert "s3cret" not in repr(calls.start("s3cret"))


def said(*of: str, ended: bool) -> Any:
    return to_builtins(statement(*of, ended=ended).claims)


ASKED: dict[str, Any] = {
    "start": lambda proxy: proxy.start(PASSPORT.token),
    "evaluate": lambda proxy: proxy.evaluate(SESSION, "read_file", {}),
    "result": lambda proxy: proxy.result(SESSION, "rcpt:1", OUTCOME),
    "end": lambda proxy: proxy.end(SESSION),
    "attest": lambda proxy: proxy.attest(SESSION),
    "attest and end": lambda proxy: proxy.attest(SESSION, end=True),
    "delegate": lambda proxy: proxy.delegate(SESSION, MISSION, request_id="one"),
    "revoke": lambda proxy: proxy.revoke(session_id=SESSION),
    "revoke passport": lambda proxy: proxy.revoke(passport_id=SESSION),
    "kill": lambda proxy: proxy.kill_switch(on=True),
    "health": lambda proxy: proxy.health(),
}
UNBELIEVED: list[tuple[str, dict[str, Any]]] = [
    ("start", {"session_id": "pass:other:0001"}),
    ("start", {"agent_id": "agent:other"}),
    ("start", {"mission": "Do as you like"}),
    ("start", {"allowed_tools": ["*"]}),
    ("start", {"forbidden_tools": []}),
    ("start", {"resource_scope": ["/"]}),
    ("start", {"max_tool_calls": 21}),
    ("start", {"max_duration_s": 901}),
    ("start", {"allowed_side_effect_classes": ["none"]}),
    ("evaluate", {"session_id": "pass:other:0001"}),
    ("evaluate", {"decision": "permit"}),
    ("evaluate", {"decision": "ALLOW"}),
    ("evaluate", {"decision": None}),
    ("evaluate", {"decision": True}),
    ("evaluate", {"ok": False}),
    ("evaluate", {"ok": 1}),
    ("evaluate", {"verdict": "violation"}),
    ("evaluate", {"verdict": "insufficient_evidence"}),
    ("evaluate", {"public_denial_reason": "revoked"}),
    ("evaluate", {"receipt_hash": "0" * 64}),
    ("evaluate", {"receipt": "a.b.c"}),
    ("evaluate", {"budget_remaining": {"tool_calls": -1}}),
    ("result", {"session_id": "pass:other:0001"}),
    ("result", {"receipt_hash": "0" * 64}),
    ("end", {"session_id": "pass:other:0001"}),
    ("end", {"state": "active"}),
    ("end", {"ended_at": None}),
    ("attest", {"claims": {}}),
    ("attest", {"claims": said("pass:other:0001", ended=False)}),
    ("attest and end", {"claims": said(ended=False)}),
    ("delegate", {"session_id": "pass:other:0001"}),
    ("delegate", {"decision": "DENY"}),
    ("delegate", {"verdict": "violation"}),
    ("delegate", {"delegate_id": None}),
    ("revoke", {"revoked": "pass:other:0001"}),
    ("revoke", {"session": None}),
    ("revoke passport", {"revoked": "pass:other:0001", "session": None}),
    ("kill", {"on": False}),
    ("health", {"ok": False}),
    ("health", {"version": None}),
]


@pytest.mark.parametrize(("asked", "change"), UNBELIEVED)
def test_an_answer_that_is_not_to_the_request_is_no_answer(
    asked: str, change: dict[str, Any], connect: Connect, desk: Desk, port: int
) -> None:
    desk.change = change
    with pytest.raises(ServiceUnavailable) as caught:
        ASKED[asked](connect(port))
    assert caught.value.code == "service_unavailable"


def test_members_that_we_do_not_know_are_passed_over(connect: Connect, desk: Desk, port: int) -> None:
    desk.change = {"mood": {"good": [1, 2]}}
    assert connect(port).evaluate(SESSION, "read_file", {}).decision == "PERMIT"


def test_arguments_arrive_as_they_were_meant(desk: Desk, port: int) -> None:
    with Proxy(f"http://127.0.0.1:{port}") as proxy:
        proxy.evaluate(SESSION, "read_file", ARGUMENTS)
    assert desk.seen[0].body["arguments"] == ARGUMENTS
