"""The canonical form of a JSON value (RFC 8785), and digests.

Invariant: equal values have equal bytes, whatever the order of their members. `rfc8785` is the reference; for most
values, `orjson` gives the same bytes faster.

RFC 8785 has no form for integers beyond 2^53 - 1, and the arguments of tool calls may have such integers. For these
there is another form, which differs only in that it writes large integers with all their digits.
"""

import hashlib
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Final

import orjson
import rfc8785
from msgspec.json import Encoder

from remit.claims.strictjson import MAX_DIGITS, MAX_INTEGER
from remit.errors import NotCanonicalizable

__all__ = [
    "ExactForm",
    "base64url",
    "canonicalize",
    "canonicalize_arguments",
    "decode_base64url",
    "encode_base64url",
    "sha256_base64url",
    "sha256_hex",
]

_TOO_LARGE: Final = 10**MAX_DIGITS
# From here on, RFC 8785 writes numbers with an exponent.
_EXPONENT: Final = 1e21


class ExactForm(bytes):
    """The form of a value that has no unambiguous RFC 8785 form: large integers have all digits."""

    __slots__ = ()


def canonicalize(value: object) -> bytes:
    """Return the RFC 8785 form of a JSON value."""
    return _form(value)


def _form(value: object, is_exact: Callable[[object], bool] | None = None) -> bytes:
    """Return the form. Errors of the libraries are not chained, because they contain the value.

    A value that `is_exact` has an `ExactForm`.
    """
    try:
        if _is_plain(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if is_exact is not None and is_exact(value):
            return ExactForm(_exact(value).encode())
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # it refuses what is not JSON
    except (rfc8785.CanonicalizationError, orjson.JSONEncodeError, AttributeError, ValueError, RecursionError):
        pass
    raise NotCanonicalizable("has no canonical form")


_PLAIN_TYPES: Final = frozenset((str, bool, type(None)))


def _is_plain(value: object) -> bool:
    """Return whether `orjson` writes `value` as RFC 8785 does.

    It does except for floats (their digits), integers beyond 2^53 - 1 (which RFC 8785 refuses) and names that are
    not ASCII (it sorts by code point, RFC 8785 by UTF-16 unit). Exact types only: it encodes more than JSON types.
    """
    kind = type(value)
    if kind in _PLAIN_TYPES:
        return True
    if kind is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER  # type: ignore[operator]  # `kind` says so
    if kind is dict:
        for name, item in value.items():  # type: ignore[attr-defined]
            if type(name) is not str or not name.isascii() or not (type(item) in _PLAIN_TYPES or _is_plain(item)):
                return False
        return True
    return kind is list and all(map(_is_plain, value))  # type: ignore[call-overload]


def canonicalize_arguments(value: object) -> bytes:
    """Return the form of the arguments of a tool call: that of RFC 8785, or an `ExactForm` if they have large integers.

    Values that differ have forms that differ. A float is an integer too if it has no fraction: RFC 8785 writes some of
    these with other digits than they have, which could be the digits of an integer that differs.
    """
    return _form(value, _has_large_integer)


def _has_large_integer(value: object) -> bool:
    """Return whether RFC 8785 has no form for an integer in `value`, or writes it with other digits."""
    kind = type(value)
    if kind is int:
        return abs(value) > MAX_INTEGER  # type: ignore[arg-type]  # `kind` says so
    if kind is float:
        return rfc8785.dumps(value) != _exact(value).encode()  # type: ignore[arg-type]
    if kind is dict:
        return any(map(_has_large_integer, value.values()))  # type: ignore[attr-defined]
    return kind is list and any(map(_has_large_integer, value))  # type: ignore[call-overload]


def _exact(value: object) -> str:
    """Return the form of RFC 8785, but with all digits of integers beyond 2^53 - 1."""
    kind = type(value)
    if kind is float and MAX_INTEGER < abs(value) < _EXPONENT:  # type: ignore[arg-type]
        return str(int(value))  # type: ignore[call-overload]  # beyond 2^53 a float has no fraction
    if kind is int:
        if abs(value) >= _TOO_LARGE:  # type: ignore[arg-type]
            raise ValueError("too many digits")
        return str(value)
    if kind is dict:
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))  # type: ignore[call-overload]
        return "{" + ",".join(f"{_exact(name)}:{_exact(value[name])}" for name in names) + "}"  # type: ignore[index]
    if kind is list:
        return "[" + ",".join(map(_exact, value)) + "]"  # type: ignore[call-overload]
    return rfc8785.dumps(value).decode()  # type: ignore[arg-type]  # it refuses what is not JSON


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_base64url(data: bytes) -> str:
    """Return the SHA-256 of `data` in base64url."""
    return _json(hashlib.sha256(data).digest())[1:-1].rstrip(b"=").translate(_URL_SAFE).decode("ascii")


_json: Final = Encoder().encode
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def base64url(data: bytes) -> bytes:
    """Return `data` in base64url without padding, as ASCII bytes."""
    # As a JSON string, which is twice as fast as `binascii`.
    return _json(data)[1:-1].rstrip(b"=").translate(_URL_SAFE)


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
