"""The interface of a ledger, and what every implementation guarantees.

"Work" is a function that gets a `Transaction`.

- **Durable.** The writes of a piece of work are on disk before its result is returned.
- **Atomic.** Either all writes of a piece of work are stored, or none.
- **Serialized.** Work sees all work before it, in this process and in others. A chain cannot fork: a receipt is
  appended to the head it was drafted on, or not at all (`HeadMoved`).
- **`LedgerUnavailable` means unknown.** The writes may be stored or not. Repeat the request with the same idempotency
  key, request id or passport id to find out; never assume that they are stored.
- **No cost grows with the history.** Work looks up rows by key.

The ledger does not check whether changes are valid: the governor does.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from remit.claims.succession import Position
from remit.ledger.records import (
    CodeCount,
    Delegation,
    EarlierRequest,
    EventNote,
    IdempotencyKey,
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
    UnsignedReceipt,
)

__all__ = ["NO_CHANGES", "Ledger", "LedgerReader", "Prepare", "Transaction", "Work"]

NO_CHANGES: Final[Mapping[str, Any]] = MappingProxyType({})


class LedgerReader(Protocol):
    """Reads what is durable, from any thread. It never waits for a writer."""

    def session(self, session_id: str) -> Session | None:
        """Return the session with this id."""

    def sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return the sessions that were started after the one numbered `after`, oldest first."""

    def latest_sessions(self, *, before: int | None = None, limit: int = 50) -> list[Session]:
        """Return the sessions that were started before the one numbered `before`, or all, newest first."""

    def active_session_count(self) -> int:
        """Return the number of active sessions."""

    def unsettled_sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions after the one numbered `after` in a final state with delegates still to be closed.

        Oldest first, without sessions that were restored from a backup, which are sealed.
        """

    def broken_sessions(self, *, limit: int = 5) -> list[Session]:
        """Return the sessions whose chain is broken, newest first."""

    def broken_count(self) -> int:
        """Return the number of sessions whose chain is broken."""

    def ledger_state(self) -> LedgerState:
        """Return the state of the whole ledger: signing key, kill switch and epoch."""

    def receipt(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt with this id."""

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[StoredReceipt]:
        """Return the receipts of a session with sequence numbers above `after`, in the order of the chain."""

    def latest_receipts(self, *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return the receipts of the whole ledger before the one numbered `before`, or all, newest first."""

    def appended_to(self, after: int, through: int) -> list[str]:
        """Return the sessions of the receipts numbered above `after` up to `through`, most recent first."""

    def denials(self, code: str = "", *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return the denials with this code, or with any, before the one numbered `before`, newest first."""

    def denials_of(self, session_id: str, *, before: int | None = None, limit: int = 50) -> list[IndexedReceipt]:
        """Return the denials in a session before its receipt with sequence number `before`, newest first."""

    def denials_per_minute(self, since: int, *, step: int = 1) -> list[MinuteCount]:
        """Return receipt counts by denial code from the minute `since` on, per `step` minutes, oldest first."""

    def denials_per_code(self) -> list[CodeCount]:
        """Return receipt counts by denial code of the whole ledger."""

    def source_of(self, session_id: str) -> Source | None:
        """Return the source that reports to a session, or None."""

    def sources(self, *, after: int = 0, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return the sessions with a source that were started after the one numbered `after`, oldest first."""

    def latest_sources(self, *, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return the latest sessions that have a source, newest first."""

    def source_count(self) -> int:
        """Return the number of sessions that have a source."""

    def notes(self, session_id: str) -> list[EventNote]:
        """Return the last notes of a session, oldest first."""

    def result_of(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt that records the result of this decision."""

    def count(self, session_id: str) -> int:
        """Count the stored receipts of a session, independently of its `length`."""

    def attestations(self, session_id: str) -> list[str]:
        """Return the attestations of a session, oldest first."""

    def bookmark(self, session_id: str) -> str | None:
        """Return the signed record of how far the chain was verified."""

    def keys(self) -> list[KeyRecord]:
        """Return every key that has signed here, oldest first."""

    def limits(self) -> list[LimitRecord]:
        """Return the records of the ends of key periods, oldest first."""

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""

    def overview(self) -> LedgerOverview:
        """Return the size of the ledger and its last receipt."""


class Transaction(Protocol):
    """Reads and writes inside one piece of work. Its writes are visible to itself and to later work."""

    @property
    def ledger_state(self) -> LedgerState:
        """Return the state of the whole ledger: signing key, kill switch and epoch."""

    def session(self, session_id: str) -> Session | None:
        """Return the session with this id."""

    def receipt(self, receipt_id: str) -> "StoredReceipt | UnsignedReceipt | None":
        """Return the receipt with this id."""

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the earlier request with this idempotency key."""

    def result_of(self, receipt_id: str) -> "StoredReceipt | UnsignedReceipt | None":
        """Return the receipt that records the result of this decision."""

    def source(self, key: str) -> Source | None:
        """Return the source with this key, with the last session started for it.

        Only work that runs alone, or that also reads this session, may rely on it: starting the next session of the
        source writes this session's row, so the change is detected.
        """

    def source_of(self, session_id: str) -> Source | None:
        """Return the source that reports to a session, or None."""

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return the delegation of a session with this request id."""

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that created this passport."""

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""

    def active_sessions(self) -> Iterator[str]:
        """Iterate over the ids of all active sessions. Only for work that runs alone."""

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""

    def position(self, until_ms: int | None = None) -> Position:
        """Return the current position of the ledger, or the position before the first record later than `until_ms`.

        Only for work that runs alone.
        """

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of the passports that a key has signed after a position. Only for work that runs alone.

        The position of a passport is that of its registration; without one, that of the delegation that created it;
        without either, that of its session.
        """

    def revoked(self, passport_id: str) -> bool:
        """Return whether a passport, or a source key, was revoked."""

    def put_session(self, session: Session) -> None:
        """Store a session: a new one, or one that was read in this transaction, with changes."""

    def append(
        self,
        session: Session,
        pending: UnsignedReceipt,
        *,
        once: IdempotencyKey | None = None,
        result_of: str = "",
        note: str = "",
        changes: Mapping[str, Any] = NO_CHANGES,
    ) -> Session:
        """Append a receipt, store `session` with `changes`, and return the updated session.

        Raise `HeadMoved` unless the receipt was drafted on the head of `session` and that is the current one. `note` is
        the note of the last observed event of `session`.
        """

    def put_source(self, source: Source) -> None:
        """Store the source of a new session."""

    def put_delegation(self, delegation: Delegation) -> None:
        """Store a new delegation, or one that was settled."""

    def put_revocation(self, passport_id: str, *, at_ms: int, reason: str) -> None:
        """Store the revocation of a passport, or of a source key."""

    def put_ledger_state(self, ledger_state: LedgerState) -> None:
        """Store the state of the whole ledger."""

    def put_key(self, record: KeyRecord) -> None:
        """Store a public key."""

    def put_limit(self, record: LimitRecord) -> None:
        """Store the end of a key's period."""

    def put_passport(self, registered: PassportRegistration) -> None:
        """Register a passport that was issued here."""

    def put_attestation(self, session_id: str, attestation_id: str, token: str, bookmark: str | None) -> None:
        """Store an attestation, and the bookmark of how far the chain was verified for it."""


_T = TypeVar("_T")
Work: TypeAlias = Callable[[Transaction], _T]
# Runs before the work of its group, outside of a write transaction. It only reads, and may be slow.
Prepare: TypeAlias = Callable[[Transaction], None]


class Ledger(Protocol):
    """Stores evidence: runs work in transactions, and gives out readers."""

    def run(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Run `work` and return its result once its writes are durable. Blocks the calling thread.

        Work may be run more than once until it is committed, so it must have no side effects outside of its
        transaction. With `alone`, the work does not share its commit with other work. `prepare` is run once before the
        work, outside of a write transaction; all items of a group are prepared first.
        """

    def arun(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Return an awaitable of the result of `work`, for an event loop; see `run`."""

    def read(self) -> LedgerReader:
        """Return a reader."""
