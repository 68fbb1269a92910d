"""The transaction that work runs in: reads go to the buffer and then the store, writes go to the buffer.

Invariant: the store only sees the writes of work that has succeeded. If work fails, its writes are discarded from the
buffer, so other work in the same group is not affected and nothing has to be rolled back in the database.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from msgspec import structs

from remit.claims.chain import step_id
from remit.claims.receipt import sign_draft
from remit.claims.succession import Position
from remit.errors import HeadMoved, RequestConflict, SessionSealed
from remit.ledger.records import (
    RESTORED,
    Delegation,
    EarlierRequest,
    IdempotencyKey,
    KeyRecord,
    LedgerState,
    LimitRecord,
    PassportRegistration,
    Session,
    Source,
    StoredReceipt,
    UnsignedReceipt,
)
from remit.ledger.store import NO_CHANGES, LedgerReader

_MAX_CACHED: Final = 4096


class AppendedReceipt(NamedTuple):
    """A receipt to append, with its idempotency key and the id of the decision whose result it records.

    `note` is the note of the observed event, JSON for display, and `observed` its number within the session.
    """

    session_id: str
    seq: int
    pending: UnsignedReceipt
    once: IdempotencyKey | None
    result_of: str
    observed: int
    note: str


class NewAttestation(NamedTuple):
    """An attestation to store."""

    session_id: str
    attestation_id: str
    token: str
    bookmark: str | None


@dataclass(slots=True)
class TransactionChanges:
    """The writes of one piece of work, or of a group."""

    sessions: dict[str, Session] = field(default_factory=dict)
    receipts: list[AppendedReceipt] = field(default_factory=list)
    repeats: dict[tuple[str, str], EarlierRequest] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    # By parent session and request id, and by child session.
    delegations: dict[str, dict[str, Delegation]] = field(default_factory=dict)
    delegates: dict[str, Delegation] = field(default_factory=dict)
    revocations: dict[str, tuple[int, str]] = field(default_factory=dict)
    keys: list[KeyRecord] = field(default_factory=list)
    limits: list[LimitRecord] = field(default_factory=list)
    passports: dict[str, PassportRegistration] = field(default_factory=dict)
    attestations: list[NewAttestation] = field(default_factory=list)
    ledger_state: LedgerState | None = None
    # A session has changed its state, possibly without a receipt.
    state_changed: bool = False
    # Anything other than sessions, receipts and repeats was written.
    has_other: bool = False

    def merge_other(self, other: "TransactionChanges") -> None:
        """Add the writes other than sessions, receipts and repeats, which are rare."""
        self.has_other = True
        for parent, requests in other.delegations.items():
            self.delegations.setdefault(parent, {}).update(requests)
        self.delegates.update(other.delegates)
        self.sources += other.sources
        self.revocations.update(other.revocations)
        self.keys += other.keys
        self.limits += other.limits
        self.passports.update(other.passports)
        self.attestations += other.attestations
        self.ledger_state = other.ledger_state or self.ledger_state
        self.state_changed = self.state_changed or other.state_changed

    @property
    def changes_epoch(self) -> bool:
        """Return whether the epoch must be incremented: something changes that the number of receipts does not show."""
        return bool(
            self.ledger_state or self.revocations or self.keys or self.limits or self.attestations or self.state_changed
        )

    def sign(self, before: Mapping[str, Session]) -> None:
        """Sign all receipts in order, each with the hash of its predecessor; `before` are the stored sessions."""
        hashes: dict[str, str] = {}
        for session_id, _, pending, _, _, _, _ in self.receipts:
            parent_hash = hashes.get(session_id)
            if parent_hash is None:
                session = before.get(session_id)
                parent_hash = session.receipt_hash if session else None
            signed = pending.signed = sign_draft(pending.draft, parent_hash, pending.key)
            hashes[session_id] = signed.hash
        for name, last_hash in hashes.items():
            self.sessions[name] = structs.replace(self.sessions[name], receipt_hash=last_hash)

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self.sessions or self.receipts or self.has_other)


class Store(LedgerReader, Protocol):
    """The database of a ledger. Used by one thread; every failure is raised as `LedgerUnavailable`."""

    def begin(self) -> None:
        """Start a write transaction: writes of others are not visible until `commit` or `rollback`."""

    def changed_by_others(self) -> bool:
        """Return whether another connection has committed since the last call."""

    def commit(self, changes: TransactionChanges) -> dict[str, Session]:
        """Make the changes durable and return the sessions as stored."""

    def rollback(self) -> None:
        """End the write transaction without changes."""

    def close(self) -> None:
        """Close the database, whatever state it is in."""

    def ledger_state(self) -> LedgerState:
        """Return the state of the whole ledger: signing key, kill switch and epoch."""

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the earlier request with this idempotency key."""

    def result_of(self, receipt_id: str) -> StoredReceipt | None:
        """Return the receipt that records the result of this decision."""

    def source(self, key: str) -> Source | None:
        """Return the source with this key, with the last session started for it."""

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return the delegation of a session with this request id."""

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that created this passport."""

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""

    def active_sessions(self) -> Iterator[str]:
        """Iterate over the ids of all active sessions."""

    def position(self, until_ms: int | None = None) -> Position:
        """Return the current position of the ledger, or the position before the first record later than `until_ms`."""

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of the passports that a key has signed after a position."""

    def revoked(self, passport_id: str) -> bool:
        """Return whether a passport was revoked."""


@dataclass(slots=True)
class SessionCache:
    """A cache of stored sessions, and of whether passports are revoked."""

    sessions: dict[str, Session] = field(default_factory=dict)
    revoked: dict[str, bool] = field(default_factory=dict)

    def clear(self) -> None:
        """Remove all entries."""
        self.sessions.clear()
        self.revoked.clear()

    def trim(self) -> None:
        """Clear a part of the cache that has grown beyond its limit."""
        if len(self.sessions) > _MAX_CACHED:
            self.sessions.clear()
        if len(self.revoked) > _MAX_CACHED:
            self.revoked.clear()


class BufferedTransaction:
    """Implements `Transaction` for the work of a group, one piece after the other.

    Reads see the writes of the running work, then those of its group, then the cache and the store. `keep` adds the
    writes of the running work to the group, `discard` drops them.
    """

    __slots__ = ("_cache", "_group", "_ledger_state", "_store", "ledger_state", "own")

    def __init__(self, store: Store, cache: SessionCache, ledger_state: LedgerState, group: TransactionChanges) -> None:
        self._store = store
        self._cache = cache
        self._ledger_state = ledger_state
        self._group = group
        self.own = TransactionChanges()

        self.ledger_state = ledger_state

    def keep(self) -> None:
        """Add the writes of the running work to the group."""
        own, group = self.own, self._group
        group.sessions.update(own.sessions)
        group.receipts += own.receipts
        group.repeats.update(own.repeats)
        if own.has_other:
            group.merge_other(own)
            self.own = TransactionChanges()
        else:
            own.sessions.clear()
            own.receipts.clear()
            own.repeats.clear()

    def discard(self) -> None:
        """Drop the writes of the running work, which has failed."""
        self.own = TransactionChanges()
        self.ledger_state = self._group.ledger_state or self._ledger_state

    def session(self, session_id: str) -> Session | None:
        """Return the session with this id."""
        found = self.own.sessions.get(session_id) or self._group.sessions.get(session_id)
        if found is None:
            found = self._cache.sessions.get(session_id) or self._store.session(session_id)
            if found is not None:
                self._cache.sessions[session_id] = found
        return found

    def receipt(self, receipt_id: str) -> StoredReceipt | UnsignedReceipt | None:
        """Return the receipt with this id."""
        written = self._written(lambda it: it.pending.draft.claims.receipt_id == receipt_id)
        return written or self._store.receipt(receipt_id)

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the earlier request with this idempotency key."""
        place = session_id, key
        found = self.own.repeats.get(place) or self._group.repeats.get(place)
        return found or self._store.repeated(session_id, key)

    def result_of(self, receipt_id: str) -> StoredReceipt | UnsignedReceipt | None:
        """Return the receipt that records the result of this decision."""
        return self._written(lambda it: it.result_of == receipt_id) or self._store.result_of(receipt_id)

    def _written(self, fits: Callable[[AppendedReceipt], bool]) -> UnsignedReceipt | None:
        for appended in (*self.own.receipts, *self._group.receipts):
            if fits(appended):
                return appended.pending
        return None

    def source(self, key: str) -> Source | None:
        """Return the source with this key, with the last session started for it."""
        written = (it for it in (*reversed(self.own.sources), *reversed(self._group.sources)) if it.key == key)
        return next(written, None) or self._store.source(key)

    def source_of(self, session_id: str) -> Source | None:
        """Return the source that reports to a session."""
        written = (it for it in (*self.own.sources, *self._group.sources) if it.session_id == session_id)
        return next(written, None) or self._store.source_of(session_id)

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return the delegation of a session with this request id."""
        for changes in (self.own, self._group):
            found = changes.delegations.get(parent, {}).get(request)
            if found is not None:
                return found
        return self._read_parent(self._store.delegation(parent, request))

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that created this passport."""
        found = self.own.delegates.get(child) or self._group.delegates.get(child)
        return found or self._read_parent(self._store.delegation_to(child))

    def _read_parent(self, delegation: Delegation | None) -> Delegation | None:
        """Return a delegation after reading its parent's row, which is written when the delegation is settled.

        So a concurrent change of the delegation is detected as a change of that row.
        """
        if delegation is not None:
            self.session(delegation.parent)
        return delegation

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""
        found = {it.request: it for it in self._store.open_delegations(parent)}
        for changes in (self._group, self.own):
            found |= changes.delegations.get(parent, {})
        return [it for it in found.values() if not it.settled]

    def active_sessions(self) -> Iterator[str]:
        """Iterate over the ids of all active sessions."""
        return self._store.active_sessions()

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""
        found = self.own.passports.get(passport_id) or self._group.passports.get(passport_id)
        return found or self._store.registered(passport_id)

    def position(self, until_ms: int | None = None) -> Position:
        """Return the current position of the ledger, or the position before the first record later than `until_ms`."""
        return self._store.position(until_ms)

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of the passports that a key has signed after a position."""
        return self._store.signed_after(kid, position)

    def revoked(self, passport_id: str) -> bool:
        """Return whether a passport was revoked."""
        if passport_id in self.own.revocations or passport_id in self._group.revocations:
            return True
        revoked = self._cache.revoked.get(passport_id)
        if revoked is None:
            revoked = self._cache.revoked[passport_id] = self._store.revoked(passport_id)
        return revoked

    def put_session(self, session: Session) -> None:
        """Store a session."""
        current = self.session(session.id)
        if current is not None and (current.state, current.cause) != (session.state, session.cause):
            self.own.state_changed = self.own.has_other = True
        self.own.sessions[session.id] = session

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
        """Append a receipt to the chain of `session`, or raise `HeadMoved` if its head is not the current one."""
        current = self.session(session.id)
        if session.cause == RESTORED:
            raise SessionSealed("the session was restored from an older copy of the ledger: nothing can be appended")
        if current is not None and (current.length, current.receipt_id) != (session.length, session.receipt_id):
            raise HeadMoved("the chain has grown since its head was read")
        claims = pending.draft.claims
        drafted_on = claims.grant_id, claims.parent_receipt_id, claims.step_id
        if drafted_on != (session.id, session.receipt_id, step_id(session.length + 1)):
            raise HeadMoved("the receipt was drafted on another head")
        after = self.own.sessions[session.id] = session.with_receipt(pending, changes)
        self.own.receipts.append(
            AppendedReceipt(session.id, after.length, pending, once, result_of, after.observed, note)
        )
        if once is not None:
            self.own.repeats[session.id, once.key] = EarlierRequest(pending, once.digest)
        return after

    def put_source(self, source: Source) -> None:
        """Store the source of a new session."""
        self.own.has_other = True
        self.own.sources.append(source)

    def put_delegation(self, delegation: Delegation) -> None:
        """Store a delegation."""
        self.own.has_other = True
        self.own.delegations.setdefault(delegation.parent, {})[delegation.request] = delegation
        self.own.delegates[delegation.child] = delegation

    def put_revocation(self, passport_id: str, *, at_ms: int, reason: str) -> None:
        """Store the revocation of a passport."""
        self.own.has_other = True
        self.own.revocations.setdefault(passport_id, (at_ms, reason))

    def put_ledger_state(self, ledger_state: LedgerState) -> None:
        """Store the state of the whole ledger."""
        self.own.has_other = True
        self.own.ledger_state = self.ledger_state = ledger_state

    def put_key(self, record: KeyRecord) -> None:
        """Store a public key."""
        self.own.has_other = True
        self.own.keys.append(record)

    def put_limit(self, record: LimitRecord) -> None:
        """Store the end of a key's period."""
        self.own.has_other = True
        self.own.limits.append(record)

    def put_passport(self, registered: PassportRegistration) -> None:
        """Register a passport that was issued here."""
        if self.registered(registered.passport_id) is not None:
            raise RequestConflict("a passport with this id is already registered")
        self.own.has_other = True
        self.own.passports[registered.passport_id] = registered

    def put_attestation(self, session_id: str, attestation_id: str, token: str, bookmark: str | None) -> None:
        """Store an attestation."""
        self.own.has_other = True
        self.own.attestations.append(NewAttestation(session_id, attestation_id, token, bookmark))
