"""The run files of a home: each running service writes one with its address and process id, for commands to read.

Invariant: a run file counts only while its process holds the lock beside it. A process that was killed leaves its file
behind but not its lock, so another process that gets the same id later is not taken for it.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from remit.claims.strictjson import parse_object
from remit.claims.types import Claims, Count, convert, encode
from remit.errors import InputError, LedgerInUse, RemitError, StateMissing
from remit.ledger.home import Home

FOLDER: Final = "run"
ServiceName: TypeAlias = Literal["hub", "proxy"]
_MAX_BYTES: Final = 64 * 1024


class RunFile(Claims, frozen=True, kw_only=True):
    """A running service: its URL, process id, start time, and the options that differ from the defaults."""

    listening: Annotated[str, Meta(max_length=2048)]
    pid: Annotated[int, Meta(gt=0)]
    since_ms: Count
    asked: dict[str, Any]


# Options that make no difference to clients.
_INTERNAL: Final = frozenset(("home", "log_json", "log_level", "user_home"))


def non_default_options(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a service that differ from the defaults and make a difference to clients."""
    return {name: value for name, value in given.items() if value != defaults[name] and name not in _INTERNAL}


@contextmanager
def run_file(home: Home, service: ServiceName, listening: str, asked: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """Yield a function that writes the run file of this process; the file is removed at the end."""
    pid = os.getpid()
    name = f"{service}-{pid}"
    with home.folder(FOLDER) as folder, folder.locked(_lock_name(name)):

        def write() -> None:
            running = RunFile(listening=listening, pid=pid, since_ms=time.time_ns() // 1_000_000, asked=asked)
            folder.replace(_file_name(name), encode(running))

        try:
            yield write
        finally:
            with suppress(RemitError):
                _clear(folder, name)


def load_running(home: Home, service: ServiceName) -> RunFile | None:
    """Return the running service of a home that was started last; None if none runs."""
    return max(all_running(home, service), key=lambda running: running.since_ms, default=None)


def all_running(home: Home, service: ServiceName) -> list[RunFile]:
    """Return the running services of this name, and remove the run files of those that were killed."""
    try:
        folder = home.folder(FOLDER, create=False)
    except StateMissing:
        return []
    pattern = re.compile(rf"({service}-([1-9][0-9]{{0,9}}))\.json")
    with folder:
        found = [(one[1], int(one[2])) for one in map(pattern.fullmatch, folder.names()) if one]
        return [running for name, pid in found if (running := _load(folder, name, pid)) is not None]


def _load(folder: Home, name: str, pid: int) -> RunFile | None:
    try:
        with folder.locked(_lock_name(name), wait=False):
            _clear(folder, name)
            return None
    except LedgerInUse:
        data = folder.read(_file_name(name), max_bytes=_MAX_BYTES)
    try:
        running = convert(RunFile, parse_object(data or b""))
    except InputError:
        return None
    return running if running.pid == pid else None


def _clear(folder: Home, name: str) -> None:
    folder.remove(_file_name(name))
    folder.remove(_lock_name(name))


def _file_name(name: str) -> str:
    return f"{name}.json"


def _lock_name(name: str) -> str:
    return f"{name}.lock"
