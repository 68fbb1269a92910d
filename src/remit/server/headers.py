"""Parses single headers of a request.

Invariant: the values of a repeated header are joined, so a header that may only occur once has no valid value then.
`auth.py` and `application.py` decide what follows from a header.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

HeaderList: TypeAlias = list[tuple[bytes, bytes]]
# The headers of a request by their names in lower case.
Headers: TypeAlias = Mapping[bytes, bytes]

_JSON: Final = b"application/json"
_CHARSETS: Final = (b"", b"charset=utf-8", b'charset="utf-8"')
_BEARER: Final = "bearer "
# Values of `Sec-Fetch-Site` of requests that no page of another origin has made.
_SAME_ORIGIN: Final = (b"", b"none", b"same-origin")
_GZIP: Final = (b"gzip", b"x-gzip")
# RFC 9110, section 12.4.2.
_QUALITY: Final = re.compile(rb"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def join_repeated(headers: HeaderList) -> dict[bytes, bytes]:
    """Return the headers by name, with the values of repeated ones joined by commas."""
    return {name: b", ".join([value for other, value in headers if other == name]) for name in dict(headers)}


def bearer(sent: Headers) -> str:
    """Return the bearer token; empty if there is none."""
    text = sent.get(b"authorization", b"").decode("latin-1")
    return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""


def cookie(sent: Headers, name: bytes) -> str:
    """Return the first cookie of this name, which browsers send for the most specific path; empty if there is none."""
    for pair in sent.get(b"cookie", b"").split(b";"):
        key, _, value = pair.strip(b" \t").partition(b"=")
        if key == name:
            return value.decode("latin-1")
    return ""


def is_same_origin(sent: Headers) -> bool:
    """Return whether `Sec-Fetch-Site` excludes a page of another origin, or is missing."""
    return sent.get(b"sec-fetch-site", b"") in _SAME_ORIGIN


def could_be_cross_origin(sent: Headers) -> bool:
    """Return whether a page of another origin could have sent this request without a preflight."""
    return bool(sent.get(b"content-type") or sent.get(b"origin")) or not is_same_origin(sent)


def media_type_error(sent: Headers, *, any_type: bool) -> str:
    """Return why the body is refused; empty if it is not. It must be JSON, unless `any_type`, and not compressed.

    This also stops pages of other origins: a browser sends a preflight before it sends JSON to another origin.
    """
    if not any_type:
        name, _, parameters = sent.get(b"content-type", b"").lower().partition(b";")
        if name.strip() != _JSON or parameters.strip() not in _CHARSETS:
            return "send JSON, as `Content-Type: application/json`"
    if sent.get(b"content-encoding", b"").lower() not in (b"", b"identity"):
        return "compressed bodies are not supported"
    return ""


def accepts_gzip(sent: Headers) -> bool:
    """Return whether the client accepts gzip and does not prefer identity (RFC 9110, section 12.5.3)."""
    qualities = dict(_qualities(sent.get(b"accept-encoding", b"")))
    others = qualities.get(b"*", 0.0)
    gzip = max((qualities[name] for name in _GZIP if name in qualities), default=others)
    return gzip > 0 and gzip >= qualities.get(b"identity", 0.0)


def _qualities(listed: bytes) -> Iterator[tuple[bytes, float]]:
    """Yield each coding with its weight; the weight is 0 if it is malformed."""
    for entry in listed.lower().split(b","):
        name, semicolon, weight = entry.partition(b";")
        quality = _QUALITY.fullmatch(weight.strip(b" \t"))
        yield name.strip(b" \t"), float(quality[1]) if quality else 0.0 if semicolon else 1.0
