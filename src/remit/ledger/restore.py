"""Replaces the ledger by a copy, while no process has it open.

Invariants: a restore never loses data silently; the user must accept a loss. No chain continues from a head that may be
older than one that clients have seen: unless the copy is identical to the current ledger, all its sessions are closed.
What was revoked stays revoked, as far as the current ledger can still be read. The current ledger is kept under another
name.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from remit.errors import LedgerForeign, LedgerInUse, LedgerRolledBack, RemitError, StateCorrupt, StateMissing
from remit.ledger.anchor import Anchor, AnchorMark, check_anchor
from remit.ledger.backup import SIDECAR_SUFFIXES, check_copy, copy_database, sync_directory, translate_file_errors
from remit.ledger.embedded import LEDGER_FILE, USE_LOCK, anchor_mark, build_marker, check_format, ledger_path
from remit.ledger.home import Home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import build_keyring
from remit.ledger.marker import Marker, read_marker, write_marker
from remit.ledger.records import RESTORED, KeyRecord, LedgerOverview, LedgerState, LimitRecord
from remit.ledger.rows import REGISTERS, LedgerQueries, translate_errors
from remit.ledger.sqlite import connect, connect_reader, migrate


class RestoreResult(NamedTuple):
    """The result of a restore: the new state of the ledger, lost receipts, and active sessions that were closed.

    `replaced` is the name under which the former ledger is kept in the home. Without an anchor (`anchored`), more
    receipts may be lost than are known.
    """

    overview: LedgerOverview
    lost_receipts: int
    closed_sessions: int
    replaced: str | None
    anchored: bool


class _CurrentLedger(NamedTuple):
    """What can still be read from the current ledger."""

    connection: apsw.Connection
    overview: LedgerOverview
    ledger_state: LedgerState
    keys: list[KeyRecord]
    limits: list[LimitRecord]
    growth: tuple[int, ...]


def restore(home: Home, source: Path, *, accept_loss: bool = False) -> RestoreResult:
    """Replace the ledger by a copy, and return what changed.

    Raises `LedgerInUse` while another process has the ledger open, `LedgerForeign` for a file that is not a Remit
    ledger or is a copy of another one, `StateCorrupt` for a damaged copy, `StateMissing` if its key is missing, and
    `LedgerRolledBack` for a copy that lacks something, unless `accept_loss`.
    """
    with _alone(home), _brought(home, source) as name:
        with _open_connection(home.path_of(name)) as copy, _open_current_ledger(home) as known:
            restored = _prepare_copy(home, copy, known, accept_loss=accept_loss)
            marker = build_marker(LedgerQueries(lambda: copy))
            replaced = _next_name(home) if home.check_file(LEDGER_FILE) else None
            copied = known is not None and replaced is not None and _copy_aside(home, known.connection, replaced)
        if replaced is not None and not copied:
            _move_aside(home, replaced)
        _put(home, name)
        Anchor(home).reset(anchor_mark(restored.overview))
        write_marker(home, marker)
    return restored._replace(replaced=replaced)


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    with ExitStack() as held:
        try:
            held.enter_context(home.locked(USE_LOCK, wait=False))
        except LedgerInUse:
            raise LedgerInUse("the ledger is in use: stop the Hub and the proxy first") from None
        yield


@contextmanager
def _brought(home: Home, source: Path) -> Iterator[str]:
    """Yield the name of a temporary file in the home with the content of `source`. It is removed unless it was used."""
    name = f".unfinished-{secrets.token_hex(16)}"
    home.create(name, b"")
    try:
        with translate_file_errors(source):
            place = os.path.realpath(source, strict=True)
            os.close(os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        with _open_connection(place, read_only=True) as given:
            check_format(given)
            copy_database(given, home.path_of(name))
        yield name
    finally:
        for ending in ("", *SIDECAR_SUFFIXES):
            home.remove(name + ending)


@contextmanager
def _open_connection(path: str, *, read_only: bool = False) -> Iterator[apsw.Connection]:
    if read_only:
        connection = connect_reader(path)
    else:
        with translate_errors():
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
            connection.pragma("synchronous", "full")
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _open_current_ledger(home: Home) -> Iterator[_CurrentLedger | None]:
    """Yield what can be read from the current ledger, or None if it is missing or cannot be read."""
    if not home.check_file(LEDGER_FILE):
        yield None
        return
    with _open_connection(ledger_path(home), read_only=True) as connection:
        found = None
        with suppress(RemitError):
            check_format(connection)
            rows = LedgerQueries(lambda: connection)
            found = _CurrentLedger(
                connection, rows.overview(), rows.ledger_state(), rows.keys(), rows.limits(), _growth(connection)
            )
        yield found


# Values that only grow while a ledger is used: a ledger with a lower one is older.
_GROWTH: Final = """
SELECT (SELECT coalesce(max(number), 0) FROM receipts),
       (SELECT count(*) FROM sessions), (SELECT coalesce(sum(version), 0) FROM sessions),
       (SELECT epoch FROM ledger), (SELECT count(*) FROM attestations), (SELECT count(*) FROM keys)
"""


_REGISTERED: Final = "SELECT (SELECT count(*) FROM passports), (SELECT count(*) FROM key_limits)"


def _growth(connection: apsw.Connection) -> tuple[int, ...]:
    with translate_errors():
        older = connection.pragma("user_version") < REGISTERS
        registered = (0, 0) if older else connection.execute(_REGISTERED).fetchone()
        return (*(connection.execute(_GROWTH).fetchone() or ()), *(registered or ()))


def _prepare_copy(
    home: Home, copy: apsw.Connection, known: _CurrentLedger | None, *, accept_loss: bool
) -> RestoreResult:
    """Prepare the copy to replace the current ledger, and return the result."""
    rows, mark = check_copy(copy), _mark(home, accept_loss=accept_loss)
    _migrate(copy)
    overview = rows.overview()
    marker = _marker(home, accept_loss=accept_loss)
    expected = mark.ledger if mark else marker.ledger if marker else None
    if known is not None and expected is not None and known.overview.ledger_id != expected:
        known = None  # the current file is another ledger
    expected = expected or (known.overview.ledger_id if known else None)
    if expected is not None and overview.ledger_id != expected:
        raise LedgerForeign("the copy is of another ledger than the one of this home")
    if not accept_loss:
        _check_nothing_lost(rows, copy, mark, known)
    before = max(mark.receipts if mark else 0, known.overview.receipts if known else 0)
    # Without an anchor, the current ledger may itself be an older copy.
    current = known is not None and mark is not None
    same = current and known is not None and (known.growth, known.overview) == (_growth(copy), overview)
    closed = 0 if same else _reconcile(copy, rows.ledger_state(), rows.keys(), known)
    _check_key(home, rows.ledger_state().kid)
    return RestoreResult(overview, max(0, before - overview.receipts), closed, None, mark is not None)


def _migrate(copy: apsw.Connection) -> None:
    """Migrate a copy of an earlier version."""
    with translate_errors(), copy:
        migrate(copy)


def _mark(home: Home, *, accept_loss: bool) -> AnchorMark | None:
    """Return the mark of the anchor. A damaged one is ignored if a loss is accepted."""
    try:
        return Anchor(home).read()
    except StateCorrupt:
        if accept_loss:
            return None
        raise


def _marker(home: Home, *, accept_loss: bool) -> Marker | None:
    """Return the marker. A damaged one is ignored if a loss is accepted."""
    try:
        return read_marker(home)
    except StateCorrupt:
        if accept_loss:
            return None
        raise


def _check_nothing_lost(
    rows: LedgerQueries, copy: apsw.Connection, mark: AnchorMark | None, known: _CurrentLedger | None
) -> None:
    """Raise `LedgerRolledBack` if the copy lacks anything that the ledger is known to have had."""
    present = anchor_mark(rows.overview())
    check_anchor(mark, present, rows.hash_at)
    if mark is None and known is not None and known.overview.epoch + sum(known.growth[:2]):
        raise StateMissing(
            "ledger.anchor is gone, so what the copy lacks is unknown: bring it back, or give --accept-loss"
        )
    if known is not None:
        check_anchor(anchor_mark(known.overview), present, rows.hash_at)
        if any(less < more for less, more in zip(_growth(copy), known.growth, strict=True)):
            raise LedgerRolledBack("the copy is older than the ledger that is there")


def _check_key(home: Home, kid: str) -> None:
    with home.folder("keys", create=False) as folder:
        try:
            KeyFiles(folder).load(kid)
        except StateMissing:
            raise StateMissing("the key that the copy signs with is not in keys/: bring it back first") from None


_CLOSE: Final = f"""
UPDATE sessions SET
  cause = '{RESTORED}',
  ended_ms = CASE state WHEN 'active' THEN max(?, started_ms) ELSE ended_ms END,
  state = CASE state WHEN 'active' THEN 'revoked' ELSE state END,
  version = version + 1
"""  # noqa: S608
_REVOKE: Final = "INSERT OR IGNORE INTO revocations VALUES (?, ?, ?)"
# Delegates that were not started when the copy was made, but may have been since.
_DELEGATES: Final = "INSERT OR IGNORE INTO revocations SELECT child, ?, ? FROM delegations WHERE settled = 0"
# Sessions of the copy that were killed later stay killed; new sessions get higher numbers.
_SWITCHES: Final = """
UPDATE ledger SET kid = ?, kill_switch = ?, epoch = ?,
  killed_up_to = max(killed_up_to, min(?, (SELECT coalesce(max(number), 0) FROM sessions)))
"""
# Sessions that were started after the copy was made: their passports must not start again with a full budget.
_LATER: Final = "INSERT OR IGNORE INTO revocations SELECT ?1, ?2, ?3 WHERE ?1 NOT IN (SELECT id FROM sessions)"


def _reconcile(
    copy: apsw.Connection, ledger_state: LedgerState, keys: list[KeyRecord], known: _CurrentLedger | None
) -> int:
    """Close all sessions of the copy, copy what must not be lost, and return how many sessions were active."""
    now_ms = time.time_ns() // 1_000_000
    with translate_errors(), copy:
        (closed,) = copy.execute("SELECT count(*) FROM sessions WHERE state = 'active'").fetchone() or (0,)
        copy.execute(_CLOSE, (now_ms,))
        copy.execute(_DELEGATES, (now_ms, RESTORED))
        if known is not None:
            _take_over(copy, known, now_ms)
            ledger_state = _later_key(copy, ledger_state, keys, known)
            if known.keys[: len(keys)] == keys:
                copy.executemany("INSERT OR IGNORE INTO key_limits (kid, token) VALUES (?, ?)", known.limits)
        copy.execute(
            _SWITCHES,
            (
                ledger_state.kid,
                ledger_state.kill_switch or (known is not None and known.ledger_state.kill_switch),
                max(ledger_state.epoch, known.ledger_state.epoch if known else 0) + 1,
                known.ledger_state.killed_up_to if known else 0,
            ),
        )
    return int(closed)


def _take_over(copy: apsw.Connection, known: _CurrentLedger, now_ms: int) -> None:
    """Revoke what was revoked or started later, as far as the old ledger can be read."""
    for sql, question, more in (
        (_REVOKE, "SELECT passport, at_ms, reason FROM revocations", ()),
        (_LATER, "SELECT id FROM sessions", (now_ms, RESTORED)),
    ):
        with suppress(apsw.CorruptError):
            for row in known.connection.execute(question):
                copy.execute(sql, (*row, *more))


def _later_key(
    copy: apsw.Connection, ledger_state: LedgerState, keys: list[KeyRecord], known: _CurrentLedger
) -> LedgerState:
    """Continue with the current key of the old ledger, if it succeeds those of the copy."""
    later = known.keys[len(keys) :]
    if not later or known.keys[: len(keys)] != keys or known.ledger_state.kid != later[-1].kid:
        return ledger_state
    with suppress(RemitError):
        build_keyring(known.keys)
        copy.executemany("INSERT INTO keys (kid, public_pem, change, created_ms) VALUES (?, ?, ?, ?)", later)
        return ledger_state._replace(kid=known.ledger_state.kid)
    return ledger_state


def _next_name(home: Home) -> str:
    names = (f"ledger.replaced-{number}.db" for number in count(1))
    return next(name for name in names if not home.exists(name))


def _copy_aside(home: Home, ledger: apsw.Connection, replaced: str) -> bool:
    """Keep a copy of a ledger that can be read, and return whether that succeeded."""
    home.create(replaced, b"")
    try:
        copy_database(ledger, home.path_of(replaced))
    except StateCorrupt:
        home.remove(replaced)
        return False
    return True


def _move_aside(home: Home, replaced: str) -> None:
    """Keep a ledger that cannot be read, with its log, for recovery by hand."""
    place = home.path_of(LEDGER_FILE)
    aside = Path(place).with_name(replaced)
    Path(place).rename(aside)
    for ending in SIDECAR_SUFFIXES:
        with suppress(FileNotFoundError):
            Path(place + ending).rename(f"{aside}{ending}")


def _put(home: Home, name: str) -> None:
    """Replace the ledger. At every moment there is the old one, the new one, or none that can be opened."""
    if home.check_file(LEDGER_FILE):
        with suppress(RemitError):
            connection = connect(home.path_of(LEDGER_FILE))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            connection.close()
    # SQLite would apply a log of the old ledger to the new one.
    for ending in SIDECAR_SUFFIXES:
        home.remove(LEDGER_FILE + ending)
    place = Path(home.path_of(name))
    place.rename(place.with_name(LEDGER_FILE))
    sync_directory(place.parent)
