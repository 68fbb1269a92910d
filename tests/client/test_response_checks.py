"""A client with a keyring, and somebody in between who has no key: what is not signed for this request is not believed.

All receipts, passports and statements here are genuine, of somebody.
"""

import json
from typing import Any

import pytest
from msgspec import structs, to_builtins

from remit import Keyring, Mission, TrustedKey, issue_passport, verifier_id
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest, SignedReceipt
from remit.client.response_checks import MAX_AGE_S, MAX_REMEMBERED, SeenReceipts
from remit.errors import ServiceUnavailable
from tests.client.conftest import Connect
from tests.client.service import (
    DELEGATE,
    PASSPORT,
    SESSION,
    Canned,
    Desk,
    delegation,
    outcome,
    session_now,
    statement,
)
from tests.world import ISSUER, KEYRING, MISSION, NOW, OURS, STRANGER, Session, denied, permitted

OUTCOME, OTHER_OUTCOME = Digest(alg="sha-256", value="A" * 43), Digest(alg="sha-256", value="B" * 43)
STRANGER_ISSUER = verifier_id(STRANGER.public)
MINE, OTHER = session_now(), session_now("other")
LONG_AGO = Session(now=NOW - 10**8)
STRANGE = Session(key=STRANGER, keyring=Keyring([TrustedKey(STRANGER.public, STRANGER_ISSUER)]), now=MINE.now)
READ = permitted(tool="read_file")


def in_answer(receipt: SignedReceipt, **more: Any) -> dict[str, Any]:
    return {"receipt": receipt.token, "receipt_hash": receipt.hash, "receipt_id": receipt.claims.receipt_id, **more}


# Each is in an answer that permits.
FALSE_RECEIPTS: dict[str, dict[str, Any]] = {
    "of another session": in_answer(OTHER.append(READ, {})),
    "of other arguments": in_answer(MINE.append(READ, {"path": "/etc/shadow"})),
    "of another tool": in_answer(MINE.append(permitted(tool="list_files"), {})),
    "of a denial": in_answer(MINE.append(denied(tool="read_file"), {})),
    "under another id": in_answer(MINE.append(READ, {}), receipt_id="rcpt:other"),
    "by a stranger": in_answer(STRANGE.append(READ, {})),
    "of long ago": in_answer(LONG_AGO.append(READ, {})),
}


@pytest.mark.parametrize("case", FALSE_RECEIPTS)
def test_a_permit_needs_a_receipt_of_this_call(case: str, connect: Connect, desk: Desk, port: int) -> None:
    desk.change = FALSE_RECEIPTS[case]
    assert connect(port).evaluate(SESSION, "read_file", {}).decision == "PERMIT"
    with pytest.raises(ServiceUnavailable) as caught:
        connect(port, keyring=KEYRING).evaluate(SESSION, "read_file", {})
    assert caught.value.code == "service_unavailable"


def test_a_receipt_serves_one_request(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    first = proxy.evaluate(SESSION, "read_file", {})
    desk.change = {name: getattr(first, name) for name in ("receipt", "receipt_hash", "receipt_id")}
    for key in (None, "mine"):
        with pytest.raises(ServiceUnavailable):
            proxy.evaluate(SESSION, "read_file", {}, idempotency_key=key)
    desk.change = {}
    assert proxy.evaluate(SESSION, "read_file", {}).decision == "PERMIT"


def test_under_a_key_of_the_callers_own_a_receipt_may_be_old_and_come_again(
    connect: Connect, desk: Desk, port: int
) -> None:
    desk.change = FALSE_RECEIPTS["of long ago"]
    proxy = connect(port, keyring=KEYRING)
    for _ in range(2):
        assert proxy.evaluate(SESSION, "read_file", {}, idempotency_key="mine").decision == "PERMIT"


@pytest.mark.parametrize(("behind_s", "believed"), [(MAX_AGE_S - 30, True), (MAX_AGE_S + 30, False)])
def test_the_clock_of_the_service_may_be_a_little_behind(
    behind_s: int, believed: bool, connect: Connect, desk: Desk, port: int
) -> None:
    desk.session.now -= behind_s
    proxy = connect(port, keyring=KEYRING)
    if believed:
        assert proxy.evaluate(SESSION, "read_file", {}).decision == "PERMIT"
    else:
        with pytest.raises(ServiceUnavailable):
            proxy.evaluate(SESSION, "read_file", {})


def test_what_a_client_remembers_has_an_end() -> None:
    seen = SeenReceipts()
    assert all(seen.remember(f"rcpt:{number}", "key") for number in range(MAX_REMEMBERED))
    assert not seen.remember("rcpt:0", "other")
    assert seen.remember("rcpt:new", "key")
    assert seen.remember("rcpt:0", "other")


def test_a_denial_may_bring_the_receipt_of_a_permit_that_holds_no_more(connect: Connect, desk: Desk, port: int) -> None:
    desk.change = {"decision": "DENY", "verdict": "violation", "public_denial_reason": "revoked"}
    assert connect(port, keyring=KEYRING).evaluate(SESSION, "read_file", {}).decision == "DENY"


def test_a_long_name_of_a_tool_is_known_by_its_digest(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.evaluate(SESSION, "t" * 300, {}).decision == "PERMIT"
    desk.change = in_answer(MINE.append(permitted(tool="t" * 200 + "…" + "0" * 32), {}))
    with pytest.raises(ServiceUnavailable):
        proxy.evaluate(SESSION, "t" * 300, {})


FALSE_OUTCOMES: dict[str, dict[str, Any]] = {
    "another outcome": in_answer(MINE.append(outcome("rcpt:0001", OTHER_OUTCOME))),
    "another call": in_answer(MINE.append(outcome("rcpt:0002", OUTCOME))),
    "no call": in_answer(MINE.append(outcome("rcpt:0001", OUTCOME, evidence_proof_ref="rcpt:0001"))),
    "a decision": in_answer(MINE.append(outcome("rcpt:0001", OUTCOME, tool="read_file"))),
    "another verdict": {"verdict": "violation"},
}


@pytest.mark.parametrize("case", FALSE_OUTCOMES)
def test_an_outcome_needs_its_receipt(case: str, connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.result(SESSION, "rcpt:0001", OUTCOME).verdict == "compliant"
    desk.change = FALSE_OUTCOMES[case]
    with pytest.raises(ServiceUnavailable):
        proxy.result(SESSION, "rcpt:0001", OUTCOME)


def attested(of: str = SESSION, **how: Any) -> dict[str, Any]:
    signed = statement(of, **({"ended": True} | how))
    return {"token": signed.token, "claims": to_builtins(signed.claims)}


FALSE_STATEMENTS: dict[str, dict[str, Any]] = {
    "no token": {"token": "garbage"},
    "another statement": {"token": attested(now=PASSPORT.issued_at - 5)["token"]},
    "another token": {"token": PASSPORT.token},
    "other claims": {"claims": attested()["claims"] | {"receipts": 9}},
    "by a stranger": attested(key=STRANGER),
    "of long ago": attested(now=NOW - 10**8),
    "of another session": attested("pass:other:0001"),
}


@pytest.mark.parametrize("case", FALSE_STATEMENTS)
def test_a_statement_is_what_its_token_says(case: str, connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.attest(SESSION, end=True).claims.state == "ended"
    desk.change = FALSE_STATEMENTS[case]
    with pytest.raises(ServiceUnavailable):
        proxy.attest(SESSION, end=True)


ASKED = structs.replace(
    MISSION, max_tool_calls=5, resource_scope=("src",), forbidden_tools=("git_tag",), cwd="/work/project/lib"
)


def passport(mission: Mission = ASKED, **changes: Any) -> dict[str, Any]:
    how: dict[str, Any] = {
        "key": OURS,
        "issuer": ISSUER,
        "jti": DELEGATE,
        "now": PASSPORT.issued_at,
        "parent": PASSPORT,
    }
    return {"token": issue_passport(mission, **(how | changes)).token}


OTHER_PARENT = issue_passport(MISSION, OURS, issuer=ISSUER, jti="pass:other:0001", now=PASSPORT.issued_at)
EARLIER = issue_passport(MISSION, OURS, issuer=ISSUER, jti=SESSION, now=PASSPORT.issued_at - 500)
FALSE_DELEGATES: dict[str, dict[str, Any]] = {
    "no passport": {"token": "p"},
    "a wide passport": {"token": PASSPORT.token},
    "a stranger's": passport(key=STRANGER, issuer=STRANGER_ISSUER),
    "of another id": passport(jti="pass:delegate:0002"),
    "of another session": passport(parent=OTHER_PARENT),
    "expired": passport(lifetime_s=1, now=EARLIER.issued_at, parent=EARLIER),
    "bound": passport(bound_to=Confirmation(jkt="A" * 43)),
    "for another agent": passport(structs.replace(ASKED, agent_id="agent:other")),
    "for more calls": passport(structs.replace(ASKED, max_tool_calls=6)),
    "for more tools": passport(structs.replace(ASKED, allowed_tools=("read_file", "git_log", "git_*"))),
    "for another place": passport(structs.replace(ASKED, resource_scope=("docs",))),
    "for more places": passport(structs.replace(ASKED, resource_scope=("src", "docs"))),
    "for tools that were forbidden": passport(structs.replace(ASKED, forbidden_tools=())),
    "from another folder": passport(structs.replace(ASKED, cwd="/work/project/doc")),
    "under another name": {"delegate_id": "pass:delegate:0002"},
    "a receipt of a call": in_answer(MINE.append(permitted())),
    "a receipt of a call like it": in_answer(MINE.append(delegation("one", tool="read_file"))),
    "a receipt of another request": in_answer(MINE.append(delegation("two"))),
    "a receipt of another delegate": in_answer(MINE.append(delegation("one", target="pass:delegate:0002"))),
}


@pytest.mark.parametrize("case", FALSE_DELEGATES)
def test_a_delegate_gets_the_passport_that_was_asked_for(case: str, connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    assert proxy.delegate(SESSION, ASKED, request_id="one").delegate_id == DELEGATE
    desk.change = FALSE_DELEGATES[case]
    with pytest.raises(ServiceUnavailable):
        proxy.delegate(SESSION, ASKED, request_id="one")


def test_a_delegate_may_start_where_its_parent_does(connect: Connect, port: int) -> None:
    asked = structs.replace(ASKED, cwd=None, allowed_tools=["read_file"])  # a list, as callers may write it
    assert connect(port, keyring=KEYRING).delegate(SESSION, asked, request_id="one").decision == "PERMIT"


REFUSAL = {"decision": "DENY", "verdict": "violation", "public_denial_reason": "budget_exhausted"}
REJECTED = MINE.append(denied(tool="remit.delegate", target=SESSION, budget_delta=delegation("one").budget_delta))


def answered(receipt: SignedReceipt, **members: Any) -> Canned:
    whole = {"ok": True, "session_id": SESSION, "reason": "so", "repeated": False}
    return Canned(body=json.dumps(whole | in_answer(receipt) | members).encode())


def test_a_refused_delegation_needs_its_receipt_too(connect: Connect, desk: Desk, port: int) -> None:
    proxy = connect(port, keyring=KEYRING)
    desk.script = [answered(REJECTED, **REFUSAL), answered(MINE.append(denied()), **REFUSAL)]
    assert proxy.delegate(SESSION, ASKED, request_id="one").decision == "DENY"
    with pytest.raises(ServiceUnavailable):
        proxy.delegate(SESSION, ASKED, request_id="one")


PERMISSION = {"decision": "PERMIT", "verdict": "compliant"}


@pytest.mark.parametrize(
    "members",
    [REFUSAL | passport(), REFUSAL | {"delegate_id": DELEGATE}, PERMISSION | passport(),
     PERMISSION | {"delegate_id": DELEGATE}],
)  # fmt: skip
def test_a_passport_comes_whole_with_a_permit_and_only_then(
    members: dict[str, Any], connect: Connect, desk: Desk, port: int
) -> None:
    desk.script = [answered(REJECTED, **members)]
    with pytest.raises(ServiceUnavailable):
        connect(port).delegate(SESSION, ASKED, request_id="one")
