"""The service over a home, for commands that change what it permits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from remit.cli.errors import report_errors
from remit.cli.render import note
from remit.config import home_path
from remit.errors import StateMissing
from remit.ledger.embedded import FILE, open_rows
from remit.ledger.home import Home, open_home
from remit.ledger.rows import Rows

if TYPE_CHECKING:
    from remit.wiring import Service

__all__ = ["announce_new_home", "open_command_home", "open_ledger_reader", "open_service", "require_ledger"]


@contextmanager
def open_command_home(option: str | None, *, as_json: bool, create: bool = False) -> Iterator[Home]:
    """Give the home."""
    with report_errors(as_json=as_json):
        path = home_path(option)
        if create:
            announce_new_home(path)
        with open_home(path, create=create) as home:
            yield home


@contextmanager
def open_ledger_reader(option: str | None, *, as_json: bool) -> Iterator[Rows]:
    """Give the ledger for reading, while others write."""
    with open_command_home(option, as_json=as_json) as home, open_rows(home) as (_, rows):
        yield rows


def require_ledger(path: Path) -> None:
    """Raise `StateMissing` if the home holds no ledger."""
    with open_home(path, create=False) as home:
        if not home.exists(FILE):
            raise StateMissing("there is no ledger in the home yet: the first passport makes it")


def announce_new_home(path: Path) -> None:
    """Say that a home is made, if there is none at the path."""
    if not os.path.lexists(path):
        note(f"making a new home: {path}")


@contextmanager
def open_service(option: str | None, *, as_json: bool, create: bool = False) -> Iterator["Service"]:
    """Give the service: a client of the process that has the ledger open, if there is one."""
    from remit.wiring import build_service  # noqa: PLC0415 - most commands do without it, and start faster

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
