"""Opening the home that a command works on: for reading, or with its keys. Errors are told by `reported`.

Nothing is made but where a command says so: a home in the wrong place would hide the one that was meant.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remit.cli.errors import reported
from remit.cli.render import note
from remit.config import home_path
from remit.errors import StateMissing
from remit.ledger.embedded import FILE, open_rows
from remit.ledger.home import Home, open_home
from remit.ledger.rows import Rows

__all__ = ["check_there", "note_if_new", "opened_home", "opened_rows"]


@contextmanager
def opened_home(option: str | None, *, as_json: bool, create: bool = False) -> Iterator[Home]:
    """Give the home."""
    with reported(as_json=as_json):
        path = home_path(option)
        if create:
            note_if_new(path)
        with open_home(path, create=create) as home:
            yield home


@contextmanager
def opened_rows(option: str | None, *, as_json: bool) -> Iterator[Rows]:
    """Give the ledger for reading, while others write."""
    with opened_home(option, as_json=as_json) as home, open_rows(home) as (_, rows):
        yield rows


def check_there(path: Path) -> None:
    """Raise `StateMissing` if the home holds no ledger."""
    with open_home(path, create=False) as home:
        if not home.exists(FILE):
            raise StateMissing("there is no ledger in the home yet: the first passport makes it")


def note_if_new(path: Path) -> None:
    """Say that a home is made, if there is none at the path."""
    if not os.path.lexists(path):
        note(f"making a new home: {path}")
