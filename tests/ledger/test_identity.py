"""A ledger whose file was removed or replaced while it is open takes nothing more and is not read from."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from remit.errors import LedgerRolledBack, LedgerUnavailable, StateCorrupt, StateMissing
from remit.ledger.anchor import Anchor
from remit.ledger.embedded import LEDGER_FILE, EmbeddedLedger, anchor_mark, open_embedded_ledger, open_rows
from remit.ledger.home import open_home
from remit.ledger.identity import LOG_LIMIT
from remit.ledger.schema import PAGE_SIZE
from remit.ledger.sqlite import connect, connect_reader
from remit.ledger.store import Transaction
from tests.ledger.contract import PATIENT_S, append_to, new_session

FIRST = new_session("first")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(place: Path) -> EmbeddedLedger:
    """Open a ledger that holds a session with one receipt."""
    embedded = open_embedded_ledger(place, deadline_s=PATIENT_S)
    if embedded.ledger.read().session(FIRST.id) is None:
        embedded.ledger.run(start)
    embedded.ledger.run(append(embedded))
    return embedded


def start(transaction: Transaction) -> None:
    transaction.put_session(new_session("first", verifier=f"remit:{transaction.ledger_state.kid}"))


def append(embedded: EmbeddedLedger) -> Callable[[Transaction], object]:
    return append_to(FIRST.id, signing=embedded.keys.signing)


def remove(*names: str) -> Callable[[Path], None]:
    def deed(place: Path) -> None:
        for name in names:
            (place / name).unlink()

    return deed


def rename_another_over_it(place: Path) -> None:
    with_another = place.with_name("another")
    opened(with_another).close()
    (with_another / LEDGER_FILE).rename(place / LEDGER_FILE)


def put_a_copy_in_its_place(place: Path) -> None:
    """As `cp ledger.db x; mv x ledger.db` does: the same content in another file."""
    shutil.copy2(place / LEDGER_FILE, place / "copy")
    (place / "copy").rename(place / LEDGER_FILE)


def move_the_home(place: Path) -> None:
    place.rename(place.with_name("moved"))


def truncate(name: str) -> Callable[[Path], None]:
    return lambda place: os.truncate(place / name, 0)


def write_an_older_one_into_it(place: Path) -> None:
    """As `cat older.db > ledger.db` does: the same file, with less in it."""
    (place / LEDGER_FILE).write_bytes((place / LEDGER_FILE).read_bytes()[: 2 * PAGE_SIZE])


DEEDS: dict[str, Callable[[Path], None]] = {
    "all files removed": remove(LEDGER_FILE, LEDGER_FILE + "-wal", LEDGER_FILE + "-shm"),
    "the database removed": remove(LEDGER_FILE),
    "the write-ahead log removed": remove(LEDGER_FILE + "-wal"),
    "the shared memory removed": remove(LEDGER_FILE + "-shm"),
    "another ledger renamed over it": rename_another_over_it,
    "a copy in its place": put_a_copy_in_its_place,
    "the home moved away": move_the_home,
    "the write-ahead log truncated": truncate(LEDGER_FILE + "-wal"),
    "the database truncated": truncate(LEDGER_FILE),
    "a smaller one written into the database": write_an_older_one_into_it,
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_nothing_is_written_or_read_once_the_files_are_not_those_that_are_open(
    place: Path, deed: Callable[[Path], None]
) -> None:
    embedded = opened(place)
    deed(place)
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match="remit ledger restore") as refused:
            embedded.ledger.run(append(embedded))
        assert refused.value.code == "ledger_unavailable"
        with pytest.raises(LedgerUnavailable):
            embedded.ledger.run(lambda transaction: transaction.ledger_state)
        with pytest.raises(LedgerUnavailable):
            embedded.ledger.read().ledger_state()
    embedded.close()


def test_a_file_that_is_replaced_while_a_group_is_under_way_answers_nobody(place: Path) -> None:
    embedded = opened(place)
    work = append(embedded)

    def replaced_meanwhile(transaction: Transaction) -> object:
        answer = work(transaction)
        if (place / LEDGER_FILE).exists():
            remove(LEDGER_FILE)(place)
        return answer

    with pytest.raises(LedgerUnavailable):
        embedded.ledger.run(replaced_meanwhile)
    embedded.close()


def test_a_reader_that_has_never_read_does_not_open_what_was_put_in_its_place(place: Path) -> None:
    embedded = opened(place)
    rename_another_over_it(place)
    with pytest.raises(LedgerUnavailable):
        embedded.reader.session(FIRST.id)
    embedded.close()


def test_the_anchor_knows_of_every_receipt_of_a_ledger_that_was_removed(place: Path) -> None:
    """The anchor lags by a second; what was answered within that second must not be forgotten by a restart."""
    embedded = opened(place)
    older = place.with_name("older.db")
    shutil.copy2(place / LEDGER_FILE, older)
    for _ in range(5):
        embedded.ledger.run(append(embedded))
    held = embedded.ledger.read().overview()
    for path in place.glob(LEDGER_FILE + "*"):
        path.unlink()
    with pytest.raises(LedgerUnavailable):
        embedded.ledger.run(append(embedded))
    embedded.close()
    with open_home(place) as home:
        assert Anchor(home).read() == anchor_mark(held)
    with pytest.raises(StateMissing, match="6 receipts"):
        open_embedded_ledger(place)
    older.rename(place / LEDGER_FILE)
    with pytest.raises(LedgerRolledBack):
        open_embedded_ledger(place)


def test_a_command_that_reads_notices_that_the_file_was_replaced(place: Path) -> None:
    opened(place).close()
    with open_home(place) as home, open_rows(home) as (_, rows):
        assert rows.overview().receipts == 1
        put_a_copy_in_its_place(place)
        with pytest.raises(LedgerUnavailable):
            rows.overview()


def test_a_log_that_is_truncated_while_a_group_is_under_way_answers_nobody_afterwards(place: Path) -> None:
    embedded = opened(place)
    work = append(embedded)

    def truncated_meanwhile(transaction: Transaction) -> object:
        answer = work(transaction)
        os.truncate(place / (LEDGER_FILE + "-wal"), 0)
        return answer

    with pytest.raises(LedgerUnavailable, match="truncated"):
        embedded.ledger.run(truncated_meanwhile)
    embedded.close()


def test_a_log_that_sqlite_cuts_to_its_limit_is_no_truncation(place: Path) -> None:
    """It grows over the limit while someone reads an old state, and is cut when it begins anew."""
    embedded = opened(place)
    log = place / (LEDGER_FILE + "-wal")
    path = str(place / LEDGER_FILE)
    other, reading = connect(path), connect_reader(path)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM receipts").fetchall()
    other.execute("CREATE TABLE large AS SELECT zeroblob(?) AS it", (LOG_LIMIT,))
    other.execute("DROP TABLE large")
    embedded.ledger.run(append(embedded))
    assert log.stat().st_size > LOG_LIMIT
    reading.close()
    other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    embedded.ledger.run(append(embedded))
    assert log.stat().st_size == LOG_LIMIT
    embedded.ledger.run(append(embedded))
    assert embedded.ledger.read().overview().receipts == 4
    other.close()
    embedded.close()


def test_damage_that_a_reader_finds_stops_the_writer(place: Path) -> None:
    opened(place).close()
    connection = connect_reader(str(place / LEDGER_FILE))
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sources'").fetchone() or (0,)
    connection.close()
    embedded = open_embedded_ledger(place, deadline_s=PATIENT_S)
    with (place / LEDGER_FILE).open("r+b") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(b"\xa5" * PAGE_SIZE)
    embedded.ledger.run(append(embedded))  # it needs nothing of the damaged page
    with pytest.raises(StateCorrupt):
        embedded.reader.source_of(FIRST.id)
    for _ in range(2):
        with pytest.raises(StateCorrupt, match="remit ledger restore"):
            embedded.ledger.run(append(embedded))
        with pytest.raises(StateCorrupt, match="remit ledger restore"):
            embedded.reader.ledger_state()
    embedded.close()


def test_a_ledger_that_holds_less_than_before_is_stopped(place: Path) -> None:
    """As after an older one was written into the same file: the anchor is ahead of it."""
    embedded = opened(place)
    for number in range(3):
        embedded.ledger.run(revoke(number))
    other = connect(str(place / LEDGER_FILE))
    other.execute("UPDATE ledger SET epoch = 0")
    other.close()
    embedded.ledger.run(revoke(3))
    with pytest.raises(LedgerUnavailable, match="less than a moment ago"):
        embedded.ledger.run(append(embedded))
    embedded.close()


def revoke(number: int) -> Callable[[Transaction], object]:
    return lambda transaction: transaction.put_revocation(f"pass:{number}", at_ms=1, reason="")


def test_an_anchor_that_contradicts_the_ledger_stops_it(place: Path) -> None:
    embedded = opened(place)
    with open_home(place) as home:
        mark = anchor_mark(embedded.ledger.read().overview())
        Anchor(home).reset(mark._replace(ledger="ledger:another"))
    with pytest.raises(LedgerUnavailable, match=r"ledger\.anchor"):  # noqa: PT012 - the anchor is compared once a second
        while True:
            embedded.ledger.run(lambda it: it.put_revocation(f"pass:{os.urandom(8).hex()}", at_ms=1, reason=""))
    embedded.close()
