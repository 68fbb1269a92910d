"""Keeping what protects assistants in force while they run: what is ours in their files is put back when it goes.

Keeps these invariants: nothing is written but under the lock of all protections, by a record that is read anew under
it, so protecting and undoing are never fought; nothing is written that was not seen in force before, nor where a path
leads elsewhere by now; and a file that is broken again and again is put back a few times a minute, and no more.
Tells what it found as values; who looks when, and who signs it, is for `vigil.py`.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from remit.adapters.protection.files import look, replace
from remit.adapters.protection.parts import Part, is_legible, missing_in, part_of, put_in
from remit.adapters.protection.records import Protection, Protections, Written
from remit.errors import RemitError, StateCorrupt

__all__ = ["REPAIRS", "WINDOW_S", "Gap", "Keeper"]

# So many times within the window a file is put back; what is not put back is told once within it.
REPAIRS: Final = 5
WINDOW_S: Final = 60.0
# Times of files are coarse: for so long after a change, another may not show.
_UNSETTLED_S: Final = 2.0
_RENEWED_S: Final = 1.0
_SETTINGS: Final = (".json", ".toml")
_MAX_BYTES: Final = 256 * 1024
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_UNKNOWN: Final = "all that Remit has written"
_NEVER_SEEN: Final = "it has not been seen as it was written since the Hub was started"
_TOO_OFTEN: Final = "it was put back too often already, and is broken again and again"
_FOLDER_GONE: Final = "the folder that is protected is gone"
_LEADS_AWAY: Final = "its path leads to another place than before"


class Gap(NamedTuple):
    """Something that protects an assistant and was not in force: what was missing where, and what became of it."""

    protection: Protection
    path: str
    missing: tuple[str, ...]
    put_back: bool
    # Why it was not put back.
    why: str = ""


@dataclass(slots=True)
class _Kept:
    """One file, and what is known of it; times are those of the clock that `look` is given."""

    protection: Protection
    written: Written
    part: Part | None = None
    # Where its path led, and its mode, when all of it was last in place.
    real: str = ""
    mode: int | None = None
    seen: tuple[int, ...] | None = None
    settled: float = 0.0
    # When to look again although it seems the same.
    again: float | None = None
    illegible: bool = False
    repairs: list[float] = field(default_factory=list)
    told: Gap | None = None
    told_at: float = -WINDOW_S


@dataclass(slots=True)
class _Around:
    """The other files that steer an assistant, and what was said of them last."""

    seen: tuple[tuple[int, ...], ...] | None = None
    obstacle: str = ""
    told_at: float = -WINDOW_S


class Keeper:
    """Looks after the files of all protections of a home. For one thread."""

    def __init__(
        self,
        protections: Protections,
        obstacle: Callable[[Protection], str],
        failed: Callable[[Exception], None],
    ) -> None:
        """Ask `obstacle` what keeps the hooks of a protection from running, whatever its own files say.

        `failed` is told of every error; the other files are looked after all the same.
        """
        self._protections = protections
        self._obstacle = obstacle
        self._failed = failed
        self._renewed: float | None = None
        self._files: dict[tuple[str, str], _Kept] = {}
        self._around: dict[str, _Around] = {}
        self._known: list[Protection] = []

    def look(self, now: float) -> list[Gap]:
        """Return what was not in force, put back where that can be."""
        return [gap for gap in self._looks(now) if gap is not None]

    def _looks(self, now: float) -> Iterator[Gap | None]:
        yield self._safely(lambda: self._renew(now))
        for kept in list(self._files.values()):
            yield self._safely(lambda kept=kept: self._look_at(kept, now))  # type: ignore[misc]
        for protection in self._known:
            yield self._safely(lambda one=protection: self._look_around(one, now))  # type: ignore[misc]

    def _safely(self, act: Callable[[], Gap | None]) -> Gap | None:
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - one file that cannot be looked at must not keep us from the others
            self._failed(error)
            return None

    def _renew(self, now: float) -> None:
        """Read the records, now and then: under the lock they are read anew before anything is written."""
        if self._renewed is not None and now - self._renewed < _RENEWED_S:
            return
        self._renewed = now
        self._known = self._protections.all()
        files = dict[tuple[str, str], _Kept]()
        for protection in self._known:
            for written in protection.files:
                key = (protection.id, written.path)
                known = self._files.get(key)
                files[key] = known if known and known.written == written else _Kept(protection, written)
        self._files = files
        self._around = {one.id: self._around.get(one.id) or _Around() for one in self._known}

    def _look_at(self, kept: _Kept, now: float) -> Gap | None:
        seen = _seen(kept.written.path)
        due = kept.again is not None and now >= kept.again
        if seen == kept.seen and now >= kept.settled and not due:
            return None
        if seen != kept.seen:
            kept.seen, kept.settled = seen, now + _UNSETTLED_S
        kept.again = None
        data = _data(kept.written.path)
        if self._in_force(kept, data):
            return None
        # Whoever writes a file in two steps gets until the next look.
        was, kept.illegible = kept.illegible, not is_legible(kept.written.kind, data)
        if kept.illegible and not was:
            kept.again = now
            return None
        return self._mended(kept, now)

    def _in_force(self, kept: _Kept, data: bytes | None) -> bool:
        """Tell whether all of ours is in a file, and remember it as it is then."""
        path = kept.written.path
        if kept.part is None:
            kept.part = part_of(kept.written, kept.protection.id, data)
            kept.real = os.path.realpath(path)
            kept.mode = kept.seen[-1] if kept.seen else None
        if kept.part is None or missing_in(kept.part, data):
            return False
        if data is not None and os.path.realpath(path) == kept.real:
            kept.part = kept.part._replace(data=data)
            kept.mode = kept.seen[-1] if kept.seen else kept.mode
        kept.illegible, kept.told = False, None
        return True

    def _mended(self, kept: _Kept, now: float) -> Gap | None:
        """Put back what is missing, if the record still asks for it; return what there is to tell."""
        with self._protections.locked():
            current = self._protections.get(kept.protection.id)
            if current is None or kept.written not in current.files:
                self._renewed = None
                return None
            data = _data(kept.written.path)
            if self._in_force(kept, data):
                return None
            missing = missing_in(kept.part, data) if kept.part else (_UNKNOWN,)
            try:
                why = self._hindrance(kept, now) or self._put_back(kept)
            except StateCorrupt:
                kept.again = now
                return None
            except RemitError as error:
                why = f"it may not be changed ({error.code})"
        gap = Gap(kept.protection, kept.written.path, missing, put_back=not why, why=why)
        return self._told(kept, gap, now)

    def _hindrance(self, kept: _Kept, now: float) -> str:
        """Return why a file is not to be put back."""
        kept.repairs = [at for at in kept.repairs if now - at < WINDOW_S]
        folder = kept.protection.folder
        if kept.part is None:
            return _NEVER_SEEN
        if folder is not None and not Path(folder).is_dir():
            return _FOLDER_GONE
        return _TOO_OFTEN if len(kept.repairs) >= REPAIRS else ""

    def _put_back(self, kept: _Kept) -> str:
        """Write the file with all of ours in it, no more open to others than it was; return why not, if so."""
        found = look(kept.written.path)
        if kept.part is None or found.real != kept.real:
            return _LEADS_AWAY
        if found.mode is not None and kept.mode is not None:
            found = found._replace(mode=found.mode & kept.mode | stat.S_IRUSR | stat.S_IWUSR)
        data = found.data if len(found.data or b"") <= _MAX_BYTES else None
        replace(found, put_in(kept.part, data), mode=kept.mode)
        return ""

    def _told(self, kept: _Kept, gap: Gap, now: float) -> Gap | None:
        """Return what is to be told: all that was put back, and the rest once, and at most once within the window."""
        if gap.put_back:
            kept.repairs.append(now)
            kept.seen, kept.told = None, None
            return gap
        kept.again = now + WINDOW_S if not kept.repairs else kept.repairs[0] + WINDOW_S
        if gap == kept.told or now - kept.told_at < WINDOW_S:
            return None
        kept.told, kept.told_at = gap, now
        return gap

    def _look_around(self, protection: Protection, now: float) -> Gap | None:
        """Return what keeps the hooks of a protection from running although its own files are in order."""
        around = self._around[protection.id]
        seen = tuple(_seen(path) for path in protection.guards if path.startswith("/") and path.endswith(_SETTINGS))
        if seen == around.seen or now - around.told_at < WINDOW_S:
            return None
        around.seen = seen
        before, around.obstacle = around.obstacle, self._obstacle(protection)
        if around.obstacle in ("", before):
            return None
        around.told_at = now
        where = protection.folder or protection.assistant
        return Gap(protection, where, ("that hooks run",), put_back=False, why=around.obstacle)


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
            data = file.read(_MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) <= _MAX_BYTES else None
