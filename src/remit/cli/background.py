"""A service in the background: started, found again by its home, and stopped."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from remit.claims.shapes import encode
from remit.cli.errors import report_errors
from remit.cli.homes import open_command_home
from remit.cli.render import detect_lost_output, note, show_data
from remit.config import home_path, service_environment
from remit.errors import (
    CertificateUnusable,
    FieldInvalid,
    KeyMaterialError,
    LedgerError,
    LedgerInUse,
    PolicyInvalid,
    PortInUse,
    RemitError,
    ServiceUnavailable,
    StateError,
)
from remit.ledger.home import Home, open_home
from remit.server.record import Running, ServiceName, all_running

__all__ = [
    "NAMES",
    "StartedService",
    "announce_address",
    "spawn_service",
    "start_and_announce",
    "start_service",
    "stop_services",
    "terminate_children",
    "terminate_services",
]

# As people call them.
NAMES: Final[Mapping[ServiceName, str]] = {"hub": "Hub", "proxy": "proxy"}
_START_S: Final = 60.0
_STOP_S: Final = 8.0
_LOOK_S: Final = 0.05


class StartedService(NamedTuple):
    """Where a service listens, and by which process; `child` is that process where it was started just now."""

    address: str
    pid: int
    child: "subprocess.Popen[bytes] | None" = None


def spawn_service(
    home: Home, service: ServiceName, arguments: Sequence[str], asked: Mapping[str, Any]
) -> StartedService:
    """Return the service of a home, started unless it runs; `arguments` are those of the command of its name.

    One that runs otherwise than `asked` is not taken for it: it may be open where this one was to be closed.
    """
    with home.locked(f"{service}.lock"):
        others = all_running(home, service)
        alike = [running for running in others if running.asked == _as_kept(asked)]
        if alike:
            return StartedService(alike[-1].listening, alike[-1].pid)
        if others:
            raise LedgerInUse(f"{others[-1].listening} runs already, with other options: remit {service} --stop")
        with open(_log_of(home, service), "ab") as log:  # noqa: PTH123 - a path that the home has checked
            # -P: what lies in the current folder, which an agent may write to, is none of our modules.
            command = [sys.executable, "-P", "-m", "remit", service, *arguments, "--json"]
            child = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=service_environment(),
            )
        try:
            return _heard(child, service)
        except BaseException:  # whoever is interrupted, or told otherwise, leaves nothing behind
            terminate_children([child])
            raise


def terminate_children(children: "Sequence[subprocess.Popen[bytes]]") -> None:
    """End what was started just now, by force if it takes too long."""
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _log_of(home: Home, service: ServiceName) -> str:
    """Return the path of a service's log, which is its owner's alone."""
    name = f"{service}.log"
    with home.folder("log") as folder:
        if not folder.check_file(name):
            folder.create(name, b"")
        return folder.path_of(name)


def _heard(child: "subprocess.Popen[bytes]", service: ServiceName) -> StartedService:
    """Return what the service says when it is ready, or raise with what it says instead."""
    said = _first_line(child)
    answer: dict[str, Any] = {}
    with suppress(ValueError):
        answer = json.loads(said)
    if "listening" in answer:
        return StartedService(answer["listening"], answer["pid"], child)
    if "error" in answer:
        raise _failure(answer["error_code"], answer["error"], service)
    raise ServiceUnavailable(f"the {NAMES[service]} did not start: log/{service}.log in the home says why")


def _first_line(child: "subprocess.Popen[bytes]") -> bytes:
    """Return the first line that the service says, if it says one in time."""
    if child.stdout is None:
        return b""
    with child.stdout as output:
        return output.readline() if select.select([output], [], [], _START_S)[0] else b""


def _failure(code: str, message: str, service: ServiceName) -> RemitError:
    """Return the error of a service that did not start: its kind tells what to do."""
    if code in _INPUT:
        place, _, problem = message.partition(": ")
        return _INPUT[code](problem, place=place)
    return _KINDS.get(code, ServiceUnavailable)(f"the {NAMES[service]} did not start: {message}")


def _leaves(kind: type[RemitError]) -> list[type[RemitError]]:
    return [kind, *(leaf for below in kind.__subclasses__() for leaf in _leaves(below))]


_INPUT: Final = {kind.code: kind for kind in (FieldInvalid, PolicyInvalid)}
# All that take a message and nothing else: what is wrong with the port, the certificates, the keys or the home.
_KINDS: Final[dict[str, type[RemitError]]] = {
    leaf.code: leaf
    for family in (StateError, LedgerError, KeyMaterialError, PortInUse, CertificateUnusable)
    for leaf in _leaves(family)
}


def _as_kept(asked: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return json.loads(encode(dict(asked)))


def terminate_services(home: Home, *services: ServiceName) -> list[Running]:
    """Stop the services of these names that run over a home, all at once, and return which they were."""
    stopping = _all_of(home, services)
    for _, running in stopping:
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while left := [one for one in _all_of(home, services) if one in stopping]:
        if time.monotonic() > deadline:
            named = " and ".join(f"the {NAMES[service]} (process {running.pid})" for service, running in left)
            raise ServiceUnavailable(f"still running, though told to stop: {named}")
        time.sleep(_LOOK_S)
    return [running for _, running in stopping]


def _all_of(home: Home, services: Sequence[ServiceName]) -> list[tuple[ServiceName, Running]]:
    return [(service, running) for service in services for running in all_running(home, service)]


_WRITTEN: Final = {"allowed_hosts": "allowed_host"}


def announce_address(service: ServiceName, listening: str, pid: int, *, as_json: bool) -> None:
    """Print where a service listens, at once: others wait for the line."""
    with detect_lost_output():
        click.echo(encode({"listening": listening, "pid": pid}) if as_json else f"{service} listening on {listening}")


def start_and_announce(
    service: ServiceName, home: str | None, given: Mapping[str, object], asked: Mapping[str, Any], *, as_json: bool
) -> None:
    """Start a service that stays, unless it runs already, and print where it listens."""
    with open_command_home(home, as_json=as_json, create=True) as opened:
        listening = start_service(opened, service, given, asked)
    if listening.child is None:
        note("it was running already")
    announce_address(service, listening.address, listening.pid, as_json=as_json)


def start_service(
    home: Home, service: ServiceName, given: Mapping[str, object], asked: Mapping[str, Any]
) -> StartedService:
    """Return a service that runs in the background; `given` are the options of its command, by name."""
    return spawn_service(home, service, _as_arguments(given), asked)


def stop_services(*services: ServiceName, home: str | None, as_json: bool) -> None:
    """Stop the services of these names, and tell which they were."""
    with report_errors(as_json=as_json):
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
        return [running.listening for running in terminate_services(home, *services)]


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
