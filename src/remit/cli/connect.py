"""Clients of the Hub and the proxy that are running over a home, with the tokens of that home.

Invariant: a token is sent only to the address that a running service has recorded in the home; to a proxy,
only over TLS with the authority of the home or on this machine. If no service is recorded, nothing is contacted.
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
from remit.server.run_files import RunFile, load_running

_START: Final = "Start the Hub and the proxy: remit up --background"
_MAKE: Final = "Check --home and REMIT_HOME. To create a home and start the Hub: remit up"


@contextmanager
def open_hub_home(option: str | None, *, as_json: bool) -> Iterator[Home]:
    """Open a home to use its Hub."""
    with report_errors(as_json=as_json):
        try:
            home = open_home(home_path(option), create=False)
        except StateMissing as missing:
            missing.add_note(_MAKE)
            raise
        with home:
            yield home


def get_running_hub(home: Home) -> RunFile:
    """Return the Hub of a home that was started last. Raises `HubUnavailable` if none is running."""
    running = load_running(home, "hub")
    if running is None:
        refused = HubUnavailable("no Hub of this home is running")
        refused.add_note(_START)
        raise refused
    return running


def get_hub_token(home: Home) -> str:
    """Return the Hub token of a home. A running Hub has created it, unless it was removed from config.json since."""
    token = load_settings(home).hub_token
    if token is None:
        refused = HubUnavailable("the Hub is running, but its token is missing from config.json")
        refused.add_note("Create a new one: remit setup --rotate-token; then restart the Hub.")
        raise refused
    return token


def connect_hub(
    home: Home, running: RunFile, *, timeout_s: float = 10.0, retries: int = 3, keyring: Keyring | None = None
) -> Hub:
    """Return a client of a running Hub."""
    return Hub(running.listening, get_hub_token(home), timeout_s=timeout_s, retries=retries, keyring=keyring)


@contextmanager
def open_hub_client(option: str | None, *, as_json: bool) -> Iterator[Hub]:
    """Open a home and return a client of its running Hub."""
    with open_hub_home(option, as_json=as_json) as home, connect_hub(home, get_running_hub(home)) as hub:
        yield hub


_PATIENCE_S: Final = 2.0
_WANTS_ONE: Final = "requires a client certificate, and this command has none"
_NOT_TRUSTED: Final = "has a certificate that the authority of the home did not issue"
# Why a running proxy does not answer this command, and what to do.
PROXY_ADVICE: Final[Mapping[str, str]] = {
    _WANTS_ONE: "Use a client with a certificate (remit tls client --help), or start a proxy without --client-ca.",
    _NOT_TRUSTED: "Name the authority of its certificate: remit doctor --url URL --ca FILE",
}


def local_address(running: RunFile) -> str:
    """Return the URL of a proxy for this machine: the loopback address if it listens on all addresses."""
    where = urlsplit(running.listening)
    if not is_wildcard(where.hostname or ""):
        return running.listening
    return f"{where.scheme}://{'[::1]' if ':' in (where.hostname or '') else '127.0.0.1'}:{where.port}"


def connect_proxy(home: Home, running: RunFile, *, timeout_s: float = 10.0, retries: int = 3) -> Proxy:
    """Return a client of a running proxy."""
    ca, token = _authority_path(home, running), load_settings(home).proxy_token
    return Proxy(local_address(running), ca=ca, token=token, timeout_s=timeout_s, retries=retries)


@contextmanager
def explain_proxy_failure(home: Home, running: RunFile) -> Iterator[None]:
    """Replace `ServiceUnavailable` by an error with the reason, if the reason can be found."""
    try:
        yield
    except ServiceUnavailable:
        why = diagnose_proxy(home, running)
        if not why:
            raise
        refused = ServiceUnavailable(f"{running.listening} {why}")
        refused.add_note(PROXY_ADVICE[why])
        raise refused from None


def diagnose_proxy(home: Home, running: RunFile) -> str:
    """Return why a running proxy did not answer, a key of `PROXY_ADVICE`; empty for any other reason."""
    where = urlsplit(local_address(running))
    if where.scheme != "https":
        return ""
    try:
        context = _tls_context(_authority_path(home, running))
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=_PATIENCE_S) as plain:
            spoken = context.wrap_socket(plain, server_hostname=where.hostname)
    except ssl.SSLCertVerificationError:
        return _NOT_TRUSTED
    except OSError:
        return ""
    with spoken:
        return _WANTS_ONE if _is_closed_by_peer(spoken) else ""


def _tls_context(ca: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    return context


def _is_closed_by_peer(spoken: ssl.SSLSocket) -> bool:
    """Return whether the proxy closes the connection before a request: it does that without a client certificate."""
    try:
        return not spoken.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def _authority_path(home: Home, running: RunFile) -> str | None:
    """Return the path of the home's authority for a proxy that uses TLS; None if there is none."""
    if not running.listening.startswith("https:") or not home.exists("tls"):
        return None
    with home.folder("tls", create=False) as folder:
        return folder.path_of("ca.pem") if folder.exists("ca.pem") else None
