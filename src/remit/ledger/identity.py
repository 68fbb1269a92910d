"""Whether the ledger's name still leads to the files that are open, and whether these are whole.

SQLite keeps descriptors. After `rm ledger.db`, or after another file was renamed over it, reads and commits go on
working on a file that nobody can find again. So the device and inode of the name are compared with those of the
opened file before and after every commit and before every read. So is the size: a file that was truncated in place is
the same file, and SQLite goes on with what its index remembers of it.

Which sizes are possible: `ledger.db` never becomes smaller, because nothing here runs VACUUM. `ledger.db-wal` is not
removed and not truncated to zero while a connection is open; when it is used from its beginning again, SQLite may cut
it, but never to less than `LOG_LIMIT`. `ledger.db-shm` only grows.

Invariants: the identity of `ledger.db` is fixed when the service opens it, so a file that was put in its place is not
opened by a later attempt either. A difference is final, and so is damage that SQLite reports to anyone in the process:
the process does not use the ledger again until it is restarted, and the start makes all its checks.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import apsw

from remit.errors import LedgerUnavailable, RemitError, StateCorrupt, StateMissing
from remit.ledger.rows import translated

__all__ = ["LOG_LIMIT", "SIDECAR_SUFFIXES", "LedgerFile", "OpenFiles"]

# The files that SQLite keeps open beside the database in write-ahead mode. While a connection is open, they stay.
SIDECAR_SUFFIXES: Final = ("-wal", "-shm")
# A log that has grown under a long reader shrinks again to this.
LOG_LIMIT: Final = 32 * 1024 * 1024

_Identity: TypeAlias = tuple[int, int]

_GONE: Final = "{} was removed, moved or replaced while the ledger was in use"
_TRUNCATED: Final = "{} was truncated while the ledger was in use"
_DAMAGED: Final = "ledger.db is damaged"
_ADVICE: Final = (
    "Nothing is recorded or permitted. Stop the Hub and the proxy, put the file back or run: remit ledger restore"
)


def _look(path: str) -> tuple[_Identity | None, int]:
    """Return the device and inode that a path leads to, or None, and the size."""
    try:
        found = os.lstat(path)
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size


class LedgerFile:
    """The database file of an open ledger: its path, and the device and inode that the path had when it was opened."""

    def __init__(self, path: str) -> None:
        """Take the file that `path` leads to now."""
        found, self._size = _look(path)
        if found is None:
            raise StateMissing(f"{os.path.basename(path)} is gone")  # noqa: PTH119 - no file system access
        self.path = path
        self._identity = found
        self._failure: tuple[type[RemitError], str] | None = None

    def check(self) -> None:
        """Raise `LedgerUnavailable` if the path leads elsewhere or the file was truncated; what was raised, again."""
        if self._failure:
            self._refuse()
        least = self._size  # before the look: another thread may see the file grow meanwhile
        try:
            found = os.lstat(self.path)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            self.fail(_GONE.format("ledger.db"))
        elif found.st_size < least:
            self.fail(_TRUNCATED.format("ledger.db"))
        else:
            self._size = found.st_size

    def fail(self, reason: str, kind: type[RemitError] = LedgerUnavailable) -> None:
        """Refuse every further use of the ledger by this process, and raise `kind`, or what was raised before."""
        self._failure = self._failure or (kind, f"{reason}. {_ADVICE}")
        self._refuse()

    def _refuse(self) -> None:
        if self._failure:
            kind, reason = self._failure
            raise kind(reason)

    def damaged(self) -> None:
        """Refuse every further use of the ledger by this process, because SQLite finds the file damaged."""
        with suppress(RemitError):
            self.fail(_DAMAGED, StateCorrupt)

    @contextmanager
    def damage_noted(self) -> Iterator[None]:
        """Call `damaged` if what is done here finds damage."""
        try:
            yield
        except StateCorrupt:
            self.damaged()
            raise

    def opened(self, connection: apsw.Connection) -> "OpenFiles":
        """Return the files that a connection, which was just opened, keeps open."""
        return OpenFiles(self, connection)


class OpenFiles:
    """The files that one connection keeps open."""

    __slots__ = ("_beside", "_file", "_sizes")

    def __init__(self, file: LedgerFile, connection: apsw.Connection) -> None:
        """Note the files beside the database, which SQLite opens with the first read."""
        with file.damage_noted(), translated():
            connection.pragma("schema_version")
        self._file = file
        found = [(file.path + ending, *_look(file.path + ending)) for ending in SIDECAR_SUFFIXES]
        self._beside = [(path, identity) for path, identity, _ in found if identity is not None]
        self._sizes = {path: size for path, _, size in found}
        self.check()

    def check(self) -> None:
        """Raise `LedgerUnavailable` if a name leads to another file than the connection has open, or to less of it."""
        self._file.check()
        for path, expected in self._beside:
            least = self._sizes[path]
            try:
                found = os.lstat(path)
            except OSError:
                found = None
            if found is None or (found.st_dev, found.st_ino) != expected:
                self._file.fail(_GONE.format("ledger.db" + path[len(self._file.path) :]))
            elif found.st_size < least and found.st_size < LOG_LIMIT:
                self._file.fail(_TRUNCATED.format("ledger.db" + path[len(self._file.path) :]))
            else:
                self._sizes[path] = found.st_size
