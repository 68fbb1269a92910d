"""Work reads through here and writes into a buffer: a store sees only whole pieces of work.

Keeps this invariant: work that fails leaves nothing behind, because what it wrote is thrown away before a store has
seen it. So one bad piece of work in a group harms no other, and nothing has to be undone in a database.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from msgspec import structs

from remit.claims.chain import step_id
from remit.claims.receipt import sign_draft
from remit.claims.succession import Position
from remit.errors import HeadMoved, RequestConflict, SessionSealed
from remit.ledger.port import NO_CHANGES, Reader
from remit.ledger.records import (
    RESTORED,
    Delegation,
    EarlierRequest,
    IdempotencyKey,
    Kept,
    KeyRecord,
    LimitRecord,
    PassportRegistration,
    Session,
    Source,
    Switches,
    UnsignedReceipt,
)

__all__ = ["AppendedReceipt", "BufferedTransaction", "Changes", "NewAttestation", "SessionCache", "Store"]


_MAX_KNOWN: Final = 4096


class AppendedReceipt(NamedTuple):
    """A receipt to be appended, what makes it repeatable, and the receipt whose result it holds.

    `note` is what people are shown of the event that it is about: the n-th that was `observed`.
    """

    session_id: str
    seq: int
    pending: UnsignedReceipt
    once: IdempotencyKey | None
    result_of: str
    observed: int
    note: str


class NewAttestation(NamedTuple):
    """An attestation to be kept."""

    session_id: str
    attestation_id: str
    token: str
    bookmark: str | None


@dataclass(slots=True)
class Changes:
    """What work has written."""

    sessions: dict[str, Session] = field(default_factory=dict)
    receipts: list[AppendedReceipt] = field(default_factory=list)
    repeats: dict[tuple[str, str], EarlierRequest] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    # By the one who delegates and the request, and by the delegate.
    delegations: dict[str, dict[str, Delegation]] = field(default_factory=dict)
    delegates: dict[str, Delegation] = field(default_factory=dict)
    revocations: dict[str, tuple[int, str]] = field(default_factory=dict)
    keys: list[KeyRecord] = field(default_factory=list)
    limits: list[LimitRecord] = field(default_factory=list)
    passports: dict[str, PassportRegistration] = field(default_factory=dict)
    attestations: list[NewAttestation] = field(default_factory=list)
    switches: Switches | None = None
    # A session has come to another state, which no receipt need tell.
    turned: bool = False
    # There is more than sessions with their receipts and repeats.
    has_other: bool = False

    def merge_other(self, other: "Changes") -> None:
        """Add what only few pieces of work write."""
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
        self.switches = other.switches or self.switches
        self.turned = self.turned or other.turned

    @property
    def changes_epoch(self) -> bool:
        """Tell whether something changes that receipts do not count."""
        return bool(self.switches or self.revocations or self.keys or self.limits or self.attestations or self.turned)

    def sign(self, before: Mapping[str, Session]) -> None:
        """Sign all receipts, each on the one before it; `before` are the sessions as they are kept."""
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
        """Tell whether there is anything to write."""
        return bool(self.sessions or self.receipts or self.has_other)


class Store(Reader, Protocol):
    """What a database has to do for a ledger. Used by one thread; every failure is `LedgerUnavailable`."""

    def begin(self) -> None:
        """Take the right to write; nothing that others write is seen until `commit` or `rollback`."""

    def changed_by_others(self) -> bool:
        """Tell whether another has committed since this was last asked."""

    def commit(self, changes: Changes) -> dict[str, Session]:
        """Make the changes durable and return the sessions as they are now kept."""

    def rollback(self) -> None:
        """Give the right to write back."""

    def close(self) -> None:
        """Let go of the database, whatever state it is in."""

    def switches(self) -> Switches:
        """Return what holds for the whole ledger."""

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the receipt that was appended under this key."""

    def result_of(self, receipt_id: str) -> Kept | None:
        """Return the receipt that holds the result of this one."""

    def source(self, key: str) -> Source | None:
        """Return the source of this key, with the session that was started last for it."""

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return what was delegated upon this request."""

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that made this passport."""

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""

    def active_sessions(self) -> Iterator[str]:
        """Go through the ids of all active sessions."""

    def position(self, until_ms: int | None = None) -> Position:
        """Return where the ledger stands, or where it stood before the first thing later than `until_ms`."""

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of passports that a key has signed after a position."""

    def revoked(self, passport_id: str) -> bool:
        """Tell whether a passport was revoked."""


@dataclass(slots=True)
class SessionCache:
    """What was read or written last: sessions as they are kept, and whether passports were revoked."""

    sessions: dict[str, Session] = field(default_factory=dict)
    revoked: dict[str, bool] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all of it."""
        self.sessions.clear()
        self.revoked.clear()

    def trim(self) -> None:
        """Keep it from growing without bound."""
        if len(self.sessions) > _MAX_KNOWN:
            self.sessions.clear()
        if len(self.revoked) > _MAX_KNOWN:
            self.revoked.clear()


class BufferedTransaction:
    """The transactions of a group, one after the other: what the running work wrote, over its group, over the store.

    `keep` adds what a piece of work wrote to its group, `discard` forgets it.
    `known` is what was read or written last, and need not be read again.
    """

    __slots__ = ("_group", "_known", "_store", "_switches", "own", "switches")

    def __init__(self, store: Store, known: "SessionCache", switches: Switches, group: Changes) -> None:
        self._store = store
        self._known = known
        self._switches = switches
        self._group = group
        self.own = Changes()
        # What holds for the whole ledger.
        self.switches = switches

    def keep(self) -> None:
        """Add to the group what a piece of work has written."""
        own, group = self.own, self._group
        group.sessions.update(own.sessions)
        group.receipts += own.receipts
        group.repeats.update(own.repeats)
        if own.has_other:
            group.merge_other(own)
            self.own = Changes()
        else:
            own.sessions.clear()
            own.receipts.clear()
            own.repeats.clear()

    def discard(self) -> None:
        """Forget what a piece of work has written that did not come to its end."""
        self.own = Changes()
        self.switches = self._group.switches or self._switches

    def session(self, session_id: str) -> Session | None:
        """Return the session of this id."""
        found = self.own.sessions.get(session_id) or self._group.sessions.get(session_id)
        if found is None:
            found = self._known.sessions.get(session_id) or self._store.session(session_id)
            if found is not None:
                self._known.sessions[session_id] = found
        return found

    def receipt(self, receipt_id: str) -> Kept | UnsignedReceipt | None:
        """Return the receipt of this id."""
        written = self._written(lambda it: it.pending.draft.claims.receipt_id == receipt_id)
        return written or self._store.receipt(receipt_id)

    def repeated(self, session_id: str, key: str) -> EarlierRequest | None:
        """Return the receipt that was appended under this key."""
        place = session_id, key
        found = self.own.repeats.get(place) or self._group.repeats.get(place)
        return found or self._store.repeated(session_id, key)

    def result_of(self, receipt_id: str) -> Kept | UnsignedReceipt | None:
        """Return the receipt that holds the result of this one."""
        return self._written(lambda it: it.result_of == receipt_id) or self._store.result_of(receipt_id)

    def _written(self, fits: Callable[[AppendedReceipt], bool]) -> UnsignedReceipt | None:
        for appended in (*self.own.receipts, *self._group.receipts):
            if fits(appended):
                return appended.pending
        return None

    def source(self, key: str) -> Source | None:
        """Return the source of this key, with the session that was started last for it."""
        written = (it for it in (*reversed(self.own.sources), *reversed(self._group.sources)) if it.key == key)
        return next(written, None) or self._store.source(key)

    def source_of(self, session_id: str) -> Source | None:
        """Return who reports to a session."""
        written = (it for it in (*self.own.sources, *self._group.sources) if it.session_id == session_id)
        return next(written, None) or self._store.source_of(session_id)

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return what was delegated upon this request."""
        for changes in (self.own, self._group):
            found = changes.delegations.get(parent, {}).get(request)
            if found is not None:
                return found
        return self._relied_on(self._store.delegation(parent, request))

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that made this passport."""
        found = self.own.delegates.get(child) or self._group.delegates.get(child)
        return found or self._relied_on(self._store.delegation_to(child))

    def _relied_on(self, delegation: Delegation | None) -> Delegation | None:
        """Return a delegation that was read: whoever settles it writes its parent, so that is what to watch."""
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
        """Go through the ids of all active sessions."""
        return self._store.active_sessions()

    def registered(self, passport_id: str) -> PassportRegistration | None:
        """Return the registration of a passport that was issued here."""
        found = self.own.passports.get(passport_id) or self._group.passports.get(passport_id)
        return found or self._store.registered(passport_id)

    def position(self, until_ms: int | None = None) -> Position:
        """Return where the ledger stands, or where it stood before the first thing later than `until_ms`."""
        return self._store.position(until_ms)

    def signed_after(self, kid: str, position: Position) -> list[str]:
        """Return the ids of passports that a key has signed after a position."""
        return self._store.signed_after(kid, position)

    def revoked(self, passport_id: str) -> bool:
        """Tell whether a passport was revoked."""
        if passport_id in self.own.revocations or passport_id in self._group.revocations:
            return True
        known = self._known.revoked.get(passport_id)
        if known is None:
            known = self._known.revoked[passport_id] = self._store.revoked(passport_id)
        return known

    def put_session(self, session: Session) -> None:
        """Keep a session."""
        there = self.session(session.id)
        if there is not None and (there.state, there.cause) != (session.state, session.cause):
            self.own.turned = self.own.has_other = True
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
        """Append a receipt on the head that `session` has."""
        there = self.session(session.id)
        if session.cause == RESTORED:
            raise SessionSealed("a chain from an older copy of the ledger takes no receipt any more")
        if there is not None and (there.length, there.receipt_id) != (session.length, session.receipt_id):
            raise HeadMoved("the chain has grown since its head was read")
        claims = pending.draft.claims
        drafted_on = claims.grant_id, claims.parent_receipt_id, claims.step_id
        if drafted_on != (session.id, session.receipt_id, step_id(session.length + 1)):
            raise HeadMoved("the receipt was drafted on another head")
        after = self.own.sessions[session.id] = session.after(pending, changes)
        self.own.receipts.append(
            AppendedReceipt(session.id, after.length, pending, once, result_of, after.observed, note)
        )
        if once is not None:
            self.own.repeats[session.id, once.key] = EarlierRequest(pending, once.digest)
        return after

    def put_source(self, source: Source) -> None:
        """Keep who reports to a session that is new."""
        self.own.has_other = True
        self.own.sources.append(source)

    def put_delegation(self, delegation: Delegation) -> None:
        """Keep a delegation."""
        self.own.has_other = True
        self.own.delegations.setdefault(delegation.parent, {})[delegation.request] = delegation
        self.own.delegates[delegation.child] = delegation

    def put_revocation(self, passport_id: str, *, at_ms: int, reason: str) -> None:
        """Keep that a passport was revoked."""
        self.own.has_other = True
        self.own.revocations.setdefault(passport_id, (at_ms, reason))

    def put_switches(self, switches: Switches) -> None:
        """Keep what holds for the whole ledger."""
        self.own.has_other = True
        self.own.switches = self.switches = switches

    def put_key(self, record: KeyRecord) -> None:
        """Keep a public key."""
        self.own.has_other = True
        self.own.keys.append(record)

    def put_limit(self, record: LimitRecord) -> None:
        """Keep where the period of a key ended."""
        self.own.has_other = True
        self.own.limits.append(record)

    def put_passport(self, registered: PassportRegistration) -> None:
        """Register a passport that was issued here."""
        if self.registered(registered.passport_id) is not None:
            raise RequestConflict("a passport of this id is registered already")
        self.own.has_other = True
        self.own.passports[registered.passport_id] = registered

    def put_attestation(self, session_id: str, attestation_id: str, token: str, bookmark: str | None) -> None:
        """Keep an attestation."""
        self.own.has_other = True
        self.own.attestations.append(NewAttestation(session_id, attestation_id, token, bookmark))
