"""What a ledger promises, whoever implements it.

- **Durable when it returns.** What a piece of work wrote is on disk before its answer is given to anyone.
- **All or nothing.** Everything that one piece of work wrote is there, or nothing of it.
- **One after the other.** Work sees all work before it, in this process and in others. A chain cannot fork: a receipt
  is appended to the head it was signed on, or not at all (`HeadMoved`).
- **`LedgerUnavailable` means unknown.** The work may be written or not. Whoever asks again by the same key, request or
  id finds out; nobody may act as if it were written.
- **No cost grows with the history.** Work finds what it needs by key.

What the rows mean, and which changes are right, is the governor's business.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from remit.claims.succession import Position
from remit.ledger.records import (
    CodeCount,
    Delegation,
    EarlierRequest,
    IdempotencyKey,
    Kept,
    KeyRecord,
    LimitRecord,
    MinuteCount,
    Note,
    Numbered,
    Overview,
    PassportRegistration,
    Session,
    Source,
    Switches,
    UnsignedReceipt,
)

__all__ = ["NO_CHANGES", "Ledger", "Prepare", "Reader", "Transaction", "Work"]

NO_CHANGES: Final[Mapping[str, Any]] = MappingProxyType({})


class Reader(Protocol):
    """Reading, from any thread, of what is durable. It never waits for a writer."""

    def session(self, session_id: str) -> Session | None:
        """Return the session of this id."""

    def sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return the sessions that were started after the one numbered `after`, oldest first."""

    def latest_sessions(self, *, before: int | None = None, limit: int = 50) -> list[Session]:
        """Return the sessions that were started before the one numbered `before`, or all, newest first."""

    def open_sessions(self) -> int:
        """Return how many sessions are active."""

    def unsettled_sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions after the one numbered `after` that are over and have delegates still to be closed.

        Oldest first, and without those of an older copy of the ledger, which take no receipt.
        """

    def broken_sessions(self, *, limit: int = 5) -> list[Session]:
        """Return sessions whose chain was found broken, newest first."""

    def broken_count(self) -> int:
        """Return how many sessions have a chain that was found broken."""

    def switches(self) -> Switches:
        """Return what holds for the whole ledger."""

    def receipt(self, receipt_id: str) -> Kept | None:
        """Return the receipt of this id."""

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Kept]:
        """Return the receipts of a session from number `after` + 1 on, in the order of the chain."""

    def latest(self, *, before: int | None = None, limit: int = 50) -> list[Numbered]:
        """Return the receipts of the whole ledger before the one numbered `before`, or all, newest first."""

    def appended_to(self, after: int, through: int) -> list[str]:
        """Return the sessions of the receipts after number `after` up to `through`, the last appended to first."""

    def denials(self, code: str = "", *, before: int | None = None, limit: int = 50) -> list[Numbered]:
        """Return the denials of this code, or of any, before the one numbered `before`, newest first."""

    def denials_of(self, session_id: str, *, before: int | None = None, limit: int = 50) -> list[Numbered]:
        """Return the denials in a session before its receipt of number `before`, newest first."""

    def minutes(self, since: int, *, step: int = 1) -> list[MinuteCount]:
        """Return the counts from this minute on, oldest first; those of `step` minutes together, from each full one."""

    def codes(self) -> list[CodeCount]:
        """Return the counts of the whole ledger."""

    def source_of(self, session_id: str) -> Source | None:
        """Return who reports to a session, if an adapter does."""

    def sources(self, *, after: int = 0, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return the sessions with a source that were started after the one numbered `after`, oldest first."""

    def latest_sources(self, *, limit: int = 100) -> list[tuple[Session, Source]]:
        """Return the sessions with a source that were started last, newest first."""

    def source_count(self) -> int:
        """Return how many sessions have a source."""

    def notes(self, session_id: str) -> list[Note]:
        """Return the last notes of a session, oldest first."""

    def result_of(self, receipt_id: str) -> Kept | None:
        """Return the receipt that holds the result of this one."""

    def count(self, session_id: str) -> int:
        """Return how many receipts of a session are kept, counted one by one."""

    def attestations(self, session_id: str) -> list[str]:
        """Return the attestations over a session, oldest first."""

    def bookmark(self, session_id: str) -> str | None:
        """Return the signed note of how far the chain was verified."""

    def keys(self) -> list[KeyRecord]:
        """Return every key that has signed here, oldest first."""

    def limits(self) -> list[LimitRecord]:
        """Return the records of where the periods of keys ended, oldest first."""

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""

    def overview(self) -> Overview:
        """Return how much there is."""


class Transaction(Protocol):
    """Reading and writing inside one piece of work. What it writes, it and later work can read."""

    @property
    def switches(self) -> Switches:
        """Return what holds for the whole ledger."""

    def session(self, session_id: str) -> Session | None:
        """Return the session of this id."""

    def receipt(self, receipt_id: str) -> "Kept | UnsignedReceipt | None":
        """Return the receipt of this id."""

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the receipt that was appended under this idempotency key."""

    def result_of(self, receipt_id: str) -> "Kept | UnsignedReceipt | None":
        """Return the receipt that holds the result of this one."""

    def source(self, key: str) -> Source | None:
        """Return the source of this key, with the session that was started last for it.

        Only work that runs alone may rely on it, or work that reads this session too: whoever starts the next one
        writes its row.
        """

    def source_of(self, session_id: str) -> Source | None:
        """Return who reports to a session, if an adapter does."""

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return what was delegated upon this request."""

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that made this passport."""

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""

    def active_sessions(self) -> Iterator[str]:
        """Go through the ids of all active sessions. Only for work that runs alone."""

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""

    def position(self, until_ms: int | None = None) -> Position:
        """Return where the ledger stands, or where it stood before the first thing later than `until_ms`.

        Only for work that runs alone.
        """

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of passports that a key has signed after a position. Only for work that runs alone.

        A passport has the position of its registration; without one, that of the delegation that made it; without
        either, that of its session.
        """

    def revoked(self, passport_id: str) -> bool:
        """Tell whether a passport was revoked, or the key of a source."""

    def put_session(self, session: Session) -> None:
        """Keep a session: a new one, or one that was read here with changes."""

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
        """Append a receipt and keep what `session` says with `changes`, or raise `HeadMoved`; return it as it then is.

        The head of `session` is the one that the receipt was drafted on. A `note` is kept as that of the event which
        `session` counts last.
        """

    def put_source(self, source: Source) -> None:
        """Keep who reports to a session that is new."""

    def put_delegation(self, delegation: Delegation) -> None:
        """Keep a delegation, or that it was settled."""

    def put_revocation(self, passport_id: str, *, at_ms: int, reason: str) -> None:
        """Keep that a passport was revoked. The key of a source can be revoked in the same way."""

    def put_switches(self, switches: Switches) -> None:
        """Keep what holds for the whole ledger."""

    def put_key(self, record: KeyRecord) -> None:
        """Keep a public key."""

    def put_limit(self, record: LimitRecord) -> None:
        """Keep where the period of a key ended."""

    def put_passport(self, registered: PassportRegistration) -> None:
        """Register a passport that was issued here."""

    def put_attestation(self, session_id: str, attestation_id: str, token: str, bookmark: str | None) -> None:
        """Keep an attestation, and the bookmark of how far the chain was verified for it."""


_T = TypeVar("_T")
Work: TypeAlias = Callable[[Transaction], _T]
# What can be done before anything of a group is written: it only reads, and what it does takes its time.
Prepare: TypeAlias = Callable[[Transaction], None]


class Ledger(Protocol):
    """Where evidence is kept."""

    def run(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Return what `work` answers, once everything it wrote is durable. Waits; for threads.

        Work may be run more than once before it counts, so it must do nothing but through its transaction. Work that
        runs alone shares its commit with no other. `prepare` is run once before the work, and never while the ledger
        is held; all work of a group is prepared first.
        """

    def arun(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Return what `work` answers, once everything it wrote is durable. For an event loop."""

    def read(self) -> Reader:
        """Return a reader."""
