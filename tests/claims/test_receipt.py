"""Receipts: types and schema give one answer, others' validators accept ours, and only what verifies is signed."""

import json
from typing import Any

import jsonschema
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs, to_builtins

from remit import Receipt, SignedReceipt, canonicalize, extend, parse_json, parse_receipt, sign_receipt, verify_receipt
from remit.claims.receipt import MAX_TOOL, LegacyBudgetDelta, LineageBudgetDelta, Measurement, receipt_tool_name
from remit.claims.types import encode
from remit.errors import FieldInvalid, InputError
from tests.claims.schema_walk import SCHEMA, breakages, obeying
from tests.world import KEYRING, NOW, OURS, Session, denied, permitted, session_of

Case = dict[str, Any]

BY_SCHEMA = jsonschema_rs.validator_for(SCHEMA, validate_formats=True)

DIGEST = {"alg": "sha-384", "value": "AAAA", "canonicalization": "none", "scope": "custom"}
FULL: dict[str, Any] = to_builtins(session_of(3).receipts[-1].claims) | {
    "content_class": "source code",
    "content_provenance": {"source": "mixed", "evidence_refs": ["evidence:1"], "transformed": True},
    "sensitivity": "internal",
    "instruction_bearing": False,
    "budget_delta": {"bucket": "calls", "unit": "usd", "delta": 1, "remaining_after": 2, "ceiling": 3},
    "result_hash": DIGEST,
    "evidence_proof_ref": {"type": "log", "uri": "u", "mission_ref": [1], "mission_digest": "d", "other": None},
    "measurements": {
        "m": {
            "kind": "custom",
            "status": "absent",
            "digest": DIGEST,
            "collected_at": "2026-01-01T00:00:00Z",
            "description": "d",
            "detached": True,
        }
    },
    "policy_decisions": [{"backend": "b", "decision": "d", "reason": None, "eval_ms": 1.5}],
}
LINEAGE_DELTA = {
    "operation": "reserve",
    "resource": "calls",
    "amount": 1,
    "unit": "calls",
    "remaining_for_parent": 1,
    "remaining_after": 1,
    "used_total": 1,
    "reserved_total": 1,
    "side_effect_class": "none",
    "delegation_request_id": "r",
    "idempotent": True,
}
PERMIT = {name: item for name, item in FULL.items() if not name.endswith(("denial_reason", "denial_code"))}
EXAMPLES = [
    FULL,
    FULL | {"budget_delta": LINEAGE_DELTA, "evidence_proof_ref": "text", "parent_receipt_id": None},
    PERMIT | {"verdict": "compliant", "parent_receipt_hash": None},
]


def by_types(value: object) -> bool:
    """Answer as a verifier does, who reads a receipt's bytes; in canonical form 1.0 and 1 are the same bytes."""
    try:
        parse_receipt(parse_json(canonicalize(value)))
    except InputError:
        return False
    return True


@pytest.mark.parametrize("example", EXAMPLES, ids=["denial", "lineage", "permit"])
def test_types_and_schema_agree_on_every_rule_broken_alone(example: dict[str, Any]) -> None:
    assert by_types(example)
    assert BY_SCHEMA.is_valid(example)
    refused = 0
    for breakage in breakages(example):
        value = breakage.applied_to(example)
        answer = BY_SCHEMA.is_valid(value)
        assert by_types(value) == answer, str(breakage)
        refused += not answer
    assert refused > 500


def with_denial(claims: dict[str, Any], denial: dict[str, str]) -> dict[str, Any]:
    rest = {name: item for name, item in claims.items() if name not in denial}
    return rest if claims["verdict"] == "compliant" else rest | denial


CLAIMS = obeying(SCHEMA).flatmap(
    lambda claims: st.fixed_dictionaries(
        {name: obeying(SCHEMA["properties"][name]) for name in ("public_denial_reason", "internal_denial_code")}
    ).map(lambda denial: with_denial(claims, denial))
)


@pytest.mark.slow
@given(CLAIMS)
def test_types_and_schema_accept_whatever_obeys_the_rules(claims: dict[str, Any]) -> None:
    assert BY_SCHEMA.is_valid(claims)
    assert canonicalize(to_builtins(parse_receipt(parse_json(canonicalize(claims))))) == canonicalize(claims)


@pytest.mark.slow
@given(obeying(SCHEMA), st.data())
def test_types_and_schema_agree_on_random_receipts_damaged_at_random(claims: Case, data: st.DataObject) -> None:
    assert by_types(claims) == BY_SCHEMA.is_valid(claims)
    breakage = data.draw(st.sampled_from(breakages(claims)))
    value = breakage.applied_to(claims)
    assert by_types(value) == BY_SCHEMA.is_valid(value), str(breakage)


def test_a_newline_in_one_value_does_not_move_the_others() -> None:
    """Each value here is what the claim after it should be, as if one string had slipped in."""
    shifted = {
        "receipt_id": "rcpt:0000\nrcpt:0001",
        "grant_id": "rcpt:parent",
        "parent_receipt_id": "a" * 64,
        "parent_receipt_hash": "b" * 64,
        "trace_id": "nonce-nonce-nonce",
        "run_nonce": "c" * 64,
        "arguments_hash": "2026-01-01T00:00:00Z",
        "timestamp": "jti:00000",
        "jti": "tool_calls",
    }
    assert not BY_SCHEMA.is_valid(FULL | shifted)
    assert not by_types(FULL | shifted)


def test_validators_that_others_wrote_accept_our_receipts() -> None:
    slow = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for receipt in session_of(6).receipts:
        claims = json.loads(encode(receipt.claims))
        slow.validate(claims)
        BY_SCHEMA.validate(claims)


def test_the_schema_is_closed_and_says_which_draft_it_is() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["additionalProperties"] is False
    assert set(SCHEMA["properties"]) == set(Receipt.__struct_fields__)


@pytest.mark.parametrize("example", EXAMPLES, ids=["denial", "lineage", "permit"])
def test_a_receipt_comes_out_of_verification_as_it_was_signed(example: dict[str, Any]) -> None:
    signed = sign_receipt(parse_receipt(example | {"iss": KEYRING.find(OURS.kid).issuer}), OURS)
    verified = verify_receipt(signed.token, KEYRING)
    assert (verified, verified.hash) == (signed, signed.hash)


def test_a_budget_delta_is_read_as_the_form_it_has() -> None:
    assert isinstance(parse_receipt(FULL).budget_delta, LegacyBudgetDelta)
    assert isinstance(parse_receipt(FULL | {"budget_delta": LINEAGE_DELTA}).budget_delta, LineageBudgetDelta)
    with pytest.raises(FieldInvalid) as caught:
        parse_receipt(FULL | {"budget_delta": LINEAGE_DELTA | {"amount": -1}})
    assert caught.value.place == "$.budget_delta.amount"
    with pytest.raises(FieldInvalid):
        parse_receipt(FULL | {"budget_delta": "all of it"})


def extend_with(**changes: object) -> SignedReceipt:
    return extend(Session().head, permitted(**changes), OURS, arguments={}, new_id="rcpt:" + "0" * 32, now=NOW)


def cyclic() -> dict[str, Any]:
    holder: dict[str, Any] = {"type": "x"}
    holder["self"] = holder
    return holder


def deep(levels: int) -> dict[str, Any]:
    return {"type": "x", "deep": json.loads("[" * levels + "]" * levels)}


@pytest.mark.parametrize(
    "changes",
    [
        {"tool": ""},
        {"tool": "\ud800"},
        {"target": "t" * 2049},
        {"reason": ""},
        {"timestamp": "yesterday"},
        {"budget_remaining": {"tool_calls": -1}},
        {"budget_remaining": {"tool_calls": 2**60}},
        {"budget_remaining": {"tool_calls": object()}},
        {"policy_decisions": ({"backend": "b", "decision": "d", "eval_ms": 2**60},)},
        {"verdict": "violation"},
        {"internal_denial_code": "x"},
        {"evidence_proof_ref": {"uri": "no type"}},
        {"evidence_proof_ref": {"type": "x", "n": float("nan")}},
        {"evidence_proof_ref": {"type": "x", "n": 2**60}},
        {"evidence_proof_ref": {"type": "x", "n": object()}},
        {"evidence_proof_ref": deep(63)},
        {"evidence_proof_ref": cyclic()},
        {"evidence_proof_ref": {"type": "x", "n": [0] * 9990}},
        {"evidence_proof_ref": msgspec.Raw(b'{"type":"x","type":"y"}')},
        {"evidence_proof_ref": Measurement(kind="custom", status="fail")},
        {"budget_remaining": {1: 5, "1": 6}},
        {"budget_remaining": cyclic()},
        {"budget_remaining": msgspec.Raw(b"{")},
        {"measurements": {}},
        {"measurements": {"m": Measurement(kind="custom", status="fail", collected_at="2026-01-01T12:00:60Z")}},
        {"measurements": {"m": Measurement(kind="odd", status="fail")}},  # type: ignore[arg-type]
    ],
    ids=range(26),
)
def test_what_no_verifier_would_take_is_not_signed(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        extend_with(**changes)


def test_free_members_just_within_the_limits_are_signed() -> None:
    for ref in (deep(62), {"type": "x", "n": 1e20}, {"type": "x", "n": [0] * 9900}):
        signed = extend_with(evidence_proof_ref=ref)
        assert verify_receipt(signed.token, KEYRING) == signed


def test_the_longest_receipt_fits_its_token() -> None:
    signed = extend_with(target="\U0001f600" * 2048, reason="\U0001f600" * 4096)
    assert verify_receipt(signed.token, KEYRING) == signed


def test_a_receipt_is_not_taken_for_a_step() -> None:
    receipt = session_of(1).receipts[0].claims
    with pytest.raises(FieldInvalid):
        extend(Session().head, receipt, OURS, arguments={}, new_id="rcpt:" + "0" * 32, now=NOW)


def test_denials_say_so_in_both_ways() -> None:
    claims = Session().append(denied()).claims
    assert (claims.public_denial_reason, claims.internal_denial_code) == ("policy_denied", "tool_not_allowed")


def test_the_hash_is_of_the_exact_token() -> None:
    import hashlib

    receipt = session_of(1).receipts[0]
    assert receipt.hash == hashlib.sha256(receipt.token.encode()).hexdigest()


def test_a_receipt_by_hand_is_held_to_the_rules_when_it_is_signed() -> None:
    receipt = session_of(1).receipts[0].claims
    with pytest.raises(FieldInvalid) as caught:
        sign_receipt(structs.replace(receipt, grant_id="x"), OURS)
    assert caught.value.place == "$.grant_id"


def test_the_name_of_a_tool_is_cut_where_it_is_long_and_still_told_from_others() -> None:
    assert receipt_tool_name("x" * MAX_TOOL) == "x" * MAX_TOOL
    long, other = receipt_tool_name("x" * (MAX_TOOL + 1)), receipt_tool_name("x" * MAX_TOOL + "y")
    assert len(long) == len(other) <= MAX_TOOL
    assert long != other
