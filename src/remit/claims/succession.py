"""Changes of key: a key hands over to its successor by signing it, and the successor states where its period ended.

Invariant: a key becomes trusted only if an already trusted key has signed it, and successions form a line. A key has at
most one successor, and no succession leads back to an earlier key. The ledger decides when to change a key.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from msgspec import UNSET, UnsetType

from remit.claims.chain import verifier_id
from remit.claims.jws import KEY_CHANGE, KEY_LIMIT, sign_token, verify_token
from remit.claims.keys import KEY_ID, Keyring, SigningKey, TrustedKey, VerifyingKey
from remit.claims.strictjson import parse_object
from remit.claims.types import Claims, Count, IdString, NonEmpty, NumericDate, convert, encode, matches
from remit.errors import FieldInvalid, InputError, KeyMaterialError, KeyUseForbidden, PayloadInvalid

__all__ = [
    "KeyChange",
    "KeyLimit",
    "Position",
    "sign_key_change",
    "sign_key_limit",
    "verify_key_change",
    "verify_key_limit",
    "with_successors",
]


class _SuccessionClaims(Claims, frozen=True, kw_only=True):
    """The serialized claims."""

    iss: NonEmpty
    iat: NumericDate
    jti: IdString
    successor: dict[str, str]


class KeyChange(NamedTuple):
    """A change of key: the old key, the new key, and the time."""

    predecessor: str
    successor: VerifyingKey
    iat: int
    jti: str


def sign_key_change(old: SigningKey, new: VerifyingKey, *, jti: str, now: int) -> str:
    """Return the record by which `old` hands over to `new`."""
    claims = {"iss": verifier_id(old.public), "iat": now, "jti": jti, "successor": new.to_jwk()}
    payload = encode(claims)
    _read(parse_object(payload), old.public)
    return sign_token(KEY_CHANGE, payload, old)


def verify_key_change(token: str, keyring: Keyring) -> KeyChange:
    """Return the change of key, if the key that hands over is trusted and not foreign."""
    verified = verify_token(KEY_CHANGE, token, keyring)
    signer = keyring.find(verified.kid)
    if signer.foreign:
        raise KeyUseForbidden("a foreign key cannot hand over: foreign keys are trusted by configuration only")
    try:
        return _read(verified.claims, signer.key)
    except InputError as error:
        raise PayloadInvalid(error) from None


def with_successors(keyring: Keyring, records: Iterable[str]) -> Keyring:
    """Return a keyring that also trusts the successors in `records`, and knows which key each succeeds.

    The records are in the order in which keys were changed: each is verified with the keys that earlier ones added.
    """
    for record in records:
        change = verify_key_change(record, keyring)
        successor = TrustedKey(change.successor, verifier_id(change.successor))
        keyring = keyring.with_successor(change.predecessor, successor)
    return keyring


class Position(NamedTuple):
    """A position in a ledger: the numbers of receipts, registered passports and sessions at that moment."""

    receipts: int
    passports: int
    sessions: int


class _LimitClaims(Claims, frozen=True, kw_only=True):
    """The serialized claims of a key limit."""

    iss: NonEmpty
    iat: NumericDate
    jti: IdString
    key: Annotated[str, matches(KEY_ID.pattern)]
    receipts: Count
    passports: Count
    sessions: Count
    distrusted_from: NumericDate | UnsetType = UNSET


class KeyLimit(NamedTuple):
    """Where the period of a key ended: what it signed after that position does not count.

    `distrusted_from` is the time that its owner gave when the key was distrusted; None if it was only rotated. The time
    is informative: the position decides.
    """

    kid: str
    position: Position
    distrusted_from: int | None
    iat: int
    jti: str


def sign_key_limit(
    signer: SigningKey, kid: str, position: Position, *, jti: str, now: int, distrusted_from: int | None = None
) -> str:
    """Return the record in which `signer`, a successor of the key `kid`, states where the period of that key ended."""
    claims = {"iss": verifier_id(signer.public), "iat": now, "jti": jti, "key": kid, **position._asdict()}
    payload = encode(claims if distrusted_from is None else claims | {"distrusted_from": distrusted_from})
    _read_limit(parse_object(payload), signer.public)
    return sign_token(KEY_LIMIT, payload, signer)


def verify_key_limit(token: str, keyring: Keyring) -> KeyLimit:
    """Return the limit of a key, if a successor of it that is not foreign has signed the record."""
    verified = verify_token(KEY_LIMIT, token, keyring)
    try:
        limit = _read_limit(verified.claims, keyring.find(verified.kid).key)
    except InputError as error:
        raise PayloadInvalid(error) from None
    if not keyring.succeeds(verified.kid, limit.kid):
        raise KeyUseForbidden("only a key that succeeds another can say where the period of that one ended")
    return limit


def _read_limit(value: object, signer: VerifyingKey) -> KeyLimit:
    claims = convert(_LimitClaims, value)
    if claims.iss != verifier_id(signer):
        raise FieldInvalid("is not the name of the key that signs", place="$.iss")
    if claims.key == signer.kid:
        raise FieldInvalid("a key does not limit itself", place="$.key")
    position = Position(claims.receipts, claims.passports, claims.sessions)
    since = None if claims.distrusted_from is UNSET else claims.distrusted_from
    return KeyLimit(claims.key, position, since, claims.iat, claims.jti)


def _read(value: object, signer: VerifyingKey) -> KeyChange:
    claims = convert(_SuccessionClaims, value)
    if claims.iss != verifier_id(signer):
        raise FieldInvalid("is not the name of the key that hands over", place="$.iss")
    successor = _read_key(claims.successor)
    if successor == signer:
        raise FieldInvalid("a key does not succeed itself", place="$.successor")
    return KeyChange(signer.kid, successor, claims.iat, claims.jti)


def _read_key(jwk: dict[str, str]) -> VerifyingKey:
    """Return the key of a JWK in the form that Remit writes: two forms of one key would be two successors."""
    try:
        key = VerifyingKey.from_jwk(jwk)
    except KeyMaterialError as error:
        raise FieldInvalid(str(error), place="$.successor") from None
    if key.kid != key.thumbprint() or key.to_jwk() != jwk:
        raise FieldInvalid("not a key in canonical form whose kid is its thumbprint", place="$.successor")
    return key
