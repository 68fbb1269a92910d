"""Checks that the paths of the ledger still lead to the open files, and that these were not truncated.

SQLite keeps descriptors open. After `rm ledger.db`, or after another file was renamed over it, reads and commits
continue on a file that has no path any more. So the device and inode of the path are compared with those of the open
file before and after every commit and before every read. The size is compared, too: SQLite does not notice that a file
was truncated in place.

Possible sizes: `ledger.db` never shrinks, because VACUUM is never run. `ledger.db-wal` is not removed or truncated to
zero while a connection is open; when SQLite restarts it, it may truncate it, but never below `LOG_LIMIT`.
`ledger.db-shm` only grows.

Invariants: the identity of `ledger.db` is fixed when the service opens it, so a replacement is not opened by a later
attempt either. A mismatch is final, and so is damage that SQLite reports to any thread: the process does not use the
ledger again until it is restarted, which repeats all checks.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import apsw

from remit.errors import LedgerUnavailable, RemitError, StateCorrupt, StateMissing
from remit.ledger.rows import translate_errors

# The suffixes of the other files that SQLite keeps open in write-ahead mode, for as long as a connection is open.
SIDECAR_SUFFIXES: Final = ("-wal", "-shm")
# The size to which a write-ahead log is truncated after it has grown during a long read.
LOG_LIMIT: Final = 32 * 1024 * 1024

_Identity: TypeAlias = tuple[int, int]

_GONE: Final = "{} was removed, moved or replaced while the ledger was in use"
_TRUNCATED: Final = "{} was truncated while the ledger was in use"
_DAMAGED: Final = "ledger.db is damaged"
_ADVICE: Final = (
    "Nothing is recorded or permitted. Stop the Hub and the proxy, put the file back or run: remit ledger restore"
)


def _look(path: str) -> tuple[_Identity | None, int]:
    """Return the device and inode of a path, or None, and its size."""
    try:
        found = os.lstat(path)
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size


class LedgerFile:
    """The database file of an open ledger: its path, and the device and inode that the path had when it was opened."""

    def __init__(self, path: str) -> None:
        """Record the current identity of the file at `path`."""
        found, self._size = _look(path)
        if found is None:
            raise StateMissing(f"{os.path.basename(path)} is gone")  # noqa: PTH119 - no file system access
        self.path = path
        self._identity = found
        self._failure: tuple[type[RemitError], str] | None = None

    def check(self) -> None:
        """Raise `LedgerUnavailable` if the file was replaced or truncated; after an error, raise the same one again."""
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
        """Refuse every further use of the ledger by this process; raise `kind`, or the earlier error if any."""
        self._failure = self._failure or (kind, f"{reason}. {_ADVICE}")
        self._refuse()

    def _refuse(self) -> None:
        if self._failure:
            kind, reason = self._failure
            raise kind(reason)

    def damaged(self) -> None:
        """Refuse every further use of the ledger by this process, because SQLite reports damage."""
        with suppress(RemitError):
            self.fail(_DAMAGED, StateCorrupt)

    @contextmanager
    def damage_noted(self) -> Iterator[None]:
        """Call `damaged` if the body raises because the file is damaged."""
        try:
            yield
        except StateCorrupt:
            self.damaged()
            raise

    def opened(self, connection: apsw.Connection) -> "OpenFiles":
        """Return the open files of a connection that was just opened."""
        return OpenFiles(self, connection)


class OpenFiles:
    """The open files of one connection."""

    __slots__ = ("_beside", "_file", "_sizes")

    def __init__(self, file: LedgerFile, connection: apsw.Connection) -> None:
        """Record the identities of the write-ahead log files, which SQLite opens with the first read."""
        with file.damage_noted(), translate_errors():
            connection.pragma("schema_version")
        self._file = file
        found = [(file.path + ending, *_look(file.path + ending)) for ending in SIDECAR_SUFFIXES]
        self._beside = [(path, identity) for path, identity, _ in found if identity is not None]
        self._sizes = {path: size for path, _, size in found}
        self.check()

    def check(self) -> None:
        """Raise `LedgerUnavailable` if a path leads to another file than the open one, or if a file was truncated."""
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
