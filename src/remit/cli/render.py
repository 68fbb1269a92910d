"""Output: short aligned lines for people, one JSON document for programs, and a bar on stderr while work goes on.

Results go to stdout, everything else to stderr. What lasts less than a second shows no bar, and no pipe ever sees one.
Keeps this invariant: whatever comes from outside is printed as text, and steers no terminal.
"""

import errno
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

__all__ = [
    "OutputNotWritten",
    "TerminalConsole",
    "byte_meter",
    "date",
    "detect_lost_output",
    "escape_text",
    "note",
    "progress_bar",
    "show_data",
    "show_facts",
    "spinner",
]


class OutputNotWritten(Exception):
    """What was printed could not be written; `reason` says why."""

    def __init__(self, reason: int | None) -> None:
        """Take the number of the error."""
        super().__init__()
        self.reason = reason


@contextmanager
def detect_lost_output() -> Iterator[None]:
    """Raise `OutputNotWritten` if what is printed meanwhile cannot be written."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        raise OutputNotWritten(error.errno) from None


_PATIENCE_S: Final = 1.0
_WIDTH: Final = 12


def show_data(data: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(data, indent=2))


def show_facts(facts: Mapping[str, str], *, mark: str = "", style: str = "") -> None:
    """Print facts, one a line, under each other; `mark` is the word that says how it went, coloured in a terminal."""
    screen = TerminalConsole(highlight=False)
    if mark:
        screen.print(Text(escape_text(mark), style), soft_wrap=True)
    for name, fact in facts.items():
        screen.print(Text.assemble((f"{escape_text(name):<{_WIDTH}}", "dim"), " ", escape_text(fact)), soft_wrap=True)


class TerminalConsole(Console):
    """Where text for people is printed. A reader that has gone is told to the caller, as any other lost output is."""

    def on_broken_pipe(self) -> None:
        """Raise again what was caught."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads any more")


def note(text: str) -> None:
    """Tell a person something beside the result, on stderr."""
    with suppress(OSError):  # nothing of the result is lost by it
        click.echo(f"remit: {escape_text(text)}", err=True)


def escape_text(text: str) -> str:
    """Return text with everything escaped that is not seen, or that steers a terminal."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def date(seconds: int) -> str:
    """Return a moment for people, or the number itself where no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


@contextmanager
def spinner(text: str) -> Iterator[None]:
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
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that is told how much is done, and of how much."""
    with _progress(text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as tell:
        yield tell


@contextmanager
def byte_meter(text: str) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many bytes there are by now; how many there will be is not known."""
    with _progress(text, DownloadColumn(), TransferSpeedColumn()) as tell:
        yield lambda done: tell(done, None)


@contextmanager
def _progress(text: str, *columns: ProgressColumn) -> Iterator[Callable[[int, int | None], None]]:
    console = Console(stderr=True)
    progress = Progress(TextColumn(text), *columns, console=console, transient=True)
    task, begun = progress.add_task(text, total=None), time.monotonic()

    def tell(done: int, total: int | None) -> None:
        if console.is_terminal and time.monotonic() - begun > _PATIENCE_S:
            progress.start()
            progress.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        if progress.live.is_started:
            progress.stop()
