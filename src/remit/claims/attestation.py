"""The signed statement over a whole session.

Invariant: every count in an attestation follows from the receipts it covers, so anyone who has them can count again
(`verify_session`). It does not show that nothing happened outside the session. The governor decides when to attest, and
knows the state of a session.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Meta, to_builtins

from remit.claims.chain import RECEIPT_LIFETIME_S, Each, walk_chain
from remit.claims.jws import ATTESTATION, sign_token, verify_token
from remit.claims.keys import Keyring, SigningKey
from remit.claims.merkle import Frontier, FrontierState, hash_leaf
from remit.claims.mission import SIDE_EFFECT_CLASSES
from remit.claims.receipt import PublicDenialReason, SignedReceipt, Verdict
from remit.claims.strictjson import JSON, parse_object
from remit.claims.types import (
    Claims,
    Count,
    CounterName,
    DateTime,
    IdString,
    LowerHex,
    NonEmpty,
    NumericDate,
    Sha256Hex,
    SideEffectClass,
    check_leap_second,
    convert,
    encode,
    matches,
)
from remit.errors import AttestationMismatch, FieldInvalid, InputError, PayloadInvalid

__all__ = [
    "OTHER_TOOLS",
    "Attestation",
    "SessionState",
    "SessionSummary",
    "SignedAttestation",
    "Tally",
    "TallyState",
    "sign_attestation",
    "verify_attestation",
    "verify_session",
]

_CountedTool: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
SessionState: TypeAlias = Literal["active", "ended", "expired", "revoked"]

OTHER_TOOLS: Final = "(other tools)"
_TOOLS_NAMED: Final = 200
# Only characters of one byte that JSON does not escape, so that the longest statement fits in a token.
_SHORT_NAME: Final = re.compile(r"[ !#-\[\]-~]{1,64}")
_NamedTool: TypeAlias = Annotated[str, matches(_SHORT_NAME.pattern)]


class Attestation(Claims, frozen=True, kw_only=True):
    """The claims of an attestation."""

    iss: NonEmpty
    sub: NonEmpty
    iat: NumericDate
    exp: NumericDate
    jti: IdString
    session_id: IdString
    mission: NonEmpty
    state: SessionState
    started_at: DateTime
    ended_at: DateTime | None
    receipts: Count
    verdicts: dict[Verdict, Count]
    tools: dict[_CountedTool, Count]
    side_effects: dict[SideEffectClass, Count]
    denials: dict[PublicDenialReason, Count]
    budget_used: dict[CounterName, Count]
    first_receipt_id: IdString | None
    last_receipt_id: IdString | None
    last_receipt_hash: Sha256Hex | None
    receipts_root: Sha256Hex
    chain_verified: bool

    def __post_init__(self) -> None:
        """Check rules across members: times, and that a session has ended unless it is active."""
        check_leap_second(self.started_at, "$.started_at")
        if self.ended_at is not None:
            check_leap_second(self.ended_at, "$.ended_at")
        if (self.ended_at is None) != (self.state == "active"):
            raise FieldInvalid("ended_at is null while the session is active, and only then", place="$.ended_at")
        if self.exp <= self.iat:
            raise FieldInvalid("exp is not after iat", place="$.exp")

    @property
    def broken_at(self) -> int | None:
        """The number of the receipt, counted from 1, at which the chain breaks; None for a chain that was verified."""
        return None if self.chain_verified else sum(self.verdicts.values()) + 1


class SessionSummary(NamedTuple):
    """Facts about a session that the ledger knows and receipts do not contain."""

    session_id: str
    agent_id: str
    mission: str
    state: SessionState
    started_at: str
    ended_at: str | None
    budget_used: dict[str, int]


class SignedAttestation(NamedTuple):
    """An attestation with the token that proves it."""

    token: str
    claims: Attestation


class TallyState(Claims, frozen=True, kw_only=True):
    """The serialized form of a `Tally`."""

    first_receipt_id: IdString | None
    last_receipt_id: IdString | None
    last_receipt_hash: LowerHex | None
    verdicts: dict[Verdict, Count]
    tools: dict[_NamedTool, Count]
    side_effects: dict[SideEffectClass, Count]
    denials: dict[PublicDenialReason, Count]
    tree: FrontierState

    def __post_init__(self) -> None:
        """Check that all members agree on the number of receipts, and have the entries that a tally has."""
        size, permitted, denied = self.tree.size, sum(self.side_effects.values()), sum(self.denials.values())
        for member, agrees in (
            ("first_receipt_id", (self.first_receipt_id is not None) == (size > 0)),
            ("last_receipt_id", (self.last_receipt_id is not None) == (size > 0)),
            ("last_receipt_hash", (self.last_receipt_hash is not None) == (size > 0)),
            ("verdicts", self.verdicts.keys() == set(get_args(Verdict)) and sum(self.verdicts.values()) == size),
            ("tools", sum(self.tools.values()) == size and 0 not in self.tools.values()),
            ("tools", len(self.tools) <= _TOOLS_NAMED + (OTHER_TOOLS in self.tools)),
            ("side_effects", self.side_effects.keys() == set(SIDE_EFFECT_CLASSES)),
            ("side_effects", permitted == self.verdicts.get("compliant")),
            ("denials", permitted + denied == size and 0 not in self.denials.values()),
        ):
            if not agrees:
                raise FieldInvalid("does not agree with the rest of the count", place=f"$.{member}")


class Tally:
    """Counts the receipts of a session in order, in constant space."""

    def __init__(self) -> None:
        """Start with no receipts."""
        self.first_receipt_id: str | None = None
        self.last_receipt_id: str | None = None
        self.last_receipt_hash: str | None = None
        self.verdicts: Counter[Verdict] = Counter(dict.fromkeys(get_args(Verdict), 0))
        self.tools: Counter[str] = Counter()
        self.side_effects: Counter[SideEffectClass] = Counter(dict.fromkeys(SIDE_EFFECT_CLASSES, 0))
        self.denials: Counter[PublicDenialReason] = Counter()
        self._tree = Frontier()

    def add(self, receipt: SignedReceipt) -> None:
        """Count one more receipt."""
        claims = receipt.claims
        self.first_receipt_id = self.first_receipt_id or claims.receipt_id
        self.last_receipt_id = claims.receipt_id
        self.last_receipt_hash = receipt.hash
        self._tree.append(hash_leaf(receipt.token.encode("ascii")))
        self.verdicts[claims.verdict] += 1
        self.tools[self._tool_counted_as(claims.tool)] += 1
        if claims.public_denial_reason:
            self.denials[claims.public_denial_reason] += 1
        else:
            # Only permitted calls can have had an effect.
            self.side_effects[claims.side_effect_class] += 1

    def _tool_counted_as(self, tool: str) -> str:
        """Return the name to count under. The number of names is limited: an agent may invent tools."""
        if tool in self.tools:
            return tool
        named = len(self.tools) - (OTHER_TOOLS in self.tools)
        return tool if named < _TOOLS_NAMED and _SHORT_NAME.fullmatch(tool) else OTHER_TOOLS

    @classmethod
    def from_state(cls, value: object) -> "Tally":
        """Return the tally that `to_state` has serialized, or raise `FieldInvalid`. Does not prove who wrote it."""
        state = convert(TallyState, value)
        tally = cls()
        tally.first_receipt_id = state.first_receipt_id
        tally.last_receipt_id = state.last_receipt_id
        tally.last_receipt_hash = state.last_receipt_hash
        tally.verdicts = Counter(state.verdicts)
        tally.tools = Counter(state.tools)
        tally.side_effects = Counter(state.side_effects)
        tally.denials = Counter(state.denials)
        tally._tree = Frontier.from_state(state.tree)
        return tally

    def to_state(self) -> dict[str, JSON]:
        """Return the tally as JSON, for `from_state`."""
        counted = self.counted()
        value = {name: counted[name] for name in TallyState.__struct_fields__ if name != "tree"}
        state: dict[str, JSON] = to_builtins(convert(TallyState, value | {"tree": self._tree.to_state()}))
        return state

    def counted(self) -> dict[str, object]:
        """Return the claims that follow from the receipts, by name."""
        return {
            "receipts": self._tree.size,
            "verdicts": dict(self.verdicts),
            "tools": dict(self.tools),
            "side_effects": dict(self.side_effects),
            "denials": dict(self.denials),
            "first_receipt_id": self.first_receipt_id,
            "last_receipt_id": self.last_receipt_id,
            "last_receipt_hash": self.last_receipt_hash,
            "receipts_root": self._tree.root().hex(),
        }


def sign_attestation(
    session: SessionSummary,
    tally: Tally,
    key: SigningKey,
    *,
    issuer: str,
    jti: str,
    now: int,
    chain_verified: bool,
    receipts_in_all: int = 0,
) -> SignedAttestation:
    """Return the signed attestation of what `tally` has counted.

    If `chain_verified` is false, `tally` has the receipts before the break, and `receipts_in_all` is the number of all
    receipts. The claim `receipts` is that number then, and the chain breaks after the receipts that `verdicts` counts.
    """
    value = {
        "iss": issuer,
        "sub": session.agent_id,
        "iat": now,
        "exp": now + RECEIPT_LIFETIME_S,
        "jti": jti,
        "session_id": session.session_id,
        "mission": session.mission,
        "state": session.state,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "budget_used": session.budget_used,
        "chain_verified": chain_verified,
        **tally.counted(),
    }
    if not chain_verified:
        value["receipts"] = max(receipts_in_all, sum(tally.verdicts.values()))
    payload = encode(convert(Attestation, value))
    checked = convert(Attestation, parse_object(payload))
    return SignedAttestation(sign_token(ATTESTATION, payload, key), checked)


def verify_attestation(token: str, keyring: Keyring) -> Attestation:
    """Return the claims of an attestation, if its signature verifies. `verify_session` checks them against receipts."""
    return _verify(token, keyring)[0]


def _verify(token: str, keyring: Keyring) -> tuple[Attestation, str]:
    """Return the claims of an attestation, and the id of the key that signed them."""
    verified = verify_token(ATTESTATION, token, keyring)
    try:
        return convert(Attestation, verified.claims), verified.kid
    except InputError as error:
        raise PayloadInvalid(error) from None


def verify_session(token: str, receipts: Iterable[str], keyring: Keyring, *, each: Each = map) -> Attestation:
    """Return the attestation if the receipts form one chain and it describes exactly them.

    An attestation with `chain_verified: false` is always refused. The numbered steps are those of
    docs/audit/attestation.md.
    """
    attestation, kid = _verify(token, keyring)  # 1
    if not attestation.chain_verified:  # 2
        raise AttestationMismatch("chain_verified")
    tally, head = Tally(), None
    for receipt, reached in walk_chain(receipts, keyring, each=each):  # 3
        tally.add(receipt)
        head = reached
    if head is not None:  # 4
        _check_same("session_id", attestation.session_id, head.lineage.grant_id)
        _check_same("sub", attestation.sub, head.lineage.actor)
        if not keyring.succeeds(kid, head.kid or ""):
            _check_same("iss", attestation.iss, head.lineage.verifier_id)
        _check_same("iat", attestation.iat, max(attestation.iat, head.iat))
    for member, counted in tally.counted().items():  # 5
        _check_same(member, getattr(attestation, member), counted)
    return attestation


def _check_same(member: str, stated: object, counted: object) -> None:
    if stated != counted:
        raise AttestationMismatch(member)
