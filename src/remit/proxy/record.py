"""Where a proxy of this home listens: a small file that tells commands and people, while it runs.

Keeps this invariant: a note counts only while a proxy of this home holds the lock beside it. One that was killed
leaves its note behind and lets go of the lock, so whoever has got its number since is not taken for it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from msgspec import Meta

from remit.claims.shapes import Claims, encode, shape
from remit.claims.strictjson import parse_object
from remit.errors import InputError, LedgerInUse
from remit.ledger.home import Home

__all__ = ["RECORD_FILE", "Running", "held_as_running", "is_alive", "load_running", "note_running", "note_stopped"]

RECORD_FILE: Final = "proxy.json"
_LOCK_FILE: Final = "proxy.running"
_MAX_BYTES: Final = 4096


class Running(Claims, frozen=True, kw_only=True):
    """A proxy that said it listens, and by which process."""

    listening: Annotated[str, Meta(max_length=2048)]
    pid: Annotated[int, Meta(gt=0)]


@contextmanager
def held_as_running(home: Home) -> Iterator[None]:
    """Hold the lock of those that run; several may."""
    with home.locked(_LOCK_FILE, shared=True):
        yield


def note_running(home: Home, listening: str) -> Running:
    """Keep where this process listens."""
    running = Running(listening=listening, pid=os.getpid())
    home.replace(RECORD_FILE, encode(running))
    return running


def note_stopped(home: Home) -> None:
    """Take the note of this process back; one of another stays."""
    running = load_running(home)
    if running is not None and running.pid == os.getpid():
        home.remove(RECORD_FILE)


def load_running(home: Home) -> Running | None:
    """Return what was noted, if a proxy is running, its process is still there, and the file can be read."""
    data = home.read(RECORD_FILE, max_bytes=_MAX_BYTES)
    if data is None:
        return None
    try:
        running = shape(Running, parse_object(data))
    except InputError:
        return None
    return running if is_alive(running.pid) and _is_held(home) else None


def _is_held(home: Home) -> bool:
    try:
        with home.locked(_LOCK_FILE, wait=False):
            return False
    except LedgerInUse:
        return True


def is_alive(pid: int) -> bool:
    """Tell whether there is a process of this number, ours or not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
