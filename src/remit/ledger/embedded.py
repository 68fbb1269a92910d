"""Opening the embedded ledger of a home, with all checks that are made before the first signature.

It is refused, with advice: a home that others can access, a file that is not a Remit ledger, a ledger whose key is
missing, a missing ledger, and an older copy in place of a newer ledger.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from remit.errors import (
    LedgerForeign,
    LedgerInUse,
    LedgerRolledBack,
    RemitError,
    StateCorrupt,
    StateMissing,
    quote,
)
from remit.ledger.anchor import Anchor, AnchorMark, check_anchor
from remit.ledger.commit import BATCH_SIZE, DEADLINE_S, CommitObserver, GroupCommit
from remit.ledger.home import Home, open_home
from remit.ledger.identity import SIDECAR_SUFFIXES, LedgerFile
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import LedgerKeys, first_key
from remit.ledger.marker import Marker, check_marker, read_marker, write_marker
from remit.ledger.records import LedgerOverview
from remit.ledger.rows import LedgerQueries, SqliteReader, translate_errors
from remit.ledger.schema import APPLICATION_ID, MIGRATIONS, differences
from remit.ledger.sqlite import BUSY_MS, SqliteStore, connect, connect_reader, prepare
from remit.ledger.transaction import Store

LEDGER_FILE: Final = "ledger.db"
HOME_LOCK: Final = "home.lock"
# A lock: shared by all processes that have the ledger open, exclusive for replacing its file.
USE_LOCK: Final = "ledger.use"
_ANCHOR_EVERY_S: Final = 1.0


class EmbeddedLedger(NamedTuple):
    """An open ledger with its keys; `close` finishes the queued work."""

    home: Home
    ledger: GroupCommit
    reader: SqliteReader
    keys: LedgerKeys
    key_files: KeyFiles
    path: str
    watch: "AnchorKeeper"
    held: ExitStack

    def close(self) -> None:
        """Finish the queued work and close everything."""
        self.reader.close()  # first: the writer must close last, because it checkpoints the log
        self.ledger.close()
        self.held.close()


def open_embedded_ledger(
    path: Path,
    *,
    deadline_s: float = DEADLINE_S,
    vfs: str | None = None,
    observer: CommitObserver | None = None,
    bundle: int = BATCH_SIZE,
) -> EmbeddedLedger:
    """Open the ledger of the home at `path`, creating it if there is none; for the options, see `GroupCommit`."""
    with ExitStack() as held:
        home = held.enter_context(open_home(path))
        held.enter_context(_in_use(home))
        files = KeyFiles(held.enter_context(home.folder("keys")))
        anchor = Anchor(home)
        with home.locked(HOME_LOCK):
            file = _prepare_ledger(home, files, anchor, vfs)
        reader = SqliteReader(
            lambda: _connect_reader(file, vfs), checked=lambda it: file.opened(it).check, damaged=file.damaged
        )
        held.callback(reader.close)
        keys = LedgerKeys(files, reader)
        watch = AnchorKeeper(anchor, observer or CommitObserver(), file)
        ledger = GroupCommit(
            lambda: SqliteStore.open(file, vfs=vfs, lost=watch.lost),
            reader,
            deadline_s=deadline_s,
            observer=watch,
            batch=bundle,
        )
        return EmbeddedLedger(home, ledger, reader, keys, files, file.path, watch, held.pop_all())


class ReadOnlyLedger(NamedTuple):
    """A ledger that another process writes, open for reading from any thread."""

    home: Home
    reader: SqliteReader
    held: ExitStack

    def close(self) -> None:
        """Close everything."""
        self.held.close()


def open_ledger_reader(path: Path) -> ReadOnlyLedger:
    """Open the ledger of the home at `path` for reading; its writer has made all checks."""
    with ExitStack() as held:
        home = held.enter_context(open_home(path, create=False))
        held.enter_context(_in_use(home))
        file = LedgerFile(ledger_path(home))
        reader = SqliteReader(
            lambda: _connect_reader(file, None), checked=lambda it: file.opened(it).check, damaged=file.damaged
        )
        held.callback(reader.close)
        return ReadOnlyLedger(home, reader, held.pop_all())


def _connect_reader(file: LedgerFile, vfs: str | None) -> apsw.Connection:
    file.check()
    with file.damage_noted():
        return connect_reader(file.path, vfs=vfs)


@contextmanager
def _in_use(home: Home) -> Iterator[None]:
    """Hold the lock that keeps others from replacing the ledger file."""
    with ExitStack() as held:
        try:
            held.enter_context(home.locked(USE_LOCK, shared=True, wait=False))
        except LedgerInUse:
            raise LedgerInUse("the ledger is being restored: wait until that is done") from None
        yield


@contextmanager
def open_rows(home: Home) -> Iterator[tuple[apsw.Connection, LedgerQueries]]:
    """Open the ledger of a home for reading while others write: a read-only connection, and queries on it."""
    with _in_use(home):
        file = LedgerFile(ledger_path(home))
        connection = connect_reader(file.path)
        try:
            check_format(connection)
            files = file.opened(connection)

            def checked() -> apsw.Connection:
                files.check()
                return connection

            yield connection, LedgerQueries(checked)
        finally:
            connection.close()


def ledger_path(home: Home) -> str:
    """Return the path of the ledger file, after checking that it and its sidecar files are safe."""
    for beside in SIDECAR_SUFFIXES:
        home.check_file(LEDGER_FILE + beside)
    return home.path_of(LEDGER_FILE)


def check_format(connection: apsw.Connection) -> None:
    """Raise `LedgerForeign` unless this is a Remit ledger of a supported version."""
    try:
        found, version = connection.pragma("application_id"), connection.pragma("user_version")
    except apsw.NotADBError:
        raise LedgerForeign("the file is not a database") from None
    except apsw.CorruptError:
        raise StateCorrupt("the file is damaged; take another copy of it") from None
    if found != APPLICATION_ID:
        raise LedgerForeign("the file is not a Remit ledger")
    if version not in range(1, len(MIGRATIONS) + 1):
        raise LedgerForeign(f"the ledger is of version {version}, and this one reads up to {len(MIGRATIONS)}")
    with translate_errors():
        odd = differences(connection)
    if odd:
        raise StateCorrupt(f"the tables of the ledger are not as they must be: {quote(odd[0])}")


def _prepare_ledger(home: Home, files: KeyFiles, anchor: Anchor, vfs: str | None) -> LedgerFile:
    """Create or migrate the ledger file if necessary, make all checks, and return it."""
    mark, marker = anchor.read(), read_marker(home)
    if not home.check_file(LEDGER_FILE):
        _check_nothing_lost(mark, marker, files, most_keys=0)
        home.create(LEDGER_FILE, b"")  # before its first key, so that a key without a ledger means a lost ledger
    place = ledger_path(home)
    if _is_new(place, vfs):
        _check_nothing_lost(mark, marker, files, most_keys=1)
    file = LedgerFile(place)
    connection = connect(place, vfs=vfs)
    try:
        now_ms = time.time_ns() // 1_000_000
        prepare(connection, f"ledger:{secrets.token_hex(16)}", lambda: first_key(files, now_ms))
        rows = LedgerQueries(lambda: connection)
        signing = files.load(rows.ledger_state().kid)
        retired = {kid for kid, *_ in rows.keys()} - {signing.kid}  # noqa: SIM118 - not a dictionary
        for kid in retired:
            files.remove(kid)  # left by a crash right after a change of key
        present = anchor_mark(rows.overview())
        which = build_marker(rows)
        check_marker(marker, which)
        if mark is None and _is_used(connection):
            raise StateMissing(_NO_ANCHOR)
        check_anchor(mark, present, rows.hash_at)
        file.check()
    finally:
        connection.close()
    if marker is None:
        write_marker(home, which)
    if mark is None:
        with suppress(LedgerInUse):  # another process is writing it
            anchor.advance(present)
    return file


# A new ledger gets its anchor before anything can be written to it.
_NO_ANCHOR: Final = (
    "ledger.anchor is gone, so an older copy in the place of ledger.db would not be noticed. Bring it back, or accept "
    "a copy of the ledger as it is, which closes its sessions: remit ledger restore FILE --accept-loss"
)
# The row counts of a ledger that was just created.
_SET_UP: Final = {"ledger": 1, "keys": 1}


def _is_used(connection: apsw.Connection) -> bool:
    """Return whether anything was written to a ledger since it was created."""
    with translate_errors():
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        for (name,) in tables.fetchall():
            rows = connection.execute(f'SELECT 1 FROM "{name}" LIMIT 2').fetchall()  # noqa: S608
            if len(rows) > _SET_UP.get(str(name), 0):
                return True
        return connection.execute("SELECT epoch + kill_switch FROM ledger").fetchone() != (0,)


_LOST: Final = (
    f"{LEDGER_FILE} is gone or empty, and {{}}: put a backup of it in its place by: remit ledger restore FILE"
)


def _check_nothing_lost(mark: AnchorMark | None, marker: Marker | None, files: KeyFiles, *, most_keys: int) -> None:
    """Raise if there was a ledger before: creating a new one would hide its loss."""
    if mark is not None:
        raise StateMissing(_LOST.format(f"it has held {mark.receipts} receipts"))
    if marker is not None:
        raise StateMissing(_LOST.format("ledger.id shows that there was one"))
    if len(files.kids()) > most_keys:
        raise StateMissing(_LOST.format("there are keys of it"))


def _is_new(place: str, vfs: str | None) -> bool:
    """Return whether the file is missing or empty, and raise if it is not a ledger; it is only read.

    The usual connection setup would change a foreign file before it is recognized. A read-only connection would fail
    if a crash has left a log to be rolled back.
    """
    with translate_errors():
        connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
    try:
        with translate_errors():
            connection.set_busy_timeout(BUSY_MS)
            marked = connection.pragma("application_id") or connection.pragma("user_version")
            new = not marked and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        if not new:
            check_format(connection)
        return new
    finally:
        connection.close()


def anchor_mark(overview: LedgerOverview) -> AnchorMark:
    """Return the current anchor mark of a ledger."""
    ledger, sessions, receipts, last_id, last_hash, epoch = overview
    return AnchorMark(ledger, receipts, last_id, last_hash, sessions, epoch)


def build_marker(rows: LedgerQueries) -> Marker:
    """Return the marker of a ledger."""
    keys = rows.keys()
    if not keys:
        raise StateCorrupt("ledger.db is damaged: it has no key")
    return Marker(rows.overview().ledger_id, keys[0].kid)


class AnchorKeeper(CommitObserver):
    """Advances the anchor after commits, at most once a second, and forwards all events to the next observer.

    An anchor that cannot be written is tried again with the next group: it may lag behind without any loss.
    An anchor that contradicts the ledger means that one of them was replaced: from then on, nothing more is committed.
    The same applies to a ledger that has less of anything than when it was last read.
    """

    def __init__(
        self,
        anchor: Anchor,
        then: CommitObserver,
        file: LedgerFile | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._anchor = anchor
        self._then = then
        self._file = file
        self._clock = clock
        self._due = 0.0
        # The position of the ledger when it was last read.
        self._last: AnchorMark | None = None

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """Advance the anchor if that is due."""
        if self._clock() >= self._due and self._move(store):
            self._due = self._clock() + _ANCHOR_EVERY_S
        self._then.committed(store, size, seconds)

    def epoch_changed(self) -> None:
        """Advance the anchor at once: changes without receipts are recorded nowhere else."""
        self._due = 0.0
        self._then.epoch_changed()

    def failed(self, error: BaseException) -> None:
        """Call the next observer."""
        self._then.failed(error)

    def stopping(self, store: Store) -> None:
        """Advance the anchor to the end of the ledger."""
        self._move(store)
        self._then.stopping(store)

    def lost(self, store: Store) -> None:
        """Advance the anchor to the end of a ledger whose file was replaced, so that an older copy is refused."""
        self._move(store)

    def _move(self, store: Store) -> bool:
        """Advance the anchor; return whether that succeeded."""
        try:
            mark = anchor_mark(store.overview())
            if self._last is not None and mark.is_behind(self._last):
                raise LedgerRolledBack("the ledger has less than a moment ago")
            self._last = mark
            self._anchor.advance(mark)
        except _CONTRADICTION as error:
            if self._file is not None:
                with suppress(RemitError):  # reported to the next group
                    self._file.fail(f"ledger.anchor contradicts ledger.db: {error}")
            self._then.failed(error)
            return False
        except (RemitError, OSError):
            return False
        return True


_CONTRADICTION: Final = (LedgerRolledBack, LedgerForeign, StateCorrupt)
