"""Services for tests; each is checked once more when its test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.governor.places import MemoryPlace, SqlitePlace
from tests.governor.world import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in memory, whose evidence must be whole in the end."""
    with Service() as built:
        yield built


@pytest.fixture
def damaged() -> Iterator[Service]:
    """A service in memory whose evidence the test damages."""
    built = Service()
    yield built
    built.close()


@pytest.fixture(params=["memory", "sqlite"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two processes over one ledger, with one clock."""
    place = MemoryPlace() if request.param == "memory" else SqlitePlace(tmp_path)
    one = Service(place, name="one")
    two = Service(place, clock=one.clock, name="two")
    with one:
        yield one, two
        two.check()
        two.close(with_place=False)
