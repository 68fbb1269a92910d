"""What the commands of the proxy and of the Hub share: the line that says where it listens, and the background."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from remit.claims.shapes import encode
from remit.cli.background import NAMES, Listening, start_in_background, stop_in_background
from remit.cli.errors import reported
from remit.cli.opening import opened_home
from remit.cli.output import watched_output
from remit.cli.render import note, show_data
from remit.config import home_path
from remit.ledger.home import Home, open_home
from remit.server.record import ServiceName

__all__ = ["announce", "leave_running", "start_with", "stop_running"]

_WRITTEN: Final = {"allowed_hosts": "allowed_host"}


def announce(service: ServiceName, listening: str, pid: int, *, as_json: bool) -> None:
    """Print where a service listens, at once: others wait for the line."""
    with watched_output():
        click.echo(encode({"listening": listening, "pid": pid}) if as_json else f"{service} listening on {listening}")


def leave_running(
    service: ServiceName, home: str | None, given: Mapping[str, object], asked: Mapping[str, Any], *, as_json: bool
) -> None:
    """Start a service that stays, unless it runs already, and print where it listens."""
    with opened_home(home, as_json=as_json, create=True) as opened:
        listening = start_with(opened, service, given, asked)
    if listening.child is None:
        note("it was running already")
    announce(service, listening.address, listening.pid, as_json=as_json)


def start_with(home: Home, service: ServiceName, given: Mapping[str, object], asked: Mapping[str, Any]) -> Listening:
    """Return a service that runs in the background; `given` are the options of its command, by name."""
    return start_in_background(home, service, _as_arguments(given), asked)


def stop_running(*services: ServiceName, home: str | None, as_json: bool) -> None:
    """Stop the services of these names, and tell which they were."""
    with reported(as_json=as_json):
        stopped = _stopped(home_path(home), services)
    if as_json:
        return show_data({"ok": True, "stopped": stopped})
    none = f"no {' and no '.join(NAMES[service] for service in services)} of this home is running"
    return note("stopped " + ", ".join(stopped) if stopped else none)


def _stopped(path: Path, services: tuple[ServiceName, ...]) -> list[str]:
    """Stop services, and return where they listened; over a home that is not there, none runs."""
    if not os.path.lexists(path):
        return []
    with open_home(path, create=False) as home:
        return [running.listening for running in stop_in_background(home, *services)]


def _as_arguments(given: Mapping[str, object]) -> list[str]:
    """Return options as they are written on a command line."""
    words = []
    for name, value in given.items():
        option = "--" + _WRITTEN.get(name, name).replace("_", "-")
        values = value if isinstance(value, tuple) else (value,)
        words += [
            option if one is True else f"{option}={one}" for one in values if one is not None and one is not False
        ]
    return words
