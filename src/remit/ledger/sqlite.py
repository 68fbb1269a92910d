"""The store of the embedded ledger: one SQLite file in write-ahead mode, durable at every commit.

Invariant: `commit` returns when everything is on disk, and raises otherwise; after it has raised, the connection is not
used again.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from typing import Final

import apsw
from msgspec import structs

from remit.errors import HeadMoved, LedgerForeign, LedgerUnavailable, SqliteUnsafe, StateCorrupt
from remit.ledger.identity import LOG_LIMIT, LedgerFile
from remit.ledger.records import MAX_NOTES, KeyRecord, Session, Source
from remit.ledger.rows import FAILURES, SESSION_COLUMNS, LedgerQueries, translate_errors
from remit.ledger.schema import APPLICATION_ID, MIGRATIONS, PAGE_SIZE
from remit.ledger.transaction import AppendedReceipt, NewAttestation, TransactionChanges

BUSY_MS: Final = 2000
_CACHE_KIB: Final = 8 * 1024
_FIXED_VERSION: Final = (3, 51, 3)
_UNFIXED_BRANCH: Final = (3, 52)


def check_library(version: str) -> None:
    """Raise `SqliteUnsafe` if this SQLite has the bug that corrupts a write-ahead log when it is reset."""
    number = tuple(int(part) for part in version.split("."))
    if number < _FIXED_VERSION or number[:2] == _UNFIXED_BRANCH:
        raise SqliteUnsafe(f"SQLite {version} can lose data in write-ahead mode; 3.51.3 and 3.53.0 have the fix")


def connect(path: str, *, vfs: str | None = None) -> apsw.Connection:
    """Open a connection for writing, configured so that a commit is durable when it returns."""
    check_library(apsw.sqlite_lib_version())
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE, vfs, _PRAGMAS)
    if connection.pragma("journal_mode") != "wal":
        connection.close()
        raise LedgerUnavailable("the ledger file cannot be used in write-ahead mode on this file system")
    return connection


def connect_reader(path: str, *, vfs: str | None = None) -> apsw.Connection:
    """Open a read-only connection."""
    return _connect(path, apsw.SQLITE_OPEN_READONLY, vfs, {"trusted_schema": 0, "query_only": 1})


def connect_in_memory(name: str) -> apsw.Connection:
    """Open a connection to a database in memory, which the connections of this process with the same name share.

    It is gone when the last of them is closed.
    """
    mode = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    return _connect(f"/{name}", mode, "memdb", {"foreign_keys": 1, "trusted_schema": 0})


def _connect(path: str, mode: int, vfs: str | None, pragmas: Mapping[str, str | int]) -> apsw.Connection:
    with translate_errors():
        connection = apsw.Connection(path, flags=mode | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
        try:
            connection.set_busy_timeout(BUSY_MS)
            for name, value in pragmas.items():
                connection.pragma(name, value)
        except BaseException:
            connection.close()
            raise
    return connection


_PRAGMAS: Final[Mapping[str, str | int]] = {
    "page_size": PAGE_SIZE,
    "journal_mode": "wal",
    "synchronous": "full",
    "fullfsync": 1,  # on macOS a plain fsync does not reach the disk; elsewhere it has no effect
    "foreign_keys": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "secure_delete": 1,  # deleted notes must not remain readable in the file
    "journal_size_limit": LOG_LIMIT,
    "cache_size": -_CACHE_KIB,
}


def prepare(connection: apsw.Connection, ledger_id: str, first_key: Callable[[], KeyRecord]) -> None:
    """Create the tables of a new file or migrate an older one; raise `LedgerForeign` if it is not a ledger.

    `first_key` is called only for a new file.
    """
    with translate_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            if migrate(connection):
                key = first_key()
                values = (ledger_id, key.created_ms, key.kid)
                connection.execute("INSERT INTO ledger VALUES (1, ?, ?, ?, 0, 0, 0, 0, 0)", values)
                connection.execute(_KEY, key)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def migrate(connection: apsw.Connection) -> bool:
    """Run the outstanding migrations; return whether the file was empty."""
    version = connection.pragma("user_version")
    new = version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    if not new and connection.pragma("application_id") != APPLICATION_ID:
        raise LedgerForeign("the file is an SQLite database, but not a Remit ledger")
    if version > len(MIGRATIONS):
        raise LedgerForeign(f"the ledger has version {version}; this release supports up to {len(MIGRATIONS)}")
    for script in MIGRATIONS[version:]:
        connection.execute(script)
    connection.pragma("user_version", len(MIGRATIONS))
    connection.pragma("application_id", APPLICATION_ID)
    return new


_KEY: Final = "INSERT INTO keys (kid, public_pem, change, created_ms) VALUES (?, ?, ?, ?)"
_REGISTER: Final = "INSERT INTO passports (id, hash, kid, registered_ms) VALUES (?, ?, ?, ?)"
_IMMUTABLE: Final = (
    "number id passport actor parent holder trace_id run_nonce started_ms lifetime_ms expires_ms limit".split()
)
_UPDATED: Final = tuple(name for name in SESSION_COLUMNS if name not in _IMMUTABLE)
_updated_of: Final = attrgetter(*_UPDATED)
_SET: Final = ", ".join(f"{name} = ?" for name in _UPDATED)
_UPDATE: Final = f"UPDATE sessions SET {_SET} WHERE number = ? AND version = ?"  # noqa: S608
_INSERTED: Final = tuple(name for name in SESSION_COLUMNS if name != "number")
_NAMES: Final = ", ".join(f'"{name}"' for name in _INSERTED)
_INSERT: Final = f"INSERT INTO sessions ({_NAMES}) VALUES ({', '.join('?' * len(_INSERTED))})"  # noqa: S608
_DELEGATE: Final = (
    "INSERT INTO delegations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (parent, request) DO UPDATE SET settled = excluded.settled"
)
# Multi-row statements: the text before the rows, a row, and the text after them.
_APPEND: Final = (
    "INSERT INTO receipts (number, session, seq, parent, id, code, token) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?)",
    "",
)
_ADD: Final = "DO UPDATE SET count = count + excluded.count"
_COUNT_MINUTES: Final = "INSERT INTO minutes VALUES ", "(?, ?, ?)", f" ON CONFLICT (minute, code) {_ADD}"
_COUNT_CODE: Final = f"INSERT INTO codes VALUES (?, ?) ON CONFLICT (code) {_ADD}"  # noqa: S608
_NOTE: Final = "INSERT OR REPLACE INTO notes VALUES ", "(?, ?, ?, ?)", ""
_NUMBER_OF: Final = "SELECT number FROM receipts WHERE id = ?"
_NEWEST: Final = "SELECT coalesce(max(number), 0) FROM receipts"


# Not disk failures: another writer was faster, or some work of the group has written invalid values.
_REJECTIONS: Final = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
    OverflowError,
    TypeError,
    UnicodeEncodeError,
)
# SQLite allows 32,766 parameters in a statement.
_ROWS_AT_ONCE: Final = 1000


class SqliteStore(LedgerQueries):
    """The `Store` of the writer thread, on one connection."""

    def __init__(
        self,
        connection: apsw.Connection,
        file: LedgerFile | None = None,
        lost: Callable[["SqliteStore"], None] = lambda _store: None,
    ) -> None:
        """Write to `connection`; with `file`, only while its path still leads to the open file.

        `lost` is called when it does not; the connection can still be read then, but not written.
        """
        self._db = connection
        self._lost = lost
        self._files = None if file is None else file.opened(connection)
        super().__init__(lambda: connection, None if file is None else file.damaged)
        self._seen_version = 0
        self.changed_by_others()

    @classmethod
    def open(
        cls,
        place: LedgerFile | str | Path,
        *,
        vfs: str | None = None,
        lost: Callable[["SqliteStore"], None] = lambda _store: None,
    ) -> "SqliteStore":
        """Open a store on a file that was set up by `prepare`; raise if the file was replaced."""
        file = place if isinstance(place, LedgerFile) else LedgerFile(str(place))
        file.check()
        with file.damage_noted():
            connection = connect(file.path, vfs=vfs)
            try:
                return cls(connection, file, lost)
            except BaseException:
                connection.close(True)  # noqa: FBT003 - force
                raise

    def _check_files(self) -> None:
        """Raise `LedgerUnavailable` if the path of the ledger no longer leads to the open file."""
        if self._files is None:
            return
        try:
            self._files.check()
        except LedgerUnavailable:
            self._lost(self)
            raise

    def begin(self) -> None:
        """Start a write transaction."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except FAILURES as error:
            raise self._translated.error_of(error) from error
        self._check_files()

    def rollback(self) -> None:
        """End the write transaction. Raise if the file was replaced, because reads are not valid then."""
        with self._translated:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._check_files()

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        self._db.close(True)  # noqa: FBT003 - force

    def changed_by_others(self) -> bool:
        """Return whether another connection has committed since the last call."""
        # The data version changes with every commit. Commits of others are only noticed by a read, which an open
        # transaction has done already; getting the number itself is cheap.
        try:
            if not self._db.in_transaction:
                self._db.execute("PRAGMA data_version").fetchone()
            version = self._db.data_version()
        except FAILURES as error:
            raise self._translated.error_of(error) from error
        before, self._seen_version = self._seen_version, version
        return before != version

    def commit(self, changes: TransactionChanges) -> dict[str, Session]:
        """Make the changes durable and return the sessions as stored."""
        try:
            try:
                sessions = self._write(changes)
            except _REJECTIONS as error:
                raise HeadMoved("the database rejected the write") from error
            self._db.execute("COMMIT")
            # Do not report our own commit as one of others. Theirs are not visible before the next read.
            self._seen_version = self._db.data_version()
        except FAILURES as error:
            raise self._translated.error_of(error) from error
        # The file may have been replaced since `begin`; no result has been returned yet.
        self._check_files()
        return sessions

    def _write(self, changes: TransactionChanges) -> dict[str, Session]:
        sessions = dict(changes.sessions)
        for name, session in changes.sessions.items():
            if not session.number:
                sessions[name] = self._insert_session(session)
        last_numbers = self._append(changes.receipts, sessions)
        stored: dict[str, Session] = {}
        for name, session in sessions.items():
            last_number = last_numbers.get(name) or session.last_number
            after = stored[name] = structs.replace(session, last_number=last_number, version=session.version + 1)
            self._db.execute(_UPDATE, (*_updated_of(after), session.number, session.version))
            if self._db.changes() != 1:
                raise HeadMoved("another writer has changed the session")
        if changes.has_other:
            self._write_other(changes, sessions)
        return stored

    def _write_other(self, changes: TransactionChanges, sessions: dict[str, Session]) -> None:
        """Write everything other than sessions, receipts and repeats."""
        for source in changes.sources:
            self._put_source(source, sessions)
        for delegation in changes.delegates.values():
            self._db.execute(_DELEGATE, delegation)
        for passport, (at_ms, reason) in changes.revocations.items():
            self._db.execute("INSERT OR IGNORE INTO revocations VALUES (?, ?, ?)", (passport, at_ms, reason))
        for record in changes.keys:
            self._db.execute(_KEY, record)
        for limit in changes.limits:
            self._db.execute("INSERT INTO key_limits (kid, token) VALUES (?, ?)", limit)
        for registered in changes.passports.values():
            self._db.execute(_REGISTER, registered)
        for attested in changes.attestations:
            self._put_attestation(attested)
        if changes.ledger_state:
            kid, kill_switch, _, killed_up_to = changes.ledger_state
            values = kid, int(kill_switch), killed_up_to
            self._db.execute("UPDATE ledger SET kid = ?, kill_switch = ?, killed_up_to = ?", values)
        if changes.changes_epoch:
            self._db.execute("UPDATE ledger SET epoch = epoch + 1")

    def _insert_session(self, session: Session) -> Session:
        """Insert a new session and return it with its number. Its receipts refer to the row."""
        values = structs.asdict(session)
        self._db.execute(_INSERT, [values[name] for name in _INSERTED])
        self._db.execute("UPDATE ledger SET sessions = sessions + 1")
        return structs.replace(session, number=self._db.last_insert_rowid())

    def _append(self, receipts: Sequence[AppendedReceipt], sessions: dict[str, Session]) -> dict[str, int]:
        """Write the receipts and return the number of the last receipt of each session."""
        last_numbers: dict[str, int] = {}
        if not receipts:
            return last_numbers
        newest = self._db.execute(_NEWEST).fetchone()
        numbers, rows = count(newest[0] + 1 if newest else 1), list[tuple[object, ...]]()
        minutes = dict[tuple[int, str], int]()
        has_references = False
        for session_id, seq, pending, once, result_of, _, note in receipts:
            session, number, receipt = sessions[session_id], next(numbers), pending.receipt
            parent, claims = last_numbers.get(session_id, session.last_number), receipt.claims
            code = claims.internal_denial_code or ""
            rows.append((number, session.number, seq, parent, claims.receipt_id, code, receipt.token))
            place = claims.iat // 60, code
            minutes[place] = minutes.get(place, 0) + 1
            last_numbers[session_id] = number
            has_references = has_references or once is not None or bool(result_of or note)
        self._put_rows(_APPEND, rows)
        self._put_rows(_COUNT_MINUTES, [(*place, added) for place, added in minutes.items()])
        # Permitted calls are not counted here: they are the total minus the denials.
        for (_, code), added in minutes.items():
            if code:
                self._db.execute(_COUNT_CODE, (code, added))
        if has_references:
            self._put_references(receipts, sessions)
        return last_numbers

    def _put_rows(self, parts: tuple[str, str, str], rows: Sequence[tuple[object, ...]]) -> None:
        """Write many rows with one statement: each statement releases and reacquires the interpreter lock."""
        before, row, after = parts
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            self._db.execute(before + ", ".join([row] * len(some)) + after, list(chain.from_iterable(some)))

    def _put_references(self, receipts: Sequence[AppendedReceipt], sessions: dict[str, Session]) -> None:
        """Write the idempotency keys, result references and notes of receipts."""
        notes = list[tuple[object, ...]]()
        for session_id, _, pending, once, result_of, observed, note in receipts:
            receipt_id = pending.draft.claims.receipt_id
            if once is not None:
                sql = f"INSERT INTO repeats VALUES (?, ?, ?, ({_NUMBER_OF}))"  # noqa: S608
                self._db.execute(sql, (sessions[session_id].number, *once, receipt_id))
            if result_of:
                sql = f"INSERT INTO results VALUES (({_NUMBER_OF}), ({_NUMBER_OF}))"  # noqa: S608
                self._db.execute(sql, (result_of, receipt_id))
            if note:
                notes.append((sessions[session_id].number, observed % MAX_NOTES, observed, note))
        self._put_rows(_NOTE, notes)

    def _put_source(self, source: Source, sessions: dict[str, Session]) -> None:
        if source.session_id not in sessions:
            raise HeadMoved("a source must be stored together with its new session")
        values = sessions[source.session_id].number, source.key, source.told
        self._db.execute("INSERT INTO sources VALUES (?, ?, ?)", values)
        self._db.execute("UPDATE ledger SET sources = sources + 1")

    def _put_attestation(self, attested: NewAttestation) -> None:
        row = self._db.execute("SELECT number FROM sessions WHERE id = ?", (attested.session_id,)).fetchone()
        if row is None:
            raise StateCorrupt("an attestation of a session that does not exist")
        sql = "INSERT INTO attestations (session, id, token) VALUES (?, ?, ?)"
        self._db.execute(sql, (row[0], attested.attestation_id, attested.token))
        if attested.bookmark:
            sql = "INSERT INTO bookmarks VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET token = excluded.token"
            self._db.execute(sql, (row[0], attested.bookmark))
