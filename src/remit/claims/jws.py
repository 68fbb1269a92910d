"""Compact ES256 tokens, typed by `typ`.

Invariants: only `verify_token` returns claims, so all claims are verified. `unsafe_peek` is for showing a token to a
person, and for a client that compares an answer with its own token. A token that Remit signs has exactly one byte form,
because chains hash it: base64url is strict and signatures are low-S. The module of each kind of token interprets the
claims.

The numbered steps are those of docs/audit/tokens.md.
"""

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from remit.claims.canonical import base64url, canonicalize, decode_base64url
from remit.claims.keys import (
    ALGORITHM,
    KEY_ID,
    Keyring,
    SigningKey,
)
from remit.claims.strictjson import JSON, parse_object
from remit.errors import (
    AlgorithmRefused,
    CriticalHeaderRefused,
    InputError,
    IssuerMismatch,
    KeyIdInvalid,
    KeyInHeaderRefused,
    PayloadInvalid,
    TokenEncodingInvalid,
    TokenHeaderInvalid,
    TokenKindMismatch,
    TokenMalformed,
    TokenTooLarge,
    UnknownHeaderRefused,
)

__all__ = [
    "ATTESTATION",
    "BOOKMARK",
    "KEY_CHANGE",
    "KEY_LIMIT",
    "KINDS",
    "PASSPORT",
    "RECEIPT",
    "TokenKind",
    "UnverifiedToken",
    "VerifiedToken",
    "sign_token",
    "unsafe_peek",
    "verify_token",
]


class TokenKind(NamedTuple):
    """A kind of token: its `typ`, its maximum length, and whether it is identified by its hash.

    A token that is hashed must have one form, so its signature must be low-S, also if a foreign key made it.
    """

    typ: str
    max_length: int
    hashed: bool


PASSPORT: Final = TokenKind("remit-passport+jwt", 16 * 1024, hashed=False)
# A receipt may have 4096 characters of reason and 2048 of target in any script, and fits in a log entry.
RECEIPT: Final = TokenKind("remit-receipt+jwt", 65_535, hashed=True)
ATTESTATION: Final = TokenKind("remit-attestation+jwt", 65_535, hashed=True)
KEY_CHANGE: Final = TokenKind("remit-key-change+jwt", 16 * 1024, hashed=True)
KEY_LIMIT: Final = TokenKind("remit-key-limit+jwt", 16 * 1024, hashed=True)
BOOKMARK: Final = TokenKind("remit-bookmark+jwt", 65_535, hashed=False)
KINDS: Final = (PASSPORT, RECEIPT, ATTESTATION, KEY_CHANGE, KEY_LIMIT, BOOKMARK)

_PARTS: Final = 3
_MAX_HEADER: Final = 1024  # not verified yet, so little is read
_SIGNATURE_CHARACTERS: Final = 86


def sign_token(kind: TokenKind, payload: bytes, key: SigningKey) -> str:
    """Return the compact token over `payload`, which the caller has validated."""
    message = _header(kind, key.kid) + base64url(payload)
    token = (message + b"." + base64url(key.sign(message))).decode("ascii")
    if len(token) > kind.max_length:
        _check_length(kind, token)
    return token


@lru_cache(maxsize=64)
def _header(kind: TokenKind, kid: str) -> bytes:
    """Return the first part of a token and the dot after it."""
    return base64url(canonicalize({"alg": ALGORITHM, "kid": kid, "typ": kind.typ})) + b"."


class VerifiedToken(NamedTuple):
    """The claims of a token, and the id of the key that signed them."""

    claims: dict[str, JSON]
    kid: str


def verify_token(kind: TokenKind, token: str, keyring: Keyring) -> VerifiedToken:
    """Return the claims of a token of `kind`, after all checks that do not depend on the content of the claims."""
    _check_length(kind, token)  # 1
    head, payload, signature = _split(token)  # 2
    trusted = keyring.find(_read_header(kind, head))  # 3 to 8
    message = token[: len(head) + 1 + len(payload)].encode("ascii")
    trusted.key.check(message, _decode(signature, "signature"), low_s=kind.hashed or not trusted.foreign)  # 9 to 11
    claims = _read_payload(payload)  # 12
    if claims.get("iss") != trusted.issuer:  # 13
        raise IssuerMismatch("iss is not the issuer that the signing key is trusted for")
    return VerifiedToken(claims, trusted.key.kid)


def _check_length(kind: TokenKind, token: str) -> None:
    if len(token) > kind.max_length:
        raise TokenTooLarge(f"{len(token)} characters, a {kind.typ} has at most {kind.max_length}")


def _split(token: str) -> tuple[str, str, str]:
    parts = token.split(".")
    right = len(parts) == _PARTS and all(parts) and len(parts[-1]) == _SIGNATURE_CHARACTERS
    if not right or not token.isascii():
        raise TokenMalformed("not header.payload.signature with a signature of 64 bytes")
    return parts[0], parts[1], parts[2]


def _decode(part: str, name: Literal["header", "payload", "signature"]) -> bytes:
    try:
        return decode_base64url(part)
    except ValueError:
        raise TokenEncodingInvalid(f"the {name} is not strict base64url") from None


def _read_header(kind: TokenKind, part: str) -> str:
    """Return the `kid` of a header, after checking all other members."""
    try:
        header = parse_object(_decode(part, "header"), max_bytes=_MAX_HEADER)  # 3
    except InputError as error:
        raise TokenHeaderInvalid(error) from None
    if header.get("alg") != ALGORITHM:  # 4
        raise AlgorithmRefused(f"alg must be {ALGORITHM}")
    _check_typ(kind, header.get("typ"))  # 5
    for name in header:  # 6
        if name not in _HEADER_MEMBERS:
            refused, problem = _REFUSED_MEMBERS.get(name, _UNKNOWN_MEMBER)
            raise refused(f"the header {problem}")
    kid = header.get("kid")
    if not (isinstance(kid, str) and KEY_ID.fullmatch(kid)):  # 7
        raise KeyIdInvalid("kid is not a well-formed key id")
    return kid


_HEADER_MEMBERS: Final = frozenset({"alg", "kid", "typ"})
_BRINGS_KEY: Final = (KeyInHeaderRefused, "brings a key, or an address of one, of its own")
_UNKNOWN_MEMBER: Final = (UnknownHeaderRefused, "has a member other than alg, kid and typ")
_REFUSED_MEMBERS: Final = {
    "crit": (CriticalHeaderRefused, "has crit, and no extension is known here"),
    **dict.fromkeys(("jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"), _BRINGS_KEY),
}


def _check_typ(kind: TokenKind, typ: JSON) -> None:
    """Compare as RFC 8725 does: media types are case-insensitive, and `application/` may be omitted."""
    if not isinstance(typ, str) or not typ.isascii() or typ.lower().removeprefix("application/") != kind.typ:
        raise TokenKindMismatch(f"typ must be {kind.typ}")


def _read_payload(part: str) -> dict[str, JSON]:
    try:
        return parse_object(_decode(part, "payload"))
    except InputError as error:
        raise PayloadInvalid(error) from None


class UnverifiedToken(NamedTuple):
    """The unverified content of a token. A part that cannot be parsed is None."""

    header: dict[str, JSON] | None
    claims: dict[str, JSON] | None


def unsafe_peek(token: str) -> UnverifiedToken:
    """Return the unverified content of a token, to show it to a person or to compare an answer with it."""
    parts = token.split(".", _PARTS) if len(token) <= max(kind.max_length for kind in KINDS) else []
    header, claims, *_ = (*map(_peek_part, parts), None, None)
    return UnverifiedToken(header, claims)


def _peek_part(part: str) -> dict[str, JSON] | None:
    try:
        return parse_object(decode_base64url(part))
    except ValueError:  # which every InputError is
        return None
