"""The checks of `remit doctor`: each looks at one thing, changes nothing, and says what to do.

A check returns how it stands or raises; what it raises is a problem, with the advice that every command gives for it.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.claims.receipt import verify_receipt
from remit.cli.errors import advice_for
from remit.cli.handshake import days_left
from remit.config import CONFIG_FILE, load_settings
from remit.errors import RemitError, StateMissing
from remit.governor.clock import timestamp
from remit.governor.handshake import SOCKET
from remit.governor.verification import load_snapshot
from remit.ledger.anchor import Anchor, check_mark
from remit.ledger.embedded import FILE, mark_of, open_rows
from remit.ledger.home import Home, open_home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import keyring_of
from remit.ledger.rows import Rows
from remit.ledger.sqlite import check_library, connect_reader
from remit.proxy.authority import check_authorities

__all__ = ["Check", "Looked", "check_up"]

_State: TypeAlias = Literal["ok", "warning", "problem"]
_PYTHON: Final = (3, 11)
_OWNER: Final = 0o700
_MIB: Final = 1024 * 1024
_SCARCE: Final = 1024 * _MIB
_FULL: Final = 64 * _MIB
_SKEW_S: Final = 60
_SOON_DAYS: Final = 14
_NAMED: Final = 3
_CHECK: Final = "Verify all of it now with: remit ledger check"
_FIRST: Final = "Make it with the first passport: remit issue --help"


class Looked(NamedTuple):
    """How one thing stands, and what to do where it is not ok."""

    state: _State
    said: str
    advice: str = ""


class Check(NamedTuple):
    """What was looked at, and how it stands."""

    name: str
    state: _State
    said: str
    advice: str


def check_up(path: Path) -> Iterator[Check]:
    """Go through the checks; those of the ledger only where there is a home."""
    yield _checked("python", _python)
    yield _checked("sqlite", _sqlite)
    yield _checked("umask", _umask)
    yield _checked("disk", lambda: _disk(path))
    with ExitStack() as held:
        try:
            home = held.enter_context(open_home(path, create=False))
        except StateMissing:
            yield Check("home", "warning", "there is none yet", _FIRST)
            return
        except RemitError as error:
            yield Check("home", "problem", str(error), advice_for(error))
            return
        yield _checked("home", lambda: _home(home, path))
        yield _checked("settings", lambda: _settings(home))
        yield _checked("certificate", lambda: _certificate(home))
        yield from _ledger(home)


def _checked(name: str, look: Callable[[], Looked]) -> Check:
    try:
        return Check(name, *look())
    except RemitError as error:
        return Check(name, "problem", str(error), advice_for(error))


def _python() -> Looked:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _PYTHON:
        return Looked("problem", version, "Install Python 3.11 or newer.")
    return Looked("ok", version)


def _sqlite() -> Looked:
    connection = connect_reader(":memory:")
    try:
        ((version,),) = connection.execute("SELECT sqlite_version()")
    finally:
        connection.close()
    check_library(version)
    return Looked("ok", version)


def _umask() -> Looked:
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & _OWNER:
        return Looked("problem", f"{mask:03o} keeps files from their owner", "Set the umask to 077.")
    return Looked("ok", f"{mask:03o}")


def _disk(path: Path) -> Looked:
    place = path if os.path.lexists(path) else path.absolute().parent
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        raise StateMissing("the folder of the home cannot be found") from None
    said = f"{free // _MIB:,} MiB free"
    if free < _FULL:
        return Looked("problem", said, "Make room: without it nothing is permitted.")
    if free < _SCARCE:
        return Looked("warning", said, "Make room soon: on a full disk nothing is permitted.")
    return Looked("ok", said)


def _home(home: Home, path: Path) -> Looked:
    return Looked("ok", f"its owner's alone, with {_check_all(home, path):,} files")


def _check_all(folder: Home, path: Path) -> int:
    """Raise for the first thing in a folder, or in one within, that is a link or not its owner's alone; count files."""
    count = 0
    for name in folder.names():
        if _is_folder(path / name):
            with folder.folder(name, create=False) as inner:
                count += _check_all(inner, path / name)
        elif name == SOCKET:
            count += folder.check_socket(name)
        else:
            count += folder.check_file(name)
    return count


def _is_folder(path: Path) -> bool:
    """Tell what to look for; whoever looks follows no link, and finds out what it is by itself."""
    return path.is_dir() and not path.is_symlink()


def _settings(home: Home) -> Looked:
    load_settings(home)
    return Looked("ok", "config.json can be read" if home.exists(CONFIG_FILE) else "there is no config.json")


def _certificate(home: Home) -> Looked:
    if not home.exists("tls"):
        return Looked("ok", "there is none yet: the first start of the proxy makes it")
    check_authorities(home, datetime.now(UTC))
    with home.folder("tls", create=False) as tls:
        if not tls.exists("proxy.pem"):
            return Looked("ok", "there is none yet: the next start of the proxy makes it")
        left = days_left(tls)
    if left < _SOON_DAYS:
        return Looked("warning", f"{left} days left", "Restart the proxy: it makes a new certificate.")
    return Looked("ok", f"{left} days left")


def _ledger(home: Home) -> Iterator[Check]:
    """Look at the ledger and what hangs on it, as it stands while others write."""
    with ExitStack() as held:
        try:
            mark = Anchor(home).read()  # before the ledger, which is always ahead of it
            if mark is None and not home.exists(FILE):
                yield Check("ledger", "warning", "there is none yet", _FIRST)
                return
            _, rows = held.enter_context(open_rows(home))
            overview = rows.overview()
            check_mark(mark, mark_of(overview), rows.hash_at)
        except RemitError as error:
            yield Check("ledger", "problem", str(error), advice_for(error))
            return
        yield Check("ledger", "ok", f"{overview.receipts:,} receipts in {overview.sessions:,} sessions", "")
        yield _checked("verification", lambda: _verification(home, rows))
        yield _checked("keys", lambda: _keys(home, rows))
        yield _checked("kill switch", lambda: _kill_switch(rows))
        yield _checked("clock", lambda: _clock(rows))


def _verification(home: Home, rows: Rows) -> Looked:
    """Say up to when the evidence was verified, and which chains are broken, whoever found them."""
    broken, sessions = [session.id for session in rows.broken_sessions(limit=_NAMED)], rows.overview().sessions
    snapshot = load_snapshot(home)
    if snapshot is not None and snapshot.is_stale(time.time()):
        snapshot = None
    broken += [found.session_id for found in (snapshot.broken if snapshot else []) if found.session_id not in broken]
    if broken:
        said = f"the chain of {', '.join(broken[:_NAMED])} is broken"
        return Looked("problem", said, "Trust nothing after the break. All of it is named by: remit ledger check")
    if snapshot is None:
        said = "nothing is verified while neither the Hub nor the proxy runs"
        return Looked("warning" if sessions else "ok", said, _CHECK if sessions else "")
    summary = snapshot.summary
    if snapshot.problem or summary is None:
        return Looked("warning", snapshot.problem or "the verifier has not reported yet", _CHECK)
    of = f"{min(summary.sessions_verified, sessions):,} of {sessions:,} sessions"
    if summary.verified_at is None:
        return Looked("warning", f"the first pass is under way: {of}", _CHECK)
    return Looked("ok", f"verified up to {timestamp(summary.verified_at * 1000)}, {of}")


def _keys(home: Home, rows: Rows) -> Looked:
    signing = rows.switches().kid
    believed = list(keyring_of(rows.keys()))
    with home.folder("keys", create=False) as folder:
        KeyFiles(folder).load(signing)
    return Looked("ok", f"{len(believed)}, signing {signing}")


def _kill_switch(rows: Rows) -> Looked:
    if rows.switches().kill_switch:
        return Looked("warning", "on: nothing is permitted", "Release it with: remit kill-switch off")
    return Looked("ok", "off")


def _clock(rows: Rows) -> Looked:
    """Hold the clock against the newest receipt: one that was set back would make time stand still."""
    newest = rows.overview().last_receipt_id
    kept = rows.receipt(newest) if newest else None
    if kept is None:
        return Looked("ok", "no receipt to compare it with yet")
    behind = verify_receipt(kept.token, keyring_of(rows.keys())).claims.iat - int(time.time())
    if behind > _SKEW_S:
        return Looked("problem", f"{behind:,} s behind the newest receipt", "Set the clock of this machine.")
    return Looked("ok", "not behind the newest receipt")
