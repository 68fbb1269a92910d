"""Output: short aligned lines for people, one JSON document for programs, and a bar on stderr while work goes on.

Results go to stdout, everything else to stderr. What lasts less than a second shows no bar, and no pipe ever sees one.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["bar", "show_data", "show_facts", "waiting"]

_PATIENCE_S: Final = 1.0
_WIDTH: Final = 12


def show_data(data: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(data, indent=2))


def show_facts(facts: Mapping[str, str], *, mark: str = "", style: str = "") -> None:
    """Print facts, one a line, under each other; `mark` is the word that says how it went, coloured in a terminal."""
    console = Console(highlight=False)
    if mark:
        console.print(f"[{style}]{escape(mark)}[/]" if style else escape(mark), soft_wrap=True)
    for name, fact in facts.items():
        console.print(f"[dim]{escape(name):<{_WIDTH}}[/] {escape(fact)}", soft_wrap=True)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show that something goes on whose end is not known."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(text)
    timer = threading.Timer(_PATIENCE_S, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that is told how much is done, and of how much."""
    console = Console(stderr=True)
    columns = TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    progress = Progress(*columns, console=console, transient=True)
    task, begun = progress.add_task(text), time.monotonic()

    def tell(done: int, total: int) -> None:
        if console.is_terminal and time.monotonic() - begun > _PATIENCE_S:
            progress.start()
            progress.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        if progress.live.is_started:
            progress.stop()
