"""`remit status`: how the Hub stands, or all of its evidence.

Keeps this invariant: a file of evidence is whole, or it is not there. What goes to a pipe cannot be taken back: there,
the exit code tells.
"""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Final

import click
from msgspec import to_builtins

from remit.cli.errors import reported
from remit.cli.hub_reaching import reached_hub
from remit.cli.options import everywhere
from remit.cli.render import meter, show_data, show_facts
from remit.config import user_path
from remit.errors import FieldInvalid
from remit.messages.hub import StatusAnswer

__all__ = ["status"]

_STDOUT: Final = "-"
_MODE: Final = 0o600
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE: Final = "--export"


@click.command()
@click.option(
    "--export",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FILE]",
    help="Write all evidence, as one JSON document, to FILE; without FILE, or with -, to stdout.",
)
@everywhere
def status(*, export: str | None, home: str | None, as_json: bool) -> None:
    """Show how the Hub stands that runs over the home.

    Example: remit status --export evidence.json
    """
    with reached_hub(home, as_json=as_json) as hub:
        if export == _STDOUT:
            return _print(hub.export())
        if export is not None:
            return _write(Path(user_path(export)), hub.export(), as_json=as_json)
        answer = hub.status()
    return show_data(to_builtins(answer)) if as_json else _show(answer)


def _show(answer: StatusAnswer) -> None:
    last = answer.latest_receipt
    facts = {
        "hub": f"{answer.hub_url} (remit {answer.version})",
        "home": answer.home,
        "sessions": f"{answer.sessions:,}",
        "reviews": f"{answer.session_reviews:,}",
        "latest": f"{last.verdict}, {last.tool} {last.target}" if last else "no receipt yet",
    }
    facts |= {"": f"{last.timestamp}, {last.receipt_id}"} if last else {}
    facts |= {"adapters": ", ".join(f"{name} {state}" for name, state in to_builtins(answer.adapters).items())}
    show_facts(facts | {"next": "remit open"})


def _print(parts: Iterator[bytes]) -> None:
    """Print what comes. Once there is something on stdout, an error is told on stderr, and not in the middle of it."""
    first = next(parts, b"")
    with reported(as_json=False):
        _copy(first, parts, sys.stdout.buffer)


def _write(file: Path, parts: Iterator[bytes], *, as_json: bool) -> None:
    first = next(parts, b"")
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(unfinished, _NEW, _MODE), "wb") as opened:
            size = _copy(first, parts, opened)
            opened.flush()
            os.fsync(opened.fileno())
        unfinished.replace(file)
    except (OSError, ValueError):
        raise FieldInvalid("the file cannot be written", place=_PLACE) from None
    finally:
        with suppress(OSError, ValueError):
            unfinished.unlink()
    if as_json:
        return show_data({"ok": True, "file": str(file), "bytes": size})
    return show_facts({"file": str(file), "bytes": f"{size:,}"})


def _copy(first: bytes, parts: Iterator[bytes], file: IO[bytes]) -> int:
    """Copy all parts, and return how many bytes there were."""
    done = 0
    with meter("export") as tell:
        for part in chain((first,), parts):
            done += file.write(part)
            tell(done)
    return done
