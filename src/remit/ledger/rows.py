"""Queries on the tables of the embedded ledger; each is a lookup by key.

They are used by the writer, inside its transaction, and by readers, each thread on its own read-only connection.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import apsw

from remit.claims.canonical import sha256_hex
from remit.claims.succession import Position
from remit.errors import FieldInvalid, LedgerUnavailable, StateCorrupt
from remit.ledger.records import (
    RESTORED,
    CodeCount,
    Delegation,
    EarlierRequest,
    EventNote,
    IndexedReceipt,
    KeyRecord,
    LedgerOverview,
    LedgerState,
    LimitRecord,
    MinuteCount,
    PassportRegistration,
    Session,
    Source,
    StoredReceipt,
    unverified_kid,
)

SESSION_COLUMNS: Final = tuple(Session.__struct_fields__)
_COLUMNS: Final = ", ".join(f's."{name}"' for name in SESSION_COLUMNS)
_SESSION: Final = f"SELECT {_COLUMNS} FROM sessions s "  # noqa: S608
# A partial index: SQLite uses it only if its condition is repeated verbatim.
_IS_BROKEN: Final = "INDEXED BY broken_sessions WHERE broken = 1 "
_BROKEN: Final = _SESSION + _IS_BROKEN
_BROKEN_COUNT: Final = f"SELECT count(*) FROM sessions {_IS_BROKEN}"  # noqa: S608
# Few delegations are open at a time, so the query starts with them.
_UNSETTLED: Final = (
    f"SELECT DISTINCT {_COLUMNS} FROM delegations d INDEXED BY open_delegations CROSS JOIN sessions s "  # noqa: S608
    f"ON s.id = d.parent WHERE d.settled = 0 AND s.state != 'active' AND s.cause != '{RESTORED}' AND s.number > ? "
    "ORDER BY s.number LIMIT ?"
)
_ITS_NUMBER: Final = "(SELECT number FROM sessions WHERE id = ?)"
_KEPT: Final = "SELECT s.id, r.seq, r.id, r.token, r.number FROM receipts r JOIN sessions s ON s.number = r.session "
# The choice of index and join order must not depend on the planner's estimates: with few denials, it would scan all
# receipts.
_NUMBERED: Final = "SELECT r.number, r.code, s.id, r.seq, r.id, r.token, r.number FROM receipts r"
_WHERE: Final = "CROSS JOIN sessions s ON s.number = r.session WHERE"
_NEWEST: Final = "r.number < ? ORDER BY r.number DESC LIMIT ?"
_LATEST: Final = f"{_NUMBERED} {_WHERE} {_NEWEST}"
_DENIALS: Final = f"{_NUMBERED} INDEXED BY denials {_WHERE} r.code != '' AND {_NEWEST}"
_OF_CODE: Final = f"{_NUMBERED} INDEXED BY denials_by_code {_WHERE} r.code != '' AND r.code = ? AND {_NEWEST}"
_OF_SESSION: Final = (
    f"{_NUMBERED} INDEXED BY denials_by_session {_WHERE} r.code != '' AND r.session = {_ITS_NUMBER} "
    "AND r.seq < ? ORDER BY r.seq DESC LIMIT ?"
)
_TOLD: Final = "FROM sources o CROSS JOIN sessions s ON s.number = o.session WHERE "
_SOURCE: Final = f"SELECT s.id, o.key, o.told {_TOLD}"
_SOURCES: Final = f"SELECT {_COLUMNS}, s.id, o.key, o.told {_TOLD}"
# Greater than any receipt number.
_END: Final = 2**63 - 1
_DELEGATION: Final = "SELECT " + ", ".join(Delegation._fields) + " FROM delegations "  # noqa: S608
# The first schema version with registered passports.
REGISTERS: Final = 2
_STANDS: Final = """
SELECT (SELECT coalesce(max(number), 0) FROM receipts),
       (SELECT coalesce(max(number), 0) FROM passports),
       (SELECT coalesce(max(number), 0) FROM sessions)
"""
# The first receipt, registration and session later than a time. Ids of receipts begin with their time. The unary
# plus keeps SQLite from scanning all receipts by number.
_FIRST_LATER: Final = """
SELECT (SELECT min(+number) FROM receipts WHERE id >= ?2),
       (SELECT min(number) FROM passports WHERE registered_ms > ?1),
       (SELECT min(number) FROM sessions WHERE started_ms > ?1)
"""
# Passports without a registration: of delegates by the receipt of their delegation, the others by their session.
_UNREGISTERED: Final = """
SELECT d.child, d.passport FROM receipts r CROSS JOIN delegations d ON d.receipt_id = r.id
WHERE r.number > ?1 AND d.child NOT IN (SELECT id FROM passports)
UNION ALL
SELECT id, passport FROM sessions
WHERE number > ?2 AND id NOT IN (SELECT id FROM passports) AND id NOT IN (SELECT child FROM delegations)
"""
# The exceptions of SQLite and of accessing its file.
FAILURES: Final = (apsw.Error, UnicodeEncodeError, OverflowError)
_CORRUPT: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)


class Translated:
    """The context manager of `translate_errors`: stateless and reused, as it is entered several times per commit."""

    __slots__ = ("_damaged",)

    def __init__(self, damaged: Callable[[], None] | None = None) -> None:
        """Call `damaged`, if given, when SQLite reports that the file is damaged."""
        self._damaged = damaged

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FAILURES):
            raise self.error_of(error) from (error if isinstance(error, apsw.Error) else None)

    def error_of(self, error: BaseException) -> Exception:
        """Translate one of `FAILURES`. Called directly, without `with`, where performance matters."""
        if isinstance(error, _CORRUPT):
            if self._damaged is not None:
                self._damaged()
            return StateCorrupt("ledger.db is damaged: restore a backup of it")
        if isinstance(error, UnicodeEncodeError):
            return FieldInvalid("a text has a lone surrogate")
        if isinstance(error, OverflowError):
            return FieldInvalid("a number is larger than any that is kept")
        return LedgerUnavailable(f"the ledger cannot be used just now ({type(error).__name__})")


_TRANSLATED: Final = Translated()


def translate_errors() -> Translated:
    """Translate errors of SQLite: the ledger is damaged (`StateCorrupt`), or unavailable (`LedgerUnavailable`)."""
    return _TRANSLATED


class LedgerQueries:
    """The queries. `connection` returns the connection to use; `damaged` is called when SQLite reports damage."""

    def __init__(self, connection: Callable[[], apsw.Connection], damaged: Callable[[], None] | None = None) -> None:
        self._connection = connection
        self._translated = Translated(damaged)

    def _one(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        with self._translated:
            found: tuple[Any, ...] | None = self._connection().execute(sql, values).fetchone()
            return found

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._translated:
            found: list[tuple[Any, ...]] = self._connection().execute(sql, values).fetchall()
            return found

    def session(self, session_id: str) -> Session | None:
        """Return the session with this id."""
        row = self._one(_SESSION + "WHERE id = ?", session_id)
        return _session(row) if row else None

    def sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions in the order they were started."""
        rows = self._all(_SESSION + "WHERE number > ? ORDER BY number LIMIT ?", after, limit)
        return [_session(row) for row in rows]

    def latest_sessions(self, *, before: int | None = None, limit: int = 50) -> list[Session]:
        """Return sessions, newest first."""
        rows = self._all(_SESSION + "WHERE s.number < ? ORDER BY s.number DESC LIMIT ?", _end(before), limit)
        return [_session(row) for row in rows]

    def active_session_count(self) -> int:
        """Return the number of active sessions."""
        row = self._one("SELECT count(*) FROM sessions WHERE state = 'active'")
        return row[0] if row else 0

    def unsettled_sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions in a final state with open delegations, oldest first."""
        return [_session(row) for row in self._all(_UNSETTLED, after, limit)]

    def broken_sessions(self, *, limit: int = 5) -> list[Session]:
        """Return the sessions whose chain is broken, newest first."""
        return [_session(row) for row in self._all(_BROKEN + "ORDER BY s.number DESC LIMIT ?", limit)]

    def broken_count(self) -> int:
        """Return the number of sessions whose chain is broken."""
        row = self._one(_BROKEN_COUNT)
        return row[0] if row else 0

    def receipt(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt with this id."""
        row = self._one(_KEPT + "WHERE r.id = ?", receipt_id)
        return StoredReceipt(*row) if row else None

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[StoredReceipt]:
        """Return receipts of a session in the order of the chain."""
        sql = _KEPT + "WHERE s.id = ? AND r.seq > ? ORDER BY r.seq LIMIT ?"
        return [StoredReceipt(*row) for row in self._all(sql, session_id, after, limit)]

    def latest_receipts(self, *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return receipts of the whole ledger, newest first."""
        return [_parse_indexed(row) for row in self._all(_LATEST, _end(before), limit)]

    def appended_to(self, after: int, through: int) -> list[str]:
        """Return the sessions of a range of receipts, most recent first."""
        sql = (
            "SELECT s.id, max(r.number) FROM receipts r JOIN sessions s ON s.number = r.session "
            "WHERE r.number > ? AND r.number <= ? GROUP BY r.session ORDER BY 2 DESC"
        )
        return [row[0] for row in self._all(sql, after, through)]

    def denials(self, code: str = "", *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return denials of the whole ledger, newest first."""
        if code:
            return [_parse_indexed(row) for row in self._all(_OF_CODE, code, _end(before), limit)]
        return [_parse_indexed(row) for row in self._all(_DENIALS, _end(before), limit)]

    def denials_of(self, session_id: str, *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return denials of a session, newest first."""
        return [_parse_indexed(row) for row in self._all(_OF_SESSION, session_id, _end(before), limit)]

    def denials_per_minute(self, since: int, *, step: int = 1) -> list[MinuteCount]:
        """Return receipt counts by denial code from this minute on, per `step` minutes, oldest first."""
        sql = "SELECT minute / ?2 * ?2, code, sum(count) FROM minutes WHERE minute >= ?1 GROUP BY 1, 2 ORDER BY 1, 2"
        return [MinuteCount(*row) for row in self._all(sql, since, step)]

    def denials_per_code(self) -> list[CodeCount]:
        """Return receipt counts of the whole ledger: permitted first, then by denial code."""
        # In one statement, so that both are consistent.
        denied = "SELECT code, count FROM codes"
        whole = (
            "SELECT '', coalesce((SELECT max(number) FROM receipts), 0) - (SELECT coalesce(sum(count), 0) FROM codes)"
        )
        rows = self._all(f"{whole} UNION ALL {denied} ORDER BY 1")
        return [CodeCount(*row) for row in rows if row[1]]

    def source(self, key: str) -> Source | None:
        """Return the source with this key, with the last session started for it."""
        row = self._one(_SOURCE + "o.key = ? ORDER BY o.session DESC LIMIT 1", key)
        return Source(*row) if row else None

    def source_of(self, session_id: str) -> Source | None:
        """Return the source that reports to a session."""
        row = self._one(_SOURCE + "o.session = " + _ITS_NUMBER, session_id)
        return Source(*row) if row else None

    def sources(self, *, after: int = 0, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return sessions with their sources in the order they were started."""
        rows = self._all(_SOURCES + "o.session > ? ORDER BY o.session LIMIT ?", after, limit)
        return [(_session(row[:-3]), Source(*row[-3:])) for row in rows]

    def latest_sources(self, *, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return the latest sessions that have a source, newest first."""
        rows = self._all(_SOURCES + "o.session > 0 ORDER BY o.session DESC LIMIT ?", limit)
        return [(_session(row[:-3]), Source(*row[-3:])) for row in rows]

    def source_count(self) -> int:
        """Return the number of sessions that have a source."""
        row = self._one("SELECT sources FROM ledger")
        return row[0] if row else 0

    def notes(self, session_id: str) -> list[EventNote]:
        """Return the last notes of a session, oldest first."""
        sql = f"SELECT observed, text FROM notes WHERE session = {_ITS_NUMBER} ORDER BY observed"  # noqa: S608
        return [EventNote(*row) for row in self._all(sql, session_id)]

    def count(self, session_id: str) -> int:
        """Count the stored receipts of a session."""
        row = self._one("SELECT count(*) FROM receipts WHERE session = " + _ITS_NUMBER, session_id)  # noqa: S608
        return row[0] if row else 0

    def attestations(self, session_id: str) -> list[str]:
        """Return the attestations of a session, oldest first."""
        sql = f"SELECT token FROM attestations WHERE session = {_ITS_NUMBER} ORDER BY number"  # noqa: S608
        return [row[0] for row in self._all(sql, session_id)]

    def bookmark(self, session_id: str) -> str | None:
        """Return the signed record of how far the chain was verified."""
        row = self._one(
            "SELECT b.token FROM bookmarks b JOIN sessions s ON s.number = b.session WHERE s.id = ?", session_id
        )
        return row[0] if row else None

    def keys(self) -> list[KeyRecord]:
        """Return every key that has signed here, oldest first."""
        return [
            KeyRecord(*row) for row in self._all("SELECT kid, public_pem, change, created_ms FROM keys ORDER BY number")
        ]

    def limits(self) -> list[LimitRecord]:
        """Return the records of the ends of key periods, oldest first."""
        if not self._registers():
            return []
        return [LimitRecord(*row) for row in self._all("SELECT kid, token FROM key_limits ORDER BY number")]

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""
        if not self._registers():
            return None
        row = self._one("SELECT id, hash, kid, registered_ms FROM passports WHERE id = ?", passport_id)
        return PassportRegistration(*row) if row else None

    def registering(self) -> frozenset[str]:
        """Return the ids of the keys that have signed registered passports."""
        if not self._registers():
            return frozenset()
        return frozenset(kid for (kid,) in self._all("SELECT DISTINCT kid FROM passports"))

    def _registers(self) -> bool:
        """Return whether the file has the registration tables: one of the first version lacks them before migration."""
        with self._translated:
            return int(self._connection().pragma("user_version")) >= REGISTERS

    def position(self, until_ms: int | None = None) -> Position:
        """Return the current position of the ledger, or the position before the first record later than `until_ms`.

        Each kind of thing has an order of its own. Where a clock was set back, the first one that is later counts, so
        that nothing which came after it is taken for earlier.
        """
        stands = Position(*(self._one(_STANDS) or (0, 0, 0)))
        if until_ms is None:
            return stands
        first = self._one(_FIRST_LATER, until_ms, f"rcpt:{until_ms + 1:012x}") or (None, None, None)
        return Position(*(at if later is None else later - 1 for at, later in zip(stands, first, strict=True)))

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of the passports that a key has signed after a position."""
        registered = self._all("SELECT id FROM passports WHERE number > ? AND kid = ?", position.passports, kid)
        others = self._all(_UNREGISTERED, position.receipts, position.sessions)
        return [name for (name,) in registered] + [name for name, token in others if unverified_kid(token) == kid]

    def overview(self) -> LedgerOverview:
        """Return the size of the ledger and its last receipt."""
        ledger_id, sessions, epoch = self._one("SELECT id, sessions, epoch FROM ledger") or ("", 0, 0)
        last = self._one("SELECT number, id, token FROM receipts ORDER BY number DESC LIMIT 1")
        if last is None:
            return LedgerOverview(ledger_id, sessions, 0, None, None, epoch)
        number, receipt_id, token = last
        return LedgerOverview(ledger_id, sessions, number, receipt_id, sha256_hex(token.encode()), epoch)

    def hash_at(self, number: int) -> str | None:
        """Return the hash of the receipt with this number in the whole ledger."""
        row = self._one("SELECT token FROM receipts WHERE number = ?", number)
        return sha256_hex(row[0].encode()) if row else None

    def ledger_state(self) -> LedgerState:
        """Return the state of the whole ledger."""
        row = self._one("SELECT kid, kill_switch, epoch, killed_up_to FROM ledger")
        if row is None:
            raise StateCorrupt("ledger.db has lost its first row: restore a backup of it")
        return LedgerState(row[0], bool(row[1]), row[2], row[3])

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the earlier request with this idempotency key."""
        sql = (
            "SELECT p.digest, s.id, r.seq, r.id, r.token, r.number FROM repeats p "
            "JOIN sessions s ON s.number = p.session JOIN receipts r ON r.number = p.receipt "
            "WHERE s.id = ? AND p.key = ?"
        )
        row = self._one(sql, session_id, key)
        return EarlierRequest(StoredReceipt(*row[1:]), row[0]) if row else None

    def result_of(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt that records the result of this decision."""
        sql = _KEPT + "JOIN results o ON o.receipt = r.number JOIN receipts d ON d.number = o.decision WHERE d.id = ?"
        row = self._one(sql, receipt_id)
        return StoredReceipt(*row) if row else None

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return the delegation of a session with this request id."""
        row = self._one(_DELEGATION + "WHERE parent = ? AND request = ?", parent, request)
        return _delegation(row) if row else None

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that created this passport."""
        row = self._one(_DELEGATION + "WHERE child = ?", child)
        return _delegation(row) if row else None

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""
        return [_delegation(row) for row in self._all(_DELEGATION + "WHERE settled = 0 AND parent = ?", parent)]

    def active_sessions(self) -> Iterator[str]:
        """Iterate over the ids of all active sessions, a page at a time."""
        after, page = 0, list[tuple[Any, ...]]()
        sql = "SELECT number, id FROM sessions WHERE state = 'active' AND number > ? ORDER BY number LIMIT 500"
        while page := self._all(sql, after):
            after = page[-1][0]
            yield from (session_id for _, session_id in page)

    def revoked(self, passport_id: str) -> bool:
        """Return whether a passport was revoked."""
        return self._one("SELECT 1 FROM revocations WHERE passport = ?", passport_id) is not None


def _session(row: tuple[Any, ...]) -> Session:
    return Session(**dict(zip(SESSION_COLUMNS, row, strict=True)))


def _parse_indexed(row: tuple[Any, ...]) -> IndexedReceipt:
    return IndexedReceipt(row[0], row[1], StoredReceipt(*row[2:]))


def _end(before: int | None) -> int:
    return _END if before is None else before


def _delegation(row: tuple[Any, ...]) -> Delegation:
    found = Delegation(*row)
    return found._replace(settled=bool(found.settled))


def _nothing() -> None:
    """Check nothing."""


class SqliteReader(LedgerQueries):
    """A `LedgerReader` for any thread, each with its own connection. It never waits for the writer."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        *,
        checked: Callable[[apsw.Connection], Callable[[], None]] = lambda _connection: _nothing,
        damaged: Callable[[], None] | None = None,
    ) -> None:
        """Open connections by `connect`.

        `checked` returns, for a connection that was just opened, what is called before every read: it raises if the
        connection must not be read from.
        """
        self._connect = connect
        self._checked = checked
        self._mine = threading.local()
        self._open: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        super().__init__(self._of_this_thread, damaged)

    def _of_this_thread(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._connect()
            self._open.add(connection)
            self._mine.check = self._checked(connection)
            self._mine.connection = connection
        self._mine.check()
        return connection

    def close(self) -> None:
        """Close the connections once they are idle; the next read opens a new one."""
        self._mine = threading.local()
        for connection in list(self._open):
            with suppress(apsw.Error):  # a thread that reads all the same keeps its own until it is done
                connection.close(True)  # noqa: FBT003 - the library's way to say: whatever state it is in
