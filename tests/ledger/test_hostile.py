"""A ledger among those who mean harm: rows that are refused, locks that are held, copies put back, tables changed."""

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import structs

from remit.errors import LedgerRolledBack, LedgerUnavailable, PassportRevoked, SessionSealed, StateCorrupt
from remit.governor.context import UseCase
from remit.governor.delegate import Delegate
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession
from remit.ledger.backup import backup
from remit.ledger.embedded import LEDGER_FILE, open_embedded_ledger
from remit.ledger.home import open_home
from remit.ledger.records import RESTORED
from remit.ledger.restore import restore
from remit.ledger.store import Transaction, Work
from tests.ledger.contract import (
    PATIENT_S,
    PLACES,
    Counted,
    MemoryPlace,
    SqlitePlace,
    append_to,
    checked,
    new_session,
    pending_on,
    put,
    together,
)
from tests.ledger.service import MISSION, Service

pytestmark = pytest.mark.slow

FIRST = new_session("first")
# Long enough for a busy machine to begin what was asked, short enough to wait for.
HASTY_S = 0.5


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def service(home: Path) -> Iterator[Service]:
    service = Service(home)
    yield service
    service.close()


# Copies that are put back


@pytest.mark.parametrize(
    "case",
    [
        RevokePassport,
        RevokeSession,
        EndSession,
        lambda _: RevokePassport("pass:of-somebody-else"),
        lambda _: KillSwitch(on=True),
    ],
    ids=["revoke passport", "revoke session", "end", "revoke another passport", "kill switch"],
)
def test_an_older_copy_is_noticed_although_no_receipt_is_missing(
    service: Service, home: Path, tmp_path: Path, case: Callable[[str], UseCase[Any]]
) -> None:
    session_id = service.start()
    service.call(session_id)
    service.close()
    shutil.copy(home / LEDGER_FILE, tmp_path / "older.db")
    later = Service(home)
    before = later.open.ledger.read().overview().receipts
    later.governor.run(case(session_id))
    assert later.open.ledger.read().overview().receipts == before
    later.close()
    shutil.copyfile(tmp_path / "older.db", home / LEDGER_FILE)
    with pytest.raises(LedgerRolledBack) as caught:
        open_embedded_ledger(home)
    assert caught.value.code == "ledger_rolled_back"


def test_a_session_that_has_started_since_is_missed_in_an_older_copy(
    service: Service, home: Path, tmp_path: Path
) -> None:
    service.call(service.start())
    service.close()
    shutil.copy(home / LEDGER_FILE, tmp_path / "older.db")
    later = Service(home)
    later.start()
    later.close()
    shutil.copyfile(tmp_path / "older.db", home / LEDGER_FILE)
    with pytest.raises(LedgerRolledBack):
        open_embedded_ledger(home)


def _restored(service: Service, home: Path, copy: Path) -> tuple[str, str, str]:
    """Put back a copy that lacks a receipt; return a session, and the id and passport of its delegate."""
    session_id = service.start()
    service.call(session_id)
    narrower = structs.replace(MISSION, max_tool_calls=5)
    delegated = service.governor.run(Delegate(session_id, narrower, "request-1"))
    with open_home(home) as opened:
        backup(opened, copy)
    service.call(session_id)
    service.close()
    with open_home(home) as opened:
        restore(opened, copy, accept_loss=True)
    return session_id, str(delegated.child_id), str(delegated.passport)


def test_a_sealed_chain_does_not_grow_when_a_delegate_of_it_is_revoked(
    service: Service, home: Path, tmp_path: Path
) -> None:
    session_id, child, _ = _restored(service, home, tmp_path / "copy.db")
    later = Service(home)
    before = later.open.ledger.read().receipts(session_id)
    assert later.governor.run(RevokePassport(child, "clean up")) is None
    later.governor.run(RevokePassport(session_id))
    later.governor.run(KillSwitch(on=True))
    assert later.open.ledger.read().receipts(session_id) == before
    later.close()


def test_neither_a_sealed_session_nor_a_delegate_of_it_starts_again(
    service: Service, home: Path, tmp_path: Path
) -> None:
    first = service.passport()
    session_id = service.start(first)
    token = str(service.governor.run(Delegate(session_id, MISSION, "request-1")).passport)
    other = service.start()
    service.close()
    _restored(Service(home), home, tmp_path / "copy.db")
    later = Service(home)
    for sealed in (first, token):
        with pytest.raises((SessionSealed, PassportRevoked)):
            later.start(sealed)
    for sealed in (session_id, other):
        with pytest.raises(SessionSealed) as caught:
            later.call(sealed)
        assert caught.value.code == "session_sealed"
    with pytest.raises(SessionSealed):
        later.start(first)
    later.close()


@pytest.mark.parametrize("kind", PLACES)
def test_a_sealed_chain_takes_no_receipt(kind: str, tmp_path: Path) -> None:
    ledger = PLACES[kind](tmp_path).open()
    ledger.run(put(new_session("sealed", cause=RESTORED)))
    with pytest.raises(SessionSealed) as caught:
        ledger.run(append_to(new_session("sealed").id))
    assert caught.value.code == "session_sealed"
    assert ledger.read().overview().receipts == 0
    ledger.close()


# Tables that are not ours any more


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TRIGGER odd AFTER UPDATE OF kill_switch ON ledger BEGIN UPDATE ledger SET kill_switch = 0; END",
        "CREATE TRIGGER odd AFTER INSERT ON revocations BEGIN DELETE FROM revocations; END",
        "CREATE VIEW odd AS SELECT * FROM receipts",
        "CREATE TABLE odd (a)",
        "ALTER TABLE revocations ADD COLUMN odd TEXT",
    ],
    ids=["trigger on switches", "trigger on revocations", "view", "table", "column"],
)
def test_a_ledger_whose_tables_were_changed_is_refused(
    service: Service, home: Path, tmp_path: Path, script: str
) -> None:
    service.call(service.start())
    service.close()
    copy = tmp_path / "copy.db"
    shutil.copy(home / LEDGER_FILE, copy)
    for path in (copy, home / LEDGER_FILE):
        connection = apsw.Connection(str(path))
        connection.execute(script)
        connection.close()
    with open_home(home) as opened, pytest.raises(StateCorrupt) as caught:
        restore(opened, copy, accept_loss=True)
    assert caught.value.code == "state_corrupt"
    with pytest.raises(StateCorrupt):
        open_embedded_ledger(home)


# Locks that others hold


def test_a_lock_of_the_anchor_that_is_held_keeps_nobody_waiting(service: Service, home: Path) -> None:
    session_id = service.start()
    with open_home(home) as other, other.locked("ledger.anchor.lock"):
        calls = []
        for _ in range(3):
            service.governor.run(KillSwitch(on=False))  # the anchor is to follow at once
            calls.append(service.call(session_id).claims.verdict)
        service.close()
        assert not service.open.ledger._thread.is_alive()
    assert calls == ["compliant"] * 3


def test_an_anchor_that_could_not_be_moved_is_moved_the_next_time(service: Service, home: Path, tmp_path: Path) -> None:
    session_id = service.start()
    service.close()
    shutil.copy(home / LEDGER_FILE, tmp_path / "older.db")
    later = Service(home)
    with open_home(home) as other, other.locked("ledger.anchor.lock"):
        later.governor.run(RevokePassport(session_id))
    later.close()
    shutil.copyfile(tmp_path / "older.db", home / LEDGER_FILE)
    with pytest.raises(LedgerRolledBack):
        open_embedded_ledger(home)


# Work that is too much, or cannot be written


def test_a_piece_of_work_can_append_thousands_of_receipts(tmp_path: Path) -> None:
    count = 5_600  # more values than one statement of SQLite takes

    def work(transaction: Transaction) -> None:
        session = transaction.session(FIRST.id)
        assert session is not None
        for _ in range(count):
            session = transaction.append(session, pending_on(session))

    ledger = SqlitePlace(tmp_path).open()
    ledger.run(put(FIRST))
    ledger.run(work)
    kept = ledger.read().session(FIRST.id)
    assert kept is not None
    assert (kept.length, ledger.read().count(FIRST.id)) == (count, count)
    seqs = [it.seq for start in range(0, count, 1000) for it in ledger.read().receipts(FIRST.id, after=start)]
    assert seqs == list(range(1, count + 1))
    ledger.run(append_to(FIRST.id))
    ledger.close()


def _revoke(at_ms: Any, reason: str) -> Work[None]:
    return lambda transaction: transaction.put_revocation("pass:odd", at_ms=at_ms, reason=reason)


_REFUSED: dict[str, Work[Any]] = {
    "a number that is too large": _revoke(2**70, ""),
    "half a character": _revoke(0, "\ud800"),
    "a value of no kind": _revoke(object(), ""),
    "a limit that is too large": put(new_session("odd", limit=2**70)),
}


@pytest.mark.parametrize("name", _REFUSED)
@pytest.mark.parametrize("where", [0, 2, 4])
def test_work_whose_row_is_refused_harms_no_neighbour(tmp_path: Path, name: str, where: int) -> None:
    counted = Counted()
    ledger = SqlitePlace(tmp_path).open(observer=counted)
    ledger.run(put(FIRST))
    works: list[Work[Any]] = [append_to(FIRST.id) for _ in range(4)]
    works.insert(where, _REFUSED[name])
    answers = together(ledger, *works)
    refused = answers.pop(where)
    assert isinstance(refused, LedgerUnavailable)
    assert [answer.receipt.token for answer in answers] == checked(ledger.read(), FIRST.id)
    assert counted.failures == []
    ledger.run(append_to(FIRST.id))
    ledger.close()


# Waiting behind what takes long


def test_the_deadline_of_a_call_is_not_put_off_by_longer_work_before_it(tmp_path: Path) -> None:
    ledger = MemoryPlace(tmp_path).open(deadline_s=HASTY_S)
    begun, released = threading.Event(), threading.Event()

    def hang(_: Transaction) -> None:
        begun.set()
        assert released.wait(PATIENT_S)

    async def scene() -> None:
        long = asyncio.ensure_future(ledger.arun(hang, alone=True))
        try:
            assert await asyncio.to_thread(begun.wait, PATIENT_S)
            for _ in range(2):
                with pytest.raises(LedgerUnavailable):
                    await asyncio.wait_for(ledger.arun(put(FIRST)), 20 * HASTY_S)
            assert not long.done()
        finally:
            released.set()
        await long

    asyncio.run(scene())
    ledger.close()
    assert ledger.read().session(FIRST.id) is None
