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

from remit.claims.keys import Keyring
from remit.cli.errors import report_errors
from remit.client import Proxy
from remit.client.hub import Hub
from remit.config import home_path, load_settings
from remit.errors import HubUnavailable, ServiceUnavailable, StateMissing
from remit.ledger.home import Home, open_home
from remit.server.hosts import is_wildcard
from remit.server.record import Running, load_running

__all__ = [
    "PROXY_ADVICE",
    "connect_hub",
    "diagnose_proxy",
    "explain_proxy_failure",
    "get_hub_token",
    "get_running_hub",
    "local_address",
    "open_hub_client",
    "open_hub_home",
    "reach",
]

_START: Final = "Start it, and the proxy with it: remit up --background"
_MAKE: Final = "Look whether --home or REMIT_HOME names the right folder; to make one, and start the Hub: remit up"


@contextmanager
def open_hub_home(option: str | None, *, as_json: bool) -> Iterator[Home]:
    """Give the home whose Hub is wanted; errors are told by `report_errors`."""
    with report_errors(as_json=as_json):
        try:
            home = open_home(home_path(option), create=False)
        except StateMissing as missing:
            missing.add_note(_MAKE)
            raise
        with home:
            yield home


def get_running_hub(home: Home) -> Running:
    """Return the Hub of a home that was started last, or raise if none runs."""
    running = load_running(home, "hub")
    if running is None:
        refused = HubUnavailable("no Hub of this home is running")
        refused.add_note(_START)
        raise refused
    return running


def get_hub_token(home: Home) -> str:
    """Return the Hub token of a home whose Hub runs: it has made one."""
    token = load_settings(home).hub_token
    if token is None:
        refused = HubUnavailable("the Hub runs, and its token is gone from config.json")
        refused.add_note("Make a new one: remit setup --rotate-token; then restart the Hub.")
        raise refused
    return token


def connect_hub(
    home: Home, running: Running, *, timeout_s: float = 10.0, retries: int = 3, keyring: Keyring | None = None
) -> Hub:
    """Return a client of a Hub that runs."""
    return Hub(running.listening, get_hub_token(home), timeout_s=timeout_s, retries=retries, keyring=keyring)


@contextmanager
def open_hub_client(option: str | None, *, as_json: bool) -> Iterator[Hub]:
    """Give a client of the Hub of the home; errors are told by `report_errors`."""
    with open_hub_home(option, as_json=as_json) as home, connect_hub(home, get_running_hub(home)) as hub:
        yield hub


_PATIENCE_S: Final = 2.0
_WANTS_ONE: Final = "needs a client certificate, and there is none here to show"
_NOT_TRUSTED: Final = "has a certificate that the authority of the home does not vouch for"
# Why a proxy that runs does not talk to us, and what to do.
PROXY_ADVICE: Final[Mapping[str, str]] = {
    _WANTS_ONE: "Use a client that has one (remit tls client --help), or a proxy without --client-ca.",
    _NOT_TRUSTED: "Name whom to trust for it: remit doctor --url URL --ca FILE",
}


def local_address(running: Running) -> str:
    """Return where a proxy is reached from this machine: one that listens everywhere, at the loopback address."""
    where = urlsplit(running.listening)
    if not is_wildcard(where.hostname or ""):
        return running.listening
    return f"{where.scheme}://{'[::1]' if ':' in (where.hostname or '') else '127.0.0.1'}:{where.port}"


def reach(home: Home, running: Running, *, timeout_s: float = 10.0, retries: int = 3) -> Proxy:
    """Return a client of the proxy."""
    ca, token = _authority_for(home, running), load_settings(home).proxy_token
    return Proxy(local_address(running), ca=ca, token=token, timeout_s=timeout_s, retries=retries)


@contextmanager
def explain_proxy_failure(home: Home, running: Running) -> Iterator[None]:
    """Say why there was no answer, where it can be told."""
    try:
        yield
    except ServiceUnavailable:
        why = diagnose_proxy(home, running)
        if not why:
            raise
        refused = ServiceUnavailable(f"{running.listening} {why}")
        refused.add_note(PROXY_ADVICE[why])
        raise refused from None


def diagnose_proxy(home: Home, running: Running) -> str:
    """Return the reason, one of `PROXY_ADVICE`, why a proxy that runs has not answered; nothing where it is another."""
    where = urlsplit(local_address(running))
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
