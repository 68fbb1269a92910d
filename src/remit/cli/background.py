"""Services in the background: start them, find them by the record in the home, stop them."""

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

from remit.claims.types import encode
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
from remit.server.run_files import RunFile, ServiceName, all_running

# The names of the services in messages.
NAMES: Final[Mapping[ServiceName, str]] = {"hub": "Hub", "proxy": "proxy"}
_START_S: Final = 60.0
_STOP_S: Final = 8.0
_POLL_S: Final = 0.05


class StartedService(NamedTuple):
    """The address and the process of a service. `child` is set if this command has started it."""

    address: str
    pid: int
    child: "subprocess.Popen[bytes] | None" = None


def spawn_service(
    home: Home, service: ServiceName, arguments: Sequence[str], asked: Mapping[str, Any]
) -> StartedService:
    """Start a service unless it is already running with the same options. `arguments` are those of its command.

    If it is running with other options than `asked`, this raises: it could be less strict than requested.
    """
    with home.locked(f"{service}.lock"):
        others = all_running(home, service)
        same = [running for running in others if running.asked == _to_json(asked)]
        if same:
            return StartedService(same[-1].listening, same[-1].pid)
        if others:
            raise LedgerInUse(f"{others[-1].listening} is already running with other options: remit {service} --stop")
        with open(_create_log(home, service), "ab") as log:  # noqa: PTH123 - a path that the home has checked
            # -P: no modules from the current directory, which an agent may be able to write to.
            command = [sys.executable, "-P", "-m", "remit", service, *arguments, "--json"]
            child = subprocess.Popen(  # noqa: S603 - runs Remit itself
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=service_environment(),
            )
        try:
            return _wait_until_ready(child, service)
        except BaseException:  # an interrupted command leaves no process behind
            terminate_children([child])
            raise


def terminate_children(children: "Sequence[subprocess.Popen[bytes]]") -> None:
    """Terminate child processes; kill those that do not end in time."""
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _create_log(home: Home, service: ServiceName) -> str:
    """Create the log file of a service, readable by its owner only, and return its path."""
    name = f"{service}.log"
    with home.folder("log") as folder:
        if not folder.check_file(name):
            folder.create(name, b"")
        return folder.path_of(name)


def _wait_until_ready(child: "subprocess.Popen[bytes]", service: ServiceName) -> StartedService:
    """Wait for the first line of a service: its address, or the error that kept it from starting."""
    said = _first_line(child)
    answer: dict[str, Any] = {}
    with suppress(ValueError):
        answer = json.loads(said)
    if "listening" in answer:
        return StartedService(answer["listening"], answer["pid"], child)
    if "error" in answer:
        raise _failure(answer["error_code"], answer["error"], service)
    raise ServiceUnavailable(f"the {NAMES[service]} did not start: see log/{service}.log in the home")


def _first_line(child: "subprocess.Popen[bytes]") -> bytes:
    """Return the first line of the output of a service; empty if there is none in time."""
    if child.stdout is None:
        return b""
    with child.stdout as output:
        return output.readline() if select.select([output], [], [], _START_S)[0] else b""


def _failure(code: str, message: str, service: ServiceName) -> RemitError:
    """Return the error of a service that did not start, of the class for its code."""
    if code in _INPUT:
        place, _, problem = message.partition(": ")
        return _INPUT[code](problem, place=place)
    return _KINDS.get(code, ServiceUnavailable)(f"the {NAMES[service]} did not start: {message}")


def _leaf_errors(kind: type[RemitError]) -> list[type[RemitError]]:
    return [kind, *(leaf for below in kind.__subclasses__() for leaf in _leaf_errors(below))]


_INPUT: Final = {kind.code: kind for kind in (FieldInvalid, PolicyInvalid)}
# Errors that take only a message: about the port, certificates, keys and the home.
_KINDS: Final[dict[str, type[RemitError]]] = {
    leaf.code: leaf
    for family in (StateError, LedgerError, KeyMaterialError, PortInUse, CertificateUnusable)
    for leaf in _leaf_errors(family)
}


def _to_json(asked: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return json.loads(encode(dict(asked)))


def terminate_services(home: Home, *services: ServiceName) -> list[RunFile]:
    """Stop all running services of these names over a home, and return those that were running."""
    stopping = _list_running(home, services)
    for _, running in stopping:
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while left := [one for one in _list_running(home, services) if one in stopping]:
        if time.monotonic() > deadline:
            named = " and ".join(f"the {NAMES[service]} (process {running.pid})" for service, running in left)
            raise ServiceUnavailable(f"still running after SIGTERM: {named}")
        time.sleep(_POLL_S)
    return [running for _, running in stopping]


def _list_running(home: Home, services: Sequence[ServiceName]) -> list[tuple[ServiceName, RunFile]]:
    return [(service, running) for service in services for running in all_running(home, service)]


_OPTION_NAMES: Final = {"allowed_hosts": "allowed_host"}


def announce_address(service: ServiceName, listening: str, pid: int, *, as_json: bool) -> None:
    """Print the address of a service and flush it: callers wait for this line."""
    with detect_lost_output():
        click.echo(encode({"listening": listening, "pid": pid}) if as_json else f"{service} listening on {listening}")


def start_and_announce(
    service: ServiceName, home: str | None, given: Mapping[str, object], asked: Mapping[str, Any], *, as_json: bool
) -> None:
    """Start a service in the background unless it is running, and print its address."""
    with open_command_home(home, as_json=as_json, create=True) as opened:
        listening = start_service(opened, service, given, asked)
    if listening.child is None:
        note("it was already running")
    announce_address(service, listening.address, listening.pid, as_json=as_json)


def start_service(
    home: Home, service: ServiceName, given: Mapping[str, object], asked: Mapping[str, Any]
) -> StartedService:
    """Start a service in the background. `given` are the options of its command, by name."""
    return spawn_service(home, service, _as_arguments(given), asked)


def stop_services(*services: ServiceName, home: str | None, as_json: bool) -> None:
    """Stop the services of these names, and print which were running."""
    with report_errors(as_json=as_json):
        stopped = _stop_all(home_path(home), services)
    if as_json:
        return show_data({"ok": True, "stopped": stopped})
    none = f"no {' and no '.join(NAMES[service] for service in services)} of this home is running"
    return note("stopped " + ", ".join(stopped) if stopped else none)


def _stop_all(path: Path, services: tuple[ServiceName, ...]) -> list[str]:
    """Stop services and return their addresses; none if the home does not exist."""
    if not os.path.lexists(path):
        return []
    with open_home(path, create=False) as home:
        return [running.listening for running in terminate_services(home, *services)]


def _as_arguments(given: Mapping[str, object]) -> list[str]:
    """Return options as words of a command line."""
    words = []
    for name, value in given.items():
        option = "--" + _OPTION_NAMES.get(name, name).replace("_", "-")
        values = value if isinstance(value, tuple) else (value,)
        words += [
            option if one is True else f"{option}={one}" for one in values if one is not None and one is not False
        ]
    return words
