"""Reads and replaces settings files, which belong to the user.

Invariants:

- A file is replaced atomically, and only if it has not changed since it was read.
- Its mode and owner are kept, and a symbolic link stays a link.
- A read-only file is not written, not even by root.
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

_NEW_MODE: Final = 0o600
_NEW_FOLDER: Final = 0o755
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSION_ERRORS: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class FileSnapshot(NamedTuple):
    """A file as it was read."""

    path: str
    # The path with symbolic links resolved.
    real: str
    # None if there is no file.
    data: bytes | None
    mode: int | None = None
    owner: tuple[int, int] | None = None
    # Changes when the file changes.
    fingerprint: tuple[int, ...] = ()
    # The parent folders that do not exist, outermost first.
    missing: tuple[str, ...] = ()


def read_file(path: str) -> FileSnapshot:
    """Read a file. Raises if it may not be changed."""
    with _translate_errors(path):
        real = os.path.realpath(path)
        try:
            fd = os.open(real, _READ | os.O_NOFOLLOW)
        except FileNotFoundError:
            return FileSnapshot(path, real, None, missing=_missing_folders(Path(real).parent))
        try:
            return _read(path, real, fd)
        finally:
            os.close(fd)


def replace_file(found: FileSnapshot, data: bytes, *, mode: int | None = None) -> None:
    """Replace a file, durably. Missing parent folders are created.

    `mode` is the mode of a new file; an existing one keeps its mode. Raises `StateCorrupt` if the file has
    changed since it was read.
    """
    with _translate_errors(found.path):
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


def remove_file(found: FileSnapshot, made: tuple[str, ...]) -> None:
    """Remove a file, and those of the folders `made` that are empty then."""
    with _translate_errors(found.path):
        _check_unchanged(found)
        Path(found.real).unlink()
        _flush_folder(found.real)
        _remove_folders(made)


@contextmanager
def adding_path(path: str) -> Iterator[None]:
    """Add the path of a file to errors about its content, if they do not name it yet."""
    try:
        yield
    except InputError as error:
        if error.place.startswith(shorten_path(path)):
            raise
        named = type(error)(error.problem, place=f"{shorten_path(path)} {error.place}")
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from None


def _read(path: str, real: str, fd: int) -> FileSnapshot:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "is not a regular file")
    if status.st_nlink > 1:
        _refuse(path, "has a second hard link, which may be anywhere")
    if not status.st_mode & stat.S_IWUSR:
        _refuse(path, "is read-only: allow its owner to write to it first")
    if os.geteuid() not in (0, status.st_uid):
        _refuse(path, f"belongs to uid {status.st_uid}, not to the user who runs this")
    if status.st_size > MAX_BYTES:
        raise JsonTooLarge(f"{status.st_size} bytes, at most {MAX_BYTES} are read", place=shorten_path(path))
    with open(fd, "rb", closefd=False) as file:
        data = file.read(MAX_BYTES + 1)
    return FileSnapshot(
        path, real, data, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), _fingerprint(status)
    )


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _check_unchanged(found: FileSnapshot) -> None:
    try:
        fingerprint = _fingerprint(os.lstat(found.real))
    except FileNotFoundError:
        fingerprint = ()
    if fingerprint != found.fingerprint or os.path.realpath(found.path) != found.real:
        changed = StateCorrupt(f"{shorten_path(found.path)} was changed by another program just now")
        changed.add_note("Nothing was written to it. Try again.")
        raise changed


def _write(path: str, data: bytes, found: FileSnapshot, mode: int | None) -> None:
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


def _missing_folders(folder: Path) -> tuple[str, ...]:
    return tuple(str(one) for one in (*reversed(folder.parents), folder) if not one.exists())


def _make_folders(missing: tuple[str, ...], *, shared: bool) -> None:
    """Create folders. With `shared`, everyone may enter them, whatever the umask is."""
    for folder in missing:
        with suppress(FileExistsError):  # created for another file meanwhile
            Path(folder).mkdir(_NEW_FOLDER)
            if shared:
                Path(folder).chmod(_NEW_FOLDER)


def _remove_folders(made: tuple[str, ...]) -> None:
    for folder in reversed(made):
        with suppress(OSError):  # it is not empty, or is gone
            Path(folder).rmdir()


def _flush_folder(path: str) -> None:
    fd = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Turn an `OSError` into an error that names the file."""
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "unknown error")
        if error.errno in _PERMISSION_ERRORS:
            refused = HomeUnsafe(f"{shorten_path(path)} may not be changed by the user who runs this ({reason})")
            refused.add_note("Nothing was changed. Ask its owner, or choose another place with --settings.")
            raise refused from None
        _refuse(path, f"cannot be read or written ({reason})")


def _refuse(path: str, problem: str) -> NoReturn:
    refused = FieldInvalid(problem, place=shorten_path(path))
    refused.add_note("Nothing was changed. Put the file right, or choose another place with --settings.")
    raise refused from None


def shorten_path(path: str | Path) -> str:
    """Return the last two components of a path, for messages."""
    return "/".join(Path(path).parts[-2:])
