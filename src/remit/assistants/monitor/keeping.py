"""Keeping the settings that protect assistants in force while the Hub runs: what is ours is put back when it goes.

Keeps these invariants: nothing is written for a protection that is being changed or undone by a person; nothing is
written that was not seen in force before; a file is put back as often as it is changed, whatever was done to it. A
protection counts as tampered with once a file cannot be put back, once something else keeps hooks from running for a
second, or once either was put right too often, until everything has been in place for a while. Findings are returned
as values; who signs them, and what then happens to sessions and processes, is for `vigil.py`.
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

from remit.assistants.install.acceptance import Reader
from remit.assistants.monitor.fragments import Part, is_legible, keeps_all, merge, missing_in, part_of
from remit.assistants.monitor.restore import MAX_READ, Displaced, Location, NotRestored, locate, restore
from remit.assistants.records import Protection, Protections, Written
from remit.errors import LedgerInUse, RemitError

__all__ = ["REPAIRS", "WINDOW_S", "Gap", "Keeper", "Tampering"]

# Once the files of a protection were put back, or something else kept its hooks from running, so many times within the
# window, it counts as tampered with.
REPAIRS: Final = 5
WINDOW_S: Final = 60.0
# Times of files are coarse: for so long after a change, another may not show.
_UNSETTLED_S: Final = 2.0
_RENEWED_S: Final = 1.0
# How soon to try again what could not be put back, and to look again at what keeps hooks from running.
_RETRY_S: Final = 1.0
# Whoever protects or undoes holds the lock. Undoing takes a moment; protecting writes the record before any file.
_LOCK_PATIENCE_S: Final = 1.0
_SETTINGS: Final = (".json", ".toml")
_MAX_IN_FOLDER: Final = 1000
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_ODD_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]")
_UNKNOWN: Final = "all that Remit has written"
_NEVER_SEEN: Final = "it has not been seen as it was written since the Hub was started"
_FOLDER_GONE: Final = "the folder that is protected is gone"


class Gap(NamedTuple):
    """Something that protects an assistant and was not in force: what was missing where, and what became of it."""

    protection: Protection
    path: str
    missing: tuple[str, ...]
    put_back: bool
    # Why it was not put back.
    why: str = ""
    # What stood in its place, in words, and where that was kept.
    displaced: tuple[str, ...] = ()


class Tampering(NamedTuple):
    """A protection that could not be kept in force; `in_force` says whether everything is in place by now."""

    protection: Protection
    why: str
    # When something was last not in place.
    at: float
    in_force: bool


@dataclass(slots=True)
class _Kept:
    """One file, and what is known of it; times are those of the clock that `look` is given."""

    protection: Protection
    written: Written
    part: Part | None = None
    # Where it was when all of it was last in place.
    location: Location | None = None
    seen: tuple[int, ...] | None = None
    settled: float = 0.0
    # When to look again although it seems the same.
    again: float | None = None
    illegible: bool = False
    in_force: bool = True
    # Since when the lock of all protections has been waited for.
    waiting: float | None = None
    told: Gap | None = None
    told_at: float = -WINDOW_S


@dataclass(slots=True)
class _Around:
    """The other files that steer an assistant, and what was said of them last."""

    seen: tuple[tuple[int, ...], ...] | None = None
    obstacle: str = ""
    # Since when there has been an obstacle without a break.
    since: float = 0.0
    # When to look again although the files seem the same, and until when to do so.
    again: float = 0.0
    until: float = 0.0
    # What was told of the obstacle that there is.
    told: str = ""
    told_at: float = -WINDOW_S


@dataclass(slots=True)
class _Repairs:
    """When a protection was found not in force within the window, and when that was last told beyond the limit."""

    at: list[float] = field(default_factory=list)
    told_at: float = -WINDOW_S


class Keeper:
    """Looks after the files of all protections of a home. For one thread, but for `tampered`."""

    def __init__(
        self,
        protections: Protections,
        obstacle: Callable[[Protection], str],
        failed: Callable[[Exception], None],
        reads: Callable[[Protection], Iterable[str]],
    ) -> None:
        """Ask `obstacle` what keeps the hooks of a protection from running, whatever its own files say.

        `reads` gives the files and folders that `obstacle` looks at: it is asked again when one of them has changed.
        `failed` is told of every error; the other files are looked after all the same.
        """
        self._protections = protections
        self._obstacle = obstacle
        self._failed = failed
        self._reads = reads
        self._renewed: float | None = None
        self._files: dict[tuple[str, str], _Kept] = {}
        self._around: dict[str, _Around] = {}
        self._repairs: dict[str, _Repairs] = {}
        self._known: dict[str, Protection] = {}
        self._tampered: Mapping[str, Tampering] = {}

    def look(self, now: float) -> list[Gap]:
        """Return what was not in force, put back where that can be."""
        found = [gap for gap in self._looks(now) if gap is not None]
        self._review(now)
        return found

    def tampered(self) -> Mapping[str, Tampering]:
        """Return the protections that count as tampered with, by their ids. For any thread."""
        return self._tampered

    def _looks(self, now: float) -> Iterator[Gap | None]:
        yield self._safely(lambda: self._renew(now))
        for kept in list(self._files.values()):
            yield self._safely(lambda kept=kept: self._look_at(kept, now))  # type: ignore[misc]
        for protection in self._known.values():
            yield self._safely(lambda one=protection: self._look_around(one, now))  # type: ignore[misc]

    def _safely(self, act: Callable[[], Gap | None]) -> Gap | None:
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - one file that cannot be looked at must not keep us from the others
            self._failed(error)
            return None

    def _renew(self, now: float) -> None:
        """Read the records, now and then: they are read anew before anything is written."""
        if self._renewed is not None and now - self._renewed < _RENEWED_S:
            return
        self._renewed = now
        before, self._known = self._known, {one.id: one for one in self._protections.all()}
        files = dict[tuple[str, str], _Kept]()
        for protection in self._known.values():
            for written in protection.files:
                key = (protection.id, written.path)
                known = self._files.get(key)
                files[key] = known if known and known.written == written else _Kept(protection, written)
                files[key].protection = protection
        self._files = files
        self._around = {name: self._around.get(name) or _Around() for name in self._known}
        self._repairs = {name: self._repairs.get(name) or _Repairs() for name in self._known}
        # `remit protect` resets the state of the protection.
        changed = {name for name in self._tampered if before.get(name) != self._known.get(name)}
        self._tampered = {name: one for name, one in self._tampered.items() if name not in changed}

    def _mark(self, protection: Protection, why: str, now: float) -> None:
        """Note that a protection could not be kept in force."""
        known = self._tampered.get(protection.id)
        noted = known._replace(at=now) if known else Tampering(protection, why, now, in_force=False)
        self._tampered = {**self._tampered, protection.id: noted}

    def _review(self, now: float) -> None:
        """Let go of protections that have been in force for the whole window."""
        reviewed = dict[str, Tampering]()
        for name, one in self._tampered.items():
            in_force = self._is_in_force(name)
            at = one.at if in_force else now
            if now - at < WINDOW_S:
                reviewed[name] = one._replace(in_force=in_force, at=at)
        if reviewed != self._tampered:
            self._tampered = reviewed

    def _is_in_force(self, name: str) -> bool:
        around = self._around.get(name)
        ours = (kept.in_force for (protection, _), kept in self._files.items() if protection == name)
        return all(ours) and not (around and around.obstacle)

    def _look_at(self, kept: _Kept, now: float) -> Gap | None:
        seen = _seen(kept.written.path)
        due = kept.again is not None and now >= kept.again
        if seen == kept.seen and now >= kept.settled and not due:
            return None
        if seen != kept.seen:
            kept.seen, kept.settled = seen, now + _UNSETTLED_S
        kept.again = None
        data = _data(kept.written.path)
        if self._finds_in_force(kept, data):
            return None
        # Whoever writes a file in two steps gets until the next look.
        was, kept.illegible = kept.illegible, not is_legible(kept.written.kind, data)
        if kept.illegible and not was:
            kept.again = now
            return None
        return self._mended(kept, now)

    def _finds_in_force(self, kept: _Kept, data: bytes | None) -> bool:
        """Tell whether all of ours is in a file, and remember it as it is then."""
        path, folder = kept.written.path, kept.protection.folder
        if kept.part is None:
            reader = Reader(kept.protection.assistant, kept.protection.version)
            kept.part = part_of(kept.written, kept.protection.id, data, reader)
            kept.location = locate(path, folder) if kept.part else None
        kept.in_force = kept.part is not None and not missing_in(kept.part, data)
        if kept.part is None or not kept.in_force:
            return False
        location = locate(path, folder)
        # What is elsewhere now is in force, and still not what is put back later.
        known = kept.location or location
        if data is not None and location and known and location.real == known.real:
            kept.part, kept.location = kept.part._replace(data=data), location
        kept.illegible, kept.told, kept.waiting = False, None, None
        return True

    def _mended(self, kept: _Kept, now: float) -> Gap | None:
        """Put back what is missing, if the record still asks for it; return what there is to tell."""
        with ExitStack() as held:
            if not self._may_write(kept, now, held):
                kept.again = now
                return None
            current = self._protections.get(kept.protection.id)
            if current is None or kept.written not in current.files:
                self._renewed = None
                return None
            data = _data(kept.written.path)
            if self._finds_in_force(kept, data):
                return None
            missing = missing_in(kept.part, data) if kept.part else (_UNKNOWN,)
            displaced, why = self._put_back(kept)
        kept.waiting = None
        gap = Gap(kept.protection, kept.written.path, missing, put_back=not why, why=why, displaced=tuple(displaced))
        return self._restored(kept, gap, now) if gap.put_back else self._not_restored(kept, gap, now)

    def _may_write(self, kept: _Kept, now: float, held: ExitStack) -> bool:
        """Take the lock of all protections, or go on without it after a short wait."""
        try:
            held.enter_context(self._protections.locked(wait=False))
        except LedgerInUse:
            kept.waiting = now if kept.waiting is None else kept.waiting
            return now - kept.waiting >= _LOCK_PATIENCE_S
        return True

    def _put_back(self, kept: _Kept) -> tuple[list[str], str]:
        """Write the file with all of ours in it; return what had to make way, and why it was not written, if so."""
        folder, part = kept.protection.folder, kept.part
        if part is None or kept.location is None:
            return [], _NEVER_SEEN
        if folder is not None and not Path(folder).is_dir():
            return [], _FOLDER_GONE

        def content(data: bytes | None) -> bytes:
            return _merged(part, data) or part.data

        try:
            displaced = restore(kept.location, content)
        except NotRestored as error:
            return [], str(error)
        return [told for one in displaced if (told := self._kept_aside(kept, part, one))], ""

    def _kept_aside(self, kept: _Kept, part: Part, displaced: Displaced) -> str:
        """Keep what had to make way and is not in the file any more, and return where; nothing if it still is."""
        if displaced.moved_to:
            return f"{displaced.what}, now named {displaced.moved_to}"
        if displaced.data is None:
            return displaced.what
        if not displaced.data.strip() or _keeps_all(part, displaced.data):
            return ""
        file = _ODD_CHARACTERS.sub("_", Path(kept.written.path).name)[-100:]
        try:
            path = self._protections.set_aside(
                f"{time.time_ns():020d}-{kept.protection.id}-{file}", displaced.data[:MAX_READ]
            )
        except RemitError as error:
            return f"{displaced.what}, which could not be kept ({error.code})"
        return f"{displaced.what}, kept as {path}"

    def _restored(self, kept: _Kept, gap: Gap, now: float) -> Gap | None:
        """Count a repair; return what is to be told of it: the first ones in the window, then one."""
        repairs = self._repairs[kept.protection.id]
        count = self._count(kept.protection, now)
        kept.seen, kept.told, kept.in_force = None, None, True
        if count >= REPAIRS:
            why = f"it had to be put back {count} times within {WINDOW_S:.0f} seconds"
            self._mark(kept.protection, why, now)
        elif kept.protection.id in self._tampered:
            self._mark(kept.protection, "", now)
        if count <= REPAIRS:
            return gap
        if now - repairs.told_at < WINDOW_S:
            return None
        repairs.told_at = now
        return gap

    def _count(self, protection: Protection, now: float) -> int:
        """Note that a protection was not in force; return how often that was within the window."""
        repairs = self._repairs[protection.id]
        repairs.at = [*(at for at in repairs.at if now - at < WINDOW_S), now][-2 * REPAIRS :]
        return len(repairs.at)

    def _not_restored(self, kept: _Kept, gap: Gap, now: float) -> Gap | None:
        """Note that a file is not in force; return what is to be told: each reason once, and one a window."""
        kept.again = now + _RETRY_S
        self._mark(kept.protection, f"{gap.path} could not be put back: {gap.why}", now)
        if gap == kept.told or now - kept.told_at < WINDOW_S:
            return None
        kept.told, kept.told_at = gap, now
        return gap

    def _look_around(self, protection: Protection, now: float) -> Gap | None:
        """Return what keeps the hooks of a protection from running although its own files are in order."""
        around = self._around[protection.id]
        if not all(kept.in_force for (name, _), kept in self._files.items() if name == protection.id):
            return None  # this is told already, and one of its own files would seem to be the obstacle
        seen = tuple(_seen(path) for path in _with_content(self._reads(protection)))
        if seen != around.seen:
            around.seen, around.until = seen, max(around.until, now + _UNSETTLED_S)
        elif now < around.again or not (around.obstacle or now < around.until):
            return None
        around.again = now + _RETRY_S
        before, around.obstacle = around.obstacle, self._obstacle(protection)
        if not around.obstacle:
            around.told = ""
            return None
        around.until = now + WINDOW_S
        if not before:
            around.since = now
            if self._count(protection, now) >= REPAIRS:
                self._mark(protection, f"hooks are kept from running again and again: {around.obstacle}", now)
        # A file that is just being written is no obstacle: it has to be one a moment later still.
        elif now - around.since >= _RETRY_S:
            self._mark(protection, around.obstacle, now)
        if around.obstacle == around.told or now - around.told_at < WINDOW_S:
            return None
        around.told, around.told_at = around.obstacle, now
        where = protection.folder or protection.assistant
        return Gap(protection, where, ("that hooks run",), put_back=False, why=around.obstacle)


def _with_content(paths: Iterable[str]) -> Iterator[str]:
    """Yield files and folders, and the settings files in each folder."""
    for path in paths:
        yield path
        if path.endswith(_SETTINGS):
            continue
        with suppress(OSError), os.scandir(path) as entries:
            names = (entry.name for entry in islice(entries, _MAX_IN_FOLDER))
            yield from sorted(f"{path}/{name}" for name in names if name.endswith(_SETTINGS))


def _keeps_all(part: Part, data: bytes) -> bool:
    """Return whether the restored file still has every setting that others made in the one that it replaced."""
    return _merged(part, data) is not None and keeps_all(part, data)


def _merged(part: Part, data: bytes | None) -> bytes | None:
    return merge(part, data) if data is not None and len(data) <= MAX_READ else None


def _seen(path: str) -> tuple[int, ...]:
    """Return what tells one state of a file from another, its mode the last; nothing where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - many times a second
    except OSError:
        return ()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return found.st_dev, found.st_ino, found.st_size, *times, stat.S_IMODE(found.st_mode)


def _data(path: str) -> bytes | None:
    """Return what a file holds; None for one that is not there, or that no settings file would be."""
    try:
        fd = os.open(path, _OPEN)
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
