"""Attestations: what they count can be counted again."""

import json

import pytest
from msgspec import to_builtins

from remit import (
    BrokenChain,
    Keyring,
    SessionSummary,
    SignedAttestation,
    SignedReceipt,
    SigningKey,
    Tally,
    TrustedKey,
    sign_attestation,
    verifier_id,
    verify_attestation,
    verify_session,
)
from remit.claims.attestation import OTHER_TOOLS
from remit.claims.jws import ATTESTATION, sign_token
from remit.claims.merkle import hash_leaf, merkle_root, prove_inclusion, verify_inclusion
from remit.claims.strictjson import JSON
from remit.errors import AttestationMismatch, FieldInvalid, PayloadInvalid
from tests.world import ISSUER, KEYRING, MISSION, NOW, OURS, STRANGER, Session, lineage_named, permitted, session_of

LATER = NOW + 1000

SUMMARY = SessionSummary(
    session_id=lineage_named().grant_id,
    agent_id=MISSION.agent_id,
    mission=MISSION.mission,
    state="ended",
    started_at="2026-09-21T14:13:20Z",
    ended_at="2026-09-21T14:20:00Z",
    budget_used={"tool_calls": 5, "duration_s": 400},
)


def attest(
    receipts: list[SignedReceipt], summary: SessionSummary = SUMMARY, key: SigningKey = OURS
) -> SignedAttestation:
    tally = Tally()
    for receipt in receipts:
        tally.add(receipt)
    issuer = verifier_id(key.public)
    return sign_attestation(summary, tally, key, issuer=issuer, jti="att:00000001", now=LATER, chain_verified=True)


@pytest.mark.parametrize(("before", "in_all"), [(0, 0), (0, 5), (2, 5), (5, 5), (5, 3)])
def test_a_statement_on_a_broken_chain_counts_all_receipts_and_says_where_it_breaks(before: int, in_all: int) -> None:
    tally = Tally()
    for receipt in session_of(7).receipts[:before]:
        tally.add(receipt)
    signed = sign_attestation(
        SUMMARY,
        tally,
        OURS,
        issuer=ISSUER,
        jti="att:00000001",
        now=LATER,
        chain_verified=False,
        receipts_in_all=in_all,
    )
    claims = verify_attestation(signed.token, KEYRING)
    assert (claims.receipts, claims.broken_at) == (max(before, in_all), before + 1)
    assert attest(session_of(7).receipts).claims.broken_at is None


def test_an_attestation_sums_up_its_session() -> None:
    session = session_of(7)
    signed = attest(session.receipts)
    claims = verify_session(signed.token, session.tokens, KEYRING)
    assert claims == signed.claims
    assert (claims.receipts, claims.verdicts) == (7, {"compliant": 5, "violation": 2, "insufficient_evidence": 0})
    assert (claims.tools, claims.denials) == ({"read_file": 5, "write_file": 2}, {"policy_denied": 2})
    assert claims.side_effects == {"none": 5, "internal_write": 0, "external_send": 0, "state_change": 0}
    assert claims.first_receipt_id == session.receipts[0].claims.receipt_id
    assert (claims.last_receipt_id, claims.last_receipt_hash) == (session.head.receipt_id, session.head.receipt_hash)
    assert (claims.sub, claims.iss, claims.exp) == (MISSION.agent_id, ISSUER, LATER + 365 * 24 * 3600)


def test_the_root_proves_each_receipt_by_itself() -> None:
    session = session_of(5)
    leaves = [hash_leaf(token.encode()) for token in session.tokens]
    root = bytes.fromhex(attest(session.receipts).claims.receipts_root)
    assert root == merkle_root(leaves)
    for index, leaf in enumerate(leaves):
        verify_inclusion(leaf, index, 5, prove_inclusion(leaves, index), root)


def test_a_session_without_calls_can_be_attested() -> None:
    claims = verify_session(attest([], SUMMARY._replace(state="active", ended_at=None)).token, [], KEYRING)
    assert (claims.receipts, claims.first_receipt_id, claims.ended_at) == (0, None, None)


def test_an_attestation_by_another_issuer_over_our_receipts_is_not_confirmed() -> None:
    session = session_of(3)
    keyring = Keyring([*KEYRING, TrustedKey(STRANGER.public, verifier_id(STRANGER.public))])
    with pytest.raises(AttestationMismatch) as caught:
        verify_session(attest(session.receipts, key=STRANGER).token, session.tokens, keyring)
    assert caught.value.member == "iss"


def test_an_agent_that_invents_tools_does_not_outgrow_the_statement() -> None:
    session = Session()
    tally = Tally()
    for number in range(260):
        odd = number % 2
        name = f"{number:04}" + ("\U0001f600" * 60 if odd else "x" * 60)
        tally.add(session.append(permitted(tool=name)))
    summary = SUMMARY._replace(mission="\x01" * 4096, agent_id="\U0001f600" * 256)
    signed = sign_attestation(summary, tally, OURS, issuer=ISSUER, jti="att:00000001", now=LATER, chain_verified=True)
    claims = verify_attestation(signed.token, KEYRING)
    assert sum(claims.tools.values()) == claims.receipts == 260
    assert claims.tools[OTHER_TOOLS] == 130


def test_two_hundred_tools_are_named_whatever_comes_between_them() -> None:
    session, tally = Session(), Tally()
    names = ["\u00fc", *(f"tool_{number}" for number in range(201)), OTHER_TOOLS, "tool_0"]
    for name in names:
        tally.add(session.append(permitted(tool=name)))
    assert len(tally.tools) == 201
    assert (tally.tools["tool_0"], tally.tools["tool_199"], tally.tools[OTHER_TOOLS]) == (2, 1, 3)


def test_an_attestation_of_another_agent_is_not_confirmed() -> None:
    session = session_of(2)
    with pytest.raises(AttestationMismatch) as caught:
        verify_session(
            attest(session.receipts, SUMMARY._replace(agent_id="agent:other")).token, session.tokens, KEYRING
        )
    assert caught.value.member == "sub"


def test_an_attestation_from_before_its_receipts_is_not_confirmed() -> None:
    session = session_of(2)
    tally = Tally()
    for receipt in session.receipts:
        tally.add(receipt)
    early = sign_attestation(SUMMARY, tally, OURS, issuer=ISSUER, jti="att:00000001", now=NOW, chain_verified=True)
    with pytest.raises(AttestationMismatch) as caught:
        verify_session(early.token, session.tokens, KEYRING)
    assert caught.value.member == "iat"


def test_a_broken_chain_is_named_before_anything_else_is_compared() -> None:
    session = session_of(3)
    with pytest.raises(BrokenChain):
        verify_session(attest([], SUMMARY._replace(agent_id="x")).token, session.tokens[1:], KEYRING)


def test_the_fullest_statement_still_fits_its_token() -> None:
    tally = Tally()
    tally.tools.update({f"{number:064}": 2**52 for number in range(200)} | {OTHER_TOOLS: 1})
    summary = SUMMARY._replace(mission="\x01" * 4096, agent_id="\U0001f600" * 256)
    sign_attestation(summary, tally, OURS, issuer=ISSUER, jti="att:00000001", now=LATER, chain_verified=True)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"started_at": "2026-09-21T12:00:60Z"}, "$.started_at"),
        ({"ended_at": "2026-09-21T12:00:60Z"}, "$.ended_at"),
        ({"state": "asleep"}, "$.state"),
        ({"state": "active"}, "$.ended_at"),
        ({"ended_at": None}, "$.ended_at"),
        ({"budget_used": {"tool calls": 1}}, "$.budget_used"),
    ],
    ids=str,
)
def test_what_breaks_a_rule_is_not_signed(change: dict[str, object], place: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        attest([], SUMMARY._replace(**change))  # type: ignore[arg-type]
    assert caught.value.place == place


def test_an_attestation_that_ends_before_it_begins_is_refused() -> None:
    claims = to_builtins(attest([]).claims) | {"exp": LATER}
    with pytest.raises(PayloadInvalid) as caught:
        verify_attestation(sign_token(ATTESTATION, json.dumps(claims).encode(), OURS), KEYRING)
    assert caught.value.place == "$.exp"


def test_a_genuine_token_with_other_claims_is_refused() -> None:
    token = sign_token(ATTESTATION, f'{{"iss":"{ISSUER}"}}'.encode(), OURS)
    with pytest.raises(PayloadInvalid) as caught:
        verify_attestation(token, KEYRING)
    assert caught.value.fault == "field_invalid"


def tally_of(receipts: list[SignedReceipt]) -> Tally:
    tally = Tally()
    for receipt in receipts:
        tally.add(receipt)
    return tally


@pytest.mark.parametrize("length", range(8))
def test_a_tally_that_was_written_down_counts_on_as_before(length: int) -> None:
    receipts = session_of(7).receipts
    state = json.loads(json.dumps(tally_of(receipts[:length]).to_state()))
    restored = Tally.from_state(state)
    assert restored.to_state() == state
    for receipt in receipts[length:]:
        restored.add(receipt)
    assert restored.counted() == tally_of(receipts).counted()


STATE = tally_of(session_of(4).receipts).to_state()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"first_receipt_id": None}, "$.first_receipt_id"),
        ({"last_receipt_id": None}, "$.last_receipt_id"),
        ({"last_receipt_hash": None}, "$.last_receipt_hash"),
        ({"last_receipt_hash": "A" * 64}, "$.last_receipt_hash"),
        ({"verdicts": {"compliant": 3, "violation": 1}}, "$.verdicts"),
        ({"verdicts": {"compliant": 3, "violation": 2, "insufficient_evidence": 0}}, "$.verdicts"),
        ({"verdicts": {"compliant": 2, "violation": 2, "insufficient_evidence": 0}}, "$.side_effects"),
        ({"tools": {"read_file": 3}}, "$.tools"),
        ({"tools": {"read_file": 4, "write_file": 0}}, "$.tools"),
        ({"tools": {"read\u00fcfile": 4}}, "$.tools"),
        ({"tools": {"x" * 65: 4}}, "$.tools"),
        ({"side_effects": {"none": 3}}, "$.side_effects"),
        ({"denials": {}}, "$.denials"),
        ({"denials": {"policy_denied": 1, "revoked": 0}}, "$.denials"),
        ({"denials": {"policy_denied": 1.0}}, "$.denials[...]"),
        ({"tree": {"size": 4, "peaks": []}}, "$.tree.peaks"),
        ({"tree": {"size": 0, "peaks": []}}, "$.first_receipt_id"),
        ({"tree": None}, "$.tree"),
        ({"more": 1}, "$"),
    ],
    ids=str,
)
def test_a_count_that_contradicts_itself_is_refused(change: dict[str, JSON], place: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        Tally.from_state(STATE | change)
    assert (caught.value.code, caught.value.place) == ("field_invalid", place)


def test_a_count_names_two_hundred_tools_and_the_others_together() -> None:
    size = 201
    named: dict[str, JSON] = {f"tool_{number}": 1 for number in range(200)}
    state = STATE | {
        "verdicts": {"compliant": size, "violation": 0, "insufficient_evidence": 0},
        "side_effects": {"none": size, "internal_write": 0, "external_send": 0, "state_change": 0},
        "denials": {},
        "tree": {"size": size, "peaks": ["0" * 64] * size.bit_count()},
    }
    assert len(Tally.from_state(state | {"tools": named | {OTHER_TOOLS: 1}}).tools) == size
    with pytest.raises(FieldInvalid) as caught:
        Tally.from_state(state | {"tools": named | {"tool_200": 1}})
    assert caught.value.place == "$.tools"
