"""How many scripts are tried: a sample with every run of the tests, and as many as asked for with `make fuzz`."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = "/dev/shm"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, where the machine has one: thousands of trees are made and removed."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="remit-") as made:
        yield Path(made)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--fuzz`; known when this folder or a file of it is named on the command line."""
    parser.addoption("--fuzz", type=int, default=0, metavar="N", help="try N scripts and mutations of scripts")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what the tests have counted, added up over all of them."""
    if not config.getoption("--fuzz", default=0):
        return
    totals: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, figures in (
                getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ()
            ):
                totals.setdefault(name, Counter()).update(figures)
    terminalreporter.section("scripts")
    for name, figures in sorted(totals.items()):
        shown = ", ".join(f"{count:,} {what}" for what, count in sorted(figures.items(), key=lambda item: -item[1]))
        terminalreporter.write_line(f"{name}: {shown}")
