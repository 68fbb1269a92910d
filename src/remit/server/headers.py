"""What the headers of a request say, each read in one place.

Keeps this invariant: of a header that stands twice, both are there, so that one that may only stand once means nothing
then. What follows from a header is for `auth.py` and `application.py`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

__all__ = [
    "HeaderList",
    "Sent",
    "accepts_gzip",
    "bearer",
    "cookie",
    "could_be_of_a_page",
    "is_of_our_site",
    "join_repeated",
    "media_type_error",
]

HeaderList: TypeAlias = list[tuple[bytes, bytes]]
# The headers that were sent, by their names in lower case.
Sent: TypeAlias = Mapping[bytes, bytes]

_JSON: Final = b"application/json"
_CHARSETS: Final = (b"", b"charset=utf-8", b'charset="utf-8"')
_BEARER: Final = "bearer "
# What a browser says of a request that no page of another origin has made.
_OUR_SITE: Final = (b"", b"none", b"same-origin")
_GZIP: Final = (b"gzip", b"x-gzip")
# RFC 9110, section 12.4.2.
_QUALITY: Final = re.compile(rb"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def join_repeated(headers: HeaderList) -> dict[bytes, bytes]:
    """Return the headers by name; the values of one that is repeated are joined, as lists are."""
    return {name: b", ".join([value for other, value in headers if other == name]) for name in dict(headers)}


def bearer(sent: Sent) -> str:
    """Return the bearer token, if there is one."""
    text = sent.get(b"authorization", b"").decode("latin-1")
    return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""


def cookie(sent: Sent, name: bytes) -> str:
    """Return the cookie of this name: the first, which browsers take from the nearest path."""
    for pair in sent.get(b"cookie", b"").split(b";"):
        key, _, value = pair.strip(b" \t").partition(b"=")
        if key == name:
            return value.decode("latin-1")
    return ""


def is_of_our_site(sent: Sent) -> bool:
    """Tell whether the browser says that no page of another origin has made this request, or nothing of the kind."""
    return sent.get(b"sec-fetch-site", b"") in _OUR_SITE


def could_be_of_a_page(sent: Sent) -> bool:
    """Tell whether a page of another origin could have had this sent, without being asked first."""
    return bool(sent.get(b"content-type") or sent.get(b"origin")) or not is_of_our_site(sent)


def media_type_error(sent: Sent, *, any_type: bool) -> str:
    """Return why the body is not read, empty if it is: it must be JSON, unless `any_type`, and not compressed.

    This also keeps pages of others out: a browser asks first before it sends this type to another origin.
    """
    if not any_type:
        name, _, parameters = sent.get(b"content-type", b"").lower().partition(b";")
        if name.strip() != _JSON or parameters.strip() not in _CHARSETS:
            return "send JSON, as `Content-Type: application/json`"
    if sent.get(b"content-encoding", b"").lower() not in (b"", b"identity"):
        return "a compressed body is not read"
    return ""


def accepts_gzip(sent: Sent) -> bool:
    """Tell whether the client asks for gzip, and not rather for what is not encoded (RFC 9110, section 12.5.3)."""
    qualities = dict(_qualities(sent.get(b"accept-encoding", b"")))
    others = qualities.get(b"*", 0.0)
    gzip = max((qualities[name] for name in _GZIP if name in qualities), default=others)
    return gzip > 0 and gzip >= qualities.get(b"identity", 0.0)


def _qualities(listed: bytes) -> Iterator[tuple[bytes, float]]:
    """Give each coding with its weight; one whose weight cannot be read is not wanted."""
    for entry in listed.lower().split(b","):
        name, semicolon, weight = entry.partition(b";")
        quality = _QUALITY.fullmatch(weight.strip(b" \t"))
        yield name.strip(b" \t"), float(quality[1]) if quality else 0.0 if semicolon else 1.0
