"""A disk that refuses: each operation in turn, once or from then on, while the ledger is opened, used and closed."""

import gc
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from traceback import extract_tb

import apsw
import pytest

from remit.errors import LedgerUnavailable
from tests.faults.service import Audit, Service, integrity, open_service
from tests.faults.vfs import ERRORS, Disk, broken_disk

# A connection that could not be opened is closed by the collector, which has nobody to tell that this failed too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

CALLS = [f"call-{number}" for number in range(6)]
# Small enough that six commits bring the log over into the file more than once.
LOG_PAGES = 20
# Of the places where an operation can be refused, those that are tried with every run of the tests.
STRIDE = 11


@pytest.fixture(autouse=True)
def short_log() -> Iterator[None]:
    def shorten(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(LOG_PAGES)

    apsw.connection_hooks.append(shorten)
    yield
    apsw.connection_hooks.remove(shorten)
    gc.collect()


@dataclass
class Told:
    """What callers were told: the hash of their receipt, or the code of an error."""

    answers: dict[str, tuple[str, str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    refused: str = ""

    def ask(self, service: Service, session: str, key: str) -> None:
        try:
            receipt = service.ask(session, key).receipt
            self.answers[key] = receipt.claims.receipt_id, receipt.hash
        except LedgerUnavailable as error:
            self.errors[key] = error.code


@dataclass
class Before:
    """A home as it is found, with the session that goes on in it and what callers were told before."""

    home: Path
    session: str
    told: Told

    def copy(self, home: Path) -> Path:
        return Path(shutil.copytree(self.home, home))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Before:
    """A home that was left in order."""
    home, told = tmp_path_factory.mktemp("closed") / "home", Told()
    with open_service(home) as service:
        session = service.start()
        told.ask(service, session, "before")
    return Before(home, session, told)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Before:
    """A home as a crash leaves it: most of it is in the log."""
    folder, told = tmp_path_factory.mktemp("crashed"), Told()
    with open_service(folder / "running") as service:
        session = service.start()
        for number in range(3):
            told.ask(service, session, f"before-{number}")
        (folder / "home").mkdir(mode=0o700)
        shutil.copytree(folder / "running", folder / "home", dirs_exist_ok=True)
        (folder / "home" / "ledger.db-shm").unlink()
    return Before(folder / "home", session, told)


@pytest.fixture
def before(request: pytest.FixtureRequest) -> Before:
    found: Before = request.getfixturevalue(request.param)
    return found


def check(service: Service, session: str, told: Told) -> None:
    """Raise if an answer is missing, a chain is broken, or a call that is made again counts twice."""
    for key, (_, receipt_hash) in told.answers.items():
        assert service.ask(session, key).receipt.hash == receipt_hash
    for key in told.errors:
        service.ask(session, key)
    audit = Audit(session)
    assert audit.grow(service) == len(told.answers.keys() | told.errors.keys())
    assert all(audit.holds(*answer) for answer in told.answers.values())
    assert integrity(service.opened.path) == []
    assert {told.refused or "ledger_unavailable", *told.errors.values()} <= {"ledger_unavailable"}


@pytest.fixture
def places(full: bool) -> Iterable[int]:
    """Where the disk refuses: at the first operation, the second, and so on, or at some of them."""
    return count(1) if full else count(1, STRIDE)


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", [*product(["write", "sync", "truncate"], ERRORS)], ids=" ".join)
def test_a_disk_that_refuses_an_operation_costs_no_answer_and_the_service_goes_on_when_it_ends(
    tmp_path: Path, closed: Before, places: Iterable[int], fault: tuple[str, str], persistent: bool
) -> None:
    operation, error = fault
    for nth in places:
        with broken_disk() as disk:
            told = Told(dict(closed.told.answers))
            with open_service(closed.copy(tmp_path / f"{nth}"), vfs=disk.name) as service:
                disk.fail(operation, nth, ERRORS[error], persistent=persistent)
                for key in CALLS:
                    told.ask(service, closed.session, key)
                disk.heal()
                check(service, closed.session, told)
        assert persistent or len(told.errors) <= 1
        if not disk.refused:
            return


def use(home: Path, disk: Disk, told: Told, session: str = "") -> None:
    """Open, ask and close, as far as the disk allows."""
    try:
        with open_service(home, vfs=disk.name) as service:
            session = session or service.start()
            for key in CALLS[:3]:
                told.ask(service, session, key)
    except LedgerUnavailable as refused:
        told.refused = refused.code
    except apsw.Error as refused:
        # A disk that is not written in Python cannot fail so: SQLite closes without a word.
        if "Connection.close" not in {frame.name for frame in extract_tb(refused.__traceback__)}:
            raise


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("operation", ["write", "sync", "truncate", "read", "lock", "open", "delete"])
@pytest.mark.parametrize("before", ["closed", "crashed"], indirect=True)
def test_a_disk_that_refuses_while_the_ledger_is_opened_and_closed_leaves_it_whole(
    tmp_path: Path, before: Before, places: Iterable[int], operation: str, persistent: bool
) -> None:
    for nth in places:
        home, told = before.copy(tmp_path / f"{nth}"), Told(dict(before.told.answers))
        with broken_disk() as disk:
            disk.fail(operation, nth, apsw.IOError, persistent=persistent)
            use(home, disk, told, before.session)
            disk.heal()
            with open_service(home, vfs=disk.name) as service:
                check(service, before.session, told)
        if not disk.refused:
            return


def test_a_disk_that_refuses_while_the_ledger_is_made_leaves_one_that_can_be_made(
    tmp_path: Path, places: Iterable[int]
) -> None:
    for nth in places:
        home, told = tmp_path / f"{nth}", Told()
        with broken_disk() as disk:
            disk.fail("write", nth, apsw.FullError, persistent=True)
            use(home, disk, told)
            disk.heal()
            with open_service(home, vfs=disk.name) as service:
                kept = service.reader.sessions()
                check(service, kept[0].id if kept else service.start(), told if kept else Told())
        assert kept or not told.answers
        if not disk.refused:
            return
