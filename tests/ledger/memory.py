"""A store in memory: a second, obvious implementation that the tests compare the SQLite store with."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice

from msgspec import structs

from remit.claims.canonical import sha256_hex
from remit.claims.succession import Position
from remit.errors import HeadMoved
from remit.ledger.records import (
    MAX_NOTES,
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
from remit.ledger.transaction import AppendedReceipt, TransactionChanges

__all__ = ["MemoryStore", "MemoryTables"]


@dataclass
class MemoryTables:
    """The tables. Several stores may share them, as several processes share a file."""

    ledger_id: str
    ledger_state: LedgerState
    lock: threading.Lock = field(default_factory=threading.Lock)
    commits: int = 0
    sessions: dict[str, Session] = field(default_factory=dict)
    receipts: dict[str, StoredReceipt] = field(default_factory=dict)
    chains: dict[str, list[StoredReceipt]] = field(default_factory=dict)
    repeats: dict[tuple[str, str], EarlierRequest] = field(default_factory=dict)
    results: dict[str, StoredReceipt] = field(default_factory=dict)
    delegations: dict[tuple[str, str], Delegation] = field(default_factory=dict)
    revocations: dict[str, tuple[int, str]] = field(default_factory=dict)
    keys: list[KeyRecord] = field(default_factory=list)
    limits: list[LimitRecord] = field(default_factory=list)
    # In the order of their registration.
    passports: dict[str, PassportRegistration] = field(default_factory=dict)
    attestations: dict[str, list[str]] = field(default_factory=dict)
    bookmarks: dict[str, str] = field(default_factory=dict)
    # All receipts, in the order they were appended.
    order: list[IndexedReceipt] = field(default_factory=list)
    minutes: Counter[tuple[int, str]] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    # By session; notes also by their index in the ring buffer.
    sources: dict[str, Source] = field(default_factory=dict)
    notes: dict[str, dict[int, EventNote]] = field(default_factory=dict)


class MemoryStore:
    """A `Store` on shared tables, for a writer or a reader."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._held = False
        self._seen = tables.commits

    def begin(self) -> None:
        """Start a write transaction."""
        self._tables.lock.acquire()
        self._held = True

    def rollback(self) -> None:
        """End the write transaction without changes."""
        if self._held:
            self._held = False
            self._tables.lock.release()

    def close(self) -> None:
        """End the write transaction, if there is one."""
        self.rollback()

    def changed_by_others(self) -> bool:
        """Return whether another store has committed since the last call."""
        before, self._seen = self._seen, self._tables.commits
        return before != self._seen

    def commit(self, changes: TransactionChanges) -> dict[str, Session]:
        """Apply the changes and return the sessions as stored."""
        tables = self._tables
        numbers = count(len(tables.sessions) + 1)
        sessions = {name: self._moved(session, numbers) for name, session in changes.sessions.items()}
        sources = self._told(changes)
        tables.sessions.update(sessions)
        tables.sources.update(sources)
        for appended in changes.receipts:
            self._append(appended)
        tables.delegations.update({(it.parent, it.request): it for it in changes.delegates.values()})
        tables.revocations = changes.revocations | tables.revocations
        tables.keys += changes.keys
        tables.limits += changes.limits
        tables.passports.update(changes.passports)
        for attested in changes.attestations:
            tables.attestations.setdefault(attested.session_id, []).append(attested.token)
            if attested.bookmark:
                tables.bookmarks[attested.session_id] = attested.bookmark
        if changes.changes_epoch:
            epoch = tables.ledger_state.epoch + 1
            tables.ledger_state = (changes.ledger_state or tables.ledger_state)._replace(epoch=epoch)
        tables.commits = self._seen = tables.commits + 1
        self.rollback()
        return sessions

    def _moved(self, session: Session, numbers: Iterator[int]) -> Session:
        there = self._tables.sessions.get(session.id)
        if (there.version if there else 0) != session.version:
            raise HeadMoved("another has changed the session")
        return structs.replace(session, number=session.number or next(numbers), version=session.version + 1)

    def _told(self, changes: TransactionChanges) -> dict[str, Source]:
        told = {source.session_id: source for source in changes.sources}
        if len(told) < len(changes.sources) or told.keys() & self._tables.sources or told.keys() - changes.sessions:
            raise HeadMoved("a source of a session that is not new")
        return told

    def _append(self, appended: AppendedReceipt) -> None:
        tables, receipt, session_id = self._tables, appended.pending.receipt, appended.session_id
        claims, number = receipt.claims, len(tables.order) + 1
        kept = StoredReceipt(session_id, appended.seq, claims.receipt_id, receipt.token, number)
        code = claims.internal_denial_code or ""
        tables.receipts[kept.receipt_id] = kept
        tables.chains.setdefault(session_id, []).append(kept)
        tables.order.append(IndexedReceipt(number, code, kept))
        tables.minutes[claims.iat // 60, code] += 1
        tables.codes[code] += 1
        if appended.once is not None:
            tables.repeats[session_id, appended.once.key] = EarlierRequest(kept, appended.once.digest)
        if appended.result_of:
            tables.results[appended.result_of] = kept
        if appended.note:
            ring = tables.notes.setdefault(session_id, {})
            ring[appended.observed % MAX_NOTES] = EventNote(appended.observed, appended.note)

    def session(self, session_id: str) -> Session | None:
        """Return the session with this id."""
        return self._tables.sessions.get(session_id)

    def sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions in the order they were started."""
        later = sorted((it for it in self._tables.sessions.values() if it.number > after), key=lambda it: it.number)
        return later[:limit]

    def latest_sessions(self, *, before: int | None = None, limit: int = 50) -> list[Session]:
        """Return sessions, newest first."""
        earlier = [it for it in list(self._tables.sessions.values()) if before is None or it.number < before]
        return sorted(earlier, key=lambda it: it.number, reverse=True)[:limit]

    def active_session_count(self) -> int:
        """Return the number of active sessions."""
        return sum(session.state == "active" for session in self._tables.sessions.values())

    def unsettled_sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions in a final state with open delegations, oldest first."""
        parents = {it.parent for it in list(self._tables.delegations.values()) if not it.settled}
        over = [it for it in map(self._tables.sessions.get, parents) if it and it.state != "active"]
        later = [it for it in over if it.number > after and it.cause != RESTORED]
        return sorted(later, key=lambda it: it.number)[:limit]

    def broken_sessions(self, *, limit: int = 5) -> list[Session]:
        """Return the sessions whose chain is broken, newest first."""
        return [it for it in self.latest_sessions(limit=len(self._tables.sessions)) if it.broken][:limit]

    def broken_count(self) -> int:
        """Return the number of sessions whose chain is broken."""
        return len(self.broken_sessions(limit=len(self._tables.sessions)))

    def receipt(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt with this id."""
        return self._tables.receipts.get(receipt_id)

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[StoredReceipt]:
        """Return receipts of a session in the order of the chain."""
        return self._tables.chains.get(session_id, [])[after : after + limit]

    def latest_receipts(self, *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return receipts of the whole ledger, newest first."""
        newest_first = reversed(self._tables.order)
        return list(islice((it for it in newest_first if before is None or it.number < before), limit))

    def appended_to(self, after: int, through: int) -> list[str]:
        """Return the sessions of a range of receipts, most recent first."""
        return list(dict.fromkeys(it.kept.session_id for it in reversed(self._tables.order[after:through])))

    def denials(self, code: str = "", *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return denials of the whole ledger, newest first."""
        denied = [it for it in self.latest_receipts(before=before, limit=len(self._tables.order)) if it.code]
        return [it for it in denied if code in ("", it.code)][:limit]

    def denials_of(self, session_id: str, *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return denials of a session, newest first."""
        denied = [it for it in reversed(self._tables.order) if it.code and it.kept.session_id == session_id]
        return [it for it in denied if before is None or it.kept.seq < before][:limit]

    def denials_per_minute(self, since: int, *, step: int = 1) -> list[MinuteCount]:
        """Return receipt counts by denial code from this minute on, per `step` minutes, oldest first."""
        together: Counter[tuple[int, str]] = Counter()
        for (minute, code), number in self._tables.minutes.items():
            if minute >= since:
                together[minute // step * step, code] += number
        return [MinuteCount(*place, number) for place, number in sorted(together.items())]

    def denials_per_code(self) -> list[CodeCount]:
        """Return receipt counts by denial code of the whole ledger."""
        return [CodeCount(*it) for it in sorted(self._tables.codes.items())]

    def source(self, key: str) -> Source | None:
        """Return the source with this key, with the last session started for it."""
        return next((told for _, told in reversed(self._sources()) if told.key == key), None)

    def source_of(self, session_id: str) -> Source | None:
        """Return the source that reports to a session."""
        return self._tables.sources.get(session_id)

    def sources(self, *, after: int = 0, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return sessions with their sources in the order they were started."""
        return [it for it in self._sources() if it[0].number > after][:limit]

    def latest_sources(self, *, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return the latest sessions that have a source, newest first."""
        return self._sources()[::-1][:limit]

    def _sources(self) -> list[tuple[Session, Source]]:
        told = [(self._tables.sessions[name], source) for name, source in list(self._tables.sources.items())]
        return sorted(told, key=lambda it: it[0].number)

    def source_count(self) -> int:
        """Return the number of sessions that have a source."""
        return len(self._tables.sources)

    def notes(self, session_id: str) -> list[EventNote]:
        """Return the last notes of a session, oldest first."""
        return sorted(self._tables.notes.get(session_id, {}).values())

    def count(self, session_id: str) -> int:
        """Count the stored receipts of a session."""
        return len(self._tables.chains.get(session_id, ()))

    def attestations(self, session_id: str) -> list[str]:
        """Return the attestations of a session, oldest first."""
        return list(self._tables.attestations.get(session_id, ()))

    def bookmark(self, session_id: str) -> str | None:
        """Return the signed record of how far the chain was verified."""
        return self._tables.bookmarks.get(session_id)

    def keys(self) -> list[KeyRecord]:
        """Return every key that has signed here, oldest first."""
        return list(self._tables.keys)

    def limits(self) -> list[LimitRecord]:
        """Return the records of the ends of key periods, oldest first."""
        return list(self._tables.limits)

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""
        return self._tables.passports.get(passport_id)

    def position(self, until_ms: int | None = None) -> Position:
        """Return the current position of the ledger, or the position before the first record later than `until_ms`."""
        tables = self._tables
        if until_ms is None:
            return Position(len(tables.order), len(tables.passports), len(tables.sessions))
        first = f"rcpt:{until_ms + 1:012x}"
        return Position(
            _before([it.kept.receipt_id >= first for it in tables.order]),
            _before([it.at_ms > until_ms for it in tables.passports.values()]),
            _before([it.started_ms > until_ms for it in self.sessions(limit=len(tables.sessions))]),
        )

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of the passports that a key has signed after a position."""
        tables = self._tables
        registered = [it for it in list(tables.passports.values())[position.passports :] if it.kid == kid]
        later = {it.kept.receipt_id for it in tables.order if it.number > position.receipts}
        delegated = {it.child: it.passport for it in tables.delegations.values()}
        others = {it.child: it.passport for it in tables.delegations.values() if it.receipt_id in later}
        for session in tables.sessions.values():
            if session.number > position.sessions and session.id not in delegated:
                others[session.id] = session.passport
        unregistered = [name for name in others if name not in tables.passports]
        return [it.passport_id for it in registered] + [it for it in unregistered if unverified_kid(others[it]) == kid]

    def overview(self) -> LedgerOverview:
        """Return the size of the ledger and its last receipt."""
        tables = self._tables
        last = next(reversed(tables.receipts.values()), None)
        last_id, last_hash = (last.receipt_id, sha256_hex(last.token.encode())) if last else (None, None)
        counts = len(tables.sessions), len(tables.receipts)
        return LedgerOverview(tables.ledger_id, *counts, last_id, last_hash, tables.ledger_state.epoch)

    def ledger_state(self) -> LedgerState:
        """Return the state of the whole ledger."""
        return self._tables.ledger_state

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the earlier request with this idempotency key."""
        return self._tables.repeats.get((session_id, key))

    def result_of(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt that records the result of this decision."""
        return self._tables.results.get(receipt_id)

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return the delegation of a session with this request id."""
        return self._tables.delegations.get((parent, request))

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that created this passport."""
        return next((it for it in self._tables.delegations.values() if it.child == child), None)

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""
        return [it for it in self._tables.delegations.values() if it.parent == parent and not it.settled]

    def active_sessions(self) -> Iterator[str]:
        """Iterate over the ids of all active sessions."""
        return iter([it.id for it in self._tables.sessions.values() if it.state == "active"])

    def revoked(self, passport_id: str) -> bool:
        """Return whether a passport was revoked."""
        return passport_id in self._tables.revocations


def _before(later: list[bool]) -> int:
    """Return the number of entries before the first later one."""
    return later.index(True) if True in later else len(later)
