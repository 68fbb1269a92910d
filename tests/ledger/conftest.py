"""The ledgers that every promise is tried on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger.commit import GroupCommit
from tests.ledger.contract import FIRST, PLACES, Place, put


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a ledger lies: each kind in turn."""
    return PLACES[request.param](tmp_path)


@pytest.fixture
def ledger(place: Place) -> Iterator[GroupCommit]:
    """A ledger that keeps one session."""
    opened = place.open()
    opened.run(put(FIRST))
    yield opened
    opened.close()


@pytest.fixture
def other(place: Place, ledger: GroupCommit) -> Iterator[GroupCommit]:
    """The same ledger, opened a second time."""
    opened = place.open()
    yield opened
    opened.close()
