"""Public keys from a file, to verify with instead of those of a home."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remit.claims.chain import verifier_id
from remit.claims.keys import Keyring, TrustedKey, VerifyingKey
from remit.claims.strictjson import JSON, parse_object
from remit.errors import FieldInvalid, KeyMalformed, KeyNotP256

__all__ = ["load_keyring"]

_MAX_BYTES: Final = 256 * 1024
_PEM: Final = re.compile(rb"-----BEGIN .*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL)


def load_keyring(file: Path, issuer: JSON) -> Keyring:
    """Return the keys in a file: PEM, a JWK, or a JWKS.

    Whoever names the file believes them for `issuer`, whom the token says that it comes from; without one, each for the
    name that a key of ours has.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES)
    except (OSError, ValueError):
        raise FieldInvalid("the file cannot be read", place="$.key") from None
    keys = list(_from_json(data) if data.lstrip().startswith(b"{") else _from_pem(data))
    if not keys:
        raise KeyMalformed("the file holds no public key that verifies ES256")
    return Keyring(_trusted(key, issuer) for key in keys)


def _from_pem(data: bytes) -> Iterator[VerifyingKey]:
    return map(VerifyingKey.from_pem, _PEM.findall(data))


def _from_json(data: bytes) -> Iterator[VerifyingKey]:
    """Go through the keys of a set; a set may hold others for other uses, which do not verify here."""
    value = parse_object(data, max_bytes=_MAX_BYTES)
    listed = value.get("keys", [value])
    for jwk in listed if isinstance(listed, list) else []:
        try:
            yield VerifyingKey.from_jwk(jwk if isinstance(jwk, dict) else {})
        except KeyNotP256:
            continue


def _trusted(key: VerifyingKey, issuer: JSON) -> TrustedKey:
    own = verifier_id(key)
    return (
        TrustedKey(key, issuer, foreign=issuer != own) if isinstance(issuer, str) and issuer else TrustedKey(key, own)
    )
