"""Which `Host` is ours. A page of another name that was pointed at our address must get nothing.

Keeps this invariant: names are compared whole, byte for byte but for the case of letters, against a fixed list.
Nothing is resolved, trimmed or guessed.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from remit.errors import FieldInvalid, quote

__all__ = ["allowed_hosts", "host_name", "is_loopback", "is_wildcard", "url_host"]

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_DEFAULT_PORTS: Final = (80, 443)
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")


def is_loopback(host: str) -> bool:
    """Tell whether an address or name is only reached from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Tell whether an address stands for all of this machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def url_host(host: str) -> str:
    """Return an address as URLs write it."""
    return f"[{host}]" if ":" in host else host


def allowed_hosts(host: str, port: int, added: Iterable[str] = ()) -> frozenset[bytes]:
    """Return the values of `Host` that are ours: of where we are bound, and those that were added.

    A name that is added without a port is taken with ours, with that of its scheme, and without one.
    """
    names = set(_LOOPBACK) if is_loopback(host) or is_wildcard(host) else {url_host(host)}
    ours = {f"{name}:{port}" for name in names}
    if port in _DEFAULT_PORTS:
        ours |= names
    for value in added:
        name, given = _split(value)
        ours |= {f"{name}:{given}"} if given else {name, *(f"{name}:{other}" for other in (port, *_DEFAULT_PORTS))}
    return frozenset(value.lower().encode("ascii") for value in ours)


def host_name(value: str) -> str:
    """Return the name or address in a `Host`, without its port."""
    name, _ = _split(value)
    return name.removeprefix("[").removesuffix("]")


def _split(value: str) -> tuple[str, str]:
    name, colon, port = value.rpartition(":") if not value.endswith("]") else (value, "", "")
    if not colon:
        name, port = value, ""
    if (colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16)) or not _is_name(name):
        raise FieldInvalid(f"{quote(value)} is not a host name, with or without a port", place="allowed-host")
    return name, port


def _is_name(name: str) -> bool:
    if name.startswith("[") and name.endswith("]"):
        try:
            return ip_address(name[1:-1]).version == 6  # noqa: PLR2004 - as in IPv6
        except ValueError:
            return False
    return len(name) < 256 and _NAME.fullmatch(name) is not None  # noqa: PLR2004 - as the domain name system has it
