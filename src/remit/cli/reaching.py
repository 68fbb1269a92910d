"""The proxy of a home that is running, reached as its owner reaches it: by its address, authority and token.

Keeps this invariant: the token goes only where the note of a proxy that runs says, over TLS with the authority of the
home or within this machine. One that does not talk to us, for want of a certificate, is told apart from a silent one.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from remit.client import Proxy
from remit.config import load_settings
from remit.errors import ServiceUnavailable
from remit.ledger.home import Home
from remit.server.hosts import is_wildcard
from remit.server.record import Running

__all__ = ["REASONS", "address_of", "explained", "reach", "why_not"]

_PATIENCE_S: Final = 2.0
_WANTS_ONE: Final = "needs a client certificate, and there is none here to show"
_NOT_TRUSTED: Final = "has a certificate that the authority of the home does not vouch for"
# Why a proxy that runs does not talk to us, and what to do.
REASONS: Final[Mapping[str, str]] = {
    _WANTS_ONE: "Use a client that has one (remit tls client --help), or a proxy without --client-ca.",
    _NOT_TRUSTED: "Name whom to trust for it: remit doctor --url URL --ca FILE",
}


def address_of(running: Running) -> str:
    """Return where a proxy is reached from this machine: one that listens everywhere, at the loopback address."""
    where = urlsplit(running.listening)
    if not is_wildcard(where.hostname or ""):
        return running.listening
    return f"{where.scheme}://{'[::1]' if ':' in (where.hostname or '') else '127.0.0.1'}:{where.port}"


def reach(home: Home, running: Running, *, timeout_s: float = 10.0, retries: int = 3) -> Proxy:
    """Return a client of the proxy."""
    ca, token = _authority_for(home, running), load_settings(home).proxy_token
    return Proxy(address_of(running), ca=ca, token=token, timeout_s=timeout_s, retries=retries)


@contextmanager
def explained(home: Home, running: Running) -> Iterator[None]:
    """Say why there was no answer, where it can be told."""
    try:
        yield
    except ServiceUnavailable:
        why = why_not(home, running)
        if not why:
            raise
        refused = ServiceUnavailable(f"{running.listening} {why}")
        refused.add_note(REASONS[why])
        raise refused from None


def why_not(home: Home, running: Running) -> str:
    """Return the reason, one of `REASONS`, why a proxy that runs has not answered; nothing where it is another."""
    where = urlsplit(address_of(running))
    if where.scheme != "https":
        return ""
    try:
        context = _trusting(_authority_for(home, running))
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=_PATIENCE_S) as plain:
            spoken = context.wrap_socket(plain, server_hostname=where.hostname)
    except ssl.SSLCertVerificationError:
        return _NOT_TRUSTED
    except OSError:
        return ""
    with spoken:
        return _WANTS_ONE if _is_ended(spoken) else ""


def _trusting(ca: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    return context


def _is_ended(spoken: ssl.SSLSocket) -> bool:
    """Tell whether the proxy ends a connection before anything is asked: those without a certificate it wants."""
    try:
        return not spoken.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def _authority_for(home: Home, running: Running) -> str | None:
    """Return the file of the home's authority for a proxy that it may vouch for; none where there is none."""
    if not running.listening.startswith("https:") or not home.exists("tls"):
        return None
    with home.folder("tls", create=False) as folder:
        return folder.path_of("ca.pem") if folder.exists("ca.pem") else None
