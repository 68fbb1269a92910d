"""Output: aligned lines for people, one JSON document for programs, and progress on stderr.

Results go to stdout, everything else to stderr. Progress is shown after one second, and only on a terminal. Keeps this
invariant: control characters in data from outside are escaped.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class OutputNotWritten(Exception):
    """Output could not be written. `reason` is the errno."""

    def __init__(self, reason: int | None) -> None:
        """Store the errno."""
        super().__init__()
        self.reason = reason


@contextmanager
def detect_lost_output() -> Iterator[None]:
    """Flush stdout at the end of the block. Raises `OutputNotWritten` if any output could not be written."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        raise OutputNotWritten(error.errno) from None


_DELAY_S: Final = 1.0
_WIDTH: Final = 12


def show_data(data: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(data, indent=2))


def show_facts(facts: Mapping[str, str], *, mark: str = "", style: str = "") -> None:
    """Print `mark`, the coloured outcome, and then the facts, one per line and aligned."""
    from rich.text import Text  # noqa: PLC0415 - slow to import, and services print no facts

    from remit.cli.terminal import TerminalConsole  # noqa: PLC0415

    screen = TerminalConsole(highlight=False)
    if mark:
        screen.print(Text(escape_text(mark), style), soft_wrap=True)
    for name, fact in facts.items():
        screen.print(Text.assemble((f"{escape_text(name):<{_WIDTH}}", "dim"), " ", escape_text(fact)), soft_wrap=True)


def note(text: str) -> None:
    """Print a message beside the result, on stderr."""
    with suppress(OSError):  # a note is not part of the result
        click.echo(f"remit: {escape_text(text)}", err=True)


def escape_text(text: str) -> str:
    """Return text with invisible and control characters escaped."""
    return text if text.isprintable() else "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def date(seconds: int) -> str:
    """Format a Unix time for people; return the number if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner while the block runs."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(text)
    timer = threading.Timer(_DELAY_S, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar. The block gets a function to report the amount done and the total."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn  # noqa: PLC0415 - slow to import

    with _progress(text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as tell:
        yield tell


@contextmanager
def byte_meter(text: str) -> Iterator[Callable[[int], None]]:
    """Show a byte counter without a total. The block gets a function to report the number of bytes."""
    from rich.progress import DownloadColumn, TransferSpeedColumn  # noqa: PLC0415 - slow to import

    with _progress(text, DownloadColumn(), TransferSpeedColumn()) as tell:
        yield lambda done: tell(done, None)


@contextmanager
def _progress(text: str, *columns: "ProgressColumn") -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=True)
    progress = Progress(TextColumn(text), *columns, console=console, transient=True)
    task, begun = progress.add_task(text, total=None), time.monotonic()

    def tell(done: int, total: int | None) -> None:
        if console.is_terminal and time.monotonic() - begun > _DELAY_S:
            progress.start()
            progress.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        if progress.live.is_started:
            progress.stop()
