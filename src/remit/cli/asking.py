"""The check of `remit doctor` that asks a proxy how it is: each of the home that is running, or one at a URL.

The token of the home goes to its own proxies only.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from remit.cli.checkup import Check
from remit.cli.errors import advice_for
from remit.cli.reaching import REASONS, reach, why_not
from remit.client import Proxy
from remit.errors import CertificateUnusable, RemitError, ServiceError, ServiceUnavailable
from remit.ledger.home import Home, open_home
from remit.proxy.record import Running, all_running

__all__ = ["PROXY", "ask_running", "ask_service"]

PROXY: Final = "proxy"
_AUTHORITY: Final = "authority"
_PATIENCE_S: Final = 5.0
_NONE: Final = Check(PROXY, "ok", "none of this home is running", "")
_START: Final = "Start it with: remit proxy; or look at --url and --ca."
_NAME_FILE: Final = "Name a file with the certificate of an authority, in PEM form."
_HANGS: Final = "Look into log/proxy.log of the home, or stop it with: remit proxy --stop"


def ask_running(path: Path) -> list[Check]:
    """Ask the proxies of a home that are running; nothing is said where there is no home that can be opened."""
    with ExitStack() as held:
        try:
            home = held.enter_context(open_home(path, create=False))
        except RemitError:
            return []
        try:
            return [_asked(home, running) for running in all_running(home)] or [_NONE]
        except RemitError as error:
            return [Check(PROXY, "problem", str(error), advice_for(error))]


def _asked(home: Home, running: Running) -> Check:
    try:
        with reach(home, running, timeout_s=_PATIENCE_S, retries=0) as proxy:
            answer = proxy.health()
    except ServiceUnavailable as error:
        if why := why_not(home, running):
            return Check(PROXY, "warning", f"{running.listening} is running, and {why}", REASONS[why])
        return Check(PROXY, "problem", f"{running.listening} is running: {error}", _HANGS)
    return Check(PROXY, "ok", f"remit {answer.version} answers at {running.listening}", "")


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
        return Check(PROXY, "problem", str(error), advice)
    return Check(PROXY, "ok", f"remit {answer.version} answers", "")
