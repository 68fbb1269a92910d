"""Evidence on its way out of a command: to stdout, or to a file.

Keeps this invariant: a file is whole, or it is not there; a link to one is followed, and stays. What is no file, as a
pipe or a device, is written into, like stdout: what went there cannot be taken back, and the exit code tells.
"""

import errno
import os
import secrets
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import IO, Final, NoReturn

from remit.cli.errors import reported
from remit.cli.output import watched_output
from remit.cli.render import meter
from remit.errors import FieldInvalid, LedgerUnavailable, RemitError

__all__ = ["check_writable", "is_stdout", "print_parts", "write_parts"]

_PLACE: Final = "--export"
_MODE: Final = 0o600
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INTO: Final = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
_SIGNALLED: Final = 128
# The disk's fault; all others are about what was named.
_DISK: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG))


def check_writable(file: str) -> None:
    """Raise, before anything is asked for, if a path cannot be that of a file."""
    if not file:
        raise FieldInvalid("must name a file, or - for stdout", place=_PLACE)
    with _explained():
        mode = _mode_of(file)
    if file.endswith(os.sep) or (mode is not None and stat.S_ISDIR(mode)):
        raise FieldInvalid("is a folder: name a file in it", place=_PLACE)


def is_stdout(file: str) -> bool:
    """Tell whether a path leads to where this command prints, as /dev/stdout does."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(sys.stdout.fileno()))  # noqa: PTH116 - beside a descriptor
    except (OSError, ValueError):
        return False


def print_parts(parts: Iterator[bytes]) -> None:
    """Print what comes. Once there is something on stdout, an error is told on stderr, and not in the middle of it."""
    first = next(parts, b"")
    with reported(as_json=False), watched_output():
        _copy(chain((first,), parts), sys.stdout.buffer)


def write_parts(file: str, parts: Iterator[bytes]) -> int:
    """Write what comes to a file, and return how many bytes there were. It is opened when the first part is there."""
    coming = chain((next(parts, b""),), parts)
    with _explained():
        mode = _mode_of(file)
        if mode is None or stat.S_ISREG(mode):
            return _replace(Path(os.path.realpath(file)), coming)
        with os.fdopen(os.open(file, _INTO), "wb") as opened:
            return _copy(coming, opened)


def _mode_of(file: str) -> int | None:
    """Return what is there, links followed; None if nothing is."""
    try:
        return os.stat(file).st_mode  # noqa: PTH116 - as it was given: Path drops a slash at the end
    except FileNotFoundError:
        return None


@contextmanager
def _explained() -> Iterator[None]:
    """Say why a file cannot be written. A reader that has gone is none of it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except ValueError:
        raise FieldInvalid("is not the path of a file", place=_PLACE) from None
    except OSError as error:
        raise _refusal(error.errno or 0) from None


def _refusal(number: int) -> RemitError:
    why = f"the file cannot be written ({errno.errorcode.get(number, 'unknown')})"
    return LedgerUnavailable(f"{_PLACE}: {why}") if number in _DISK else FieldInvalid(why, place=_PLACE)


def _replace(file: Path, parts: Iterable[bytes]) -> int:
    unfinished = file.with_name(f".remit-export-{secrets.token_hex(8)}")
    with _ended_in_order():
        try:
            with os.fdopen(os.open(unfinished, _NEW, _MODE), "wb") as opened:
                size = _copy(parts, opened)
                opened.flush()
                os.fsync(opened.fileno())
            unfinished.replace(file)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
    return size


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let signals that end the program clean up first, as Ctrl-C does."""
    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)  # a second one would come into the cleaning up
        raise SystemExit(_SIGNALLED + number)

    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _copy(parts: Iterable[bytes], file: IO[bytes]) -> int:
    """Copy all parts, and return how many bytes there were."""
    done = 0
    with meter("export") as tell:
        for part in parts:
            done += file.write(part)
            tell(done)
    return done
