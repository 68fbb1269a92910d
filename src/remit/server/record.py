"""Which services of a home run, and where they listen: a small note of each, that tells commands and people.

Keeps this invariant: a note counts only while the process that wrote it holds the lock beside it. One that was killed
leaves its note behind and lets go of the lock, so whoever has got its number since is not taken for it.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from remit.claims.shapes import Claims, Count, encode, shape
from remit.claims.strictjson import parse_object
from remit.errors import InputError, LedgerInUse, RemitError, StateMissing
from remit.ledger.home import Home

__all__ = ["FOLDER", "Running", "ServiceName", "all_running", "beyond_usual", "load_running", "noted"]

FOLDER: Final = "run"
ServiceName: TypeAlias = Literal["hub", "proxy"]
_MAX_BYTES: Final = 64 * 1024


class Running(Claims, frozen=True, kw_only=True):
    """A service that said it listens, by which process, since when, and what was asked of it beyond the usual."""

    listening: Annotated[str, Meta(max_length=2048)]
    pid: Annotated[int, Meta(gt=0)]
    since_ms: Count
    asked: dict[str, Any]


# What no client can tell from outside.
_OUR_OWN: Final = frozenset(("home", "log_json", "log_level", "user_home"))


def beyond_usual(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a service that are not the usual ones, as far as clients can tell the difference."""
    return {name: value for name, value in given.items() if value != usual[name] and name not in _OUR_OWN}


@contextmanager
def noted(home: Home, service: ServiceName, listening: str, asked: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """Give what writes the note of this process when it is ready; afterwards there is none."""
    pid = os.getpid()
    name = f"{service}-{pid}"
    with home.folder(FOLDER) as folder, folder.locked(_lock_of(name)):

        def write() -> None:
            running = Running(listening=listening, pid=pid, since_ms=time.time_ns() // 1_000_000, asked=asked)
            folder.replace(_note_of(name), encode(running))

        try:
            yield write
        finally:
            with suppress(RemitError):
                _clear(folder, name)


def load_running(home: Home, service: ServiceName) -> Running | None:
    """Return the service of a home that was started last, if one runs."""
    return max(all_running(home, service), key=lambda running: running.since_ms, default=None)


def all_running(home: Home, service: ServiceName) -> list[Running]:
    """Return the services of this name that run over a home; what was left behind by others is cleared away."""
    try:
        folder = home.folder(FOLDER, create=False)
    except StateMissing:
        return []
    note = re.compile(rf"({service}-([1-9][0-9]{{0,9}}))\.json")
    with folder:
        found = [(one[1], int(one[2])) for one in map(note.fullmatch, folder.names()) if one]
        return [running for name, pid in found if (running := _load(folder, name, pid)) is not None]


def _load(folder: Home, name: str, pid: int) -> Running | None:
    try:
        with folder.locked(_lock_of(name), wait=False):
            _clear(folder, name)
            return None
    except LedgerInUse:
        data = folder.read(_note_of(name), max_bytes=_MAX_BYTES)
    try:
        running = shape(Running, parse_object(data or b""))
    except InputError:
        return None
    return running if running.pid == pid else None


def _clear(folder: Home, name: str) -> None:
    folder.remove(_note_of(name))
    folder.remove(_lock_of(name))


def _note_of(name: str) -> str:
    return f"{name}.json"


def _lock_of(name: str) -> str:
    return f"{name}.lock"
