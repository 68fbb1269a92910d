"""The home directory of Remit, which contains the keys, the anchor and the ledger file, accessed by a descriptor.

Invariants: everything used is accessible to its owner only, by owner and mode. No symbolic link is followed below the
home, because every name is opened relative to the descriptor. Only root and the owner can replace the home. A file is
created with its final mode, and replaced atomically. Access control lists that do not show in the mode (macOS) are not
checked.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self, final

from remit.errors import HomeUnsafe, LedgerInUse, LedgerUnavailable, RemitError, StateCorrupt, StateMissing, quote
from remit.ledger.ownership import FILE_MODE, FOLDER_MODE, check_alone, check_file, check_new, check_way

__all__ = ["Home", "open_home"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe in place of a file would block.
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,200}")
# The prefix of temporary files. A process that is killed may leave one behind; it is never read.
_UNFINISHED: Final = ".unfinished-"
# The shortest limit of any system for the address of a Unix socket, without the terminating byte.
_SOCKET_BYTES: Final = 103


def open_home(path: Path, *, create: bool = True) -> "Home":
    """Open the home at `path`; with `create`, create it if it does not exist.

    The folder it lies in is never made. Links on the way to that one are followed once, now; then every folder of the
    real way, from the root down, must be one that only root and we can change, so the way stays what it was.
    """
    label = path.name
    if label in ("", "..") or "\0" in str(path):
        raise HomeUnsafe("the path of the home does not end in the name of a folder")
    with _translated(label):
        try:
            parent = Path(os.path.realpath(path.absolute().parent, strict=True))
        except FileNotFoundError:
            raise StateMissing(f"the folder that {quote(label)} belongs in does not exist: make it first") from None
        for folder in (*reversed(parent.parents), parent):
            check_way(os.lstat(folder), folder.name or "/")
        place = str(parent / label)
        return Home(_enter(place, label, create=create), place)


@final
class Home:
    """A directory that only its owner can access, as checked by `open_home` and `folder`.

    Errors: `HomeUnsafe` for what is not its owner's alone or may not be touched, `LedgerUnavailable` where the disk
    does not do it. Messages name files within the home, never where it lies.
    """

    __slots__ = ("_fd", "_path", "_prefix")

    def __init__(self, fd: int, path: str, prefix: str = "") -> None:
        """Take an open and checked descriptor; callers use `open_home` and `folder`."""
        self._fd = fd
        self._path = path
        self._prefix = prefix

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    def path(self) -> str:
        """Return the path, for display and for rules. Files are opened by the descriptor instead."""
        return self._path

    def changed_ns(self) -> int:
        """Return when a file in it was last created, replaced or removed, in nanoseconds since 1970."""
        with _translated(self._prefix):
            return os.fstat(self._held).st_mtime_ns

    def close(self) -> None:
        """Close the descriptor. Calling it again has no effect."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def folder(self, name: str, *, create: bool = True) -> "Home":
        """Open a subdirectory of the home, under the same rules. It must be closed separately."""
        label = self._label(name)
        with _translated(label):
            fd = _enter(name, label, create=create, dir_fd=self._held)
        return Home(fd, f"{self._path}/{name}", f"{label}/")

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        label = self._label(name)
        with _translated(label):
            try:
                fd = os.open(name, os.O_RDONLY | _FILE, dir_fd=self._held)
            except FileNotFoundError:
                return None
            with _closed(fd):
                check_file(os.fstat(fd), label)
                with open(fd, "rb", closefd=False) as file:
                    data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise StateCorrupt(f"{quote(label)} is larger than {max_bytes} bytes")
        return data

    def create(self, name: str, data: bytes) -> None:
        """Write a new file, durable on return; raise `FileExistsError` if the name exists.

        A crash can leave half of it; where that matters, use `replace`.
        """
        label = self._label(name)
        with _translated(label):
            self._write(name, data, label)
            with self._discarded_on_error(name):
                _flush(self._held)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file, atomically replacing an existing one that is safe.

        Durable on return, unless nothing is lost with it. After an error it may be either.
        """
        self.check_file(name)
        label = self._label(name)
        unfinished = _UNFINISHED + secrets.token_hex(16)
        with _translated(label):
            self._write(unfinished, data, label, durable=durable)
            with self._discarded_on_error(unfinished):
                os.rename(unfinished, name, src_dir_fd=self._held, dst_dir_fd=self._held)
            if durable:
                _flush(self._held)

    def remove(self, name: str) -> None:
        """Remove a file or symbolic link if it exists; durable on return."""
        with _translated(self._label(name)):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._held)
            _flush(self._held)

    def names(self) -> list[str]:
        """Return the sorted names in the home, without temporary files."""
        with _translated(self._prefix):
            found = os.listdir(self._held)  # noqa: PTH208 - a descriptor
        return sorted(name for name in found if not name.startswith(_UNFINISHED))

    def exists(self, name: str) -> bool:
        """Return whether the name exists, safe or not."""
        return self._look(name) is not None

    def check_file(self, name: str) -> bool:
        """Return whether a file exists; raise unless it is regular, has one link and is private to its owner."""
        found = self._look(name)
        if found is not None:
            check_file(found, self._label(name))
        return found is not None

    def version_of(self, name: str) -> tuple[int, int, int] | None:
        """Return a value that changes with the content of a file, by one system call; None if it does not exist.

        A file that `replace` has written has another inode or another time than the one before it.
        """
        label = self._label(name)
        try:  # without `_translated`, which takes longer than the call: a request waits for it
            found = os.stat(name, dir_fd=self._held, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _ours(error, quote(label)) from None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def path_of(self, name: str) -> str:
        """Return the path of a safe file, for a library that opens by path.

        The path of the home must still lead to what we hold; what a library opens beside the file, the caller checks.
        """
        if not self.check_file(name):
            raise StateMissing(f"{quote(self._label(name))} does not exist")
        with _translated(self._prefix):
            if not os.path.samestat(os.lstat(self._path), os.fstat(self._held)):
                raise HomeUnsafe("another folder was put in the place of the home")
        return f"{self._path}/{name}"

    def check_socket(self, name: str) -> bool:
        """Return whether a socket exists; raise if it is anything else, or accessible to others."""
        found = self._look(name)
        if found is not None:
            if not stat.S_ISSOCK(found.st_mode):
                raise HomeUnsafe(f"{quote(self._label(name))} is a link, or no socket: remove it")
            check_alone(found, self._label(name), FILE_MODE)
        return found is not None

    def socket_address(self, name: str) -> str:
        """Return the address of a Unix socket in the home, valid while the home is open.

        Such an address has at most some hundred bytes, wherever the home lies. On Linux the descriptor stands for the
        path of the home, which also cannot lead elsewhere.
        """
        self._label(name)
        if os.path.exists("/proc/self/fd"):  # noqa: PTH110 - a path of the system
            return f"/proc/self/fd/{self._held}/{name}"
        address = f"{self._path}/{name}"
        if len(os.fsencode(address)) > _SOCKET_BYTES:
            raise HomeUnsafe(f"the path of the home is too long for a socket in it: at most {_SOCKET_BYTES} bytes")
        return address

    @contextmanager
    def locked(self, name: str, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
        """Hold a lock between threads and processes, exclusive or shared.

        A thread that holds it must not wait for it again. Without `wait`, `LedgerInUse` tells that others hold it. The
        lock file stays; a process that dies lets go.
        """
        with _translated(self._label(name)):
            fd = self._lock(name, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            # A forked child shares the descriptor, so closing ours would not release the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _lock(self, name: str, how: int) -> int:
        while True:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | _FILE, FILE_MODE, dir_fd=self._held)
            try:
                check_file(os.fstat(fd), self._label(name))
                fcntl.flock(fd, how)
                found = self._look(name)
                if found is not None and os.path.samestat(found, os.fstat(fd)):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # It was removed while we waited, and others lock the new one.

    @property
    def _held(self) -> int:
        if self._fd < 0:  # which Python takes for the working directory, here and there
            raise LedgerUnavailable("the home was closed")
        return self._fd

    def _label(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise HomeUnsafe(f"{quote(name)} is not a name within the home")
        return self._prefix + name

    def _look(self, name: str) -> os.stat_result | None:
        with _translated(self._label(name)):
            try:
                return os.stat(name, dir_fd=self._held, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def _write(self, name: str, data: bytes, label: str, *, durable: bool = True) -> None:
        """Write a new file with durable content, or remove it on failure. Its name is not durable yet."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, FILE_MODE, dir_fd=self._held)
        with self._discarded_on_error(name), _closed(fd):
            check_new(os.fstat(fd), label, FILE_MODE)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if durable:
                _flush(fd)

    @contextmanager
    def _discarded_on_error(self, name: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=self._held)
            raise


def _enter(place: str, label: str, *, create: bool, dir_fd: int | None = None) -> int:
    """Return a descriptor of a directory that only its owner can access."""
    made = False
    with suppress(FileExistsError):
        if create:
            os.mkdir(place, FOLDER_MODE, dir_fd=dir_fd)
            made = True
    try:
        return _open_folder(place, label, made=made, dir_fd=dir_fd)
    except FileNotFoundError:
        raise StateMissing(f"the folder {quote(label)} does not exist") from None
    except BaseException:
        with suppress(OSError):
            if made:
                os.rmdir(place, dir_fd=dir_fd)
        raise


def _open_folder(place: str, label: str, *, made: bool, dir_fd: int | None) -> int:
    fd = os.open(place, _FOLDER, dir_fd=dir_fd)
    try:
        found = os.fstat(fd)
        check_alone(found, label, FOLDER_MODE)
        if made:
            check_new(found, label, FOLDER_MODE)
            with _closed(os.open("..", _FOLDER, dir_fd=fd)) as above:
                _flush(above)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def _closed(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _flush(fd: int) -> None:
    """Sync a file, or the entries of a directory, to disk."""
    os.fsync(fd)
    if sys.platform == "darwin":
        # On macOS, fsync leaves data in the drive's cache; some file systems do not support F_FULLFSYNC.
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)


@contextmanager
def _translated(label: str) -> Iterator[None]:
    """Translate an `OSError` to a `RemitError`, without the path that it may contain."""
    try:
        yield
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "it exists already", label) from None
    except OSError as error:
        raise _ours(error, quote(label or "the home")) from None


def _ours(error: OSError, shown: str) -> RemitError:
    reason = errno.errorcode.get(error.errno or 0, "unknown error")
    if error.errno in _NOT_A_FILE:
        return HomeUnsafe(f"{shown} is a link, or of another kind than it must be: remove it ({reason})")
    if error.errno in (errno.EACCES, errno.EPERM):
        return HomeUnsafe(f"{shown} may not be touched by the user who runs this ({reason})")
    if error.errno == errno.ENOENT:
        return StateMissing(f"{shown} is gone")
    if error.errno == errno.EWOULDBLOCK:
        return LedgerInUse(f"{shown} is held by others")
    return LedgerUnavailable(f"{shown} cannot be read or written ({reason})")


# The errors for opening a symbolic link, a directory, a pipe or a socket.
_NOT_A_FILE: Final = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EOPNOTSUPP}
