"""Passports, which are signed missions: issue, delegate, verify.

Invariant: a `Passport` object was verified, or was just issued; there is no other way to get one. The ledger knows
whether it was revoked, and how much of it is used.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from remit.claims.jws import PASSPORT, sign_token, verify_token
from remit.claims.keys import Keyring, SigningKey
from remit.claims.mission import (
    SIDE_EFFECT_CLASSES,
    AgentId,
    Duration,
    Mission,
    MissionText,
    Scope,
    ScopeEntry,
    SideEffectClasses,
    ToolNames,
    narrow,
)
from remit.claims.strictjson import parse_object
from remit.claims.types import Claims, Count, IdString, NonEmpty, NumericDate, convert, encode, matches
from remit.errors import (
    AudienceMismatch,
    DelegationTooDeep,
    FieldInvalid,
    InputError,
    PassportExpired,
    PassportNotYetValid,
    PayloadInvalid,
    quote,
)

__all__ = [
    "AUDIENCE",
    "AUDIENCES",
    "MAX_DELEGATION_DEPTH",
    "MAX_SKEW_S",
    "OBSERVE_AUDIENCE",
    "Confirmation",
    "Passport",
    "issue_passport",
    "verify_passport",
]

AUDIENCE: Final = "remit"
# The audience of passports that only record what an adapter has observed; they permit no tool calls.
OBSERVE_AUDIENCE: Final = "remit:observe"
AUDIENCES: Final = (AUDIENCE, OBSERVE_AUDIENCE)
MAX_SKEW_S: Final = 60
MAX_DELEGATION_DEPTH: Final = 8

_Thumbprint: TypeAlias = Annotated[str, matches("[A-Za-z0-9_-]{43}")]


class Confirmation(Claims, frozen=True, kw_only=True, rename={"certificate": "x5t#S256"}):
    """What the passport is bound to: the holder of a key (RFC 9449 `jkt`) or of a certificate (RFC 8705)."""

    jkt: _Thumbprint | UnsetType = UNSET
    certificate: _Thumbprint | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check that exactly one of the two is set."""
        if (self.jkt is UNSET) == (self.certificate is UNSET):
            raise FieldInvalid("exactly one of jkt and x5t#S256")


class _PassportClaims(Claims, frozen=True, kw_only=True):
    """The serialized claims. An unknown member could be a limit, so it is refused."""

    iss: NonEmpty
    sub: AgentId
    aud: NonEmpty
    iat: NumericDate
    nbf: NumericDate
    exp: NumericDate
    jti: IdString
    mission: MissionText
    allowed_tools: ToolNames = ()
    forbidden_tools: ToolNames = ()
    resource_scope: Scope = ()
    max_tool_calls: Count
    max_duration_s: Duration
    allowed_side_effect_classes: SideEffectClasses = SIDE_EFFECT_CLASSES
    cwd: ScopeEntry | UnsetType = UNSET
    parent_jti: IdString | UnsetType = UNSET
    delegation_depth: Annotated[int, Meta(ge=1, le=MAX_DELEGATION_DEPTH)] | UnsetType = UNSET
    cnf: Confirmation | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check rules across members: the order of times, and that a delegate names its parent."""
        if not self.iat <= self.nbf < self.exp:
            raise FieldInvalid("iat, nbf and exp are not in that order")
        if self.exp > self.iat + self.max_duration_s:
            raise FieldInvalid("exp lies more than max_duration_s after iat")
        if (self.parent_jti is UNSET) != (self.delegation_depth is UNSET):
            raise FieldInvalid("parent_jti and delegation_depth come together")
        if self.parent_jti == self.jti:
            raise FieldInvalid("a passport is not its own parent", place="$.parent_jti")


@dataclass(frozen=True, slots=True)
class Passport:
    """A signed mission, and its token."""

    token: str = field(repr=False)  # anyone who has it may use it
    issuer: str
    jti: str
    issued_at: int
    not_before: int
    expires_at: int
    mission: Mission
    parent_jti: str | None
    delegation_depth: int
    bound_to: Confirmation | None
    audience: str = AUDIENCE


def issue_passport(
    mission: Mission,
    key: SigningKey,
    *,
    issuer: str,
    jti: str,
    now: int,
    lifetime_s: int | None = None,
    not_before: int = 0,
    bound_to: Confirmation | None = None,
    parent: Passport | None = None,
    audience: str = AUDIENCE,
) -> Passport:
    """Return a passport for `mission`, valid for its `max_duration_s` or for a shorter time that is given.

    With a `parent` it is that of a delegate: not wider, one level deeper, and valid no longer than its parent. A
    passport for observation (`OBSERVE_AUDIENCE`) is neither the parent of another nor delegated.
    """
    if audience not in AUDIENCES:
        raise FieldInvalid(f"must be one of {', '.join(AUDIENCES)}", place="$.aud")
    if parent is not None and {parent.audience, audience} != {AUDIENCE}:
        raise AudienceMismatch("a passport for observation cannot be delegated from, or to")
    exp = now + (mission.max_duration_s if lifetime_s is None else lifetime_s)
    if parent is not None:
        mission = _narrow_to_parent(parent, mission, now)
        exp = min(exp, parent.expires_at)
        not_before = max(not_before, parent.not_before)
    claims = _PassportClaims(
        iss=issuer,
        sub=mission.agent_id,
        aud=audience,
        iat=now,
        nbf=max(now, not_before),
        exp=exp,
        jti=jti,
        mission=mission.mission,
        allowed_tools=mission.allowed_tools,
        forbidden_tools=mission.forbidden_tools,
        resource_scope=mission.resource_scope,
        max_tool_calls=mission.max_tool_calls,
        max_duration_s=mission.max_duration_s,
        allowed_side_effect_classes=mission.allowed_side_effect_classes,
        cwd=mission.cwd or UNSET,
        parent_jti=parent.jti if parent else UNSET,
        delegation_depth=parent.delegation_depth + 1 if parent else UNSET,
        cnf=bound_to or UNSET,
    )
    payload = encode(claims)
    # Parsed before signing, so that nothing is signed that the verifier would refuse.
    checked = convert(_PassportClaims, parse_object(payload))
    return _passport(sign_token(PASSPORT, payload, key), checked)


def _narrow_to_parent(parent: Passport, mission: Mission, now: int) -> Mission:
    if parent.delegation_depth >= MAX_DELEGATION_DEPTH:
        raise DelegationTooDeep(f"a lineage has at most {MAX_DELEGATION_DEPTH} delegations")
    if now >= parent.expires_at:
        raise PassportExpired("the parent passport has expired")
    return narrow(parent.mission, mission)


def verify_passport(
    token: str,
    keyring: Keyring,
    *,
    now: int,
    skew_s: int = MAX_SKEW_S,
    audiences: Collection[str] = (AUDIENCE,),
) -> Passport:
    """Return the passport of `token`, if it verifies, is for one of `audiences`, and is valid at `now`.

    `skew_s` is how far the issuer's clock may be off, at most `MAX_SKEW_S`.
    """
    skew = min(skew_s, MAX_SKEW_S)
    value = verify_token(PASSPORT, token, keyring).claims
    try:
        claims = convert(_PassportClaims, value)
    except InputError as error:
        raise PayloadInvalid(error) from None
    if claims.aud not in audiences:
        raise AudienceMismatch(f"the passport is made for {quote(claims.aud)}, not for {' or '.join(audiences)}")
    if not claims.nbf - skew <= now:
        raise PassportNotYetValid(f"good from {claims.nbf}, it is {now}")
    if not now < claims.exp + skew:
        raise PassportExpired(f"good until {claims.exp}, it is {now}")
    return _passport(token, claims)


def _passport(token: str, claims: _PassportClaims) -> Passport:
    return Passport(
        token=token,
        issuer=claims.iss,
        jti=claims.jti,
        issued_at=claims.iat,
        not_before=claims.nbf,
        expires_at=claims.exp,
        mission=Mission(
            agent_id=claims.sub,
            mission=claims.mission,
            allowed_tools=claims.allowed_tools,
            forbidden_tools=claims.forbidden_tools,
            resource_scope=claims.resource_scope,
            max_tool_calls=claims.max_tool_calls,
            max_duration_s=claims.max_duration_s,
            allowed_side_effect_classes=claims.allowed_side_effect_classes,
            cwd=claims.cwd or None,
        ),
        parent_jti=claims.parent_jti or None,
        delegation_depth=claims.delegation_depth or 0,
        bound_to=claims.cnf or None,
        audience=claims.aud,
    )
