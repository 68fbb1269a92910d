"""How much is tried: a little with every run of the tests, and all of it with `make test-faults`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--full`; known when this folder is named on the command line."""
    parser.addoption("--full", action="store_true", help="try every fault instead of a sample")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Tell whether everything is to be tried."""
    return bool(request.config.getoption("--full", default=False))
