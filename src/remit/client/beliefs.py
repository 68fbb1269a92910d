"""What an answer must say to belong to what was asked, and what in it must be signed.

Keeps these invariants: an answer that permits must say so in every part; and with a keyring, what is signed must be
signed by a key of it, be about this request, and be no answer that was given before. Pure: the caller says when it was.
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
from remit.claims.receipt import LineageBudgetDelta, Receipt, named_tool, verify_receipt
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
    "Given",
    "Grounds",
    "check_attested",
    "check_delegated",
    "check_evaluated",
    "check_over",
    "check_recorded",
    "check_started",
    "must",
]

# By how much the clock of the service may be behind ours.
MAX_AGE_S: Final = 60
MAX_REMEMBERED: Final = 4096
_SHOWN: Final = tuple(name for name in StartAnswer.__struct_fields__ if name in Mission.__struct_fields__)


class Given:
    """Which receipts a client was given lately, and each under which key.

    There is no lock, which a fork could leave held: all answers to a client are read in the one thread of its loop.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        """Begin with none."""
        self._keys: dict[str, str] = {}

    def take(self, receipt_id: str, key: str) -> bool:
        """Remember a receipt; tell whether it was given under no other key."""
        known = self._keys.setdefault(receipt_id, key)
        if len(self._keys) > MAX_REMEMBERED:
            del self._keys[next(iter(self._keys))]
        return known == key


class Grounds(NamedTuple):
    """What answers are believed on: the keys, if there are any, when it was asked, and what was given before."""

    keyring: Keyring | None
    asked_at: float
    given: Given

    def is_fresh(self, signed_at: int) -> bool:
        """Tell whether something can have been signed for this request."""
        return signed_at >= int(self.asked_at) - MAX_AGE_S


def must(holds: object, problem: str, place: str) -> None:
    """Raise unless something holds."""
    if not holds:
        raise FieldInvalid(problem, place=place)


def check_started(answer: StartAnswer, token: str) -> None:
    """Raise unless a session is that of the passport that was sent: whoever sent it knows what is in it."""
    claims = unsafe_peek(token).claims or {}
    must(answer.session_id == claims.get("jti"), "is not that of the passport", "$.session_id")
    members = {name: claims[name] for name in Mission.__struct_fields__ if name in claims}
    mission = parse_mission({**members, "agent_id": claims.get("sub")})
    for name in _SHOWN:
        must(getattr(answer, name) == getattr(mission, name), "is not what the passport says", f"$.{name}")


def check_evaluated(
    answer: EvaluateAnswer, request: EvaluateRequest, form: bytes, grounds: Grounds, *, is_drawn: bool
) -> None:
    """Raise unless a decision is that on this call; under a key that was drawn for it, there is none from before."""
    receipt = _receipt(answer, request.session_id, grounds.keyring)
    _check_decision(answer, receipt)
    if receipt is not None:
        must(receipt.arguments_hash.lower() == sha256_hex(form), "is about other arguments", "$.receipt")
        must(receipt.tool == named_tool(request.tool_name), "is about another tool", "$.receipt")
        must(not is_drawn or grounds.is_fresh(receipt.iat), "is older than the request", "$.receipt")
        known = grounds.given.take(receipt.receipt_id, request.idempotency_key or "")
        must(known, "was given for another request", "$.receipt")


def check_recorded(answer: ResultAnswer, request: ResultRequest, grounds: Grounds) -> None:
    """Raise unless an outcome is kept as it was told, with the decision that it belongs to."""
    receipt = _receipt(answer, request.session_id, grounds.keyring)
    if receipt is not None:
        must(receipt.tool == "remit.result", "is not that of an outcome", "$.receipt")
        must(receipt.verdict == answer.verdict, "is not what the receipt says", "$.verdict")
        must(receipt.result_hash == request.result_hash, "is about another outcome", "$.receipt")
        decision = receipt.evidence_proof_ref if isinstance(receipt.evidence_proof_ref, Mapping) else {}
        must(decision.get("receipt_id") == request.receipt_id, "is about another call", "$.receipt")


def check_attested(answer: AttestAnswer, session_id: str, grounds: Grounds, *, is_over: bool) -> None:
    """Raise unless a statement is over this session, and of now: an older one would hide what came after it."""
    claims = answer.claims
    must(claims.session_id == session_id, "is another session", "$.claims.session_id")
    must(not is_over or claims.state != "active", "was to end", "$.claims.state")
    if grounds.keyring is not None:
        must(verify_attestation(answer.token, grounds.keyring) == claims, "is not what the token says", "$.claims")
        must(grounds.is_fresh(claims.iat), "is older than the request", "$.token")


def check_delegated(answer: DelegateAnswer, request: DelegateRequest, grounds: Grounds) -> None:
    """Raise unless an answer is that to this request, with the passport that was asked for, or none."""
    receipt = _receipt(answer, request.session_id, grounds.keyring)
    _check_decision(answer, receipt)
    permits = answer.decision == "PERMIT"
    must((answer.token is not UNSET) == permits, "comes with a PERMIT, and only then", "$.token")
    must((answer.delegate_id is not UNSET) == permits, "comes with a PERMIT, and only then", "$.delegate_id")
    if receipt is not None:
        must(receipt.tool == "remit.delegate", "is not that of a delegation", "$.receipt")
        delta = receipt.budget_delta
        asked_for = delta.delegation_request_id if isinstance(delta, LineageBudgetDelta) else UNSET
        must(asked_for == request.request_id, "is about another request", "$.receipt")
        must(receipt.target == answer.delegate_id or not permits, "is about another delegate", "$.receipt")
    if grounds.keyring is not None and answer.token is not UNSET:
        _check_passport(answer.token, answer, request, grounds.keyring, int(grounds.asked_at))


def _check_passport(token: str, answer: DelegateAnswer, request: DelegateRequest, keyring: Keyring, now: int) -> None:
    passport = verify_passport(token, keyring, now=now)
    must(passport.jti == answer.delegate_id, "is that of another delegate", "$.token")
    must(passport.parent_jti == request.session_id, "is delegated by another session", "$.token")
    must(passport.bound_to == (request.cnf or None), "is bound to somebody else", "$.token")
    must(_is_narrowed(passport.mission, request.mission), "is not for what was asked", "$.token")


def _is_narrowed(given: Mission, asked: Mission) -> bool:
    """Tell whether a mission is the one that was asked for, with what its parent adds: what is forbidden, and where."""
    added = {"forbidden_tools": asked.forbidden_tools, "resource_scope": asked.resource_scope, "cwd": asked.cwd}
    return (
        structs.replace(given, **added) == asked
        and set(given.forbidden_tools) >= set(asked.forbidden_tools)
        and asked.cwd in (None, given.cwd)
        and len(given.resource_scope) == len(asked.resource_scope)
        and all(map(_is_anchored, given.resource_scope, asked.resource_scope))
    )


def _is_anchored(given: str, asked: str) -> bool:
    """Tell whether an entry is the one that was asked for, or starts at a folder where that was relative."""
    return given == asked or (given.startswith("/") and given.endswith(f"/{asked}"))


def check_over(session: SessionAnswer, session_id: str, place: str) -> None:
    """Raise unless a session is this one, and over. Nothing of this is signed: a statement over it would be."""
    must(session.session_id == session_id, "is another session", f"{place}.session_id")
    must(session.state != "active", "is still active", f"{place}.state")
    must(session.ended_at is not None, "is missing", f"{place}.ended_at")


class _WithReceipt(Protocol):
    """The answers that bring a receipt."""

    @property
    def session_id(self) -> str: ...
    @property
    def receipt(self) -> str: ...
    @property
    def receipt_id(self) -> str: ...
    @property
    def receipt_hash(self) -> str: ...


def _receipt(answer: _WithReceipt, session_id: str, keyring: Keyring | None) -> Receipt | None:
    """Return what the receipt of an answer says, if there are keys to verify it with; raise if that is not the same."""
    must(answer.session_id == session_id, "is another session", "$.session_id")
    must(answer.receipt_hash == sha256_hex(answer.receipt.encode()), "is of another receipt", "$.receipt_hash")
    if keyring is None:
        return None
    receipt = verify_receipt(answer.receipt, keyring).claims
    must(receipt.grant_id == session_id, "is of another session", "$.receipt")
    must(receipt.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    return receipt


def _check_decision(answer: EvaluateAnswer | DelegateAnswer, receipt: Receipt | None) -> None:
    """Raise for a PERMIT that is not one in every part. A DENY may bring the receipt of a PERMIT that holds no more."""
    permits = answer.decision == "PERMIT"
    whole = answer.verdict == "compliant" and answer.public_denial_reason is UNSET
    must(whole or not permits, "permits, and gives a denial", "$.decision")
    if receipt is not None:
        outdated = receipt.verdict == "compliant" and not permits
        must(receipt.verdict == answer.verdict or outdated, "is not what the receipt says", "$.verdict")
