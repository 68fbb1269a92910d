"""The service as it runs, over a real file, and an audit of what it leaves there."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from remit.claims.canonical import sha256_hex
from remit.claims.chain import Head, walk_chain
from remit.claims.mission import Mission
from remit.errors import LedgerUnavailable
from remit.governor.clock import SystemClock
from remit.governor.context import Context
from remit.governor.evaluate import Evaluate, Evaluation
from remit.governor.governor import Governor
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import StartSession
from remit.ledger.embedded import EmbeddedLedger, open_embedded_ledger
from remit.ledger.records import Session, StoredReceipt
from remit.ledger.sqlite import connect_reader
from remit.ledger.store import LedgerReader
from remit.policy.call import ToolCall
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine

__all__ = ["Audit", "Service", "call_of", "integrity", "open_service", "pages", "session_of"]

SCOPE = "/srv/project"
PATIENCE = 50
# What is not about late answers waits for the disk, however busy the machine is.
PATIENT_S = 60.0


@dataclass
class Service:
    """A governor over the ledger of a home."""

    opened: EmbeddedLedger
    governor: Governor

    @property
    def reader(self) -> LedgerReader:
        """Return a reader of what is durable."""
        return self.opened.ledger.read()

    def passport(self, calls: int = 1_000_000) -> str:
        """Return the token of a new passport."""
        mission = Mission(
            agent_id="agent:load",
            mission="read files",
            allowed_tools=("Read",),
            resource_scope=(f"{SCOPE}/**",),
            max_tool_calls=calls,
            max_duration_s=86_400,
        )
        return self.governor.run(IssuePassport(PassportRequest(mission, f"pass:{secrets.token_hex(16)}"))).token

    def start(self, calls: int = 1_000_000) -> str:
        """Return the id of a new session."""
        return session_of(self.governor, self.passport(calls))

    def ask(self, session: str, key: str) -> Evaluation:
        """Return the answer to the call of this key."""
        return self.governor.run(Evaluate(session, call_of(key), idempotency_key=key))

    def insist(self, session: str, key: str) -> Evaluation:
        """Return the answer to the call of this key, asking again while the ledger is busy or late."""
        for _ in range(PATIENCE):
            try:
                return self.ask(session, key)
            except LedgerUnavailable:
                continue
        return self.ask(session, key)


@contextmanager
def open_service(home: Path, *, vfs: str | None = None, deadline_s: float = PATIENT_S) -> Iterator[Service]:
    """Open the home, and let go of it at the end."""
    opened = open_embedded_ledger(home, vfs=vfs, deadline_s=deadline_s)
    try:
        yield Service(opened, _governor(opened))
    finally:
        _close_reader(opened.ledger.read())
        opened.close()


def _close_reader(reader: LedgerReader) -> None:
    """Close what this thread reads by, so that the writer is the last to go and leaves everything in one file."""
    connection: apsw.Connection | None = getattr(getattr(reader, "_mine", None), "connection", None)
    if connection is not None:
        connection.close()


def _governor(opened: EmbeddedLedger) -> Governor:
    context = Context(
        keys=opened.keys,
        engines=[NativeEngine()],
        observers=[NativeEngine()],
        files=TextFiles(),
        clock=SystemClock(),
        stopwatch=lambda: 0.0,  # a busy machine is not a slow engine
        entropy=secrets.token_bytes,
        reader=opened.ledger.read(),
    )
    return Governor(opened.ledger, context)


def session_of(governor: Governor, token: str) -> str:
    """Return the id of the session of a passport, started if it was not."""
    return governor.run(StartSession(token)).session.id


def call_of(key: str) -> ToolCall:
    """Return the call that is made under a key: the same for the same key, and a denied one for some."""
    folder = "/etc" if key.endswith("7") else SCOPE
    return ToolCall("Read", {"file_path": f"{folder}/{key}"})


def pages(reader: LedgerReader, session: str, after: int = 0) -> Iterator[StoredReceipt]:
    """Go through the receipts of a session."""
    while page := reader.receipts(session, after=after):
        yield from page
        after = page[-1].seq


def integrity(path: str | Path) -> list[str]:
    """Return what SQLite finds wrong with a file, and what refers to rows that are not there."""
    connection = connect_reader(str(path))
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row != ("ok",)]
        return found + [str(row) for row in connection.execute("PRAGMA foreign_key_check")] + _forks(connection)
    finally:
        connection.close()


def _forks(connection: apsw.Connection) -> list[str]:
    sql = "SELECT session, coalesce(parent, 0), count(*) FROM receipts GROUP BY 1, 2 HAVING count(*) > 1"
    return [f"session {session} forks at {parent}" for session, parent, _ in connection.execute(sql)]


@dataclass
class Audit:
    """A chain, verified as it grows: links, signatures, numbers, budget, and where the session says it stands."""

    session: str
    head: Head | None = None
    hashes: dict[str, str] = field(default_factory=dict)
    permits: int = 0

    @property
    def length(self) -> int:
        """Return how many receipts there are."""
        return len(self.hashes)

    def grow(self, service: Service) -> int:
        """Verify what is new, and return how much that is.

        A ledger process goes on for a moment with what a front has asked that was killed, so this is how things stood
        when the session was read: what comes after it is new the next time.
        """
        before, session = self.length, service.reader.session(self.session)
        assert session is not None
        kept = [it for it in pages(service.reader, self.session, before) if it.seq <= session.length]
        assert [it.seq for it in kept] == list(range(before + 1, before + len(kept) + 1))
        ring = service.opened.keys.keyring()
        for receipt, head in walk_chain((it.token for it in kept), ring, start=self.head):
            self.hashes[receipt.claims.receipt_id] = receipt.hash
            self.permits += receipt.claims.verdict == "compliant"
            self.head = head
        assert {it.receipt_id: sha256_hex(it.token.encode()) for it in kept}.items() <= self.hashes.items()
        self._check_session(session)
        return len(kept)

    def _check_session(self, session: Session) -> None:
        assert (session.state, session.cause) == ("active", "")
        assert session.length == self.length == (self.head.length if self.head else 0)
        assert session.receipt_hash == (self.head.receipt_hash if self.head else None)
        assert session.used == session.compliant == self.permits <= session.limit
        assert session.violation + session.insufficient_evidence == self.length - self.permits

    def holds(self, receipt_id: str, receipt_hash: str) -> bool:
        """Tell whether this very receipt is in the chain."""
        return self.hashes.get(receipt_id) == receipt_hash
