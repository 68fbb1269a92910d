"""URL normalization, for checks and for receipts.

URLs are parsed by the WHATWG standard, like browsers and fetch libraries do, so that the checked host is the contacted
host. Spellings that other parsers read differently are refused.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import unquote

import can_ada

_MAX_URL: Final = 8192
_HEAD: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?=[^/])")
# Control characters, white space, backslashes and invisible characters.
_REFUSED: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\s")
_USER: Final = re.compile(r"[^/?#]*@")
_DOTS: Final = re.compile(r"(?:\A|[\\/])\.\.(?:[\\/]|\Z)")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
# Names of this machine or its network, and public names that resolve to an address in the name.
_LOCAL_NAMES: Final = tuple(
    "localhost localdomain local internal intranet lan home.arpa private corp test invalid nip.io sslip.io xip.io "
    "localtest.me lvh.me vcap.me lacolhost.com yoogle.com ip6-localhost ip6-loopback svc cluster in-addr.arpa ip6.arpa "
    "onion".split()
)


class Url(NamedTuple):
    """A normalized URL; `refusal` says why it is refused."""

    scheme: str
    host: str
    port: int
    path: str
    text: str
    refusal: str = ""


def _refuse(text: str, why: str) -> Url:
    return Url("", "", 0, "", text[:256], why)


@lru_cache(maxsize=1024)
def parse_url(text: str) -> Url:
    """Parse and normalize a URL."""
    refusal = _refuse_text(text)
    if refusal:
        return _refuse(text, refusal)
    try:
        url = can_ada.parse(text)
    except ValueError:
        return _refuse(text, "it is not a URL")
    scheme, path = url.protocol.removesuffix(":"), url.pathname
    if "%" in path and _DOTS.search(unquote(unquote(path))):
        return _refuse(text, "it goes upwards in encoded form")
    port = int(url.port) if url.port else _DEFAULT_PORTS[scheme]
    # Without user, query and fragment: they do not select the resource, and may hold secrets.
    shown = f"{scheme}://{url.host}{path}"
    return Url(scheme, url.hostname, port, path, shown)


def _refuse_text(text: str) -> str:
    """Return why the text of a URL is refused, or ""."""
    if len(text) > _MAX_URL:
        return "it is too long"
    if _REFUSED.search(text):
        return "it holds white space, a backslash or invisible characters"
    head = _HEAD.match(text)
    if not head:
        return "it does not start with a scheme and a host"
    if head[1].lower() not in _DEFAULT_PORTS:
        return f"its scheme {head[1].lower()!r} is not one of http, https, ws, wss and ftp"
    return "it holds a user name, which hides the host" if _USER.match(text, head.end()) else ""


def read_url(text: str) -> Url:
    """Parse a URL as command-line programs do: without a scheme it is http."""
    return parse_url(text if "://" in text else f"http://{text}")


def parse_host(text: str) -> Url:
    """Parse a bare host, `user@host` or `host:port` to `host://name:port`; port 0 means none."""
    host = text.rpartition("@")[2]
    url = parse_url(f"http://{host}/") if "/" not in host else _refuse(text, "it is not a host")
    named = re.search(r":([0-9]+)\Z", host)
    return url if url.refusal else url._replace(scheme="host", text=f"host://{url.host}:{named[1] if named else '0'}")


@lru_cache(maxsize=1024)
def is_public_host(host: str) -> bool:
    """Return whether a wildcard may match a host: a public name or a public address.

    A name can still resolve to a private address; the program that connects must check that.
    """
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        name = host.rstrip(".").lower()
        return "." in name and not any(name == local or name.endswith("." + local) for local in _LOCAL_NAMES)
    return all(
        inner.is_global and not inner.is_multicast and not any(inner in network for network in _NEVER_PUBLIC)
        for inner in _embedded_addresses(address)
    )


def _embedded_addresses(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return an address with the IPv4 addresses embedded in it."""
    addresses: list[IPv4Address | IPv6Address] = [address]
    if isinstance(address, IPv6Address):
        teredo = address.teredo or ()
        embedded = (address.ipv4_mapped, address.sixtofour, *teredo)
        addresses.extend(inner for inner in embedded if inner is not None)
        packed = address.packed
        if packed[:12] in (_NAT64, _TRANSLATED, bytes(12)):
            addresses.append(IPv4Address(packed[12:]))
    return addresses


# Addresses that look public: site-local, local translation, and services of cloud hosts and networks.
_NEVER_PUBLIC: Final = tuple(
    ip_network(network)
    for network in ("fec0::/10", "64:ff9b:1::/48", "192.0.0.0/24", "168.63.129.16/32", "100.100.100.200/32", "fd00::/8")
)
_TRANSLATED: Final = bytes.fromhex("0000000000000000ffff0000")
_NAT64: Final = bytes.fromhex("0064ff9b0000000000000000")
