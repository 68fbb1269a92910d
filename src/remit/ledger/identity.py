"""Whether the ledger's name still leads to the files that are open.

SQLite keeps descriptors. After `rm ledger.db`, or after another file was renamed over it, reads and commits go on
working on a file that nobody can find again. So the device and inode of the name are compared with those of the
opened file before and after every commit and before every read.

Invariants: the identity of `ledger.db` is fixed when the service opens it, so a file that was put in its place is not
opened by a later attempt either. A difference is final: the process does not use the ledger again until it is
restarted, and the start makes all its checks.
"""

import os
from typing import Final, TypeAlias

import apsw

from remit.errors import LedgerUnavailable, StateMissing
from remit.ledger.rows import translated

__all__ = ["BESIDE", "LedgerFile", "OpenFiles"]

# The files that SQLite keeps open beside the database in write-ahead mode. While a connection is open, they stay.
BESIDE: Final = ("-wal", "-shm")

_Identity: TypeAlias = tuple[int, int]

_GONE: Final = "{} was removed, moved or replaced while the ledger was in use"
_ADVICE: Final = (
    "Nothing is recorded or permitted. Stop the Hub and the proxy, put the file back or run: remit ledger restore"
)


def _identity(path: str) -> _Identity | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class LedgerFile:
    """The database file of an open ledger: its path, and the device and inode that the path had when it was opened."""

    def __init__(self, path: str) -> None:
        """Take the file that `path` leads to now."""
        found = _identity(path)
        if found is None:
            raise StateMissing(f"{os.path.basename(path)} is gone")  # noqa: PTH119 - no file system access
        self.path = path
        self._identity = found
        self._failure = ""

    def check(self) -> None:
        """Raise `LedgerUnavailable` if the path leads elsewhere, or did so before."""
        if self._failure:
            raise LedgerUnavailable(self._failure)
        if _identity(self.path) != self._identity:
            self.fail(_GONE.format("ledger.db"))

    def fail(self, reason: str) -> None:
        """Refuse every further use of the ledger by this process, and raise `LedgerUnavailable`."""
        self._failure = self._failure or f"{reason}. {_ADVICE}"
        raise LedgerUnavailable(self._failure)

    def opened(self, connection: apsw.Connection) -> "OpenFiles":
        """Return the files that a connection, which was just opened, keeps open."""
        return OpenFiles(self, connection)


class OpenFiles:
    """The files that one connection keeps open."""

    __slots__ = ("_beside", "_file")

    def __init__(self, file: LedgerFile, connection: apsw.Connection) -> None:
        """Note the files beside the database, which SQLite opens with the first read."""
        with translated():
            connection.pragma("schema_version")
        self._file = file
        found = [(file.path + ending, _identity(file.path + ending)) for ending in BESIDE]
        self._beside = [(path, identity) for path, identity in found if identity is not None]
        self.check()

    def check(self) -> None:
        """Raise `LedgerUnavailable` if a name leads to another file than the connection has open."""
        self._file.check()
        for path, identity in self._beside:
            if _identity(path) != identity:
                self._file.fail(_GONE.format("ledger.db" + path[len(self._file.path) :]))
