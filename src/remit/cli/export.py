"""Writes an export to stdout or to a file.

Invariants: a file is complete or it is not there. A link is followed, and kept, if root or the current user
owns it; a path through a link of another user is refused. A pipe or a device is written to like stdout: a failure is
reported by the exit code.
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

from remit.cli.errors import report_errors
from remit.cli.render import byte_meter, detect_lost_output
from remit.errors import FieldInvalid, LedgerUnavailable, RemitError, quote

_PLACE: Final = "--export"
_MODE: Final = 0o600
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS: Final = 40
_SIGNALLED: Final = 128
# Errors of the disk; all others are about the path.
_DISK: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG))


def check_writable(file: str) -> None:
    """Check before the export starts that a path can be written to."""
    if not file:
        raise FieldInvalid("must name a file, or - for stdout", place=_PLACE)
    with _report_os_errors():
        _check_links(file)
        mode = _file_mode(file)
    if file.endswith(os.sep) or (mode is not None and stat.S_ISDIR(mode)):
        raise FieldInvalid("is a folder: name a file in it", place=_PLACE)


def is_stdout(file: str) -> bool:
    """Return whether a path is the stdout of this command, as /dev/stdout is."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(sys.stdout.fileno()))  # noqa: PTH116 - beside a descriptor
    except (OSError, ValueError):
        return False


def print_chunks(chunks: Iterator[bytes]) -> None:
    """Write chunks to stdout. After the first one, errors are reported on stderr only."""
    first = next(chunks, b"")
    with report_errors(as_json=False), detect_lost_output():
        _copy(chain((first,), chunks), sys.stdout.buffer)


def write_chunks(file: str, chunks: Iterator[bytes]) -> int:
    """Write chunks to a file and return the number of bytes. The file is opened when the first chunk has arrived."""
    chunks = chain((next(chunks, b""),), chunks)
    with _report_os_errors():
        _check_links(file)
        mode = _file_mode(file)
        if mode is None or stat.S_ISREG(mode):
            return _replace(Path(os.path.realpath(file)), chunks)
        with os.fdopen(os.open(file, _WRITE), "wb") as opened:
            return _copy(chunks, opened)


def _check_links(file: str) -> None:
    """Raise if the path goes through a link that neither root nor the current user owns.

    The owner of such a link decides which file is written and replaced.
    """
    whole = os.path.join(os.getcwd(), file)  # noqa: PTH109, PTH118 - not normalized: `..` depends on links
    todo, at, links = _reversed_names(whole), "/", 0
    while todo:
        part = todo.pop()
        at = os.path.join(at, part) if part != ".." else os.path.dirname(at)  # noqa: PTH118, PTH120 - as text
        try:
            found = os.lstat(at)
        except FileNotFoundError:
            return  # nothing below it can be a link
        if not stat.S_ISLNK(found.st_mode):
            continue
        if found.st_uid not in (0, os.geteuid()):
            raise FieldInvalid(f"goes through {quote(at)}, a link that another user owns", place=_PLACE)
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        target = os.readlink(at)  # noqa: PTH115 - as text
        at = "/" if target.startswith("/") else os.path.dirname(at)  # noqa: PTH120
        todo += _reversed_names(target)


def _reversed_names(path: str) -> list[str]:
    """Return the names on a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _file_mode(file: str) -> int | None:
    """Return the mode of a file, links followed; None if there is none."""
    try:
        return os.stat(file).st_mode  # noqa: PTH116 - Path drops a trailing slash
    except FileNotFoundError:
        return None


@contextmanager
def _report_os_errors() -> Iterator[None]:
    """Turn errors of the file into errors with a message. A closed pipe is left to the caller."""
    try:
        yield
    except (BrokenPipeError, RemitError):
        raise
    except ValueError:
        raise FieldInvalid("is not a valid path", place=_PLACE) from None
    except OSError as error:
        raise _refusal(error.errno or 0) from None


def _refusal(number: int) -> RemitError:
    why = f"the file cannot be written ({errno.errorcode.get(number, 'unknown')})"
    return LedgerUnavailable(f"{_PLACE}: {why}") if number in _DISK else FieldInvalid(why, place=_PLACE)


def _replace(file: Path, chunks: Iterable[bytes]) -> int:
    unfinished = f".remit-export-{secrets.token_hex(8)}"
    with _clean_up_on_signals(), _open_folder(file.parent) as folder:
        try:
            with os.fdopen(os.open(unfinished, _NEW, _MODE, dir_fd=folder), "wb") as opened:
                size = _copy(chunks, opened)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(unfinished, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished, dir_fd=folder)
    return size


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """Open the resolved folder: a link that replaces it later has no effect."""
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _clean_up_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP run the cleanup before the program ends."""
    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)  # a second signal would interrupt the cleanup
        raise SystemExit(_SIGNALLED + number)

    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _copy(chunks: Iterable[bytes], file: IO[bytes]) -> int:
    """Write all chunks, and return the number of bytes."""
    done = 0
    with byte_meter("export") as tell:
        for part in chunks:
            done += file.write(part)
            tell(done)
    return done
