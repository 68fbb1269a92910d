"""A proxy in the background: started, found again by its home, and stopped."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from remit.errors import (
    CertificateUnusable,
    FieldInvalid,
    HomeUnsafe,
    LedgerUnavailable,
    PolicyInvalid,
    PortInUse,
    RemitError,
    ServiceUnavailable,
    StateMissing,
)
from remit.ledger.home import Home
from remit.proxy.record import Running, load_running

__all__ = ["LOG_FILE", "start_in_background", "stop_in_background"]

LOG_FILE: Final = "proxy.log"
_START_S: Final = 60.0
_STOP_S: Final = 8.0
_LOOK_S: Final = 0.05


def start_in_background(home: Home, arguments: Sequence[str]) -> tuple[Running, bool]:
    """Return the proxy of a home, and whether it was running already; `arguments` are those of `remit proxy`."""
    with home.locked("proxy.lock"):
        running = load_running(home)
        if running is not None:
            return running, True
        with home.folder("log") as folder:
            if not folder.check_file(LOG_FILE):
                folder.create(LOG_FILE, b"")
            path = folder.path_of(LOG_FILE)
        with open(path, "ab") as log:  # noqa: PTH123 - a path that the home has checked
            command = [sys.executable, "-m", "remit", "proxy", *arguments, "--json"]
            child = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return _heard(child), False


def _heard(child: "subprocess.Popen[bytes]") -> Running:
    """Return what the proxy says when it is ready, or raise with what it says instead."""
    said = _first_line(child)
    answer: dict[str, Any] = {}
    with suppress(ValueError):
        answer = json.loads(said)
    if "listening" in answer:
        return Running(listening=answer["listening"], pid=answer["pid"])
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


_INPUT: Final = {kind.code: kind for kind in (FieldInvalid, PolicyInvalid)}
_KINDS: Final[dict[str, type[RemitError]]] = {
    kind.code: kind for kind in (PortInUse, CertificateUnusable, HomeUnsafe, LedgerUnavailable, StateMissing)
}


def stop_in_background(home: Home) -> Running | None:
    """Stop the proxy of a home, and return which it was."""
    running = load_running(home)
    if running is None:
        return None
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while load_running(home) == running:
        if time.monotonic() > deadline:
            raise ServiceUnavailable(f"the proxy (process {running.pid}) does not stop")
        time.sleep(_LOOK_S)
    return running
