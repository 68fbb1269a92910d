"""A ledger in memory: for tests, and for a tour that leaves nothing behind.

It keeps every promise of the port but the one that gives a ledger its name: it is gone with the process.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from msgspec import structs

from remit.claims.canonical import sha256_hex
from remit.errors import HeadMoved
from remit.ledger.port import Delegation, Kept, KeyRecord, Overview, Repeated, Session, Switches
from remit.ledger.transaction import Changes, Seen

__all__ = ["MemoryStore", "Shelf"]


@dataclass
class Shelf:
    """What is kept. Several stores may share one, as several processes share a file."""

    ledger_id: str
    switches: Switches
    lock: threading.Lock = field(default_factory=threading.Lock)
    commits: int = 0
    sessions: dict[str, Session] = field(default_factory=dict)
    receipts: dict[str, Kept] = field(default_factory=dict)
    chains: dict[str, list[Kept]] = field(default_factory=dict)
    repeats: dict[tuple[str, str], Repeated] = field(default_factory=dict)
    results: dict[str, Kept] = field(default_factory=dict)
    delegations: dict[tuple[str, str], Delegation] = field(default_factory=dict)
    revocations: dict[str, tuple[int, str]] = field(default_factory=dict)
    keys: list[KeyRecord] = field(default_factory=list)
    attestations: dict[str, list[str]] = field(default_factory=dict)
    bookmarks: dict[str, str] = field(default_factory=dict)
    # The sessions of all receipts, in the order they came.
    order: list[str] = field(default_factory=list)


class MemoryStore:
    """One view of a shelf: the writer's, or a reader's."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._held = False
        self._seen = shelf.commits
        self._last = len(shelf.order)

    def begin(self) -> None:
        """Take the right to write."""
        self._shelf.lock.acquire()
        self._held = True

    def rollback(self) -> None:
        """Give the right to write back."""
        if self._held:
            self._held = False
            self._shelf.lock.release()

    def close(self) -> None:
        """Let go."""
        self.rollback()

    def disturbed(self) -> bool:
        """Tell whether another has committed since this was last asked."""
        before, self._seen = self._seen, self._shelf.commits
        return before != self._seen

    def touched(self) -> set[str]:
        """Return the sessions that others have appended to since this was last asked."""
        before, self._last = self._last, len(self._shelf.order)
        return set(self._shelf.order[before:])

    def unchanged(self, sessions: Seen, switches: Switches) -> bool:
        """Tell whether what was read before still holds."""
        kept = self._shelf.sessions
        return self._shelf.switches == switches and all(
            (name in kept and kept[name].version) == (session is not None and session.version)
            for name, session in sessions.items()
        )

    def commit(self, changes: Changes) -> dict[str, Session]:
        """Keep the changes, and return the sessions as they are now kept."""
        shelf = self._shelf
        numbers = count(len(shelf.sessions) + 1)
        sessions = {name: self._moved(session, numbers) for name, session in changes.sessions.items()}
        shelf.sessions.update(sessions)
        for session_id, seq, pending, once, result_of in changes.receipts:
            receipt = pending.receipt
            kept = Kept(session_id, seq, receipt.claims.receipt_id, receipt.token)
            shelf.receipts[kept.receipt_id] = kept
            shelf.chains.setdefault(kept.session_id, []).append(kept)
            shelf.order.append(session_id)
            if once is not None:
                shelf.repeats[session_id, once.key] = Repeated(kept, once.digest)
            if result_of:
                shelf.results[result_of] = kept
        shelf.delegations.update({(it.parent, it.request): it for it in changes.delegates.values()})
        shelf.revocations = changes.revocations | shelf.revocations
        shelf.keys += changes.keys
        for attested in changes.attestations:
            shelf.attestations.setdefault(attested.session_id, []).append(attested.token)
            if attested.bookmark:
                shelf.bookmarks[attested.session_id] = attested.bookmark
        if changes.marks_an_epoch:
            epoch = shelf.switches.epoch + 1
            shelf.switches = (changes.switches or shelf.switches)._replace(epoch=epoch)
        shelf.commits = self._seen = shelf.commits + 1
        self._last = len(shelf.order)
        self.rollback()
        return sessions

    def _moved(self, session: Session, numbers: Iterator[int]) -> Session:
        there = self._shelf.sessions.get(session.id)
        if (there.version if there else 0) != session.version:
            raise HeadMoved("another has changed the session")
        return structs.replace(session, number=session.number or next(numbers), version=session.version + 1)

    def session(self, session_id: str) -> Session | None:
        """Return the session of this id."""
        return self._shelf.sessions.get(session_id)

    def sessions(self, *, after: int = 0, limit: int = 100) -> list[Session]:
        """Return sessions in the order they were started."""
        later = sorted((it for it in self._shelf.sessions.values() if it.number > after), key=lambda it: it.number)
        return later[:limit]

    def open_sessions(self) -> int:
        """Return how many sessions are active."""
        return sum(session.state == "active" for session in self._shelf.sessions.values())

    def receipt(self, receipt_id: str) -> Kept | None:
        """Return the receipt of this id."""
        return self._shelf.receipts.get(receipt_id)

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Kept]:
        """Return receipts of a session in the order of the chain."""
        return self._shelf.chains.get(session_id, [])[after : after + limit]

    def count(self, session_id: str) -> int:
        """Return how many receipts of a session are kept."""
        return len(self._shelf.chains.get(session_id, ()))

    def attestations(self, session_id: str) -> list[str]:
        """Return the attestations over a session, oldest first."""
        return list(self._shelf.attestations.get(session_id, ()))

    def bookmark(self, session_id: str) -> str | None:
        """Return the signed note of how far the chain was verified."""
        return self._shelf.bookmarks.get(session_id)

    def keys(self) -> list[KeyRecord]:
        """Return every key that has signed here, oldest first."""
        return list(self._shelf.keys)

    def overview(self) -> Overview:
        """Return how much there is."""
        shelf = self._shelf
        last = next(reversed(shelf.receipts.values()), None)
        last_id, last_hash = (last.receipt_id, sha256_hex(last.token.encode())) if last else (None, None)
        counts = len(shelf.sessions), len(shelf.receipts)
        return Overview(shelf.ledger_id, *counts, last_id, last_hash, shelf.switches.epoch)

    def switches(self) -> Switches:
        """Return what holds for the whole ledger."""
        return self._shelf.switches

    def repeated(self, session_id: str, key: str) -> Repeated | None:
        """Return the receipt that was appended under this key."""
        return self._shelf.repeats.get((session_id, key))

    def result_of(self, receipt_id: str) -> Kept | None:
        """Return the receipt that holds the result of this one."""
        return self._shelf.results.get(receipt_id)

    def delegation(self, parent: str, request: str) -> Delegation | None:
        """Return what was delegated upon this request."""
        return self._shelf.delegations.get((parent, request))

    def delegation_to(self, child: str) -> Delegation | None:
        """Return the delegation that made this passport."""
        return next((it for it in self._shelf.delegations.values() if it.child == child), None)

    def open_delegations(self, parent: str) -> list[Delegation]:
        """Return the delegations of a session that are not settled."""
        return [it for it in self._shelf.delegations.values() if it.parent == parent and not it.settled]

    def active_sessions(self) -> Iterator[str]:
        """Go through the ids of all active sessions."""
        return iter([it.id for it in self._shelf.sessions.values() if it.state == "active"])

    def revoked(self, passport_id: str) -> bool:
        """Tell whether a passport was revoked."""
        return passport_id in self._shelf.revocations
