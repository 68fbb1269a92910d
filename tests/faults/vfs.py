"""A disk that breaks, fills up or hangs when told to: the file system of this machine, seen through SQLite's door."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import apsw

__all__ = ["ERRORS", "Disk", "broken_disk"]

ERRORS: dict[str, type[apsw.Error]] = {"full": apsw.FullError, "ioerr": apsw.IOError}
_NUMBERS = count()


class Disk:
    """Counts what SQLite asks of the disk, and refuses it or holds it up."""

    def __init__(self) -> None:
        self.name = f"faults{next(_NUMBERS)}"
        self.touched: Counter[str] = Counter()
        self.refused = 0
        # Called before every operation: what lies on the disk now is what a crash now would leave.
        self.spy: Callable[[], None] = _nothing
        self._refuse: Callable[[str, int], bool] = _never
        self._error: type[apsw.Error] = apsw.IOError
        self._hung = threading.Event()
        self._go_on = threading.Event()
        self._go_on.set()

    def fail(self, operation: str, nth: int, error: type[apsw.Error], *, persistent: bool) -> None:
        """Refuse this operation when it is asked for the n-th time from now on; or also ever after."""
        self.touched.clear()
        self.refused = 0
        self._error = error
        self._refuse = lambda asked, times: asked == operation and (times >= nth if persistent else times == nth)

    def heal(self) -> None:
        """Refuse nothing any more, and spy on nothing."""
        self.spy = _nothing
        self._refuse = _never

    @contextmanager
    def hanging(self) -> Iterator[threading.Event]:
        """Hold up every sync until the end of the block; the event tells that one is held up."""
        self._hung.clear()
        self._go_on.clear()
        try:
            yield self._hung
        finally:
            self._go_on.set()

    def touch(self, operation: str) -> None:
        """Count an operation, and raise if it is refused."""
        self.spy()
        self.touched[operation] += 1
        if self._refuse(operation, self.touched[operation]):
            self.refused += 1
            raise self._error(f"{operation} is refused")
        if operation == "sync" and not self._go_on.is_set():
            self._hung.set()
            self._go_on.wait()


def _nothing() -> None:
    pass


def _never(_operation: str, _times: int) -> bool:
    return False


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._read_only = bool(flags[0] & apsw.SQLITE_OPEN_READONLY)
        super().__init__("", name, flags)

    def excepthook(self, *_: object) -> bool:
        """Say nothing: a refusal that SQLite does not pass on is one that it can do without."""
        return True

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.touch("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.touch("sync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.touch("truncate")
        super().xTruncate(newsize)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.touch("read")
        return super().xRead(amount, offset)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._disk.touch("lock")
        if self._read_only and level == apsw.SQLITE_LOCK_EXCLUSIVE:
            # The last one to close tries this, and can do without; but any other error would be printed.
            raise apsw.BusyError("a reader cannot lock others out")
        super().xLock(level)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def excepthook(self, *_: object) -> bool:
        """Say nothing, as above."""
        return True

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self._disk.touch("open")
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.touch("delete")
        super().xDelete(filename, syncdir)


@contextmanager
def broken_disk() -> Iterator[Disk]:
    """Offer a disk to SQLite under its name, until the end of the block."""
    disk = Disk()
    vfs = _Vfs(disk)
    try:
        yield disk
    finally:
        disk.heal()
        vfs.unregister()
