"""The Execution Receipt: its claims, and signing and verifying one.

Invariant: what is signed obeys all rules of the claims set v0.1, because it is parsed by the same rules before it is
signed. The rules are defined twice, by the types here and by `receipt.schema.json` for other languages; a test checks
that both agree. `chain.py` links receipts.
"""

import re
from hashlib import sha256
from itertools import compress
from operator import not_
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from remit.claims.canonical import canonicalize, sha256_hex
from remit.claims.jws import RECEIPT, sign_token, verify_token
from remit.claims.keys import Keyring, SigningKey
from remit.claims.strictjson import MAX_INTEGER, parse_object
from remit.claims.types import (
    DATE_TIME,
    ID_STRING,
    RUN_NONCE,
    SHA256_HEX,
    Base64Url,
    Claims,
    Count,
    CounterName,
    DateTime,
    IdString,
    NonEmpty,
    NumericDate,
    SideEffectClass,
    build_decoder,
    check_leap_second,
    convert,
    encode,
    matches,
)
from remit.errors import FieldInvalid, InputError, PayloadInvalid, TokenTooLarge

__all__ = [
    "MAX_TOOL",
    "ActionClass",
    "BudgetDelta",
    "ContentProvenance",
    "DenialCode",
    "Digest",
    "Draft",
    "EvidenceLevel",
    "LegacyBudgetDelta",
    "LineageBudgetDelta",
    "Measurement",
    "Measurements",
    "PolicyDecision",
    "PublicDenialReason",
    "Receipt",
    "Sensitivity",
    "SignedReceipt",
    "Step",
    "Verdict",
    "choose_budget_delta",
    "draft_step",
    "parse_receipt",
    "receipt_tool_name",
    "sign_draft",
    "sign_receipt",
    "verify_receipt",
]

MAX_TOOL: Final = 256

ActionClass: TypeAlias = Literal["search", "read", "write", "query", "delegate", "send", "summarize", "observe"]
Verdict: TypeAlias = Literal["compliant", "violation", "insufficient_evidence"]
EvidenceLevel: TypeAlias = Literal["self_signed", "counter_signed", "transparency_logged"]
Sensitivity: TypeAlias = Literal["public", "internal", "confidential", "restricted", "regulated", "unknown"]
PublicDenialReason: TypeAlias = Literal[
    "policy_denied", "budget_exhausted", "insufficient_evidence", "revoked", "chain_invalid"
]
DenialCode: TypeAlias = Annotated[str, matches("[A-Za-z0-9._:-]{1,128}")]


class Digest(Claims, frozen=True, kw_only=True):
    """A digest, and what was hashed."""

    alg: Literal["sha-256", "sha-384", "sha-512"]
    value: Base64Url
    canonicalization: Literal["jcs-rfc8785", "none"] | UnsetType = UNSET
    scope: Literal["result", "normalized_input", "measurement", "custom"] | UnsetType = UNSET


class ContentProvenance(Claims, frozen=True, kw_only=True):
    """Where the content used in a decision came from."""

    source: Literal["user_input", "tool_output", "model_generated", "policy_state", "mixed", "unknown"]
    evidence_refs: tuple[IdString, ...] | UnsetType = UNSET
    transformed: bool | UnsetType = UNSET


class PolicyDecision(Claims, frozen=True, kw_only=True):
    """The result of one policy engine, and how long it took."""

    backend: NonEmpty
    decision: NonEmpty
    reason: str | UnsetType | None = UNSET
    eval_ms: Annotated[float, Meta(ge=0, le=MAX_INTEGER)] | UnsetType = UNSET


class Measurement(Claims, frozen=True, kw_only=True):
    """One measured fact about the step or its environment."""

    kind: Literal[
        "manifest_digest",
        "envelope_binding",
        "memory_integrity",
        "telemetry",
        "transparency_inclusion",
        "runtime_state",
        "custom",
    ]
    status: Literal["success", "fail", "not-run", "absent"]
    digest: Digest | UnsetType = UNSET
    collected_at: DateTime | UnsetType = UNSET
    description: NonEmpty | UnsetType = UNSET
    detached: bool | UnsetType = UNSET


Measurements: TypeAlias = Annotated[dict[CounterName, Measurement], Meta(min_length=1)]


class BudgetDelta:
    """What the step did to a budget: a `LegacyBudgetDelta` or a `LineageBudgetDelta`."""

    __slots__ = ()


class LegacyBudgetDelta(Claims, BudgetDelta, frozen=True, kw_only=True):
    """An amount taken from one bucket."""

    bucket: NonEmpty
    unit: Literal["invocations", "tokens", "bytes", "usd", "custom"]
    delta: Count
    remaining_after: Count | UnsetType = UNSET
    ceiling: Count | UnsetType = UNSET


class LineageBudgetDelta(Claims, BudgetDelta, frozen=True, kw_only=True):
    """An amount that moves between a parent and its delegates."""

    operation: Literal["consume", "reserve", "reject", "release"]
    resource: NonEmpty
    amount: Count
    unit: NonEmpty
    remaining_for_parent: Count | UnsetType = UNSET
    remaining_after: Count | UnsetType = UNSET
    used_total: Count | UnsetType = UNSET
    reserved_total: Count | UnsetType = UNSET
    side_effect_class: SideEffectClass | UnsetType = UNSET
    delegation_request_id: NonEmpty | UnsetType = UNSET
    idempotent: bool | UnsetType = UNSET


class Step(Claims, frozen=True, kw_only=True):
    """The decision on one step, before it is linked into a chain."""

    tool: NonEmpty
    action_class: ActionClass
    target: Annotated[str, Meta(min_length=1, max_length=2048)]
    resource_family: NonEmpty
    side_effect_class: SideEffectClass
    verdict: Verdict
    evidence_level: EvidenceLevel = "self_signed"
    reason: Annotated[str, Meta(min_length=1, max_length=4096)]
    policy_decisions: tuple[PolicyDecision, ...]
    budget_remaining: dict[CounterName, Count]
    timestamp: str
    content_class: NonEmpty | UnsetType = UNSET
    content_provenance: ContentProvenance | UnsetType = UNSET
    sensitivity: Sensitivity | UnsetType = UNSET
    instruction_bearing: bool | UnsetType = UNSET
    budget_delta: BudgetDelta | UnsetType = UNSET
    result_hash: Digest | UnsetType = UNSET
    public_denial_reason: PublicDenialReason | UnsetType = UNSET
    internal_denial_code: DenialCode | UnsetType = UNSET
    evidence_proof_ref: NonEmpty | dict[str, Any] | UnsetType = UNSET
    measurements: Measurements | UnsetType = UNSET


class Receipt(Step, frozen=True, kw_only=True):
    """The claims of one receipt, v0.1: a step, its issuer, and its position in a chain."""

    evidence_level: EvidenceLevel
    receipt_id: str
    grant_id: str
    parent_receipt_id: Annotated[str, Meta(min_length=8)] | None
    parent_receipt_hash: Annotated[str, Meta(min_length=64)] | None
    actor: NonEmpty
    verifier_id: NonEmpty
    trace_id: str
    run_nonce: str
    step_id: NonEmpty
    invocation_digest: Digest
    arguments_hash: str
    iss: NonEmpty
    iat: NumericDate
    exp: NumericDate
    jti: str


def receipt_tool_name(tool: str) -> str:
    """Return the name of a tool as in receipts: a long one is truncated, and its digest appended."""
    if len(tool) <= MAX_TOOL:
        return tool
    return f"{tool[:200]}…{sha256_hex(tool.encode('utf-8', 'surrogatepass'))[:32]}"


def _check_receipt(receipt: Receipt) -> Receipt:
    """Return `receipt` if it obeys the rules that its types do not express."""
    texts = (
        receipt.receipt_id,
        receipt.grant_id,
        receipt.parent_receipt_id or "",
        receipt.parent_receipt_hash or "",
        receipt.trace_id,
        receipt.run_nonce,
        receipt.arguments_hash,
        receipt.timestamp,
        receipt.jti,
    )
    if not _ALL_PATTERNS.fullmatch("\n".join(texts)):
        matches = map(re.fullmatch, _PATTERNS.values(), texts)
        raise FieldInvalid("is malformed", place="$." + next(compress(_PATTERNS, map(not_, matches))))
    denied = receipt.verdict != "compliant"
    if (receipt.public_denial_reason is not UNSET) != denied or (receipt.internal_denial_code is not UNSET) != denied:
        raise FieldInvalid("both denial members come with every verdict but compliant", place="$.verdict")
    if receipt.timestamp[17:19] == "60":
        check_leap_second(receipt.timestamp, "$.timestamp")
    if receipt.measurements is not UNSET:
        for name, measurement in receipt.measurements.items():
            if measurement.collected_at is not UNSET:
                check_leap_second(measurement.collected_at, f"$.measurements.{name}.collected_at")
    if isinstance(receipt.evidence_proof_ref, dict):
        _check_proof_ref(receipt.evidence_proof_ref)
    return receipt


# The strings that every receipt has and that a pattern constrains, in the order of `texts` in `_check_receipt`.
# To match each separately would take as long as the rest of the parsing. No pattern matches a newline, and there are
# exactly as many as between the values, so no value can contain one and shift the others.
_PATTERNS: Final = {
    "receipt_id": ID_STRING,
    "grant_id": ID_STRING,
    "parent_receipt_id": f"(?:{ID_STRING})?",
    "parent_receipt_hash": f"(?:{SHA256_HEX})?",
    "trace_id": ID_STRING,
    "run_nonce": RUN_NONCE,
    "arguments_hash": SHA256_HEX,
    "timestamp": DATE_TIME,
    "jti": ID_STRING,
}
_ALL_PATTERNS: Final = re.compile("\n".join(_PATTERNS.values()))


def _check_proof_ref(ref: dict[str, Any]) -> None:
    """Check the one object that may have further members."""
    for name in ref.keys() & {"uri", "mission_digest"} | {"type"}:
        text = ref.get(name)
        if not (isinstance(text, str) and text):
            raise FieldInvalid("must be a non-empty string", place=f"$.evidence_proof_ref.{name}")


def choose_budget_delta(_kind: type, value: object) -> BudgetDelta:
    """Parse a budget delta as one of its two forms: only one has a bucket."""
    if isinstance(value, dict) and "bucket" in value:
        return convert(LegacyBudgetDelta, value)
    return convert(LineageBudgetDelta, value)


def parse_receipt(value: object) -> Receipt:
    """Return the claims of a receipt from a JSON value, or raise `FieldInvalid`. Does not prove who wrote it."""
    return _check_receipt(convert(Receipt, value, choose_budget_delta))


class SignedReceipt(Struct, frozen=True):
    """A verified receipt, its token, and the id of the key that signed it.

    `hash` is the hex SHA-256 of the token, by which the next receipt refers to this one.
    """

    token: str
    claims: Receipt
    kid: str
    hash: str


_decode: Final = build_decoder(Receipt, choose_budget_delta)


def sign_receipt(receipt: Receipt, key: SigningKey) -> SignedReceipt:
    """Return `receipt` signed, if it obeys the rules that a verifier checks."""
    payload = _encode_step(receipt)
    return _sign_payload(payload, _read_back(payload, receipt), key)


def _encode_step(step: Step) -> bytes:
    """Return the JSON of a step. The member that may be any JSON must consist of JSON types only."""
    if step.evidence_proof_ref is not UNSET and not isinstance(step.evidence_proof_ref, str):
        canonicalize(step.evidence_proof_ref)
    return encode(step)


def _sign_payload(payload: bytes, claims: Receipt, key: SigningKey) -> SignedReceipt:
    """Return a signed payload; `claims` were parsed from it."""
    token = sign_token(RECEIPT, payload, key)
    return SignedReceipt(token, claims, key.kid, sha256(token.encode("ascii")).hexdigest())


def _read_back(payload: bytes, given: Step) -> Receipt:
    """Return the receipt that a verifier will read in `payload`, if it obeys the rules."""
    receipt = _check_receipt(_decode(payload))
    if isinstance(receipt.evidence_proof_ref, dict):
        parse_object(payload)  # only the strict parser limits the size of free members
    if len(receipt.budget_remaining) != len(given.budget_remaining):
        raise FieldInvalid("a name is repeated", place="$.budget_remaining")
    return receipt


class Draft(NamedTuple):
    """A receipt that lacks only its signature and the hash of the receipt before it.

    It obeys all rules already. Consecutive receipts can all be drafted first, and signed later.
    """

    rest: bytes
    # With a placeholder for the hash.
    claims: Receipt


_FIRST: Final = b'{"parent_receipt_hash":null'
_LATER: Final = b'{"parent_receipt_hash":"%b"'
_SOME_HASH: Final = b"0" * 64
_HASH: Final = re.compile(SHA256_HEX)
# Around the payload: a header with the longest key id, two dots, a signature.
_AROUND: Final = 512


def draft_step(step: Step, link: bytes, *, is_first: bool) -> Draft:
    """Return the receipt of `step` as a draft; `link` has its other members, without the hash of the parent.

    `link` is JSON already, with a comma before and after it, which avoids building and encoding a receipt.
    """
    if isinstance(step, Receipt):
        raise FieldInvalid("a receipt is not a step: it is linked into a chain already")
    rest = link + _encode_step(step)[1:]
    payload = (_FIRST if is_first else _LATER % _SOME_HASH) + rest
    if len(payload) * 4 > (RECEIPT.max_length - _AROUND) * 3:
        raise TokenTooLarge(f"a receipt of {len(payload)} bytes does not fit a token")
    return Draft(rest, _read_back(payload, step))


def sign_draft(draft: Draft, parent_hash: str | None, key: SigningKey) -> SignedReceipt:
    """Return a signed draft that follows the receipt with this hash."""
    rest, claims = draft
    if (claims.parent_receipt_id is None) != (parent_hash is None) or (
        parent_hash is not None and not _HASH.fullmatch(parent_hash)
    ):
        raise FieldInvalid(
            "a receipt names its parent by id and by hash, or is the first", place="$.parent_receipt_hash"
        )
    if parent_hash is None:
        return _sign_payload(_FIRST + rest, claims, key)
    claims = structs.replace(claims, parent_receipt_hash=parent_hash)
    return _sign_payload(_LATER % parent_hash.encode("ascii") + rest, claims, key)


def verify_receipt(token: str, keyring: Keyring) -> SignedReceipt:
    """Return the receipt of `token`, if it verifies and obeys the rules.

    Its `exp` is not compared with a clock: expired evidence is still evidence.
    """
    verified = verify_token(RECEIPT, token, keyring)
    try:
        claims = parse_receipt(verified.claims)
    except InputError as error:
        raise PayloadInvalid(error) from None
    return SignedReceipt(token, claims, verified.kid, sha256_hex(token.encode("ascii")))
