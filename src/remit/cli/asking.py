"""The checks of `remit doctor` that ask services how they are: those of the home that run, or a proxy at a URL.

The tokens of the home go to its own services only.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from remit.cli.checkup import Check
from remit.cli.errors import advice_for
from remit.cli.hub_reaching import reach_hub
from remit.cli.reaching import REASONS, reach, why_not
from remit.client import Proxy
from remit.errors import (
    CertificateUnusable,
    HubTokenRequired,
    HubUnavailable,
    RemitError,
    ServiceError,
    ServiceRefused,
    ServiceUnavailable,
)
from remit.ledger.home import Home, open_home
from remit.server.record import Running, ServiceName, all_running

__all__ = ["ask_running", "ask_service"]

_SERVICES: Final[tuple[ServiceName, ...]] = ("hub", "proxy")
_PROXY: Final = "proxy"
_HUB: Final = "hub"
_AUTHORITY: Final = "authority"
_PATIENCE_S: Final = 5.0
_NONE: Final = "none of this home is running"
_START: Final = "Start it with: remit proxy; or look at --url and --ca."
_NAME_FILE: Final = "Name a file with the certificate of an authority, in PEM form."
_HANGS: Final = "Look into log/{0}.log of the home, or stop it with: remit {0} --stop"
_RENEW: Final = "It has another token than config.json. Restart it: remit hub --stop, then remit hub --background"


def ask_running(path: Path) -> list[Check]:
    """Ask the services of a home that are running; nothing is said where there is no home that can be opened."""
    with ExitStack() as held:
        try:
            home = held.enter_context(open_home(path, create=False))
        except RemitError:
            return []
        return [check for service in _SERVICES for check in _all_asked(home, service)]


def _all_asked(home: Home, service: ServiceName) -> list[Check]:
    try:
        running = all_running(home, service)
        return [_ASKING[service](home, one) for one in running] or [Check(service, "ok", _NONE, "")]
    except RemitError as error:
        return [Check(service, "problem", str(error), advice_for(error))]


def _ask_hub(home: Home, running: Running) -> Check:
    try:
        with reach_hub(home, running, timeout_s=_PATIENCE_S, retries=0) as hub:
            answer = hub.status()
    except ServiceRefused as error:
        if error.error_code != HubTokenRequired.code:
            raise
        return Check(_HUB, "problem", f"{running.listening} refuses the token", _RENEW)
    except HubUnavailable as error:
        return Check(_HUB, "problem", f"{running.listening} is running: {error}", _HANGS.format(_HUB))
    return Check(_HUB, "ok", f"remit {answer.version} answers at {running.listening}", "")


def _ask_proxy(home: Home, running: Running) -> Check:
    try:
        with reach(home, running, timeout_s=_PATIENCE_S, retries=0) as proxy:
            answer = proxy.health()
    except ServiceUnavailable as error:
        if why := why_not(home, running):
            return Check(_PROXY, "warning", f"{running.listening} is running, and {why}", REASONS[why])
        return Check(_PROXY, "problem", f"{running.listening} is running: {error}", _HANGS.format(_PROXY))
    return Check(_PROXY, "ok", f"remit {answer.version} answers at {running.listening}", "")


_ASKING: Final[Mapping[ServiceName, Callable[[Home, Running], Check]]] = {"hub": _ask_hub, "proxy": _ask_proxy}


def ask_service(path: Path, url: str, ca: Path | None) -> Check:
    """Ask the proxy at a URL, trusting `ca` for it, else the authority of the home where there is one."""
    own = path / "tls" / "ca.pem"
    trusted = ca or (own if url.startswith("https:") and own.is_file() else None)
    try:
        with Proxy(url, ca=trusted, timeout_s=_PATIENCE_S, retries=0) as proxy:
            answer = proxy.health()
    except CertificateUnusable as error:  # what we were given, not how the proxy is
        return Check(_AUTHORITY, "problem", str(error), _NAME_FILE)
    except ServiceError as error:
        advice = _START if isinstance(error, ServiceUnavailable) else advice_for(error)
        return Check(_PROXY, "problem", str(error), advice)
    return Check(_PROXY, "ok", f"remit {answer.version} answers", "")
