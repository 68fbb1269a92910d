"""Tests with real assistants are run when they are asked for by name: `make test-agents`, or `pytest tests/agents`.

They install hundreds of megabytes and start programs of others, which nobody wants from a plain `make test`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.governed import Governed, governed
from tests.agents.install import CLAUDE_NEW, CLAUDE_OLD, CLAUDES
from tests.agents.running import Place

HERE = Path(__file__).parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave everything here out, unless an argument names it."""
    asked = (Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(HERE) for path in asked) else True


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where an assistant runs."""
    return Place(tmp_path)


@pytest.fixture(params=CLAUDES, ids=str)
def world(request: pytest.FixtureRequest, place: Place) -> Iterator[Governed]:
    """A Hub, and Claude Code at each of its versions."""
    with governed(request.param, place) as built:
        yield built


@pytest.fixture
def new_world(place: Place) -> Iterator[Governed]:
    """A Hub, and Claude Code at its newer version."""
    with governed(CLAUDE_NEW, place) as built:
        yield built


@pytest.fixture
def old_world(place: Place) -> Iterator[Governed]:
    """A Hub, and Claude Code at its older version."""
    with governed(CLAUDE_OLD, place) as built:
        yield built
