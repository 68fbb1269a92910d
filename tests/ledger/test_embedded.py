"""Opening the ledger of a home: what is wrong is refused before anything is signed, and nothing is changed by it."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from remit.errors import (
    HomeUnsafe,
    LedgerForeign,
    LedgerRolledBack,
    RemitError,
    StateCorrupt,
    StateMissing,
)
from remit.ledger.anchor import Anchor, AnchorMark
from remit.ledger.commit import GroupCommit
from remit.ledger.embedded import LEDGER_FILE, AnchorKeeper, EmbeddedLedger, anchor_mark, open_embedded_ledger
from remit.ledger.home import open_home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.records import LedgerState
from remit.ledger.rows import SqliteReader
from remit.ledger.schema import MIGRATIONS
from remit.ledger.sqlite import SqliteStore, connect, connect_reader
from remit.ledger.store import Transaction
from tests.ledger.contract import PATIENT_S, Counted, append_to, checked, new_session, put
from tests.world import NOW

pytestmark = pytest.mark.slow

FIRST = new_session("first")
MARKER = "ledger.id"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


@contextmanager
def opened(place: Path) -> Iterator[EmbeddedLedger]:
    embedded = open_embedded_ledger(place, deadline_s=PATIENT_S)
    try:
        yield embedded
    finally:
        embedded.close()


def grow(embedded: EmbeddedLedger, receipts: int) -> list[str]:
    """Append receipts to the first session, which is started if there is none."""
    if embedded.ledger.read().session(FIRST.id) is None:
        embedded.ledger.run(start)
    append = append_to(FIRST.id, signing=embedded.keys.signing)
    return [embedded.ledger.run(append).receipt.token for _ in range(receipts)]


def start(transaction: Transaction) -> None:
    transaction.put_session(new_session("first", verifier=f"remit:{transaction.ledger_state.kid}"))


def anchored(place: Path) -> AnchorMark | None:
    with open_home(place) as home:
        return Anchor(home).read()


def contents(place: Path) -> dict[str, object]:
    """Return what lies in a home: the ledger by what it holds, everything else by its bytes; locks do not count."""
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file() and not name.endswith((".lock", ".use", "-wal", "-shm")):
            found[name] = (stat.S_IMODE(path.stat().st_mode), rows_of(path) or path.read_bytes())
    return found


def rows_of(path: Path) -> object:
    """Return all that a database holds, and what its header says; None for any other file."""
    if not path.read_bytes().startswith(b"SQLite format 3\0"):
        return None
    connection = apsw.Connection(str(path))
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows = {name: list(connection.execute(f"SELECT * FROM {name}")) for name in tables}
        return rows, [connection.pragma(name) for name in ("journal_mode", "application_id", "user_version")]
    finally:
        connection.close()


# A new home, and the same again


def test_a_new_home_gets_one_key_and_an_empty_ledger(place: Path) -> None:
    with opened(place) as embedded:
        overview, ledger_state = embedded.ledger.read().overview(), embedded.ledger.run(lambda it: it.ledger_state)
        assert (overview.sessions, overview.receipts) == (0, 0)
        assert embedded.key_files.kids() == [ledger_state.kid]
        assert ledger_state == LedgerState(ledger_state.kid)
        assert anchored(place) == anchor_mark(overview)


def test_a_ledger_goes_on_where_it_was(place: Path) -> None:
    with opened(place) as embedded:
        before = grow(embedded, 3)
        ledger_id = embedded.ledger.read().overview().ledger_id
    with opened(place) as embedded:
        after = grow(embedded, 2)
        assert checked(embedded.ledger.read(), FIRST.id, embedded.keys.keyring()) == before + after
        assert embedded.ledger.read().overview().ledger_id == ledger_id


def test_a_home_that_was_left_without_closing_opens(place: Path) -> None:
    first = open_embedded_ledger(place, deadline_s=PATIENT_S)
    tokens = grow(first, 2)
    with opened(place) as second:
        assert checked(second.ledger.read(), FIRST.id, second.keys.keyring()) == tokens
    first.close()


def test_a_ledger_that_was_closed_is_one_file(place: Path) -> None:
    with opened(place) as embedded:
        tokens = grow(embedded, 3)
        assert checked(embedded.ledger.read(), FIRST.id, embedded.keys.keyring()) == tokens
    assert [path.name for path in place.glob(LEDGER_FILE + "*")] == [LEDGER_FILE]


def test_two_that_are_open_at_once_share_the_ledger(place: Path) -> None:
    with opened(place) as one, opened(place) as two:
        tokens = [token for _ in range(3) for embedded in (one, two) for token in grow(embedded, 1)]
        assert checked(one.ledger.read(), FIRST.id, one.keys.keyring()) == tokens


# What is refused


def lose_key(place: Path) -> None:
    for path in (place / "keys").iterdir():
        path.unlink()


def swap_key(place: Path) -> None:
    (path,) = (place / "keys").iterdir()
    with open_home(place) as home, home.folder("keys") as folder:
        other = KeyFiles(folder).create()
    (place / "keys" / f"{other.kid}.pem").rename(path)


def lose_ledger(place: Path) -> None:
    for path in place.glob(LEDGER_FILE + "*"):
        path.unlink()


def lose_ledger_and_anchor(place: Path) -> None:
    """As if someone had wanted to begin anew, but for the keys that are there."""
    lose_ledger(place)
    (place / "ledger.anchor").unlink()
    with open_home(place) as home, home.folder("keys") as folder:
        KeyFiles(folder).create()


def lose_anchor(place: Path) -> None:
    (place / "ledger.anchor").unlink()


def truncate_without_anchor(place: Path) -> None:
    """As someone does who wants a ledger to begin anew, under the same key."""
    lose_ledger(place)
    lose_anchor(place)
    (place / LEDGER_FILE).touch(0o600)


def put_unused_ledger(place: Path) -> None:
    """A new ledger, with its key, that nothing was written to: without an anchor it starts in a home of its own."""
    with opened(place.parent / "another"):
        pass
    lose_ledger(place)
    lose_anchor(place)
    shutil.copy2(place.parent / "another" / LEDGER_FILE, place / LEDGER_FILE)
    for key in (place.parent / "another" / "keys").iterdir():
        shutil.copy2(key, place / "keys" / key.name)


def put_older_without_anchor(place: Path) -> None:
    """As someone does who wants a revocation to be forgotten."""
    shutil.copy2(place / LEDGER_FILE, place.parent / "older.db")
    with opened(place) as embedded:
        embedded.ledger.run(lambda transaction: transaction.put_revocation("pass:1", at_ms=1, reason="lost"))
    lose_ledger(place)
    lose_anchor(place)
    shutil.copy2(place.parent / "older.db", place / LEDGER_FILE)


def put_foreign(place: Path) -> None:
    lose_ledger(place)
    connection = apsw.Connection(str(place / LEDGER_FILE))
    connection.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')")
    connection.close()
    (place / LEDGER_FILE).chmod(0o600)


def put_newer(place: Path) -> None:
    connection = apsw.Connection(str(place / LEDGER_FILE))
    connection.pragma("user_version", len(MIGRATIONS) + 1)
    connection.close()


def put_garbage(place: Path) -> None:
    lose_ledger(place)
    (place / LEDGER_FILE).touch(0o600)
    (place / LEDGER_FILE).write_bytes(b"garbage" * 2000)


def put_another_ledger(place: Path) -> None:
    with opened(place.parent / "another") as embedded:
        grow(embedded, 5)
    lose_ledger(place)
    shutil.copy2(place.parent / "another" / LEDGER_FILE, place / LEDGER_FILE)
    for key in (place.parent / "another" / "keys").iterdir():
        shutil.copy2(key, place / "keys" / key.name)


def put_link(place: Path) -> None:
    (place / LEDGER_FILE).rename(place.parent / "elsewhere.db")
    (place / LEDGER_FILE).symlink_to(place.parent / "elsewhere.db")


def second_name(place: Path) -> None:
    os.link(place / LEDGER_FILE, place.parent / "elsewhere.db")


def damage_anchor(place: Path) -> None:
    (place / "ledger.anchor").write_bytes(b"{}")


def put_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def widen(name: str, mode: int) -> Callable[[Path], None]:
    return lambda place: (place / name).chmod(mode)


REFUSED: dict[str, tuple[Callable[[Path], None], type[RemitError], str]] = {
    "the key is gone": (lose_key, StateMissing, "state_missing"),
    "another key is in its file": (swap_key, StateCorrupt, "state_corrupt"),
    "the ledger is gone": (lose_ledger, StateMissing, "state_missing"),
    "the ledger and its anchor are gone, and keys are there": (lose_ledger_and_anchor, StateMissing, "state_missing"),
    "the anchor is gone": (lose_anchor, StateMissing, "state_missing"),
    "an older ledger without an anchor": (put_older_without_anchor, StateMissing, "state_missing"),
    "a ledger of a newer version": (put_newer, LedgerForeign, "ledger_foreign"),
    "garbage": (put_garbage, StateCorrupt, "state_corrupt"),
    "another ledger of ours": (put_another_ledger, LedgerForeign, "ledger_foreign"),
    "a link in the place of the ledger": (put_link, HomeUnsafe, "home_unsafe"),
    "a ledger with a second name": (second_name, HomeUnsafe, "home_unsafe"),
    "a damaged anchor": (damage_anchor, StateCorrupt, "state_corrupt"),
    "a home that others can read": (widen(".", 0o750), HomeUnsafe, "home_unsafe"),
    "a home that others can write": (widen(".", 0o702), HomeUnsafe, "home_unsafe"),
    "keys that others can read": (widen("keys", 0o755), HomeUnsafe, "home_unsafe"),
    "a ledger that others can read": (widen(LEDGER_FILE, 0o640), HomeUnsafe, "home_unsafe"),
    "a ledger that others can write": (widen(LEDGER_FILE, 0o602), HomeUnsafe, "home_unsafe"),
    "an anchor that others can write": (widen("ledger.anchor", 0o620), HomeUnsafe, "home_unsafe"),
    "a database of someone else": (put_foreign, LedgerForeign, "ledger_foreign"),
    "an empty file without an anchor": (truncate_without_anchor, StateMissing, "state_missing"),
    "a new ledger without an anchor": (put_unused_ledger, LedgerForeign, "ledger_foreign"),
    "a damaged marker": (lambda place: put_bytes(place / MARKER, b"{}"), StateCorrupt, "state_corrupt"),
    "a marker that others can write": (widen("ledger.id", 0o620), HomeUnsafe, "home_unsafe"),
    "an empty file": (lambda place: os.truncate(place / LEDGER_FILE, 0), StateMissing, "state_missing"),
}


@pytest.mark.parametrize(("harm", "error", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_and_nothing_is_changed(
    place: Path, harm: Callable[[Path], None], error: type[RemitError], code: str
) -> None:
    with opened(place) as embedded:
        grow(embedded, 3)
    harm(place)
    before = contents(place)
    for _ in range(2):
        with pytest.raises(error) as caught:
            open_embedded_ledger(place)
        assert (type(caught.value), caught.value.code) == (error, code)
        assert str(place.parent) not in str(caught.value)
    assert contents(place) == before


@pytest.mark.parametrize("name", [LEDGER_FILE + "-wal", LEDGER_FILE + "-shm"])
@pytest.mark.parametrize("harm", ["wide", "link"])
def test_what_lies_beside_the_ledger_must_be_its_owners_alone_too(place: Path, name: str, harm: str) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    (place / name).unlink(missing_ok=True)
    if harm == "wide":
        (place / name).touch()
        (place / name).chmod(0o644)
    else:
        (place.parent / "elsewhere").touch(0o600)
        (place / name).symlink_to(place.parent / "elsewhere")
    with pytest.raises(HomeUnsafe) as caught:
        open_embedded_ledger(place)
    assert caught.value.code == "home_unsafe"


def test_an_older_copy_of_the_ledger_is_refused_and_the_newer_one_opens_again(place: Path, tmp_path: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 2)
    shutil.copytree(place, tmp_path / "older")
    with opened(place) as embedded:
        tokens = [*checked(embedded.ledger.read(), FIRST.id, embedded.keys.keyring()), *grow(embedded, 2)]
    shutil.copytree(place, tmp_path / "newer")
    lose_ledger(place)
    for path in (tmp_path / "older").glob(LEDGER_FILE + "*"):
        shutil.copy2(path, place / path.name)
    before = contents(place)
    with pytest.raises(LedgerRolledBack) as caught:
        open_embedded_ledger(place)
    assert caught.value.code == "ledger_rolled_back"
    assert contents(place) == before
    lose_ledger(place)
    shutil.copy2(tmp_path / "newer" / LEDGER_FILE, place / LEDGER_FILE)
    with opened(place) as embedded:
        assert checked(embedded.ledger.read(), FIRST.id, embedded.keys.keyring()) == tokens


def test_an_older_copy_that_has_grown_again_is_refused(place: Path, tmp_path: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 2)
    shutil.copytree(place, tmp_path / "fork")
    with opened(place) as embedded:
        grow(embedded, 2)
    with opened(tmp_path / "fork") as embedded:
        grow(embedded, 4)
    lose_ledger(place)
    shutil.copy2(tmp_path / "fork" / LEDGER_FILE, place / LEDGER_FILE)
    with pytest.raises(LedgerRolledBack) as caught:
        open_embedded_ledger(place)
    assert caught.value.code == "ledger_rolled_back"


def test_a_home_that_was_refused_can_be_opened_once_it_is_mended(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    (key,) = (place / "keys").iterdir()
    pem = key.read_bytes()
    key.unlink()
    with pytest.raises(StateMissing):
        open_embedded_ledger(place)
    key.touch(0o600)
    key.write_bytes(pem)
    with opened(place) as embedded:
        grow(embedded, 1)


def test_a_refusal_leaves_nothing_open(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    lose_key(place)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(StateMissing):
            open_embedded_ledger(place)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# The first time


def test_a_key_without_a_ledger_is_one_whose_ledger_is_lost(place: Path) -> None:
    with open_home(place) as home, home.folder("keys") as folder:
        KeyFiles(folder).create()
    with pytest.raises(StateMissing) as caught:
        open_embedded_ledger(place)
    assert caught.value.code == "state_missing"
    assert not (place / LEDGER_FILE).exists()


def test_an_empty_file_that_an_interrupted_set_up_has_left_is_taken(place: Path) -> None:
    with open_home(place) as home, home.folder("keys") as folder:
        key = KeyFiles(folder).create()
        home.create(LEDGER_FILE, b"")
    with opened(place) as embedded:
        assert embedded.ledger.run(lambda it: it.ledger_state.kid) == key.kid


def test_a_ledger_that_was_set_up_and_not_used_yet_needs_no_anchor(place: Path) -> None:
    """A crash can come between the two."""
    opened_once = open_embedded_ledger(place, deadline_s=PATIENT_S)
    opened_once.close()
    lose_anchor(place)
    with opened(place) as embedded:
        grow(embedded, 1)
    assert anchored(place) is not None


WORK: dict[str, Callable[[Transaction], None]] = {
    "a session": start,
    "a revocation": lambda it: it.put_revocation("pass:1", at_ms=1, reason="lost"),
    "the kill switch": lambda it: it.put_ledger_state(it.ledger_state._replace(kill_switch=True)),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_ledger_that_was_used_does_not_open_without_its_anchor(
    place: Path, work: Callable[[Transaction], None]
) -> None:
    with opened(place) as embedded:
        embedded.ledger.run(work)
    lose_anchor(place)
    with pytest.raises(StateMissing, match="remit ledger restore"):
        open_embedded_ledger(place)


OPENER = """
import sys
from pathlib import Path
from remit.ledger.embedded import open_embedded_ledger
for line in sys.stdin:
    embedded = open_embedded_ledger(Path(line.strip()), deadline_s=60)
    print(embedded.ledger.read().overview().ledger_id, embedded.ledger.run(lambda it: it.ledger_state.kid), flush=True)
    embedded.close()
"""


def test_processes_that_set_up_a_home_at_once_agree_on_one_ledger_and_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENER]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(3)
    ]
    for number in range(5):
        for racer in racers:
            assert racer.stdin
            racer.stdin.write(f"{tmp_path / str(number)}\n")
        answers = {racer.stdout.readline() for racer in racers if racer.stdout}
        assert len(answers) == 1
        assert [path.stem for path in (tmp_path / str(number) / "keys").iterdir()] == [answers.pop().split()[1]]
    for racer in racers:
        racer.communicate()
        assert racer.returncode == 0


# Who may read it


@pytest.fixture
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(place: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}


@pytest.mark.usefixtures("careless")
def test_everything_in_a_home_is_its_owners_alone_whatever_the_umask(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 2)
        at_work = modes(place)
    after = modes(place)
    assert {LEDGER_FILE, LEDGER_FILE + "-wal", LEDGER_FILE + "-shm", "ledger.anchor", MARKER} <= at_work.keys()
    for name, mode in (at_work | after).items():
        assert mode == (0o700 if name in ("home", "keys") else 0o600), name


# The marker


def test_a_ledger_that_was_lost_names_the_command_that_puts_a_backup_back(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    truncate_without_anchor(place)
    with pytest.raises(StateMissing, match="remit ledger restore FILE"):
        open_embedded_ledger(place)


def test_a_home_without_a_marker_gets_one_for_the_ledger_that_matches_its_anchor(place: Path) -> None:
    """As a home of the first release has none."""
    with opened(place) as embedded:
        grow(embedded, 1)
    written = (place / MARKER).read_bytes()
    (place / MARKER).unlink()
    opened_again = open_embedded_ledger(place)
    opened_again.close()
    assert (place / MARKER).read_bytes() == written


def test_a_new_ledger_that_ended_before_its_marker_and_its_anchor_starts(place: Path) -> None:
    with opened(place) as embedded:
        ledger_id = embedded.ledger.read().overview().ledger_id
    (place / MARKER).unlink()
    lose_anchor(place)
    with opened(place) as embedded:
        assert embedded.ledger.read().overview().ledger_id == ledger_id
    assert (place / MARKER).exists()


def test_a_new_home_that_ended_before_its_ledger_was_set_up_starts(place: Path) -> None:
    with open_home(place) as home, home.folder("keys") as folder:
        home.create(LEDGER_FILE, b"")
        kid = KeyFiles(folder).create().kid
    with opened(place) as embedded:
        assert embedded.ledger.read().ledger_state().kid == kid


# The anchor


def test_the_anchor_stands_where_the_ledger_ended(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 5)
        overview = embedded.ledger.read().overview()
    assert anchored(place) == anchor_mark(overview)
    assert overview.receipts == 5


def test_the_anchor_moves_once_a_while_and_at_the_end(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    now = [100.0]
    with open_home(place) as home:
        keeper = AnchorKeeper(Anchor(home), Counted(), clock=lambda: now[0])
        store = SqliteStore.open(place / LEDGER_FILE)
        marks = []
        with opened(place) as embedded:
            for passed in (0.0, 0.5, 0.6):
                now[0] += passed
                grow(embedded, 1)
                keeper.committed(store, 1, 0.0)
            overview = store.overview()
            keeper.stopping(store)
            marks.append(anchored(place))
        store.close()
    assert marks[-1] == anchor_mark(overview)


def test_the_anchor_moves_at_once_for_what_leaves_no_receipt(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    with open_home(place) as home, opened(place) as embedded:
        keeper = AnchorKeeper(anchor := Anchor(home), Counted(), clock=lambda: 100.0)
        store = SqliteStore.open(place / LEDGER_FILE)
        keeper.committed(store, 1, 0.0)
        embedded.ledger.run(lambda transaction: transaction.put_revocation("pass:1", at_ms=1, reason="lost"))
        anchor.reset(earlier := anchor_mark(store.overview())._replace(epoch=0))
        keeper.committed(store, 1, 0.0)
        marks = [anchor.read()]
        keeper.epoch_changed()
        keeper.committed(store, 1, 0.0)
        marks.append(anchor.read())
        store.close()
    assert marks == [earlier, earlier._replace(epoch=1)]


def test_an_anchor_that_was_held_is_moved_with_the_next_group(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    store = SqliteStore.open(place / LEDGER_FILE)
    with open_home(place) as home:
        anchor = Anchor(home)
        anchor.reset(anchor_mark(store.overview())._replace(receipts=0, last_receipt_id=None, last_receipt_hash=None))
        keeper = AnchorKeeper(anchor, Counted(), clock=lambda: 100.0)
        with home.locked("ledger.anchor.lock"):
            keeper.committed(store, 1, 0.0)
        keeper.committed(store, 1, 0.0)
        assert anchor.read() == anchor_mark(store.overview())
    store.close()


def test_an_anchor_that_cannot_be_moved_fails_no_commit(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    lost = open_home(place)
    keeper = AnchorKeeper(Anchor(lost), counted := Counted())
    lost.close()
    path = str(place / LEDGER_FILE)
    reader = SqliteReader(lambda: connect_reader(path))
    ledger = GroupCommit(lambda: SqliteStore.open(path), reader, deadline_s=PATIENT_S, observer=keeper)
    ledger.run(put(new_session("second")))
    ledger.close()
    assert (counted.sizes, counted.failures) == ([1], [])
    assert reader.overview().sessions == 2


def test_an_anchor_that_lags_behind_is_no_reason_to_refuse(place: Path) -> None:
    with opened(place) as embedded:
        grow(embedded, 1)
    early = (place / "ledger.anchor").read_bytes()
    with opened(place) as embedded:
        grow(embedded, 3)
    (place / "ledger.anchor").write_bytes(early)
    with opened(place) as embedded:
        grow(embedded, 1)
    mark = anchored(place)
    assert mark is not None
    assert mark.receipts == 5


def test_the_keeper_of_the_anchor_tells_the_next_observer_all_it_hears(place: Path) -> None:
    with opened(place) as embedded:
        keeper = AnchorKeeper(Anchor(embedded.home), counted := Counted())
        store = SqliteStore(connect(embedded.path))
        keeper.committed(store, 7, 0.25)
        keeper.epoch_changed()
        keeper.failed(error := StateCorrupt("damaged"))
        keeper.stopping(store)
        store.close()
    assert (counted.sizes, counted.seconds, counted.turns, counted.failures) == ([7], [0.25], 1, [error])


def test_the_time_of_a_new_ledger_is_the_time_of_its_key(place: Path) -> None:
    with opened(place) as embedded:
        (record,) = embedded.ledger.read().keys()
    assert record.change is None
    assert record.created_ms > (NOW - 10**9) * 1000
