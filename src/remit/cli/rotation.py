"""Rotating a token so that it takes effect at once: in running services, and in the hooks of assistants.

Running services compare the version of `config.json` when a request comes, at most every 10 milliseconds. A Hub is
asked with the new token until it accepts it; one that refuses it (an older version that still runs) is sent SIGHUP
first.
"""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from remit.assistants.install.retoken import Retokened, replace_tokens
from remit.assistants.records import Protection, Protections
from remit.cli.background import NAMES
from remit.cli.render import note
from remit.client.hub import Hub
from remit.config import TokenName, load_settings, rotate_token
from remit.errors import ServiceError, ServiceRefused
from remit.hub.auth import hook_token, proof_key, shared_hook_token
from remit.ledger.home import Home
from remit.server.record import Running, ServiceName, all_running

__all__ = ["rotate"]

# Which service asks for it.
_ASKED_BY: Final[Mapping[TokenName, ServiceName]] = {"admin": "proxy", "hub": "hub", "proxy": "proxy"}
_WAIT_S: Final = 5.0
_LOOK_S: Final = 0.05
_UNAUTHORIZED: Final = 401
_REFUSED: Final = "it refuses the new one"


def rotate(home: Home, name: TokenName) -> str:
    """Return a new token, once running services have taken it and hooks show one that was made from it."""
    before = load_settings(home).hub_token
    token = rotate_token(home, name)
    running = all_running(home, _ASKED_BY[name])
    note(f"there is a new {name} token" + ("" if running else f"; no {NAMES[_ASKED_BY[name]]} of this home is running"))
    if name == "hub":
        for hub in running:
            _await_hub(hub, token)
        if before is not None:
            _retoken_hooks(home, before, token)
    else:
        for proxy in running:
            _hang_up(proxy)
    return token


def _await_hub(hub: Running, token: str) -> None:
    """Wait until a Hub accepts the token; say so if it does not in time."""
    deadline = time.monotonic() + _WAIT_S
    why = _refusal(hub, token)
    if why == _REFUSED:
        _hang_up(hub)
    while why and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        why = _refusal(hub, token)
    if why:
        note(f"careful: the Hub at {hub.listening} may still accept the token before, because {why}: restart it")
    else:
        note(f"the Hub at {hub.listening} has taken it, and refuses the one before")


def _refusal(hub: Running, token: str) -> str:
    """Return why a Hub does not show that it has taken the token; nothing if it has."""
    try:
        with Hub(hub.listening, token, timeout_s=_WAIT_S, retries=0) as client:
            client.status()
    except ServiceRefused as error:
        # Whatever else is wrong with it, the token was accepted.
        return _REFUSED if error.status == _UNAUTHORIZED else ""
    except ServiceError as error:
        return f"it does not answer ({error.code})"
    return ""


def _hang_up(running: Running) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(running.pid, signal.SIGHUP)


def _retoken_hooks(home: Home, before: str, after: str) -> None:
    """Write the new token of hooks to where they read it, and say which protections need a person."""
    done = replace_tokens(Protections(home), lambda protection: _secrets(before, after, protection))
    renewed = [one for one in done if not one.why]
    if renewed:
        note(f"hooks show a token made from the new one; protections: {len(renewed)}")
    if any(one.changed for one in renewed):
        note("assistants that run now may have read the old one: start them anew")
    for one in done:
        _note_left(one)


def _secrets(before: str, after: str, protection: str) -> dict[str, str]:
    """Return the secrets that hooks of a protection may hold, old to new; the first release shared one token."""
    return {
        shared_hook_token(before): shared_hook_token(after),
        hook_token(before, protection): hook_token(after, protection),
        proof_key(before, protection): proof_key(after, protection),
    }


def _note_left(one: Retokened) -> None:
    protection = one.protection
    again = f"remit protect {protection.assistant} --settings {protection.level}{_where(protection)}"
    if one.why:
        note(f"careful: a protection of {protection.assistant} still shows the old token ({one.why}): run {again}")
    elif protection.level == "project" and protection.form == "http":
        shown = f"remit token hook {protection.id}"
        note(f"shared settings{_where(protection)}: everyone sets the variable that they name to: {shown}")


def _where(protection: Protection) -> str:
    return f" --scope {protection.folder}" if protection.folder else ""
