"""What the tests of all ledgers share: places where a ledger lies, work to do in it, and a look at what it holds."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import structs

from remit import Keyring, SigningKey, Step, receipt_id, verify_chain
from remit.claims.chain import draft
from remit.ledger.commit import CommitObserver, GroupCommit
from remit.ledger.records import IdempotencyKey, KeyRecord, LedgerState, Session, UnsignedReceipt
from remit.ledger.rows import SqliteReader
from remit.ledger.sqlite import SqliteStore, connect, connect_reader, prepare
from remit.ledger.store import LedgerReader, Prepare, Transaction, Work
from tests.ledger.memory import MemoryStore, MemoryTables
from tests.world import KEYRING, MISSION, NOW, OURS, denied, lineage_named, permitted

__all__ = [
    "FIRST",
    "FIRST_KEY",
    "LEDGER_ID",
    "PATIENT_S",
    "PLACES",
    "SECOND",
    "Counted",
    "MemoryPlace",
    "Place",
    "Refused",
    "SqlitePlace",
    "append_once",
    "append_to",
    "checked",
    "new_session",
    "observe",
    "once",
    "pending_on",
    "put",
    "then_refuse",
    "together",
]

LEDGER_ID: Final = "ledger:tests"
FIRST_KEY: Final = KeyRecord(OURS.kid, OURS.public.to_pem().decode(), None, NOW * 1000)
# A deadline that no test meets unless something hangs for good.
PATIENT_S: Final = 60.0
_ids = itertools.count(1)


class Refused(Exception):
    """What work raises that does not want to go on."""


class Place(Protocol):
    """Where a ledger lies. Each that is opened there is a process of its own, as far as the ledger can tell."""

    def open(self, *, deadline_s: float = PATIENT_S, observer: CommitObserver | None = None) -> GroupCommit:
        """Return a ledger over what lies here."""


class MemoryPlace:
    """A shelf in memory."""

    def __init__(self, _folder: Path) -> None:
        self.shelf = MemoryTables(LEDGER_ID, LedgerState(OURS.kid), keys=[FIRST_KEY])

    def open(self, *, deadline_s: float = PATIENT_S, observer: CommitObserver | None = None) -> GroupCommit:
        """Return a ledger over the shelf."""
        reader = MemoryStore(self.shelf)
        return GroupCommit(lambda: MemoryStore(self.shelf), reader, deadline_s=deadline_s, observer=observer)


class SqlitePlace:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "ledger.db")
        (folder / "ledger.db").touch(0o600)
        connection = connect(self.path)
        prepare(connection, LEDGER_ID, lambda: FIRST_KEY)
        connection.close()

    def open(self, *, deadline_s: float = PATIENT_S, observer: CommitObserver | None = None) -> GroupCommit:
        """Return a ledger over the file."""
        reader = SqliteReader(lambda: connect_reader(self.path))
        return GroupCommit(lambda: SqliteStore.open(self.path), reader, deadline_s=deadline_s, observer=observer)


PLACES: Final[dict[str, Callable[[Path], Place]]] = {"memory": MemoryPlace, "sqlite": SqlitePlace}


class Counted(CommitObserver):
    """Remembers the size of every group, and every failure."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.seconds: list[float] = []
        self.turns = 0
        self.failures: list[BaseException] = []

    def committed(self, store: object, size: int, seconds: float) -> None:  # noqa: ARG002
        """Remember the size, and how long it took."""
        self.sizes.append(size)
        self.seconds.append(seconds)

    def epoch_changed(self) -> None:
        """Count one."""
        self.turns += 1

    def failed(self, error: BaseException) -> None:
        """Remember the failure."""
        self.failures.append(error)


def new_session(name: str = "first", **changes: Any) -> Session:
    """Return a session that has just begun, with changes."""
    lineage = lineage_named(name)
    members: dict[str, Any] = {
        "id": lineage.grant_id,
        "passport": f"passport of {name}",
        "actor": MISSION.agent_id,
        "parent": None,
        "trace_id": lineage.trace_id,
        "run_nonce": lineage.run_nonce,
        "started_ms": NOW * 1000,
        "lifetime_ms": 900_000,
        "expires_ms": 2**42,
        "limit": 1000,
        "verifier": lineage.verifier_id,
        "seen_boot": "boot",
        "seen_mono_ms": 5,
        "seen_wall_ms": NOW * 1000,
    }
    return Session(**(members | changes))


FIRST: Final = new_session("first")
SECOND: Final = new_session("second")


def put(session: Session) -> Work[None]:
    """Return the work of keeping a session."""
    return lambda transaction: transaction.put_session(session)


def pending_on(session: Session, key: SigningKey = OURS, step: Step | None = None, now: int = NOW) -> UnsignedReceipt:
    """Return a receipt that is drafted on the head of `session`."""
    head = session.head
    if session.verifier != f"remit:{key.kid}":
        head = head.handed_to(key.public)
    number = next(_ids)
    new_id = receipt_id(number.to_bytes(16, "big"))
    form = b'{"number":%d}' % number
    return UnsignedReceipt(draft(head, step or permitted(), form=form, new_id=new_id, now=now), key)


def append_to(
    session_id: str, *, key: str = "", result_of: str = "", signing: Callable[[str], SigningKey] = lambda _: OURS
) -> Work[UnsignedReceipt]:
    """Return the work of appending one receipt, with the key that signs now."""

    def work(transaction: Transaction) -> UnsignedReceipt:
        session = transaction.session(session_id)
        assert session is not None
        pending = pending_on(session, signing(transaction.ledger_state.kid))
        transaction.append(
            session, pending, once=IdempotencyKey(key, f"digest of {key}") if key else None, result_of=result_of
        )
        return pending

    return work


def observe(session_id: str, code: str = "", *, minute: int = 0, note: str = "") -> Work[UnsignedReceipt]:
    """Return the work of appending the receipt of an event: denied by `code`, so many minutes later, with a note."""

    def work(transaction: Transaction) -> UnsignedReceipt:
        session = transaction.session(session_id)
        assert session is not None
        session = structs.replace(session, observed=session.observed + 1)
        step = denied(internal_denial_code=code) if code else permitted()
        pending = pending_on(session, step=step, now=NOW + 60 * minute)
        transaction.append(session, pending, note=note)
        return pending

    return work


def append_once(session_id: str, key: str) -> Work[str]:
    """Return the work of appending one receipt unless there is one under this key; it answers with the receipt's id."""
    append = append_to(session_id, key=key)

    def work(transaction: Transaction) -> str:
        before = transaction.repeated(session_id, key)
        there = before.found if before else append(transaction)
        return there.draft.claims.receipt_id if isinstance(there, UnsignedReceipt) else there.receipt_id

    return work


def then_refuse(work: Work[object]) -> Work[None]:
    """Return the work that does the same, and raises in the end."""

    def refusing(transaction: Transaction) -> None:
        work(transaction)
        raise Refused

    return refusing


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Return a call that acts the first time only: work may run more than once."""
    left = [act]

    def call() -> None:
        if left:
            left.pop()()

    return call


def checked(reader: LedgerReader, session_id: str, keyring: Keyring = KEYRING) -> list[str]:
    """Return the tokens of a chain, once it is known to be whole: one line, counted from 1, up to the head."""
    session, kept = reader.session(session_id), reader.receipts(session_id)
    assert session is not None
    assert [receipt.seq for receipt in kept] == list(range(1, session.length + 1))
    tokens = [receipt.token for receipt in kept]
    head = verify_chain(tokens, keyring)
    assert head is None or head == session.head
    return tokens


def together(ledger: GroupCommit, *works: Work[Any], alone: bool = False, prepare: Prepare | None = None) -> list[Any]:
    """Hand over all work while the writer is busy, and return the answers and errors in the same order."""

    async def hand_over() -> list[Any]:
        begun, release = threading.Event(), threading.Event()

        def busy(_: Transaction) -> None:
            begun.set()
            assert release.wait(PATIENT_S)

        first = asyncio.ensure_future(ledger.arun(busy))
        assert await asyncio.to_thread(begun.wait, PATIENT_S)
        others = [asyncio.ensure_future(ledger.arun(work, alone=alone, prepare=prepare)) for work in works]
        for _ in range(5):  # turns of the loop, in which all are sent
            await asyncio.sleep(0)
        release.set()
        await first
        return list(await asyncio.gather(*others, return_exceptions=True))

    return asyncio.run(hand_over())
