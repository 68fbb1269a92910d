"""The values of `Host` that are served. Names that were made to resolve to our address (DNS rebinding) are refused.

Invariant: a value is compared whole, apart from the case of letters. It is a loopback name with any port or none, or it
is in a fixed list of configured names. Nothing is resolved or trimmed.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from remit.errors import FieldInvalid, quote

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PORT: Final = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
# 127.0.0.0/8, `::1` and `localhost`, each in the one spelling that browsers send, with any port or none.
LOOPBACK_AUTHORITY: Final = rf"(?:localhost|127(?:\.{_OCTET}){{3}}|\[::1\])(?::{_PORT})?"
_LOOPBACK: Final = re.compile(LOOPBACK_AUTHORITY.encode("ascii"))
_DEFAULT_PORTS: Final = (80, 443)
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")


def is_loopback(host: str) -> bool:
    """Return whether an address or name can only be reached from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Return whether an address means all addresses of this machine, such as `0.0.0.0`."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def url_host(host: str) -> str:
    """Return an address in the form of URLs: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback_host(value: bytes) -> bool:
    """Return whether a `Host`, in lower case, names this machine: a loopback name with any port or none.

    Any port, because a tunnel or a container may map the port. Browsers do not let pages of other names send one.
    """
    return _LOOPBACK.fullmatch(value) is not None


def allowed_hosts(host: str, port: int, added: Iterable[str] = ()) -> frozenset[bytes]:
    """Return the values of `Host` that are served besides loopback names: the bound address, and configured names.

    An added name without a port is allowed with the port of the service, with 80 and 443, and without a port.
    """
    ours = set[str]()
    if not is_loopback(host) and not is_wildcard(host):
        ours.add(f"{url_host(host)}:{port}")
        if port in _DEFAULT_PORTS:
            ours.add(url_host(host))
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
