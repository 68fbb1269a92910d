"""The embedded ledger: one SQLite file, in write-ahead mode, durable at every commit.

Keeps this invariant: `commit` returns when everything is on disk, and raises otherwise; after it has raised, the
connection is not used again. Work and groups are not known here.
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
from remit.ledger.records import NOTES_KEPT, KeyRecord, Session, Source
from remit.ledger.rows import FAILURES, SESSION_COLUMNS, Rows, translated
from remit.ledger.schema import APPLICATION_ID, MIGRATIONS, PAGE_SIZE
from remit.ledger.transaction import AppendedReceipt, Changes, NewAttestation

__all__ = ["BUSY_MS", "SqliteStore", "check_library", "connect", "connect_reader", "migrate", "prepare"]

BUSY_MS: Final = 2000
_CACHE_KIB: Final = 8 * 1024
_REPAIRED: Final = (3, 51, 3)
_WITHDRAWN: Final = (3, 52)


def check_library(version: str) -> None:
    """Raise unless this SQLite has the repair of the bug that corrupts a log when it is reset."""
    number = tuple(int(part) for part in version.split("."))
    if number < _REPAIRED or number[:2] == _WITHDRAWN:
        raise SqliteUnsafe(f"SQLite {version} can lose data in write-ahead mode; 3.51.3 or 3.53.0 has the repair")


def connect(path: str, *, vfs: str | None = None) -> apsw.Connection:
    """Return a connection that writes, set up so that a commit is durable when it returns."""
    check_library(apsw.sqlite_lib_version())
    connection = _connected(path, apsw.SQLITE_OPEN_READWRITE, vfs, _PRAGMAS)
    if connection.pragma("journal_mode") != "wal":
        connection.close()
        raise LedgerUnavailable("the ledger file cannot be used in write-ahead mode on this file system")
    return connection


def connect_reader(path: str, *, vfs: str | None = None) -> apsw.Connection:
    """Return a connection that cannot write."""
    return _connected(path, apsw.SQLITE_OPEN_READONLY, vfs, {"trusted_schema": 0, "query_only": 1})


def _connected(path: str, mode: int, vfs: str | None, pragmas: Mapping[str, str | int]) -> apsw.Connection:
    with translated():
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
    "fullfsync": 1,  # on macOS a plain fsync does not reach the disk; elsewhere it means nothing
    "foreign_keys": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "secure_delete": 1,  # what somebody has agreed to show for a while is gone when it is gone
    "journal_size_limit": LOG_LIMIT,
    "cache_size": -_CACHE_KIB,
}


def prepare(connection: apsw.Connection, ledger_id: str, first_key: Callable[[], KeyRecord]) -> None:
    """Make the tables of a new file, bring an older one up to date, and refuse what is not ours.

    Only a new file asks for its first key.
    """
    with translated():
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
    """Run the scripts that the file has not seen; tell whether it was empty."""
    version = connection.pragma("user_version")
    new = version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    if not new and connection.pragma("application_id") != APPLICATION_ID:
        raise LedgerForeign("the file is a database, but not a ledger of ours")
    if version > len(MIGRATIONS):
        raise LedgerForeign(f"the ledger is of version {version}, and this one reads up to {len(MIGRATIONS)}")
    for script in MIGRATIONS[version:]:
        connection.execute(script)
    connection.pragma("user_version", len(MIGRATIONS))
    connection.pragma("application_id", APPLICATION_ID)
    return new


_KEY: Final = "INSERT INTO keys (kid, public_pem, change, created_ms) VALUES (?, ?, ?, ?)"
_REGISTER: Final = "INSERT INTO passports (id, hash, kid, registered_ms) VALUES (?, ?, ?, ?)"
_FIXED: Final = (
    "number id passport actor parent holder trace_id run_nonce started_ms lifetime_ms expires_ms limit".split()
)
_UPDATED: Final = tuple(name for name in SESSION_COLUMNS if name not in _FIXED)
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
# Of many rows each: what comes before the rows, a row, and what comes after them.
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


# Not failures of the disk: another was faster, or some work of the group writes what cannot be written.
_REFUSALS: Final = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
    OverflowError,
    TypeError,
    UnicodeEncodeError,
)
# SQLite takes 32,766 values in a statement.
_ROWS_AT_ONCE: Final = 1000


class SqliteStore(Rows):
    """The writer's connection."""

    def __init__(
        self,
        connection: apsw.Connection,
        file: LedgerFile | None = None,
        lost: Callable[["SqliteStore"], None] = lambda _store: None,
    ) -> None:
        """Write over `connection`; with `file`, only while its name leads to what the connection has open.

        `lost` is called when it does not: the connection can still be read, and nothing else can.
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
        """Return a store over a file that was prepared, unless another one is in its place."""
        file = place if isinstance(place, LedgerFile) else LedgerFile(str(place))
        file.check()
        with file.damage_noted():
            connection = connect(file.path, vfs=vfs)
            try:
                return cls(connection, file, lost)
            except BaseException:
                connection.close(True)  # noqa: FBT003 - the library's way to say: whatever state it is in
                raise

    def _check_files(self) -> None:
        """Raise unless what is written here is what others find under the ledger's name."""
        if self._files is None:
            return
        try:
            self._files.check()
        except LedgerUnavailable:
            self._lost(self)
            raise

    def begin(self) -> None:
        """Take the right to write."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except FAILURES as error:
            raise self._translated.error_of(error) from error
        self._check_files()

    def rollback(self) -> None:
        """Give the right to write back. What was read until now counts only if the file is still the ledger."""
        with self._translated:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._check_files()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close(True)  # noqa: FBT003 - the library's way to say: whatever state it is in

    def changed_by_others(self) -> bool:
        """Tell whether another connection has committed since this was last asked."""
        # The version changes with every commit, our own and those of others. Only reading notices others, and one who
        # holds the database has read; the number itself costs next to nothing.
        try:
            if not self._db.in_transaction:
                self._db.execute("PRAGMA data_version").fetchone()
            version = self._db.data_version()
        except FAILURES as error:
            raise self._translated.error_of(error) from error
        before, self._seen_version = self._seen_version, version
        return before != version

    def commit(self, changes: Changes) -> dict[str, Session]:
        """Make the changes durable and return the sessions as they are now kept."""
        try:
            try:
                sessions = self._write(changes)
            except _REFUSALS as error:
                raise HeadMoved("the tables refuse what would be written") from error
            self._db.execute("COMMIT")
            # Our own commit disturbs nobody: this is how it stands after it, and others were not looked at since.
            self._seen_version = self._db.data_version()
        except FAILURES as error:
            raise self._translated.error_of(error) from error
        # The file can be replaced between `begin` and here, and nobody was answered yet.
        self._check_files()
        return sessions

    def _write(self, changes: Changes) -> dict[str, Session]:
        sessions = dict(changes.sessions)
        for name, session in changes.sessions.items():
            if not session.number:
                sessions[name] = self._placed(session)
        lasts = self._append(changes.receipts, sessions)
        kept: dict[str, Session] = {}
        for name, session in sessions.items():
            last_number = lasts.get(name) or session.last_number
            after = kept[name] = structs.replace(session, last_number=last_number, version=session.version + 1)
            self._db.execute(_UPDATE, (*_updated_of(after), session.number, session.version))
            if self._db.changes() != 1:
                raise HeadMoved("another has changed the session")
        if changes.has_other:
            self._write_rare(changes, sessions)
        return kept

    def _write_rare(self, changes: Changes, sessions: dict[str, Session]) -> None:
        """Write what few groups have."""
        for source in changes.sources:
            self._tell(source, sessions)
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
            self._attest(attested)
        if changes.switches:
            kid, kill_switch, _, killed_up_to = changes.switches
            values = kid, int(kill_switch), killed_up_to
            self._db.execute("UPDATE ledger SET kid = ?, kill_switch = ?, killed_up_to = ?", values)
        if changes.changes_epoch:
            self._db.execute("UPDATE ledger SET epoch = epoch + 1")

    def _placed(self, session: Session) -> Session:
        """Return a new session with its row, which comes before the receipts that hang on it."""
        values = structs.asdict(session)
        self._db.execute(_INSERT, [values[name] for name in _INSERTED])
        self._db.execute("UPDATE ledger SET sessions = sessions + 1")
        return structs.replace(session, number=self._db.last_insert_rowid())

    def _append(self, receipts: Sequence[AppendedReceipt], sessions: dict[str, Session]) -> dict[str, int]:
        """Write the receipts and return the row of each session's last."""
        lasts: dict[str, int] = {}
        if not receipts:
            return lasts
        newest = self._db.execute(_NEWEST).fetchone()
        numbers, rows = count(newest[0] + 1 if newest else 1), list[tuple[object, ...]]()
        minutes = dict[tuple[int, str], int]()
        connected = False
        for session_id, seq, pending, once, result_of, _, note in receipts:
            session, number, receipt = sessions[session_id], next(numbers), pending.receipt
            parent, claims = lasts.get(session_id, session.last_number), receipt.claims
            code = claims.internal_denial_code or ""
            rows.append((number, session.number, seq, parent, claims.receipt_id, code, receipt.token))
            place = claims.iat // 60, code
            minutes[place] = minutes.get(place, 0) + 1
            lasts[session_id] = number
            connected = connected or once is not None or bool(result_of or note)
        self._put_rows(_APPEND, rows)
        self._put_rows(_COUNT_MINUTES, [(*place, added) for place, added in minutes.items()])
        # What is permitted needs no count of its own: it is all the rest.
        for (_, code), added in minutes.items():
            if code:
                self._db.execute(_COUNT_CODE, (code, added))
        if connected:
            self._connect_receipts(receipts, sessions)
        return lasts

    def _put_rows(self, parts: tuple[str, str, str], rows: Sequence[tuple[object, ...]]) -> None:
        """Write many by one statement: each would let go of the interpreter's lock, and queue for it again."""
        before, row, after = parts
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            self._db.execute(before + ", ".join([row] * len(some)) + after, list(chain.from_iterable(some)))

    def _connect_receipts(self, receipts: Sequence[AppendedReceipt], sessions: dict[str, Session]) -> None:
        """Write which key or decision a receipt answers, and what is noted of its event."""
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
                notes.append((sessions[session_id].number, observed % NOTES_KEPT, observed, note))
        self._put_rows(_NOTE, notes)

    def _tell(self, source: Source, sessions: dict[str, Session]) -> None:
        if source.session_id not in sessions:
            raise HeadMoved("a source of a session that is not new")
        values = sessions[source.session_id].number, source.key, source.told
        self._db.execute("INSERT INTO sources VALUES (?, ?, ?)", values)
        self._db.execute("UPDATE ledger SET sources = sources + 1")

    def _attest(self, attested: NewAttestation) -> None:
        row = self._db.execute("SELECT number FROM sessions WHERE id = ?", (attested.session_id,)).fetchone()
        if row is None:
            raise StateCorrupt("an attestation of a session that is not there")
        sql = "INSERT INTO attestations (session, id, token) VALUES (?, ?, ?)"
        self._db.execute(sql, (row[0], attested.attestation_id, attested.token))
        if attested.bookmark:
            sql = "INSERT INTO bookmarks VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET token = excluded.token"
            self._db.execute(sql, (row[0], attested.bookmark))
