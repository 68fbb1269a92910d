"""Copies of the ledger, taken while others write.

Invariants: a copy is a consistent snapshot of the ledger. When `backup` returns, the copy is verified and durable.
Existing files are never overwritten. A copy contains no private key. `restore.py` restores it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from remit.errors import FieldInvalid, HomeUnsafe, LedgerForeign, LedgerUnavailable, StateCorrupt
from remit.ledger.embedded import check_format, open_rows
from remit.ledger.home import Home
from remit.ledger.records import LedgerOverview
from remit.ledger.rows import LedgerQueries, translate_errors
from remit.ledger.sqlite import connect_reader

# The suffixes of the files that SQLite creates next to a database.
SIDECAR_SUFFIXES: Final = ("-wal", "-shm", "-journal")
_OPEN: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL_PAGES: Final = -1


def backup(home: Home, destination: Path) -> LedgerOverview:
    """Write a verified copy of the ledger to a new file, private to its owner, and return its overview.

    After an error, the file is removed. A process that is killed may leave a partial one, which no restore accepts.
    """
    with translate_file_errors(destination), open_rows(home) as (source, rows):
        place = Path(os.path.realpath(destination.parent, strict=True)) / destination.name
        fd = os.open(place, _NEW, 0o600)
        try:
            with _remove_on_error(place):
                copy_database(source, str(place))
                overview = _verify_copy(str(place), rows.overview().ledger_id)
                os.fsync(fd)
                sync_directory(place.parent)
        finally:
            os.close(fd)
    return overview


@contextmanager
def translate_file_errors(file: Path) -> Iterator[None]:
    """Translate errors about a file that the user has named."""
    if file.name in ("", "..") or "\0" in str(file):
        raise FieldInvalid("not the name of a file", place="FILE")
    try:
        yield
    except FileExistsError:
        raise FieldInvalid("it exists already, and nothing is overwritten", place="FILE") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise FieldInvalid("there is no such file, or no folder for it", place="FILE") from None
    except PermissionError:
        raise HomeUnsafe("FILE may not be read or written by the user who runs this") from None
    except OSError as error:
        raise LedgerUnavailable(f"FILE cannot be read or written ({type(error).__name__})") from None


def copy_database(source: apsw.Connection, path: str) -> None:
    """Copy a database into an empty file as one snapshot, without blocking writers."""
    with translate_errors():
        target = apsw.Connection(path, flags=_OPEN)
        try:
            with target.backup("main", source, "main") as work:
                while not work.done:
                    work.step(_ALL_PAGES)
            # Without a write-ahead log, so that the copy is a single file.
            target.pragma("journal_mode", "delete")
        except apsw.FullError:
            raise LedgerUnavailable("there is no room for the copy") from None
        finally:
            target.close()


def _verify_copy(path: str, ledger_id: str) -> LedgerOverview:
    """Return the overview of a copy, after checking its integrity and that it is a copy of this ledger."""
    connection = connect_reader(path)
    try:
        overview = check_copy(connection).overview()
    finally:
        connection.close()
    if overview.ledger_id != ledger_id:
        raise LedgerForeign("the copy is of another ledger")
    return overview


def check_copy(connection: apsw.Connection) -> LedgerQueries:
    """Check that a file is a Remit ledger and an intact database; return queries on it."""
    check_format(connection)
    with translate_errors():
        if connection.pragma("integrity_check") != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone():
            raise StateCorrupt("the copy is damaged; take another one")
    return LedgerQueries(lambda: connection)


@contextmanager
def _remove_on_error(place: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for ending in ("", *SIDECAR_SUFFIXES):
            place.with_name(place.name + ending).unlink(missing_ok=True)
        raise


def sync_directory(folder: Path) -> None:
    """Sync the entries of a directory to disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
