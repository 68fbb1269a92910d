"""Bookmarks: how far a chain was verified, and what was counted up to there, signed by the verifier.

Invariant: a head and a tally that `verify_bookmark` returns were signed together, over the same receipts, with a key in
the keyring. So a verification can continue at receipt n as if it had never stopped. A bookmark need not be the latest
one; an older one only means that more receipts are verified again.
"""

from typing import Annotated, TypeAlias

from msgspec import to_builtins

from remit.claims.attestation import Tally, TallyState
from remit.claims.chain import Head, Lineage, verifier_id
from remit.claims.jws import BOOKMARK, sign_token, verify_token
from remit.claims.keys import KEY_ID, Keyring, SigningKey
from remit.claims.strictjson import parse_object
from remit.claims.types import (
    RUN_NONCE,
    Claims,
    Count,
    IdString,
    LowerHex,
    NonEmpty,
    NumericDate,
    convert,
    encode,
    matches,
)
from remit.errors import FieldInvalid, InputError, KeyUseForbidden, PayloadInvalid

__all__ = ["sign_bookmark", "verify_bookmark"]

_RunNonce: TypeAlias = Annotated[str, matches(RUN_NONCE)]
_KeyId: TypeAlias = Annotated[str, matches(KEY_ID.pattern)]


class _Head(Claims, frozen=True, kw_only=True):
    """The serialized form of a `Head`, without its `grant_id`, which is the session."""

    actor: NonEmpty
    verifier_id: NonEmpty
    trace_id: IdString
    run_nonce: _RunNonce
    length: Count
    receipt_id: IdString | None
    receipt_hash: LowerHex | None
    iat: NumericDate
    kid: _KeyId | None


class _BookmarkClaims(Claims, frozen=True, kw_only=True):
    """The serialized claims."""

    iss: NonEmpty
    iat: NumericDate
    session: IdString
    head: _Head
    tally: TallyState

    def __post_init__(self) -> None:
        """Check that the head is the one at which the tally ends."""
        head, tally = self.head, self.tally
        for member, agrees in (
            ("length", head.length == tally.tree.size),
            ("receipt_id", head.receipt_id == tally.last_receipt_id),
            ("receipt_hash", head.receipt_hash == tally.last_receipt_hash),
            ("kid", (head.kid is not None) == (head.length > 0)),
        ):
            if not agrees:
                raise FieldInvalid("does not agree with the count", place=f"$.head.{member}")


def sign_bookmark(head: Head, tally: Tally, key: SigningKey, *, now: int) -> str:
    """Return a token which states that the chain was verified up to `head`, with the counts of `tally`."""
    members = head._asdict() | head.lineage._asdict()
    claims = {
        "iss": verifier_id(key.public),
        "iat": now,
        "session": head.lineage.grant_id,
        "head": {name: members[name] for name in _Head.__struct_fields__},
        "tally": tally.to_state(),
    }
    payload = encode(claims)
    convert(_BookmarkClaims, parse_object(payload))
    return sign_token(BOOKMARK, payload, key)


def verify_bookmark(token: str, keyring: Keyring) -> tuple[Head, Tally]:
    """Return the head and the tally to continue with, if they were signed with a key that is not foreign.

    A holder of any key in `keyring` can state that a chain was verified, so it must contain only the verifier's keys.
    """
    verified = verify_token(BOOKMARK, token, keyring)
    if keyring.find(verified.kid).foreign:
        raise KeyUseForbidden("a bookmark of a foreign key is not accepted")
    try:
        claims = convert(_BookmarkClaims, verified.claims)
    except InputError as error:
        raise PayloadInvalid(error) from None
    members = to_builtins(claims.head)
    lineage = Lineage(claims.session, *(members.pop(name) for name in Lineage._fields[1:]))
    return Head(lineage, **members), Tally.from_state(claims.tally)
