"""The one byte form of a JSON value (RFC 8785), and digests.

Keeps this invariant: equal values have equal bytes, whoever wrote them and in whatever order. `rfc8785` is the
reference; plain values, which are nearly all, take a shorter way through `orjson` that gives the same bytes.
"""

import hashlib
from base64 import urlsafe_b64decode
from binascii import b2a_base64

import orjson
import rfc8785

from remit.claims.strictjson import MAX_INTEGER
from remit.errors import NotCanonicalizable

__all__ = ["base64url", "canonicalize", "decode_base64url", "encode_base64url", "sha256_base64url", "sha256_hex"]


def canonicalize(value: object) -> bytes:
    """Return the RFC 8785 form of a JSON value."""
    form = _form(value)
    if form is None:
        raise NotCanonicalizable("has no canonical form")
    return form


def _form(value: object) -> bytes | None:
    """Return the form, or None; the libraries' own errors hold the value, so they are not passed on."""
    try:
        if _is_plain(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # it refuses what is not JSON
    except (rfc8785.CanonicalizationError, orjson.JSONEncodeError, ValueError, RecursionError):
        return None


def _is_plain(value: object) -> bool:
    """Tell whether `orjson` writes `value` as RFC 8785 does.

    It does but for floats (their digits), integers beyond 2^53 - 1 (which RFC 8785 refuses) and names that are
    not ASCII (it sorts by code point, RFC 8785 by UTF-16 unit). Exact types only: it writes more than JSON knows.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER  # type: ignore[operator]  # `kind` says so
    if kind is dict:
        for name, item in value.items():  # type: ignore[attr-defined]
            if type(name) is not str or not name.isascii() or not (type(item) is str or _is_plain(item)):
                return False
        return True
    return kind is list and all(map(_is_plain, value))  # type: ignore[call-overload]


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_base64url(data: bytes) -> str:
    """Return the SHA-256 of `data` in base64url."""
    return encode_base64url(hashlib.sha256(data).digest())


def base64url(data: bytes) -> bytes:
    """Return `data` in base64url without padding, as ASCII bytes."""
    return b2a_base64(data, newline=False).rstrip(b"=").replace(b"+", b"-").replace(b"/", b"_")


def encode_base64url(data: bytes) -> str:
    """Return `data` in base64url without padding."""
    return base64url(data).decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Return the bytes of strict base64url, or raise `ValueError`.

    Strict: what is decoded must encode to `text` again. That refuses padding, the other alphabet, white space
    and set bits after the last byte, each of which would give one value a second spelling.
    """
    data = urlsafe_b64decode(text.encode("ascii") + b"==")
    if encode_base64url(data) != text:
        raise ValueError("not strict base64url")
    return data
