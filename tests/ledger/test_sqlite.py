"""The embedded ledger's file: durable settings, only a ledger of ours, and rules that the database itself enforces."""

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from remit.errors import FieldInvalid, HeadMoved, LedgerForeign, LedgerUnavailable, SqliteUnsafe, StateCorrupt
from remit.ledger import sqlite
from remit.ledger.commit import GroupCommit
from remit.ledger.records import KeyRecord
from remit.ledger.rows import LedgerQueries, SqliteReader
from remit.ledger.schema import APPLICATION_ID, MIGRATIONS, PAGE_SIZE
from remit.ledger.sqlite import SqliteStore, check_library, connect, connect_reader, prepare
from remit.ledger.transaction import TransactionChanges
from tests.ledger.contract import FIRST_KEY, LEDGER_ID, SqlitePlace, append_to, checked, new_session, put
from tests.world import OURS

FIRST = new_session("first", limit=10)


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path)


@pytest.fixture
def ledger(place: SqlitePlace) -> Iterator[GroupCommit]:
    opened = place.open()
    opened.run(put(FIRST))
    yield opened
    opened.close()


@pytest.fixture
def raw(place: SqlitePlace, ledger: GroupCommit) -> Iterator[apsw.Connection]:
    """A connection beside the ledger, to write what no work would, over a chain of three receipts."""
    for _ in range(3):
        ledger.run(append_to(FIRST.id))
    connection = connect(place.path)
    yield connection
    connection.close()


def no_key() -> KeyRecord:
    raise AssertionError("only a new file asks for its first key")


# The connection


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("page_size", PAGE_SIZE),
        ("application_id", APPLICATION_ID),
        ("user_version", len(MIGRATIONS)),
        ("busy_timeout", 2000),
    ],
)
def test_the_writers_connection_is_durable_and_strict(place: SqlitePlace, pragma: str, value: object) -> None:
    connection = connect(place.path)
    assert connection.pragma(pragma) == value
    connection.close()


def test_the_connection_of_a_ledger_at_work_is_durable(place: SqlitePlace) -> None:
    opened: list[apsw.Connection] = []

    def open_store() -> SqliteStore:
        opened.append(connect(place.path))
        return SqliteStore(opened[-1])

    ledger = GroupCommit(open_store, SqliteReader(lambda: connect_reader(place.path)))
    ledger.run(put(FIRST))
    settings = ledger.run(lambda _: [opened[0].pragma(name) for name in ("journal_mode", "synchronous")])
    ledger.close()
    assert (settings, len(opened)) == (["wal", 2], 1)


def test_a_page_is_of_the_size_we_chose() -> None:
    assert PAGE_SIZE == 8192


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.52.0", "3.52.1", "3.7.0"])
def test_a_library_that_can_lose_data_is_refused(version: str) -> None:
    with pytest.raises(SqliteUnsafe) as caught:
        check_library(version)
    assert caught.value.code == "sqlite_unsafe"


@pytest.mark.parametrize("version", ["3.51.3", "3.53.0", "3.54.1", "4.0.0"])
def test_a_library_with_the_repair_is_taken(version: str) -> None:
    check_library(version)


def test_a_file_that_is_not_there_is_unavailable_and_not_made(tmp_path: Path) -> None:
    for opening in (connect, connect_reader):
        with pytest.raises(LedgerUnavailable) as caught:
            opening(str(tmp_path / "ledger.db"))
        assert caught.value.code == "ledger_unavailable"
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(place: SqlitePlace, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(place.path)
    for opening in (connect, connect_reader):
        with pytest.raises(LedgerUnavailable):
            opening(str(tmp_path / "link.db"))


def test_a_reader_cannot_write(place: SqlitePlace, ledger: GroupCommit) -> None:
    reader = connect_reader(place.path)
    reader.pragma("query_only", 0)
    for sql in ("UPDATE ledger SET kill_switch = 1", "DELETE FROM sessions", "CREATE TABLE more (x)"):
        with pytest.raises(apsw.ReadOnlyError):
            reader.execute(sql)
    reader.close()


# What is taken for a ledger


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    connection = connect(str(tmp_path / "ledger.db"))
    prepare(connection, LEDGER_ID, lambda: FIRST_KEY)
    rows = LedgerQueries(lambda: connection)
    assert (rows.overview().ledger_id, rows.keys(), rows.ledger_state().kid) == (LEDGER_ID, [FIRST_KEY], OURS.kid)
    connection.close()


def test_a_ledger_that_is_prepared_again_stays_what_it_is(place: SqlitePlace, raw: apsw.Connection) -> None:
    before = list(raw.execute("SELECT * FROM ledger")), list(raw.execute("SELECT * FROM keys"))
    prepare(raw, "ledger:another", no_key)
    assert (list(raw.execute("SELECT * FROM ledger")), list(raw.execute("SELECT * FROM keys"))) == before


def test_a_first_key_that_cannot_be_made_leaves_an_empty_file_that_can_be_prepared(tmp_path: Path) -> None:
    def no_space() -> KeyRecord:
        raise LedgerUnavailable("no space")

    (tmp_path / "ledger.db").touch()
    connection = connect(str(tmp_path / "ledger.db"))
    with pytest.raises(LedgerUnavailable):
        prepare(connection, "ledger:first", no_space)
    assert list(connection.execute("SELECT * FROM sqlite_schema")) == []
    prepare(connection, LEDGER_ID, lambda: FIRST_KEY)
    assert LedgerQueries(lambda: connection).overview().ledger_id == LEDGER_ID
    connection.close()


FOREIGN = [
    "CREATE TABLE remarks (text)",
    "PRAGMA user_version = 1",
    "CREATE TABLE remarks (text); PRAGMA user_version = 1",
    "CREATE TABLE remarks (text); PRAGMA application_id = 7",
]


@pytest.fixture(params=FOREIGN)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database of someone else."""
    path = tmp_path / "foreign.db"
    connection = apsw.Connection(str(path))
    connection.execute(request.param)
    connection.close()
    return path


def test_a_database_of_someone_else_is_refused(foreign: Path) -> None:
    connection = connect(str(foreign))
    with pytest.raises(LedgerForeign) as caught:
        prepare(connection, LEDGER_ID, no_key)
    assert caught.value.code == "ledger_foreign"
    connection.close()


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(raw: apsw.Connection) -> None:
    raw.pragma("user_version", len(MIGRATIONS) + 1)
    before = list(raw.execute("SELECT * FROM sqlite_schema"))
    with pytest.raises(LedgerForeign) as caught:
        prepare(raw, LEDGER_ID, no_key)
    assert caught.value.code == "ledger_foreign"
    assert raw.pragma("user_version") == len(MIGRATIONS) + 1
    assert list(raw.execute("SELECT * FROM sqlite_schema")) == before


def test_an_older_ledger_is_brought_up_to_date_and_keeps_its_receipts(
    raw: apsw.Connection, ledger: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = "ALTER TABLE revocations ADD COLUMN who TEXT; CREATE TABLE remarks (text TEXT) STRICT;"
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, later))
    before = checked(ledger.read(), FIRST.id)
    for _ in range(2):
        prepare(raw, LEDGER_ID, no_key)
    assert raw.pragma("user_version") == len(MIGRATIONS) + 1
    assert list(raw.execute("SELECT * FROM remarks")) == []
    ledger.run(append_to(FIRST.id))
    assert checked(ledger.read(), FIRST.id)[:-1] == before


def test_a_migration_that_fails_changes_nothing(raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    half = "CREATE TABLE remarks (text TEXT) STRICT; INSERT INTO nowhere VALUES (1);"
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, half))
    with pytest.raises(LedgerUnavailable):
        prepare(raw, LEDGER_ID, no_key)
    assert raw.pragma("user_version") == len(MIGRATIONS)
    assert list(raw.execute("SELECT * FROM sqlite_schema WHERE name = 'remarks'")) == []


# Rules of the database itself

RECEIPT = "INSERT INTO receipts (number, session, seq, parent, id, code, token) VALUES "
REFUSED = {
    "a second receipt at one place of a chain": RECEIPT + "(9, 1, 3, 3, 'rcpt:new', '', 't')",
    "a second receipt on one parent": RECEIPT + "(9, 1, 4, 2, 'rcpt:new', '', 't')",
    "a second first receipt": RECEIPT + "(9, 1, 1, NULL, 'rcpt:new', '', 't')",
    "a later receipt without a parent": RECEIPT + "(9, 1, 4, NULL, 'rcpt:new', '', 't')",
    "a receipt id that was used": RECEIPT + "(9, 1, 4, 3, (SELECT id FROM receipts WHERE number = 1), '', 't')",
    "a receipt of no session": RECEIPT + "(9, 77, 1, NULL, 'rcpt:new', '', 't')",
    "a receipt on a parent that is not there": RECEIPT + "(9, 1, 4, 77, 'rcpt:new', '', 't')",
    "a receipt without a token": RECEIPT + "(9, 1, 4, 3, 'rcpt:new', '', NULL)",
    "a receipt without a code": RECEIPT + "(9, 1, 4, 3, 'rcpt:new', NULL, 't')",
    "a receipt that is removed from under its follower": "DELETE FROM receipts WHERE number = 2",
    "more calls used than there are": "UPDATE sessions SET used = 11",
    "more calls used and set aside than there are": "UPDATE sessions SET used = 5, reserved = 6",
    "calls used below none": "UPDATE sessions SET used = -1",
    "calls set aside below none": "UPDATE sessions SET reserved = -1",
    "events observed below none": "UPDATE sessions SET observed = -1",
    "a state that there is not": "UPDATE sessions SET state = 'asleep'",
    "an end of a session that goes on": "UPDATE sessions SET ended_ms = 1",
    "a session that is over without an end": "UPDATE sessions SET state = 'ended'",
    "a number that is a text": "UPDATE sessions SET length = 'three'",
    "a second row for the whole ledger": "INSERT INTO ledger VALUES (2, 'x', 1, 'k', 0, 0, 0, 0, 0)",
    "a kill switch half on": "UPDATE ledger SET kill_switch = 2",
    "a key twice": "INSERT INTO keys (kid, public_pem, created_ms) SELECT kid, public_pem, 1 FROM keys",
    "a repeat of no receipt": "INSERT INTO repeats VALUES (1, 'key', 'digest', 77)",
    "a minute with a count of nothing": "INSERT INTO minutes VALUES (1, 'a', 0)",
    "a code with a count of nothing": "INSERT INTO codes VALUES ('a', 0)",
    "a source of no session": "INSERT INTO sources VALUES (77, 'key', '{}')",
    "a second source of a session": "INSERT INTO sources VALUES (1, 'a', '{}'), (1, 'b', '{}')",
    "a note of no session": "INSERT INTO notes VALUES (77, 1, 1, 'text')",
    "a delegation of no session": "INSERT INTO delegations VALUES ('x', 'r', 'd', 'c', 'p', 1, 'rcpt:none', 1, 0)",
}


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED)
def test_the_database_itself_refuses(raw: apsw.Connection, ledger: GroupCommit, sql: str) -> None:
    with pytest.raises(apsw.ConstraintError):
        raw.execute(sql)
    assert len(checked(ledger.read(), FIRST.id)) == 3


def test_the_database_takes_what_continues_a_chain(raw: apsw.Connection) -> None:
    raw.execute(RECEIPT + "(4, 1, 4, 3, 'rcpt:new', '', 't')")
    raw.execute("UPDATE sessions SET used = 4, reserved = 6")


# What a question costs

QUESTIONS: dict[str, Callable[[LedgerQueries], object]] = {
    "a session": lambda it: it.session(FIRST.id),
    "sessions": lambda it: it.sessions(after=1),
    "the latest sessions": lambda it: it.latest_sessions(before=9),
    "a receipt": lambda it: it.receipt("rcpt:x"),
    "receipts": lambda it: it.receipts(FIRST.id, after=1),
    "the latest receipts": lambda it: it.latest_receipts(before=9),
    "denials": lambda it: it.denials(before=9),
    "denials of a code": lambda it: it.denials("code", before=9),
    "denials of a session": lambda it: it.denials_of(FIRST.id, before=9),
    "minutes": lambda it: it.denials_per_minute(1),
    "a source by its key": lambda it: it.source("key"),
    "a source by its session": lambda it: it.source_of(FIRST.id),
    "sources": lambda it: it.sources(after=1),
    "how many sources there are": lambda it: it.source_count(),
    "attestations": lambda it: it.attestations(FIRST.id),
    "an overview": lambda it: it.overview(),
}
# Tables of one row, one look at the end of a table, and adding up the minutes that were asked for.
CHEAP = {"SCAN ledger", "SCAN receipts", "USE TEMP B-TREE FOR GROUP BY"}


def plans(raw: apsw.Connection, question: Callable[[LedgerQueries], object]) -> set[str]:
    """Return how SQLite goes about a question, step by step."""
    asked: list[tuple[str, object]] = []

    def note(_: object, sql: str, values: object) -> bool:
        asked.append((sql, values))
        return True

    raw.exec_trace = note
    question(LedgerQueries(lambda: raw))
    raw.exec_trace = None
    assert asked
    return {row[3] for sql, values in asked for row in raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)}  # type: ignore[arg-type]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_walks_through_a_table_or_sorts(raw: apsw.Connection, question: str) -> None:
    steps = plans(raw, QUESTIONS[question])
    dear = [step for step in steps if "TEMP B-TREE" in step or step.startswith("SCAN")]
    assert set(dear) <= CHEAP


@pytest.mark.parametrize(
    ("question", "index"),
    [
        ("denials", "denials"),
        ("denials of a code", "denials_by_code"),
        ("denials of a session", "denials_by_session"),
        ("a source by its key", "sources_by_key"),
    ],
)
def test_denials_and_sources_are_found_by_their_own_index(raw: apsw.Connection, question: str, index: str) -> None:
    assert any(f"INDEX {index} (" in step for step in plans(raw, QUESTIONS[question]))


@pytest.mark.parametrize("question", [LedgerQueries.broken_sessions, LedgerQueries.broken_count])
def test_broken_sessions_are_found_in_an_index_that_holds_no_others(
    raw: apsw.Connection, question: Callable[[LedgerQueries], object]
) -> None:
    assert all("INDEX broken_sessions" in step for step in plans(raw, question))
    held = raw.execute("SELECT count(*) FROM sessions INDEXED BY broken_sessions WHERE broken = 1")
    assert next(held) == (0,)


def test_a_permitted_receipt_is_in_no_index_of_denials(raw: apsw.Connection) -> None:
    indices = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'denials%'")]
    counts = [
        next(raw.execute(f"SELECT count(*) FROM receipts INDEXED BY {name} WHERE code != ''"))[0] for name in indices
    ]
    assert (len(indices), counts) == (3, [0, 0, 0])


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_number_that_no_row_can_have_is_refused(raw: apsw.Connection, number: int) -> None:
    rows = LedgerQueries(lambda: raw)
    for ask in (rows.denials_per_minute, lambda it: rows.latest_receipts(before=it), lambda it: rows.sources(after=it)):
        with pytest.raises(FieldInvalid) as caught:
            ask(number)
        assert caught.value.code == "field_invalid"


# Two who write, and files that are damaged


def test_a_writer_that_is_kept_waiting_too_long_is_unavailable(place: SqlitePlace, raw: apsw.Connection) -> None:
    connection = connect(place.path)
    connection.set_busy_timeout(1)
    store = SqliteStore(connection)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable) as caught:
        store.begin()
    assert caught.value.code == "ledger_unavailable"
    raw.execute("ROLLBACK")
    store.begin()
    store.rollback()
    store.close()


def test_a_ledger_that_was_kept_waiting_too_long_works_again(place: SqlitePlace, raw: apsw.Connection) -> None:
    def open_store() -> SqliteStore:
        connection = connect(place.path)
        connection.set_busy_timeout(1)
        return SqliteStore(connection)

    ledger = GroupCommit(open_store, reader := SqliteReader(lambda: connect_reader(place.path)))
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable):
        ledger.run(append_to(FIRST.id))
    raw.execute("ROLLBACK")
    ledger.run(append_to(FIRST.id))
    ledger.close()
    assert len(checked(reader, FIRST.id)) == 4


def test_a_store_notices_what_another_has_committed_and_nothing_else(place: SqlitePlace, ledger: GroupCommit) -> None:
    one, two = SqliteStore.open(place.path), SqliteStore.open(place.path)
    observed = [one.changed_by_others()]
    ledger.run(append_to(FIRST.id))
    observed += [one.changed_by_others(), one.changed_by_others(), two.changed_by_others()]
    one.close()
    two.close()
    assert observed == [False, True, False, True]


def test_a_store_is_not_disturbed_by_itself(place: SqlitePlace, ledger: GroupCommit) -> None:
    store = SqliteStore.open(place.path)
    store.begin()
    observed = [store.changed_by_others()]
    store.commit(TransactionChanges(revocations={"pass:1": (1, "lost")}))
    observed.append(store.changed_by_others())
    store.begin()
    observed.append(store.changed_by_others())
    store.rollback()
    store.close()
    assert observed == [False, False, False]


def test_a_store_that_is_held_notices_what_was_committed_before(place: SqlitePlace, ledger: GroupCommit) -> None:
    store = SqliteStore.open(place.path)
    ledger.run(append_to(FIRST.id))
    store.begin()
    observed = [store.changed_by_others(), store.changed_by_others()]
    store.rollback()
    store.close()
    assert observed == [True, False]


def test_a_store_does_not_write_a_session_that_another_has_changed(place: SqlitePlace, ledger: GroupCommit) -> None:
    store = SqliteStore.open(place.path)
    stale = store.session(FIRST.id)
    assert stale is not None
    ledger.run(append_to(FIRST.id))
    store.begin()
    with pytest.raises(HeadMoved) as caught:
        store.commit(TransactionChanges(sessions={FIRST.id: stale}))
    assert caught.value.code == "head_moved"
    store.close()
    assert len(checked(ledger.read(), FIRST.id)) == 1


@pytest.mark.parametrize("content", [b"garbage" * 4096, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 8176])
def test_a_file_that_is_no_database_is_corrupt_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(StateCorrupt) as caught:
        connect(str(path))
    assert caught.value.code == "state_corrupt"
    assert path.read_bytes() == content


def damage(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE_SIZE)
        file.write(b"\xff" * PAGE_SIZE)


def test_a_ledger_with_a_damaged_page_is_corrupt_to_its_writer_and_its_readers(
    place: SqlitePlace, ledger: GroupCommit
) -> None:
    root = "SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'"
    ledger.close()
    connection = connect(place.path)
    (page,) = connection.execute(root).fetchone() or (0,)
    connection.pragma("wal_checkpoint(truncate)")
    connection.close()
    damage(Path(place.path), page - 1)
    again = place.open()
    with pytest.raises(StateCorrupt) as caught:
        again.run(append_to(FIRST.id))
    assert caught.value.code == "state_corrupt"
    with pytest.raises(StateCorrupt):
        again.read().session(FIRST.id)
    again.close()


def test_a_ledger_whose_schema_is_damaged_is_corrupt(place: SqlitePlace) -> None:
    with Path(place.path).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (PAGE_SIZE - 100))
    with pytest.raises(StateCorrupt):
        prepare(connect(place.path), LEDGER_ID, no_key)


def test_a_ledger_without_its_first_row_is_corrupt(place: SqlitePlace, raw: apsw.Connection) -> None:
    raw.execute("DELETE FROM ledger")
    with pytest.raises(StateCorrupt):
        LedgerQueries(lambda: raw).ledger_state()


def test_what_readers_say_of_a_file_that_is_gone_is_in_our_words(tmp_path: Path) -> None:
    reader = SqliteReader(lambda: connect_reader(str(tmp_path / "ledger.db")))
    with pytest.raises(LedgerUnavailable):
        reader.overview()


def test_a_reader_that_was_closed_opens_again_for_whoever_reads_again(place: SqlitePlace, ledger: GroupCommit) -> None:
    connections: list[apsw.Connection] = []

    def open_reader() -> apsw.Connection:
        connections.append(connect_reader(place.path))
        return connections[-1]

    reader = SqliteReader(open_reader)
    before = reader.session(FIRST.id)
    reader.close()
    with pytest.raises(apsw.ConnectionClosedError):
        connections[0].execute("SELECT 1")
    assert reader.session(FIRST.id) == before is not None
    reader.close()


def test_what_is_removed_leaves_nothing_in_the_file(raw: apsw.Connection) -> None:
    assert raw.pragma("secure_delete") == 1
