"""What the headers of a request must be together, which no single field shows.

Keeps this invariant: what passes is one request to one host, with one end, however it is read. Single fields are read
in `protocol.py`.
"""

from typing import Final

import httptools

from remit.errors import HostRefused, HttpMalformed

__all__ = ["check_form"]

_VERSIONS: Final = ("1.0", "1.1")
_SCHEMES: Final = (b"http", b"https")
# So many digits has the largest number that the parser takes; zeros before it would be read without end.
_LENGTH_DIGITS: Final = 20


def check_form(version: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise unless this is one request to one host, however it is read."""
    if version not in _VERSIONS:
        raise HttpMalformed("HTTP 1.1 is spoken here")
    if b"#" in target:
        raise HttpMalformed("a request target has no fragment")
    coding = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if coding and (coding != [b"chunked"] or version != "1.1"):
        raise HttpMalformed("no transfer coding but chunked is read")
    if any(name == b"content-length" and len(value) > _LENGTH_DIGITS for name, value in headers):
        raise HttpMalformed(f"a length has {_LENGTH_DIGITS} digits at most")
    host = [value for name, value in headers if name == b"host"]
    if len(host) != 1:
        raise HostRefused("exactly one Host is needed")
    if not target.startswith(b"/") and _authority(target) != host[0].lower():
        raise HostRefused("the request target names another host")


def _authority(target: bytes) -> bytes:
    """Return the host of an absolute target, as `Host` would write it; nothing for a target of another kind."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserError:
        return b""
    if (url.schema or b"").lower() not in _SCHEMES or url.userinfo:
        return b""
    host = (url.host or b"").lower()
    # httptools takes the brackets off; a colon in a host is an address of version 6.
    host = b"[" + host + b"]" if b":" in host else host
    port: int | None = url.port
    return host if port is None else b"%s:%d" % (host, port)
