"""How many connections fit the files that a process may open."""

import resource
from collections.abc import Iterator

import pytest

from remit.server.limits import RESERVED_FILES, most_connections


@pytest.fixture
def files() -> Iterator[int]:
    """The number of files this process may open; it is put back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    yield 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("asked", "most"), [(100, 100), (10_000, 1000 - RESERVED_FILES), (0, 4)])
def test_connections_leave_files_for_everything_else(files: int, asked: int, most: int) -> None:
    assert most_connections(asked) == most


def test_a_few_are_always_served(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (RESERVED_FILES + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert most_connections(100) == 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
