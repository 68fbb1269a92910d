"""Opens the home that a command works on: its files, its ledger for reading, or the whole service.

Errors are reported by `report_errors`. A home is created only by commands that pass `create`: creating one at a
mistyped path would hide the mistake.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from remit.cli.errors import report_errors
from remit.cli.render import note
from remit.config import home_path
from remit.errors import StateMissing
from remit.ledger.embedded import LEDGER_FILE, open_rows
from remit.ledger.home import Home, open_home
from remit.ledger.rows import LedgerQueries

if TYPE_CHECKING:
    from remit.wiring import Service


@contextmanager
def open_command_home(option: str | None, *, as_json: bool, create: bool = False) -> Iterator[Home]:
    """Open the home directory."""
    with report_errors(as_json=as_json):
        path = home_path(option)
        if create:
            announce_new_home(path)
        with open_home(path, create=create) as home:
            yield home


@contextmanager
def open_ledger_reader(option: str | None, *, as_json: bool) -> Iterator[LedgerQueries]:
    """Open the ledger for reading, while other processes write to it."""
    with open_command_home(option, as_json=as_json) as home, open_rows(home) as (_, rows):
        yield rows


def require_ledger(path: Path) -> None:
    """Raise `StateMissing` if the home has no ledger."""
    with open_home(path, create=False) as home:
        if not home.exists(LEDGER_FILE):
            raise StateMissing("the home has no ledger yet: remit issue creates it with the first passport")


def announce_new_home(path: Path) -> None:
    """Print a note if there is nothing at the path yet, so the home will be created."""
    if not os.path.lexists(path):
        note(f"creating a new home: {path}")


@contextmanager
def open_service(option: str | None, *, as_json: bool, create: bool = False) -> Iterator["Service"]:
    """Open the service of a home. If another process has the ledger open, the service is a client of that process."""
    from remit.wiring import build_service  # noqa: PLC0415 - commands that do not need it start faster

    with report_errors(as_json=as_json):
        path = home_path(option)
        if create:
            announce_new_home(path)
        else:
            require_ledger(path)
        service = build_service(path)
        try:
            yield service
        finally:
            service.close()
