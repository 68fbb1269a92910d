"""Checks the settings files of protections, and restores the settings that Remit wrote when they are missing.

Invariants:

- Nothing is written for a protection while `remit protect` changes it, with or without `--undo`.
- Only settings that were seen in force before are written.
- A file is restored each time it is changed, whatever was done to it.

A protection counts as tampered with if a file cannot be restored, if something else keeps its hooks from running for a
second, or if either happened too often within the time window. It no longer does once everything has been in place for
the whole window. The results are returned as values: `monitor.py` signs them, ends sessions and stops processes.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.install.acceptance import SettingsReader
from remit.assistants.monitor.file_restore import MAX_READ, Displaced, Location, NotRestored, locate, restore
from remit.assistants.monitor.fragments import (
    SettingsFragment,
    find_fragment,
    find_missing,
    is_parseable,
    keeps_other_settings,
    merge,
)
from remit.assistants.records import Protection, Protections, WrittenFile
from remit.errors import LedgerInUse, RemitError

# A protection counts as tampered with after so many repairs or obstacles within the window.
REPAIRS: Final = 5
WINDOW_S: Final = 60.0
# Timestamps of files are coarse: a second change within this time may not show in them.
_TIMESTAMP_RESOLUTION_S: Final = 2.0
_RELOAD_S: Final = 1.0
# When to try again to restore a file, and to check again for an obstacle.
_RETRY_S: Final = 1.0
# How long to wait for the lock, which `remit protect` holds. Longer is not necessary: `--undo`
# takes a moment, and protecting writes the record before any file.
_LOCK_WAIT_S: Final = 1.0
_SETTINGS_SUFFIXES: Final = (".json", ".toml")
_MAX_DIRECTORY_ENTRIES: Final = 1000
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_UNSAFE_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]")
_EVERYTHING: Final = "all that Remit has written"
_NEVER_SEEN: Final = "it has not been seen as it was written since the Hub was started"
_FOLDER_GONE: Final = "the folder that is protected is gone"


class Gap(NamedTuple):
    """Settings of a protection that were missing from a file, and whether they were restored."""

    protection: Protection
    path: str
    missing: tuple[str, ...]
    put_back: bool
    # Why they were not restored.
    why: str = ""
    # Descriptions of what had replaced the file, and of where a copy of it is.
    displaced: tuple[str, ...] = ()


class Tampering(NamedTuple):
    """A protection that was tampered with; `in_force`: whether all of its settings are in place again."""

    protection: Protection
    why: str
    # When a setting was last missing.
    at: float
    in_force: bool


@dataclass(slots=True)
class _FileState:
    """The state of one settings file. Times are those that `check` was called with."""

    protection: Protection
    written: WrittenFile
    fragment: SettingsFragment | None = None
    # Where the file was when it was last in force.
    location: Location | None = None
    fingerprint: tuple[int, ...] | None = None
    # Until then, the file is read even if its fingerprint is the same.
    settled_at: float = 0.0
    # When to read it next even if its fingerprint is the same.
    recheck_at: float | None = None
    unparseable: bool = False
    in_force: bool = True
    lock_wait_since: float | None = None
    reported: Gap | None = None
    reported_at: float = -WINDOW_S


@dataclass(slots=True)
class _ObstacleState:
    """The state of the other settings files that can keep the hooks of a protection from running."""

    fingerprints: tuple[tuple[int, ...], ...] | None = None
    obstacle: str = ""
    # Since when there has been an obstacle without interruption.
    since: float = 0.0
    # Even if the fingerprints are the same, the next check is at `recheck_at`, and the last one before `recheck_until`.
    recheck_at: float = 0.0
    recheck_until: float = 0.0
    # The last obstacle reported; empty once it is gone.
    reported: str = ""
    reported_at: float = -WINDOW_S


@dataclass(slots=True)
class _RepairLog:
    """When settings of a protection were missing, within the window."""

    at: list[float] = field(default_factory=list)
    # When a repair beyond the limit was last reported.
    reported_at: float = -WINDOW_S


class SettingsRestorer:
    """Checks and restores the settings files of all protections of a home. Only `tampered` is thread-safe."""

    def __init__(
        self,
        protections: Protections,
        obstacle: Callable[[Protection], str],
        on_error: Callable[[Exception], None],
        reads: Callable[[Protection], Iterable[str]],
    ) -> None:
        """Create a restorer.

        `obstacle` describes what keeps the hooks of a protection from running although its own files are in order, or
        returns an empty string. `reads` returns the files and folders that `obstacle` reads; `obstacle` is called again
        when one of them changes. `on_error` is called with each error, and the other files are checked all the same.
        """
        self._protections = protections
        self._obstacle = obstacle
        self._on_error = on_error
        self._reads = reads
        self._loaded_at: float | None = None
        self._files: dict[tuple[str, str], _FileState] = {}
        self._obstacles: dict[str, _ObstacleState] = {}
        self._repairs: dict[str, _RepairLog] = {}
        self._known: dict[str, Protection] = {}
        self._tampered: Mapping[str, Tampering] = {}

    def check(self, now: float) -> list[Gap]:
        """Check all files, restore what is missing, and return what is to be reported."""
        gaps = [gap for gap in self._check_all(now) if gap is not None]
        self._clear_old_tampering(now)
        return gaps

    def tampered(self) -> Mapping[str, Tampering]:
        """Return the protections that count as tampered with, by id. Thread-safe."""
        return self._tampered

    def _check_all(self, now: float) -> Iterator[Gap | None]:
        yield self._guard(lambda: self._reload(now))
        for state in list(self._files.values()):
            yield self._guard(lambda state=state: self._check_file(state, now))  # type: ignore[misc]
        for protection in self._known.values():
            yield self._guard(lambda one=protection: self._check_obstacle(one, now))  # type: ignore[misc]

    def _guard(self, check: Callable[[], Gap | None]) -> Gap | None:
        try:
            return check()
        except Exception as error:  # noqa: BLE001 - an error with one file must not stop the checks of the others
            self._on_error(error)
            return None

    def _reload(self, now: float) -> None:
        """Read the records once a second. Before a file is written, its record is read again."""
        if self._loaded_at is not None and now - self._loaded_at < _RELOAD_S:
            return
        self._loaded_at = now
        before, self._known = self._known, {one.id: one for one in self._protections.all()}
        files = dict[tuple[str, str], _FileState]()
        for protection in self._known.values():
            for written in protection.files:
                key = (protection.id, written.path)
                known = self._files.get(key)
                files[key] = known if known and known.written == written else _FileState(protection, written)
                files[key].protection = protection
        self._files = files
        self._obstacles = {name: self._obstacles.get(name) or _ObstacleState() for name in self._known}
        self._repairs = {name: self._repairs.get(name) or _RepairLog() for name in self._known}
        # `remit protect` resets the state of the protection.
        changed = {name for name in self._tampered if before.get(name) != self._known.get(name)}
        self._tampered = {name: one for name, one in self._tampered.items() if name not in changed}

    def _mark_tampered(self, protection: Protection, why: str, now: float) -> None:
        known = self._tampered.get(protection.id)
        tampering = known._replace(at=now) if known else Tampering(protection, why, now, in_force=False)
        self._tampered = {**self._tampered, protection.id: tampering}

    def _clear_old_tampering(self, now: float) -> None:
        """Forget the tampering of protections that have been in force for the whole window."""
        tampered = dict[str, Tampering]()
        for name, one in self._tampered.items():
            in_force = self._is_in_force(name)
            at = one.at if in_force else now
            if now - at < WINDOW_S:
                tampered[name] = one._replace(in_force=in_force, at=at)
        if tampered != self._tampered:
            self._tampered = tampered

    def _is_in_force(self, name: str) -> bool:
        state = self._obstacles.get(name)
        return self._files_in_force(name) and not (state and state.obstacle)

    def _files_in_force(self, name: str) -> bool:
        return all(state.in_force for (protection, _), state in self._files.items() if protection == name)

    def _check_file(self, state: _FileState, now: float) -> Gap | None:
        fingerprint = _fingerprint(state.written.path)
        due = state.recheck_at is not None and now >= state.recheck_at
        if fingerprint == state.fingerprint and now >= state.settled_at and not due:
            return None
        if fingerprint != state.fingerprint:
            state.fingerprint, state.settled_at = fingerprint, now + _TIMESTAMP_RESOLUTION_S
        state.recheck_at = None
        data = _read(state.written.path)
        if self._update_in_force(state, data):
            return None
        # Another program may be writing the file in two steps: wait for the next check before restoring it.
        was, state.unparseable = state.unparseable, not is_parseable(state.written.kind, data)
        if state.unparseable and not was:
            state.recheck_at = now
            return None
        return self._repair(state, now)

    def _update_in_force(self, state: _FileState, data: bytes | None) -> bool:
        """Return whether all settings of the protection are in a file. If so, remember its content and location."""
        path, folder = state.written.path, state.protection.folder
        if state.fragment is None:
            reader = SettingsReader(state.protection.assistant, state.protection.version)
            state.fragment = find_fragment(state.written, state.protection.id, data, reader)
            state.location = locate(path, folder) if state.fragment else None
        state.in_force = state.fragment is not None and not find_missing(state.fragment, data)
        if state.fragment is None or not state.in_force:
            return False
        location = locate(path, folder)
        # If links lead to another file now, its settings are in force, but it is not the file to restore later.
        known = state.location or location
        if data is not None and location and known and location.real == known.real:
            state.fragment, state.location = state.fragment._replace(data=data), location
        state.unparseable, state.reported, state.lock_wait_since = False, None, None
        return True

    def _repair(self, state: _FileState, now: float) -> Gap | None:
        """Restore a file if its record still lists it. Return what is to be reported."""
        with ExitStack() as stack:
            if not self._acquire_lock(state, now, stack):
                state.recheck_at = now
                return None
            current = self._protections.get(state.protection.id)
            if current is None or state.written not in current.files:
                self._loaded_at = None
                return None
            data = _read(state.written.path)
            if self._update_in_force(state, data):
                return None
            missing = find_missing(state.fragment, data) if state.fragment else (_EVERYTHING,)
            displaced, why = self._restore(state)
        state.lock_wait_since = None
        gap = Gap(state.protection, state.written.path, missing, put_back=not why, why=why, displaced=tuple(displaced))
        return self._report_restored(state, gap, now) if gap.put_back else self._report_failure(state, gap, now)

    def _acquire_lock(self, state: _FileState, now: float, stack: ExitStack) -> bool:
        """Take the lock of all protections. Return False while it is held; after a second, go on without it."""
        try:
            stack.enter_context(self._protections.locked(wait=False))
        except LedgerInUse:
            state.lock_wait_since = now if state.lock_wait_since is None else state.lock_wait_since
            return now - state.lock_wait_since >= _LOCK_WAIT_S
        return True

    def _restore(self, state: _FileState) -> tuple[list[str], str]:
        """Write a file with all settings of the protection. Return what it replaced, and why it failed if it did."""
        folder, fragment = state.protection.folder, state.fragment
        if fragment is None or state.location is None:
            return [], _NEVER_SEEN
        if folder is not None and not Path(folder).is_dir():
            return [], _FOLDER_GONE

        def content(data: bytes | None) -> bytes:
            return _merge(fragment, data) or fragment.data

        try:
            displaced = restore(state.location, content)
        except NotRestored as error:
            return [], str(error)
        return [text for one in displaced if (text := self._back_up(state, fragment, one))], ""

    def _back_up(self, state: _FileState, fragment: SettingsFragment, displaced: Displaced) -> str:
        """Save a copy of what was replaced, unless the restored file still has all of it. Return a description."""
        if displaced.moved_to:
            return f"{displaced.what}, now named {displaced.moved_to}"
        if displaced.data is None:
            return displaced.what
        if not displaced.data.strip() or _keeps_other_settings(fragment, displaced.data):
            return ""
        file = _UNSAFE_CHARACTERS.sub("_", Path(state.written.path).name)[-100:]
        try:
            path = self._protections.set_aside(
                f"{time.time_ns():020d}-{state.protection.id}-{file}", displaced.data[:MAX_READ]
            )
        except RemitError as error:
            return f"{displaced.what}, which could not be kept ({error.code})"
        return f"{displaced.what}, kept as {path}"

    def _report_restored(self, state: _FileState, gap: Gap, now: float) -> Gap | None:
        """Count a repair. Return it if it is to be reported: the first ones within the window, then one a window."""
        repairs = self._repairs[state.protection.id]
        count = self._count_repair(state.protection, now)
        state.fingerprint, state.reported, state.in_force = None, None, True
        if count >= REPAIRS:
            why = f"it had to be put back {count} times within {WINDOW_S:.0f} seconds"
            self._mark_tampered(state.protection, why, now)
        elif state.protection.id in self._tampered:
            self._mark_tampered(state.protection, "", now)
        if count <= REPAIRS:
            return gap
        if now - repairs.reported_at < WINDOW_S:
            return None
        repairs.reported_at = now
        return gap

    def _count_repair(self, protection: Protection, now: float) -> int:
        """Record a repair or obstacle. Return how many there were within the window."""
        repairs = self._repairs[protection.id]
        repairs.at = [*(at for at in repairs.at if now - at < WINDOW_S), now][-2 * REPAIRS :]
        return len(repairs.at)

    def _report_failure(self, state: _FileState, gap: Gap, now: float) -> Gap | None:
        """Mark a protection whose file could not be restored. Return what is to be reported, at most one a window."""
        state.recheck_at = now + _RETRY_S
        self._mark_tampered(state.protection, f"{gap.path} could not be put back: {gap.why}", now)
        if gap == state.reported or now - state.reported_at < WINDOW_S:
            return None
        state.reported, state.reported_at = gap, now
        return gap

    def _check_obstacle(self, protection: Protection, now: float) -> Gap | None:
        """Return what keeps the hooks of a protection from running although its own files are in order."""
        state = self._obstacles[protection.id]
        if not self._files_in_force(protection.id):
            return None  # this is reported already, and one of its own files would be taken for the obstacle
        fingerprints = tuple(_fingerprint(path) for path in _with_settings_files(self._reads(protection)))
        if fingerprints != state.fingerprints:
            state.fingerprints = fingerprints
            state.recheck_until = max(state.recheck_until, now + _TIMESTAMP_RESOLUTION_S)
        elif now < state.recheck_at or not (state.obstacle or now < state.recheck_until):
            return None
        state.recheck_at = now + _RETRY_S
        before, state.obstacle = state.obstacle, self._obstacle(protection)
        if not state.obstacle:
            state.reported = ""
            return None
        state.recheck_until = now + WINDOW_S
        if not before:
            state.since = now
            if self._count_repair(protection, now) >= REPAIRS:
                self._mark_tampered(protection, f"hooks are kept from running again and again: {state.obstacle}", now)
        # A file that is being written may seem to be an obstacle, so it has to be one for a second.
        elif now - state.since >= _RETRY_S:
            self._mark_tampered(protection, state.obstacle, now)
        if state.obstacle == state.reported or now - state.reported_at < WINDOW_S:
            return None
        state.reported, state.reported_at = state.obstacle, now
        where = protection.folder or protection.assistant
        return Gap(protection, where, ("that hooks run",), put_back=False, why=state.obstacle)


def _with_settings_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield the given files and folders, and the settings files in each folder."""
    for path in paths:
        yield path
        if path.endswith(_SETTINGS_SUFFIXES):
            continue
        with suppress(OSError), os.scandir(path) as entries:
            names = (entry.name for entry in islice(entries, _MAX_DIRECTORY_ENTRIES))
            yield from sorted(f"{path}/{name}" for name in names if name.endswith(_SETTINGS_SUFFIXES))


def _keeps_other_settings(fragment: SettingsFragment, data: bytes) -> bool:
    """Return whether the restored file has all settings of others that were in the replaced one."""
    return _merge(fragment, data) is not None and keeps_other_settings(fragment, data)


def _merge(fragment: SettingsFragment, data: bytes | None) -> bytes | None:
    return merge(fragment, data) if data is not None and len(data) <= MAX_READ else None


def _fingerprint(path: str) -> tuple[int, ...]:
    """Return values that change when the file changes. Empty if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called many times a second
    except OSError:
        return ()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return status.st_dev, status.st_ino, status.st_size, *times, stat.S_IMODE(status.st_mode)


def _read(path: str) -> bytes | None:
    """Return the content of a file. None if it is missing, unreadable, too large or not a regular file."""
    try:
        fd = os.open(path, _OPEN_FLAGS)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_READ + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) <= MAX_READ else None
