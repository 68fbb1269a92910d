"""Files of assistants, read and replaced with care: they are not ours.

Keeps these invariants: a file is replaced as a whole or not at all, and only if it is still what was read; its mode and
owner stay, and a link stays a link; whoever made a file read-only is not overruled, not even by root. Which bytes are
written is for others.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from remit.claims.strictjson import MAX_BYTES
from remit.errors import FieldInvalid, HomeUnsafe, InputError, JsonTooLarge, StateCorrupt

__all__ = ["Found", "look", "named_by", "replace", "unlink"]

_NEW_MODE: Final = 0o600
_NEW_FOLDER: Final = 0o755
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class Found(NamedTuple):
    """What is at a path: no data where nothing is. `real` is where links lead, `seen` tells one state from another."""

    path: str
    real: str
    data: bytes | None
    mode: int | None = None
    owner: tuple[int, int] | None = None
    seen: tuple[int, ...] = ()
    # The folders on the way to it that are not there, from the outside in.
    missing: tuple[str, ...] = ()


def look(path: str) -> Found:
    """Return the file that a path leads to, after every question whether it may be changed."""
    with _told(path):
        real = os.path.realpath(path)
        try:
            fd = os.open(real, _READ | os.O_NOFOLLOW)
        except FileNotFoundError:
            return Found(path, real, None, missing=_missing(Path(real).parent))
        try:
            return _read(path, real, fd)
        finally:
            os.close(fd)


def replace(found: Found, data: bytes, *, mode: int | None = None) -> None:
    """Write a file in the place of what was found, durable on return; folders that are missing are made.

    `mode` is for a new file; one that was there keeps its own. `StateCorrupt` says that it was changed meanwhile.
    """
    with _told(found.path):
        unfinished = f"{found.real}.remit-{secrets.token_hex(8)}"
        try:
            _make_folders(found.missing, shared=bool((mode or 0) & stat.S_IROTH))
            _write(unfinished, data, found, mode)
            _check_unchanged(found)
            Path(unfinished).rename(found.real)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(unfinished).unlink()
            _remove_folders(found.missing)
            raise
        _flush_folder(found.real)


def unlink(found: Found, made: tuple[str, ...]) -> None:
    """Remove a file, and the folders that were made for it as far as nothing else is in them."""
    with _told(found.path):
        _check_unchanged(found)
        Path(found.real).unlink()
        _flush_folder(found.real)
        _remove_folders(made)


@contextmanager
def named_by(path: str) -> Iterator[None]:
    """Let what is wrong with the content of a file name the file, where it does not yet."""
    try:
        yield
    except InputError as error:
        if error.place.startswith(_shown(path)):
            raise
        named = type(error)(error.problem, place=f"{_shown(path)} {error.place}")
        for said in getattr(error, "__notes__", ()):
            named.add_note(said)
        raise named from None


def _read(path: str, real: str, fd: int) -> Found:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "is not a plain file")
    if status.st_nlink > 1:
        _refuse(path, "has a second name, which may lie anywhere")
    if not status.st_mode & stat.S_IWUSR:
        _refuse(path, "is read-only: allow its owner to write to it first")
    if os.geteuid() not in (0, status.st_uid):
        _refuse(path, f"belongs to uid {status.st_uid}, not to the user who runs this")
    if status.st_size > MAX_BYTES:
        raise JsonTooLarge(f"{status.st_size} bytes, at most {MAX_BYTES} are read", place=_shown(path))
    with open(fd, "rb", closefd=False) as file:
        data = file.read(MAX_BYTES + 1)
    return Found(path, real, data, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), _seen(status))


def _seen(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _check_unchanged(found: Found) -> None:
    try:
        seen = _seen(os.lstat(found.real))
    except FileNotFoundError:
        seen = ()
    if seen != found.seen or os.path.realpath(found.path) != found.real:
        changed = StateCorrupt(f"{_shown(found.path)} was changed by another program just now")
        changed.add_note("Nothing was written to it. Try again.")
        raise changed


def _write(path: str, data: bytes, found: Found, mode: int | None) -> None:
    fd = os.open(path, _WRITE, 0o600)
    try:
        if found.owner is not None and found.owner != (os.geteuid(), os.getegid()):
            os.fchown(fd, *found.owner)
        os.fchmod(fd, (mode or _NEW_MODE) if found.mode is None else found.mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _missing(folder: Path) -> tuple[str, ...]:
    return tuple(str(one) for one in (*reversed(folder.parents), folder) if not one.exists())


def _make_folders(missing: tuple[str, ...], *, shared: bool) -> None:
    """Make folders; those of a file that is for everyone to read are for everyone to enter, whatever the umask is."""
    for folder in missing:
        with suppress(FileExistsError):  # made for another file meanwhile
            Path(folder).mkdir(_NEW_FOLDER)
            if shared:
                Path(folder).chmod(_NEW_FOLDER)


def _remove_folders(made: tuple[str, ...]) -> None:
    for folder in reversed(made):
        with suppress(OSError):  # something else is in it by now, or it is gone
            Path(folder).rmdir()


def _flush_folder(path: str) -> None:
    fd = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the system says into an error of ours that names the file."""
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "unknown error")
        if error.errno in _FORBIDDEN:
            refused = HomeUnsafe(f"{_shown(path)} may not be changed by the user who runs this ({reason})")
            refused.add_note("Nothing was changed. Ask its owner, or choose another place with --settings.")
            raise refused from None
        _refuse(path, f"cannot be read or written ({reason})")


def _refuse(path: str, problem: str) -> NoReturn:
    refused = FieldInvalid(problem, place=_shown(path))
    refused.add_note("Nothing was changed. Put the file right, or choose another place with --settings.")
    raise refused from None


def _shown(path: str) -> str:
    """Return enough of a path to know the file by, without where it lies."""
    return "/".join(Path(path).parts[-2:])
