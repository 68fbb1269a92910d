"""Opening the embedded ledger of a home: every check before the first signature, in one place.

Refused, with what to do: a home that is not its owner's alone, a file that is not a ledger of ours, a ledger whose key
is gone, a ledger that is gone, and an older copy in the place of a newer one.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from remit.errors import RemitError, StateMissing
from remit.ledger.anchor import Anchor, Mark, check_mark
from remit.ledger.commit import DEADLINE_S, GroupCommit, Observer
from remit.ledger.home import Home, open_home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import LedgerKeys, first_key
from remit.ledger.port import Overview
from remit.ledger.rows import Rows, SqliteReader
from remit.ledger.sqlite import SqliteStore, connect, connect_reader, prepare
from remit.ledger.transaction import Store

__all__ = ["FILE", "LOCK", "AnchorKeeper", "Embedded", "mark_of", "open_embedded"]

FILE: Final = "ledger.db"
LOCK: Final = "home.lock"
_ANCHOR_EVERY_S: Final = 1.0


class Embedded(NamedTuple):
    """An open ledger with its keys; `close` finishes what was asked for."""

    home: Home
    ledger: GroupCommit
    keys: LedgerKeys
    key_files: KeyFiles
    path: str
    watch: "AnchorKeeper"

    def close(self) -> None:
        """Finish, and let go of everything."""
        self.ledger.close()
        self.home.close()


def open_embedded(
    path: Path, *, deadline_s: float = DEADLINE_S, vfs: str | None = None, observer: Observer | None = None
) -> Embedded:
    """Return the ledger of the home at `path`, made first where there is none."""
    home = open_home(path)
    try:
        files = KeyFiles(home.folder("keys"))
        anchor = Anchor(home)
        with home.locked(LOCK):
            place = _prepared(home, files, anchor, vfs)
        reader = SqliteReader(lambda: connect_reader(place, vfs=vfs))
        keys = LedgerKeys(files, reader)
        watch = AnchorKeeper(anchor, observer or Observer())
        ledger = GroupCommit(lambda: SqliteStore.open(place, vfs=vfs), reader, deadline_s=deadline_s, observer=watch)
    except BaseException:
        home.close()
        raise
    return Embedded(home, ledger, keys, files, place, watch)


def _prepared(home: Home, files: KeyFiles, anchor: Anchor, vfs: str | None) -> str:
    """Return the path of the ledger's file, once it is known to be what it must be."""
    mark = anchor.read()
    if not home.check_file(FILE):
        if mark is not None:
            raise StateMissing(f"{FILE} is gone, and it has held {mark.receipts} receipts: restore a backup of it")
        if len(files.kids()) > 1:
            raise StateMissing(f"{FILE} is gone, and there are keys of it: restore a backup of it")
        home.create(FILE, b"")
    place = home.path_of(FILE)
    connection = connect(place, vfs=vfs)
    try:
        now_ms = time.time_ns() // 1_000_000
        prepare(connection, f"ledger:{secrets.token_hex(16)}", lambda: first_key(files, now_ms))
        rows = Rows(lambda: connection)
        files.load(rows.switches().kid)
        present = mark_of(rows.overview())
        check_mark(mark, present, rows.hash_at)
    finally:
        connection.close()
    if mark is None:
        anchor.advance(present)
    return place


def mark_of(overview: Overview) -> Mark:
    """Return the mark of a ledger as it stands."""
    return Mark(overview.ledger_id, overview.receipts, overview.last_receipt_id, overview.last_receipt_hash)


class AnchorKeeper(Observer):
    """Moves the anchor after the ledger, once a second at most, and tells the next observer all it hears.

    An anchor that cannot be moved is tried again with the next group: it may lag behind, and nothing is lost by it.
    """

    def __init__(self, anchor: Anchor, then: Observer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._anchor = anchor
        self._then = then
        self._clock = clock
        self._due = 0.0

    def committed(self, store: Store, size: int) -> None:
        """Move the anchor if it is time."""
        if self._clock() >= self._due:
            self._due = self._clock() + _ANCHOR_EVERY_S
            self._move(store)
        self._then.committed(store, size)

    def failed(self, error: Exception) -> None:
        """Tell the next."""
        self._then.failed(error)

    def stopping(self, store: Store) -> None:
        """Leave the anchor where the ledger ends."""
        self._move(store)
        self._then.stopping(store)

    def _move(self, store: Store) -> None:
        with suppress(RemitError, OSError):
            self._anchor.advance(mark_of(store.overview()))
