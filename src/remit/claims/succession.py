"""Changes of key: a key hands over to the next by signing it.

Keeps this invariant: trust grows only by what a key that is trusted already has signed, and it grows in a line. A key
has one successor at most, and none comes back to a key before it. When to change a key is the ledger's business.
"""

from collections.abc import Iterable
from typing import NamedTuple

from remit.claims.chain import verifier_id
from remit.claims.jws import KEY_CHANGE, sign_token, verify_token
from remit.claims.keys import Keyring, SigningKey, TrustedKey, VerifyingKey
from remit.claims.shapes import Claims, IdString, NonEmpty, NumericDate, encode, shape
from remit.claims.strictjson import parse_object
from remit.errors import FieldInvalid, InputError, KeyMaterialError, KeyUseForbidden, PayloadInvalid

__all__ = ["KeyChange", "sign_key_change", "verify_key_change", "with_successors"]


class _Claims(Claims, frozen=True, kw_only=True):
    """The claims as they are written."""

    iss: NonEmpty
    iat: NumericDate
    jti: IdString
    successor: dict[str, str]


class KeyChange(NamedTuple):
    """Which key handed over to which, and when."""

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
    """Return the change of key, if the key that hands over is trusted and is not someone else's."""
    verified = verify_token(KEY_CHANGE, token, keyring)
    signer = keyring.find(verified.kid)
    if signer.foreign:
        raise KeyUseForbidden("a foreign key does not hand over: whom to trust elsewhere is decided here")
    try:
        return _read(verified.claims, signer.key)
    except InputError as error:
        raise PayloadInvalid(error) from None


def with_successors(keyring: Keyring, records: Iterable[str]) -> Keyring:
    """Return a keyring that also trusts the successors in `records`, and knows whom each succeeds.

    The records stand in the order in which keys were changed: each is verified with what those before it have added.
    """
    for record in records:
        change = verify_key_change(record, keyring)
        successor = TrustedKey(change.successor, verifier_id(change.successor))
        keyring = keyring.with_successor(change.predecessor, successor)
    return keyring


def _read(value: object, signer: VerifyingKey) -> KeyChange:
    claims = shape(_Claims, value)
    if claims.iss != verifier_id(signer):
        raise FieldInvalid("is not the name of the key that hands over", place="$.iss")
    successor = _read_key(claims.successor)
    if successor == signer:
        raise FieldInvalid("a key does not succeed itself", place="$.successor")
    return KeyChange(signer.kid, successor, claims.iat, claims.jti)


def _read_key(jwk: dict[str, str]) -> VerifyingKey:
    """Return the key of a JWK that is written as we write it: two spellings of one key would be two successors."""
    try:
        key = VerifyingKey.from_jwk(jwk)
    except KeyMaterialError as error:
        raise FieldInvalid(str(error), place="$.successor") from None
    if key.kid != key.thumbprint() or key.to_jwk() != jwk:
        raise FieldInvalid("not a key as we write it, called by its thumbprint", place="$.successor")
    return key
