"""Rotates a token with immediate effect, in running services and in the hooks of coding assistants.

Running services check `config.json` for changes on requests, at most every 10 milliseconds. This module tries the new
token on a Hub until the Hub accepts it. A Hub of an older version, which refuses it, is sent SIGHUP.
"""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from remit.assistants.monitor.token_rotation import TokenReplacement, replace_hook_tokens
from remit.assistants.records import Protection, Protections
from remit.cli.background import NAMES
from remit.cli.render import note
from remit.client.hub import Hub
from remit.config import TokenName, load_settings, rotate_token
from remit.errors import ServiceError, ServiceRefused
from remit.ledger.home import Home
from remit.server.run_files import RunFile, ServiceName, all_running

# The service that requires each token.
_SERVICES: Final[Mapping[TokenName, ServiceName]] = {"admin": "proxy", "hub": "hub", "proxy": "proxy"}
_WAIT_S: Final = 5.0
_POLL_S: Final = 0.05
_UNAUTHORIZED: Final = 401
_REFUSED: Final = "it refuses the new one"


def rotate(home: Home, name: TokenName) -> str:
    """Return a new token, after running services have accepted it and hooks have been updated."""
    before = load_settings(home).hub_token
    token = rotate_token(home, name)
    running = all_running(home, _SERVICES[name])
    note(f"created a new {name} token" + ("" if running else f"; no {NAMES[_SERVICES[name]]} of this home is running"))
    if name == "hub":
        for hub in running:
            _wait_for_hub(hub, token)
        if before is not None:
            _update_hooks(home, before, token)
    else:
        for proxy in running:
            _send_sighup(proxy)
    return token


def _wait_for_hub(hub: RunFile, token: str) -> None:
    """Wait until a Hub accepts the token; print a warning if it does not in time."""
    deadline = time.monotonic() + _WAIT_S
    why = _refusal(hub, token)
    if why == _REFUSED:
        _send_sighup(hub)
    while why and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        why = _refusal(hub, token)
    if why:
        note(f"careful: the Hub at {hub.listening} may still accept the old token, because {why}: restart it")
    else:
        note(f"the Hub at {hub.listening} accepts the new token, and refuses the old one")


def _refusal(hub: RunFile, token: str) -> str:
    """Return why a Hub may not have the new token; empty if it has accepted it."""
    try:
        with Hub(hub.listening, token, timeout_s=_WAIT_S, retries=0) as client:
            client.status()
    except ServiceRefused as error:
        # Any other refusal comes after the token was accepted.
        return _REFUSED if error.status == _UNAUTHORIZED else ""
    except ServiceError as error:
        return f"it does not answer ({error.code})"
    return ""


def _send_sighup(running: RunFile) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(running.pid, signal.SIGHUP)


def _update_hooks(home: Home, before: str, after: str) -> None:
    """Write the new hook tokens to the files that hooks read, and name the protections that need action."""
    done = replace_hook_tokens(Protections(home), before, after)
    renewed = [one for one in done if not one.why]
    if renewed:
        note(f"hooks use tokens derived from the new one; protections updated: {len(renewed)}")
    if any(one.changed for one in renewed):
        note("running assistants may have read the old token: restart them")
    for one in done:
        _note_unfinished(one)


def _note_unfinished(one: TokenReplacement) -> None:
    protection = one.protection
    again = f"remit protect {protection.assistant} --settings {protection.level}{_where(protection)}"
    if one.why:
        note(f"careful: a protection of {protection.assistant} still uses the old token ({one.why}): run {again}")
    elif protection.level == "project" and protection.form == "http":
        command = f"remit token hook {protection.id}"
        note(f"shared settings{_where(protection)}: every user must set their variable to the output of: {command}")


def _where(protection: Protection) -> str:
    return f" --scope {protection.folder}" if protection.folder else ""
