"""Files as a power cut leaves them: the log ends anywhere, or its end is damaged. What is left is a beginning."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from remit.errors import LedgerRolledBack
from remit.ledger.rows import LedgerQueries
from remit.ledger.sqlite import connect
from tests.faults.service import Audit, integrity, open_service, pages

SECTOR = 512
LOG_HEADER = 32


class Copy(NamedTuple):
    """A ledger that was copied while it ran: all receipts, and how long the log was once each had its answer."""

    home: Path
    session: str
    tokens: list[str]
    ends: list[int]

    @property
    def log(self) -> bytes:
        return (self.home / "ledger.db-wal").read_bytes()

    def least(self, intact: int) -> int:
        """Return how many receipts are there for sure if so much of the log is intact."""
        return sum(end <= intact for end in self.ends)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    folder = tmp_path_factory.mktemp("torn")
    tokens, ends = list[str](), list[int]()
    with open_service(folder / "running") as service:
        session = service.start()
        for number in range(12):
            tokens.append(service.ask(session, f"call-{number}").receipt.token)
            ends.append((folder / "running" / "ledger.db-wal").stat().st_size)
        shutil.copytree(folder / "running", folder / "home")
        Audit(session).grow(service)
    return Copy(folder / "home", session, tokens, ends)


def kept_in(copied: Copy, folder: Path, log: bytes, *, index: bool = False) -> list[str]:
    """Return the receipts that a ledger with this log holds, once it was opened and looked through."""
    folder.mkdir()
    for name in ("ledger.db", "ledger.db-shm") if index else ("ledger.db",):
        shutil.copy(copied.home / name, folder / name)
    (folder / "ledger.db-wal").write_bytes(log)
    connection = connect(str(folder / "ledger.db"))
    try:
        rows = LedgerQueries(lambda: connection)
        session = rows.session(copied.session)
        kept = [it.token for it in pages(rows, copied.session)] if session else []
        assert (session.length if session else 0) == len(kept) == rows.overview().receipts
    finally:
        connection.close()
    assert integrity(folder / "ledger.db") == []
    shutil.rmtree(folder)
    return kept


def samples(full: bool, every: int) -> int:
    """Return at which distance the log is cut."""
    return every if full else every * 37


@pytest.mark.parametrize("index", [False, True], ids=["without its index", "with its index"])
def test_a_log_that_ends_anywhere_leaves_the_beginning_of_what_was_answered(
    tmp_path: Path, copied: Copy, full: bool, index: bool
) -> None:
    log = copied.log
    for cut in range(0, len(log) + 1, samples(full, SECTOR)):
        kept = kept_in(copied, tmp_path / "cut", log[:cut], index=index)
        assert kept == copied.tokens[: len(kept)]
        assert len(kept) == copied.least(cut)


def flip(log: bytes, place: int, chance: random.Random) -> bytes:
    return log[:place] + bytes([log[place] ^ chance.randrange(1, 256)]) + log[place + 1 :]


def zero(log: bytes, place: int, _chance: random.Random) -> bytes:
    return log[:place] + bytes(min(SECTOR, len(log) - place)) + log[place + SECTOR :]


def garble(log: bytes, place: int, chance: random.Random) -> bytes:
    return log[:place] + chance.randbytes(len(log) - place)


@pytest.mark.parametrize("damage", [flip, zero, garble])
def test_a_log_that_is_damaged_anywhere_leaves_the_beginning_of_what_was_answered(
    tmp_path: Path, copied: Copy, full: bool, damage: Callable[[bytes, int, random.Random], bytes]
) -> None:
    chance, log = random.Random(4), copied.log
    for _ in range(200 if full else 10):
        place = chance.randrange(LOG_HEADER, len(log))
        kept = kept_in(copied, tmp_path / "damaged", damage(log, place, chance))
        assert kept == copied.tokens[: len(kept)]
        assert len(kept) >= copied.least(place)


def test_a_copy_of_a_running_ledger_can_be_opened_and_goes_on(tmp_path: Path, copied: Copy) -> None:
    home = Path(shutil.copytree(copied.home, tmp_path / "home"))
    (home / "ledger.db-shm").unlink()
    with open_service(home) as service:
        audit = Audit(copied.session)
        assert audit.grow(service) == len(copied.tokens)
        assert service.ask(copied.session, "call-0").receipt.token == copied.tokens[0]
        assert service.ask(copied.session, "next-0").permits
        assert audit.grow(service) == 1


def test_a_ledger_that_is_behind_its_anchor_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_service(home) as service:
        session = service.start()
        service.ask(session, "call-0")
        shutil.copy(home / "ledger.db-wal", tmp_path / "log")
        shutil.copy(home / "ledger.db", tmp_path / "file")
        service.ask(session, "call-1")
    shutil.copy(tmp_path / "file", home / "ledger.db")
    shutil.copy(tmp_path / "log", home / "ledger.db-wal")
    with pytest.raises(LedgerRolledBack) as caught, open_service(home):
        pass
    assert caught.value.code == "ledger_rolled_back"
