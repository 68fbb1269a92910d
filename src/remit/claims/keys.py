"""Keys for ES256, and the keyring of trusted keys.

The only importer of the signature library.

Invariants: a key is on P-256 and is used for ES256 only; signatures are deterministic and low-S, so one message has one
signature; a private key is exported only by a function whose name begins with `unsafe`. The ledger stores keys and
decides when they change.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from remit.claims.canonical import (
    canonicalize,
    decode_base64url,
    encode_base64url,
    sha256_base64url,
)
from remit.claims.strictjson import JSON
from remit.errors import (
    KeyConflict,
    KeyMalformed,
    KeyNotP256,
    KeyUnknown,
    KeyUseForbidden,
    SignatureInvalid,
    SignatureNotLowS,
    SignatureOutOfRange,
    quote,
)

__all__ = [
    "ALGORITHM",
    "KEY_ID",
    "ORDER",
    "SEED_BYTES",
    "SIGNATURE_BYTES",
    "Keyring",
    "SigningKey",
    "TrustedKey",
    "VerifyingKey",
]

ALGORITHM: Final = "ES256"
KEY_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
SEED_BYTES: Final = 40
_PRIME: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
SIGNATURE_BYTES: Final = 64

_HALF: Final = SIGNATURE_BYTES // 2
_HALF_ORDER: Final = (ORDER // 2).to_bytes(_HALF, "big")
_ES256: Final = ec.ECDSA(hashes.SHA256())
# RFC 6979: the nonce follows from key and message, so signing needs no randomness and cannot repeat one.
_ES256_DETERMINISTIC: Final = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)


@final
class VerifyingKey:
    """A public P-256 key that verifies ES256 and nothing else."""

    __slots__ = ("_key", "_numbers", "kid")

    def __init__(self, key: ec.EllipticCurvePublicKey, kid: str | None = None) -> None:
        """Wrap a key of the library. Files and messages are parsed by `from_pem` and `from_jwk`."""
        if not isinstance(key.curve, ec.SECP256R1):
            raise KeyNotP256("a public key, but not on P-256")
        if kid is not None and not KEY_ID.fullmatch(kid):
            raise KeyMalformed("the kid is not a well-formed key id")
        self._key = key
        self._numbers = key.public_numbers()
        self.kid = kid or self.thumbprint()

    def __eq__(self, other: object) -> bool:
        """Two keys are equal if their points are, whatever their ids."""
        return isinstance(other, VerifyingKey) and self._numbers == other._numbers

    def __hash__(self) -> int:
        """Hash by the point."""
        return hash(self._numbers)

    def __repr__(self) -> str:
        """Show the id only."""
        return f"VerifyingKey(kid={self.kid!r})"

    @classmethod
    def from_pem(cls, pem: bytes) -> "VerifyingKey":
        """Return the key of a SubjectPublicKeyInfo PEM."""
        try:
            key = serialization.load_pem_public_key(_single_block(pem, b"PUBLIC KEY"))
        except (ValueError, UnsupportedAlgorithm):
            raise KeyMalformed("not a public key in PEM form") from None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise KeyNotP256("a public key, but not on P-256")
        return cls(key)

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, JSON]) -> "VerifyingKey":
        """Return the key of a public JWK (RFC 7517). Its own `kid` is kept, else it is the thumbprint."""
        if "d" in jwk:
            raise KeyUseForbidden("a private key where a public one belongs")
        if jwk.get("kty") != "EC" or jwk.get("crv") != "P-256":
            raise KeyNotP256("a JWK, but not of an EC key on P-256")
        _check_intended_for_verifying(jwk)
        kid = jwk.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise KeyMalformed("the JWK's kid is not a string")
        try:
            point = ec.EllipticCurvePublicNumbers(
                _coordinate(jwk, "x"), _coordinate(jwk, "y"), ec.SECP256R1()
            ).public_key()
        except ValueError:
            raise KeyMalformed("the JWK's x and y are not a point on P-256") from None
        return cls(point, kid)

    def to_jwk(self) -> dict[str, JSON]:
        """Return the public JWK, as a key set lists it."""
        return {**self._point(), "alg": ALGORITHM, "use": "sig", "kid": self.kid}

    def to_pem(self) -> bytes:
        """Return the SubjectPublicKeyInfo PEM."""
        return self._key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def thumbprint(self) -> str:
        """Return the RFC 7638 thumbprint."""
        return sha256_base64url(canonicalize(self._point()))

    def check(self, message: bytes, signature: bytes, *, low_s: bool = True) -> None:
        """Raise unless `signature` is this key's over `message`: 64 bytes, in range, and with the lower s.

        Callers that do not hash signatures may pass `low_s=False`, for signers that do not normalize s.
        """
        r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
        if len(signature) != SIGNATURE_BYTES or not (0 < r < ORDER and 0 < s < ORDER):
            raise SignatureOutOfRange("r and s must be 32 bytes each, between 1 and n - 1")
        if low_s and s > ORDER // 2:
            raise SignatureNotLowS("s must be at most n / 2")
        try:
            self._key.verify(encode_dss_signature(r, s), message, _ES256)
        except InvalidSignature:
            raise SignatureInvalid("the signature does not verify") from None

    def _point(self) -> dict[str, JSON]:
        x, y = (encode_base64url(n.to_bytes(_HALF, "big")) for n in (self._numbers.x, self._numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def _single_block(pem: bytes, label: bytes) -> bytes:
    """Return `pem` if it is one block of this label and nothing else, so that it is clear which key was meant."""
    text = pem.strip()
    whole = text.startswith(b"-----BEGIN " + label + b"-----") and text.endswith(b"-----END " + label + b"-----")
    if not whole or text.count(b"-----BEGIN") != 1:
        raise ValueError("not one PEM block")
    return text


def _check_intended_for_verifying(jwk: Mapping[str, JSON]) -> None:
    operations = jwk.get("key_ops", ["verify"])
    intended = (
        jwk.get("alg", ALGORITHM) == ALGORITHM
        and jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )
    if not intended:
        raise KeyUseForbidden("the JWK's alg, use or key_ops say that it does not verify ES256")


def _coordinate(jwk: Mapping[str, JSON], name: str) -> int:
    text = jwk.get(name)
    if not isinstance(text, str):
        raise KeyMalformed(f"the JWK has no {name}")
    data = decode_base64url(text)
    number = int.from_bytes(data, "big")
    if len(data) != _HALF or number >= _PRIME:
        raise KeyMalformed(f"the JWK's {name} is not {_HALF} bytes below the prime of the curve")
    return number


@final
class SigningKey:
    """A private P-256 key that signs ES256 and nothing else. It is never printed.

    Its `kid` is the RFC 7638 thumbprint of the public half.
    """

    __slots__ = ("_key", "kid", "public")

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        """Take a key of the library; callers use `derive` and `from_pem`."""
        self._key = key
        self.public = VerifyingKey(key.public_key())
        self.kid = self.public.kid

    def __repr__(self) -> str:
        """Show the id only."""
        return f"SigningKey(kid={self.kid!r})"

    def __reduce__(self) -> str:
        """Refuse to be pickled: only `unsafe_to_pem` exports a private key."""
        raise KeyUseForbidden("a signing key is not to be copied")

    @classmethod
    def derive(cls, seed: bytes) -> "SigningKey":
        """Return the key that follows from 40 bytes of entropy (FIPS 186-5, A.2.1).

        Eight bytes more than the key has make the bias negligible; the caller draws them from `secrets`.
        """
        if len(seed) != SEED_BYTES:
            raise KeyMalformed(f"a seed has {SEED_BYTES} bytes")
        secret = int.from_bytes(seed, "big") % (ORDER - 1) + 1
        return cls(ec.derive_private_key(secret, ec.SECP256R1()))

    @classmethod
    def from_pem(cls, pem: bytes) -> "SigningKey":
        """Return the key of an unencrypted PKCS #8 PEM."""
        try:
            key = serialization.load_pem_private_key(_single_block(pem, b"PRIVATE KEY"), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise KeyMalformed("not an unencrypted private key in PEM form") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise KeyNotP256("a private key, but not on P-256")
        return cls(key)

    def unsafe_to_pem(self) -> bytes:
        """Return the private key in PKCS #8 PEM, in the clear: for a file that only its owner can read."""
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of the low-S signature."""
        # The library returns DER: 30 len 02 len r 02 len s. Slicing the bytes avoids two big integers, 3 % of the
        # cost of a receipt.
        der = self._key.sign(message, _ES256_DETERMINISTIC)
        end = 4 + der[3]
        r = der[4:end][-_HALF:].rjust(_HALF, b"\0")
        s = der[end + 2 :][-_HALF:].rjust(_HALF, b"\0")
        return r + (s if s <= _HALF_ORDER else (ORDER - int.from_bytes(s, "big")).to_bytes(_HALF, "big"))


class TrustedKey(NamedTuple):
    """A key, the one issuer it is trusted for, and whether that issuer is foreign.

    Others may not normalize their signatures, so passports signed with a foreign key may be high-S; they are
    identified by issuer and `jti`, never by their hash.
    """

    key: VerifyingKey
    issuer: str
    foreign: bool = False


@final
class Keyring:
    """The trusted keys, each for one issuer, looked up by exact `kid`."""

    __slots__ = ("_keys", "_successors")

    def __init__(self, keys: Iterable[TrustedKey]) -> None:
        """Contain `keys`. Raises if two of them have the same id, but another key or issuer."""
        self._keys: dict[str, TrustedKey] = {}
        self._successors: dict[str, str] = {}
        for trusted in keys:
            if self._keys.setdefault(trusted.key.kid, trusted) != trusted:
                raise KeyConflict(f"two trusted keys are called {quote(trusted.key.kid)}")

    def find(self, kid: str) -> TrustedKey:
        """Return the key with this `kid`. No other key is tried."""
        try:
            return self._keys[kid]
        except KeyError:
            raise KeyUnknown(f"no trusted key is called {quote(kid)}") from None

    def succeeds(self, later_kid: str, earlier_kid: str) -> bool:
        """Return whether the key `earlier_kid` handed over to `later_kid`, directly or through keys between them."""
        kid = self._successors.get(earlier_kid)
        while kid is not None and kid != later_kid:
            kid = self._successors.get(kid)
        return kid is not None

    def with_successor(self, earlier_kid: str, successor: TrustedKey) -> "Keyring":
        """Return a keyring that also trusts `successor`, as the successor of `earlier_kid`.

        Verifies nothing: `with_successors` calls it for what a key has signed. A new keyring with the keys of this one
        does not know which key succeeds which.
        """
        later_kid = successor.key.kid
        if self._successors.get(self.find(earlier_kid).key.kid, later_kid) != later_kid:
            raise KeyConflict(f"{quote(earlier_kid)} has handed over to another key already")
        if later_kid == earlier_kid or self.succeeds(earlier_kid, later_kid):
            raise KeyConflict(f"{quote(earlier_kid)} would hand over to a key before it")
        grown = Keyring([*self, successor])
        grown._successors = {**self._successors, earlier_kid: later_kid}
        return grown

    def __iter__(self) -> Iterator[TrustedKey]:
        """Iterate over the keys in the order in which they were given."""
        return iter(self._keys.values())
