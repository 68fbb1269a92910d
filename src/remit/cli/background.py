"""A proxy in the background: started, found again by its home, and stopped."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from remit.claims.shapes import encode
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
from remit.ledger.home import Home
from remit.proxy.record import Running, all_running

__all__ = ["LOG_FILE", "Listening", "start_in_background", "stop_in_background"]

LOG_FILE: Final = "proxy.log"
_START_S: Final = 60.0
_STOP_S: Final = 8.0
_LOOK_S: Final = 0.05


class Listening(NamedTuple):
    """Where a proxy listens, and by which process."""

    address: str
    pid: int


def start_in_background(home: Home, arguments: Sequence[str], asked: Mapping[str, Any]) -> tuple[Listening, bool]:
    """Return the proxy of a home, and whether it was running already; `arguments` are those of `remit proxy`.

    One that runs otherwise than `asked` is not taken for it: it may be open where this one was to be closed.
    """
    with home.locked("proxy.lock"):
        others = all_running(home)
        alike = [running for running in others if running.asked == _as_kept(asked)]
        if alike:
            return Listening(alike[-1].listening, alike[-1].pid), True
        if others:
            raise LedgerInUse(f"{others[-1].listening} runs already, with other options: remit proxy --stop")
        with home.folder("log") as folder:
            if not folder.check_file(LOG_FILE):
                folder.create(LOG_FILE, b"")
            path = folder.path_of(LOG_FILE)
        with open(path, "ab") as log:  # noqa: PTH123 - a path that the home has checked
            # -P: what lies in the current folder, which an agent may write to, is none of our modules.
            command = [sys.executable, "-P", "-m", "remit", "proxy", *arguments, "--json"]
            child = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return _heard(child), False


def _heard(child: "subprocess.Popen[bytes]") -> Listening:
    """Return what the proxy says when it is ready, or raise with what it says instead."""
    said = _first_line(child)
    answer: dict[str, Any] = {}
    with suppress(ValueError):
        answer = json.loads(said)
    if "listening" in answer:
        return Listening(answer["listening"], answer["pid"])
    if "error" in answer:
        raise _failure(answer["error_code"], answer["error"])
    raise ServiceUnavailable(f"the proxy did not start: log/{LOG_FILE} in the home says why")


def _first_line(child: "subprocess.Popen[bytes]") -> bytes:
    """Return the first line that the proxy says; one that says nothing in time is ended."""
    if child.stdout is None:
        return b""
    with child.stdout as output:
        if select.select([output], [], [], _START_S)[0]:
            return output.readline()
        child.kill()
        return b""


def _failure(code: str, message: str) -> RemitError:
    """Return the error of a proxy that did not start: its kind tells what to do."""
    if code in _INPUT:
        place, _, problem = message.partition(": ")
        return _INPUT[code](problem, place=place)
    return _KINDS.get(code, ServiceUnavailable)(f"the proxy did not start: {message}")


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


def stop_in_background(home: Home) -> list[Running]:
    """Stop the proxies of a home, and return which they were."""
    stopping = all_running(home)
    for running in stopping:
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while left := [running for running in all_running(home) if running in stopping]:
        if time.monotonic() > deadline:
            raise ServiceUnavailable(f"the proxy (process {left[0].pid}) does not stop")
        time.sleep(_LOOK_S)
    return stopping
