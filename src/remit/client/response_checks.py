"""Checks that a response of the proxy answers the request that was sent, and verifies its signatures.

Invariants: a PERMIT is accepted only if every field of the response agrees with it. With a keyring, signed
tokens must be signed by one of its keys, be about this request and not be replayed from an earlier one. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from msgspec import UNSET, structs

from remit.claims.attestation import verify_attestation
from remit.claims.canonical import sha256_hex
from remit.claims.jws import unsafe_peek
from remit.claims.keys import Keyring
from remit.claims.mission import Mission, parse_mission
from remit.claims.passport import verify_passport
from remit.claims.receipt import LineageBudgetDelta, Receipt, receipt_tool_name, verify_receipt
from remit.errors import FieldInvalid
from remit.schemas.proxy import (
    AttestAnswer,
    DelegateAnswer,
    DelegateRequest,
    EvaluateAnswer,
    EvaluateRequest,
    ResultAnswer,
    ResultRequest,
    SessionAnswer,
    StartAnswer,
)

__all__ = [
    "MAX_AGE_S",
    "MAX_REMEMBERED",
    "CheckContext",
    "SeenReceipts",
    "check_attestation",
    "check_delegation",
    "check_evaluation",
    "check_result",
    "check_session_ended",
    "check_session_start",
    "require",
]

# How far the clock of the service may be behind the clock of this machine.
MAX_AGE_S: Final = 60
MAX_REMEMBERED: Final = 4096
_MISSION_FIELDS: Final = tuple(name for name in StartAnswer.__struct_fields__ if name in Mission.__struct_fields__)


class SeenReceipts:
    """The last receipts that a client received, with the idempotency key of the request that each was for.

    It has no lock, which a fork could leave locked: all responses to a client are read in the thread of its event loop.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[str, str] = {}

    def remember(self, receipt_id: str, key: str) -> bool:
        """Record a receipt. Return False if it was received before for another idempotency key."""
        known = self._keys.setdefault(receipt_id, key)
        if len(self._keys) > MAX_REMEMBERED:
            del self._keys[next(iter(self._keys))]
        return known == key


class CheckContext(NamedTuple):
    """The keys if any, the time of sending and the receipts seen before: what a check needs beside the request."""

    keyring: Keyring | None
    sent_at: float
    seen_receipts: SeenReceipts

    def is_fresh(self, signed_at: int) -> bool:
        """Return whether a token signed at this time can have been signed for this request."""
        return signed_at >= int(self.sent_at) - MAX_AGE_S


def require(condition: object, problem: str, place: str) -> None:
    """Raise `FieldInvalid` unless `condition` is true."""
    if not condition:
        raise FieldInvalid(problem, place=place)


def check_session_start(answer: StartAnswer, token: str) -> None:
    """Raise unless the session has the id and the mission of the passport that was sent."""
    claims = unsafe_peek(token).claims or {}
    require(answer.session_id == claims.get("jti"), "is not that of the passport", "$.session_id")
    members = {name: claims[name] for name in Mission.__struct_fields__ if name in claims}
    mission = parse_mission({**members, "agent_id": claims.get("sub")})
    for name in _MISSION_FIELDS:
        require(getattr(answer, name) == getattr(mission, name), "differs from the passport", f"$.{name}")


def check_evaluation(
    answer: EvaluateAnswer,
    request: EvaluateRequest,
    canonical_arguments: bytes,
    context: CheckContext,
    *,
    has_random_key: bool,
) -> None:
    """Raise unless the decision is on this call. With a random idempotency key, an older receipt is refused."""
    receipt = _verify_receipt(answer, request.session_id, context.keyring)
    _check_decision(answer, receipt)
    if receipt is not None:
        require(
            receipt.arguments_hash.lower() == sha256_hex(canonical_arguments), "is about other arguments", "$.receipt"
        )
        require(receipt.tool == receipt_tool_name(request.tool_name), "is about another tool", "$.receipt")
        require(not has_random_key or context.is_fresh(receipt.iat), "is older than the request", "$.receipt")
        known = context.seen_receipts.remember(receipt.receipt_id, request.idempotency_key or "")
        require(known, "was given for another request", "$.receipt")


def check_result(answer: ResultAnswer, request: ResultRequest, context: CheckContext) -> None:
    """Raise unless the receipt records this outcome for the decision it belongs to."""
    receipt = _verify_receipt(answer, request.session_id, context.keyring)
    if receipt is not None:
        require(receipt.tool == "remit.result", "is not that of an outcome", "$.receipt")
        require(receipt.verdict == answer.verdict, "differs from the receipt", "$.verdict")
        require(receipt.result_hash == request.result_hash, "is about another outcome", "$.receipt")
        decision = receipt.evidence_proof_ref if isinstance(receipt.evidence_proof_ref, Mapping) else {}
        require(decision.get("receipt_id") == request.receipt_id, "is about another call", "$.receipt")


def check_attestation(answer: AttestAnswer, session_id: str, context: CheckContext, *, is_over: bool) -> None:
    """Raise unless the attestation is of this session and recent: an old one would omit later receipts."""
    claims = answer.claims
    require(claims.session_id == session_id, "is another session", "$.claims.session_id")
    require(not is_over or claims.state != "active", "was to end", "$.claims.state")
    if context.keyring is not None:
        require(verify_attestation(answer.token, context.keyring) == claims, "differs from the token", "$.claims")
        require(context.is_fresh(claims.iat), "is older than the request", "$.token")


def check_delegation(answer: DelegateAnswer, request: DelegateRequest, context: CheckContext) -> None:
    """Raise unless the response is to this delegation request, with the requested passport if it permits."""
    receipt = _verify_receipt(answer, request.session_id, context.keyring)
    _check_decision(answer, receipt)
    permits = answer.decision == "PERMIT"
    require((answer.token is not UNSET) == permits, "comes with a PERMIT, and only then", "$.token")
    require((answer.delegate_id is not UNSET) == permits, "comes with a PERMIT, and only then", "$.delegate_id")
    if receipt is not None:
        require(receipt.tool == "remit.delegate", "is not that of a delegation", "$.receipt")
        delta = receipt.budget_delta
        asked_for = delta.delegation_request_id if isinstance(delta, LineageBudgetDelta) else UNSET
        require(asked_for == request.request_id, "is about another request", "$.receipt")
        require(receipt.target == answer.delegate_id or not permits, "is about another delegate", "$.receipt")
    if context.keyring is not None and answer.token is not UNSET:
        _check_passport(answer.token, answer, request, context.keyring, int(context.sent_at))


def _check_passport(token: str, answer: DelegateAnswer, request: DelegateRequest, keyring: Keyring, now: int) -> None:
    passport = verify_passport(token, keyring, now=now)
    require(passport.jti == answer.delegate_id, "is that of another delegate", "$.token")
    require(passport.parent_jti == request.session_id, "is delegated by another session", "$.token")
    require(passport.bound_to == (request.cnf or None), "is bound to another holder", "$.token")
    require(_is_requested_mission(passport.mission, request.mission), "is not for what was asked", "$.token")


def _is_requested_mission(given: Mission, asked: Mission) -> bool:
    """Return whether a mission is the requested one, except for what the parent adds: forbidden tools and a folder."""
    added = {"forbidden_tools": asked.forbidden_tools, "resource_scope": asked.resource_scope, "cwd": asked.cwd}
    return (
        structs.replace(given, **added) == asked
        and set(given.forbidden_tools) >= set(asked.forbidden_tools)
        and asked.cwd in (None, given.cwd)
        and len(given.resource_scope) == len(asked.resource_scope)
        and all(map(_is_anchored, given.resource_scope, asked.resource_scope))
    )


def _is_anchored(given: str, asked: str) -> bool:
    """Return whether a scope entry is the requested one, or the requested relative path made absolute."""
    return given == asked or (given.startswith("/") and given.endswith(f"/{asked}"))


def check_session_ended(session: SessionAnswer, session_id: str, place: str) -> None:
    """Raise unless this is the session and it is over. A session answer is not signed; only an attestation is."""
    require(session.session_id == session_id, "is another session", f"{place}.session_id")
    require(session.state != "active", "is still active", f"{place}.state")
    require(session.ended_at is not None, "is missing", f"{place}.ended_at")


class _WithReceipt(Protocol):
    """A response that contains a receipt."""

    @property
    def session_id(self) -> str: ...
    @property
    def receipt(self) -> str: ...
    @property
    def receipt_id(self) -> str: ...
    @property
    def receipt_hash(self) -> str: ...


def _verify_receipt(answer: _WithReceipt, session_id: str, keyring: Keyring | None) -> Receipt | None:
    """Return the verified claims of the receipt in a response, or None without a keyring. Raise if they disagree."""
    require(answer.session_id == session_id, "is another session", "$.session_id")
    require(answer.receipt_hash == sha256_hex(answer.receipt.encode()), "is of another receipt", "$.receipt_hash")
    if keyring is None:
        return None
    receipt = verify_receipt(answer.receipt, keyring).claims
    require(receipt.grant_id == session_id, "is of another session", "$.receipt")
    require(receipt.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    return receipt


def _check_decision(answer: EvaluateAnswer | DelegateAnswer, receipt: Receipt | None) -> None:
    """Raise for a PERMIT that another field contradicts. A DENY may carry an older permitting receipt."""
    permits = answer.decision == "PERMIT"
    whole = answer.verdict == "compliant" and answer.public_denial_reason is UNSET
    require(whole or not permits, "permits, and gives a denial", "$.decision")
    if receipt is not None:
        outdated = receipt.verdict == "compliant" and not permits
        require(receipt.verdict == answer.verdict or outdated, "differs from the receipt", "$.verdict")
