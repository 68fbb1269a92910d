"""What can be asked, and which answers belong to it."""

import math
from typing import Any
from urllib.parse import unquote

import pytest

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
from tests.client.service import FORBIDDEN, SESSION, Desk, statement
from tests.world import KEYRING, MISSION, STRANGER, Session, denied, permitted

ARGUMENTS = {"path": "/srv/project/README.md", "lines": [1, 2.5, None, True], "ü": {"\U0001f600": "\u2028"}}
OUTCOME = Digest(alg="sha-256", value="A" * 43)


def test_everything_that_can_be_asked_is_answered(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.start("passport").session_id == SESSION
    permit = proxy.evaluate(SESSION, "read_file", ARGUMENTS, cwd="/srv")
    assert permit.decision == "PERMIT"
    assert proxy.evaluate(SESSION, FORBIDDEN, {}).decision == "DENY"
    assert proxy.result(SESSION, permit.receipt_id, OUTCOME).verdict == "compliant"
    assert proxy.delegate(SESSION, MISSION, request_id="one", cnf=Confirmation(jkt="A" * 43)).token == "p"
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
    "beyond doubles": (NotCanonicalizable, lambda: calls.evaluate(SESSION, "t", {"x": 2**60})),
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


def test_a_release_is_not_repeated_and_all_else_is() -> None:
    assert not calls.kill_switch(on=False).may_repeat
    assert calls.kill_switch(on=True).may_repeat
    assert calls.evaluate(SESSION, "t", {}).may_repeat


def test_a_call_shows_neither_passport_nor_body() -> None:
    assert "s3cret" not in repr(calls.start("s3cret"))


OTHER = Session("other")
FOREIGN = OTHER.append(permitted(tool="read_file"), {})
ASKED: dict[str, Any] = {
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
    ("attest", {"claims": {}}),
    ("attest", {"claims": statement("pass:other:0001", ended=False)}),
    ("attest and end", {"claims": statement(ended=False)}),
    ("delegate", {"session_id": "pass:other:0001"}),
    ("delegate", {"decision": "DENY"}),
    ("delegate", {"verdict": "violation"}),
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


def in_answer(receipt: Any, **more: Any) -> dict[str, Any]:
    return {"receipt": receipt.token, "receipt_hash": receipt.hash, "receipt_id": receipt.claims.receipt_id, **more}


MINE = Session()
STRANGE = Session(key=STRANGER, keyring=Keyring([TrustedKey(STRANGER.public, verifier_id(STRANGER.public))]))
READ = permitted(tool="read_file")
# Each is a genuine receipt of somebody, in an answer that permits.
FALSE_RECEIPTS: dict[str, dict[str, Any]] = {
    "of another session": in_answer(FOREIGN),
    "of other arguments": in_answer(MINE.append(READ, {"path": "/etc/shadow"})),
    "of another tool": in_answer(MINE.append(permitted(tool="list_files"), {})),
    "of a denial": in_answer(MINE.append(denied(tool="read_file"), {})),
    "under another id": in_answer(MINE.append(READ, {}), receipt_id="rcpt:other"),
    "by a stranger": in_answer(STRANGE.append(READ, {})),
}


@pytest.mark.parametrize("case", FALSE_RECEIPTS)
def test_with_a_keyring_a_permit_needs_a_receipt_of_this_call(
    case: str, connect: Connect, desk: Desk, port: int
) -> None:
    desk.change = FALSE_RECEIPTS[case]
    assert connect(port).evaluate(SESSION, "read_file", {}).decision == "PERMIT"
    with pytest.raises(ServiceUnavailable):
        connect(port, keyring=KEYRING).evaluate(SESSION, "read_file", {})


def test_with_a_keyring_an_outcome_needs_its_receipt(connect: Connect, desk: Desk, port: int) -> None:
    other = MINE.append(permitted(result_hash=Digest(alg="sha-256", value="B" * 43)), {})
    desk.change = in_answer(other)
    with pytest.raises(ServiceUnavailable):
        connect(port, keyring=KEYRING).result(SESSION, "rcpt:1", OUTCOME)


def test_a_denial_may_bring_the_receipt_of_a_permit_that_holds_no_more(connect: Connect, desk: Desk, port: int) -> None:
    desk.change = {"decision": "DENY", "verdict": "violation", "public_denial_reason": "revoked"}
    assert connect(port, keyring=KEYRING).evaluate(SESSION, "read_file", {}).decision == "DENY"


def test_a_long_name_of_a_tool_is_known_by_its_digest(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.evaluate(SESSION, "t" * 300, {}).decision == "PERMIT"
    desk.change = in_answer(MINE.append(permitted(tool="t" * 200 + "…" + "0" * 32), {}))
    with pytest.raises(ServiceUnavailable):
        proxy.evaluate(SESSION, "t" * 300, {})


def test_members_that_we_do_not_know_are_passed_over(connect: Connect, desk: Desk, port: int) -> None:
    desk.change = {"mood": {"good": [1, 2]}}
    assert connect(port).evaluate(SESSION, "read_file", {}).decision == "PERMIT"


def test_arguments_arrive_as_they_were_meant(desk: Desk, port: int) -> None:
    with Proxy(f"http://127.0.0.1:{port}") as proxy:
        proxy.evaluate(SESSION, "read_file", ARGUMENTS)
    assert desk.seen[0].body["arguments"] == ARGUMENTS
