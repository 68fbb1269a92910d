"""Which proxies of a home run, and where they listen: a small note of each, that tells commands and people.

Keeps this invariant: a note counts only while the process that wrote it holds the lock beside it. One that was killed
leaves its note behind and lets go of the lock, so whoever has got its number since is not taken for it.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final

from msgspec import Meta

from remit.claims.shapes import Claims, Count, encode, shape
from remit.claims.strictjson import parse_object
from remit.errors import InputError, LedgerInUse, RemitError, StateMissing
from remit.ledger.home import Home

__all__ = ["FOLDER", "Running", "all_running", "load_running", "noted"]

FOLDER: Final = "run"
_NOTE: Final = re.compile(r"proxy-([1-9][0-9]{0,9})\.json")
_MAX_BYTES: Final = 64 * 1024


class Running(Claims, frozen=True, kw_only=True):
    """A proxy that said it listens, by which process, since when, and what was asked of it beyond the usual."""

    listening: Annotated[str, Meta(max_length=2048)]
    pid: Annotated[int, Meta(gt=0)]
    since_ms: Count
    asked: dict[str, Any]


@contextmanager
def noted(home: Home, listening: str, asked: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """Give what writes the note of this process when it is ready; afterwards there is none."""
    pid = os.getpid()
    with home.folder(FOLDER) as folder, folder.locked(_lock_of(pid)):

        def write() -> None:
            running = Running(listening=listening, pid=pid, since_ms=time.time_ns() // 1_000_000, asked=asked)
            folder.replace(_note_of(pid), encode(running))

        try:
            yield write
        finally:
            with suppress(RemitError):
                _clear(folder, pid)


def load_running(home: Home) -> Running | None:
    """Return the proxy of a home that was started last, if one runs."""
    return max(all_running(home), key=lambda running: running.since_ms, default=None)


def all_running(home: Home) -> list[Running]:
    """Return the proxies of a home that run; what was left behind by others is cleared away."""
    try:
        folder = home.folder(FOLDER, create=False)
    except StateMissing:
        return []
    with folder:
        found = [int(note[1]) for note in map(_NOTE.fullmatch, folder.names()) if note]
        return [running for pid in found if (running := _load(folder, pid)) is not None]


def _load(folder: Home, pid: int) -> Running | None:
    try:
        with folder.locked(_lock_of(pid), wait=False):
            _clear(folder, pid)
            return None
    except LedgerInUse:
        data = folder.read(_note_of(pid), max_bytes=_MAX_BYTES)
    try:
        running = shape(Running, parse_object(data or b""))
    except InputError:
        return None
    return running if running.pid == pid else None


def _clear(folder: Home, pid: int) -> None:
    folder.remove(_note_of(pid))
    folder.remove(_lock_of(pid))


def _note_of(pid: int) -> str:
    return f"proxy-{pid}.json"


def _lock_of(pid: int) -> str:
    return f"proxy-{pid}.lock"
