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
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self, final

from remit.errors import HomeUnsafe, LedgerInUse, LedgerUnavailable, RemitError, StateCorrupt, StateMissing, quote

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022
# Without O_NONBLOCK, opening a pipe in place of a file would block.
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,200}")
# The prefix of temporary files. A process that is killed may leave one behind; it is never read.
_UNFINISHED: Final = ".unfinished-"
# The shortest limit of any system for the address of a Unix socket, without the terminating byte.
_SOCKET_BYTES: Final = 103


def open_home(path: Path, *, create: bool = True) -> "Home":
    """Open the home at `path`; with `create`, create it if it does not exist.

    Its parent directory is never created. Symbolic links in the path of the parent are resolved once; then only root
    and the current user may be able to change any directory of the real path, so that it stays the same.
    """
    label = path.name
    if label in ("", "..") or "\0" in str(path):
        raise HomeUnsafe("the path of the home does not end in the name of a folder")
    with _translate_errors(label):
        try:
            parent = Path(os.path.realpath(path.absolute().parent, strict=True))
        except FileNotFoundError:
            raise StateMissing(f"the folder that {quote(label)} belongs in does not exist: make it first") from None
        for folder in (*reversed(parent.parents), parent):
            _check_way(os.lstat(folder), folder.name or "/")
        place = str(parent / label)
        return Home(_enter(place, label, create=create), place)


@final
class Home:
    """A directory that only its owner can access, as checked by `open_home` and `folder`.

    Errors: `HomeUnsafe` for files that others can access or that may not be accessed, `LedgerUnavailable` for errors of
    the disk. Messages name files in the home, but not its path.
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
        with _translate_errors(self._prefix):
            return os.fstat(self._held).st_mtime_ns

    def close(self) -> None:
        """Close the descriptor. Calling it again has no effect."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def folder(self, name: str, *, create: bool = True) -> "Home":
        """Open a subdirectory of the home, under the same rules. It must be closed separately."""
        label = self._label(name)
        with _translate_errors(label):
            fd = _enter(name, label, create=create, dir_fd=self._held)
        return Home(fd, f"{self._path}/{name}", f"{label}/")

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        label = self._label(name)
        with _translate_errors(label):
            try:
                fd = os.open(name, os.O_RDONLY | _FILE, dir_fd=self._held)
            except FileNotFoundError:
                return None
            with _closing(fd):
                _check_file(os.fstat(fd), label)
                with open(fd, "rb", closefd=False) as file:
                    data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise StateCorrupt(f"{quote(label)} is larger than {max_bytes} bytes")
        return data

    def create(self, name: str, data: bytes) -> None:
        """Write a new file, durable on return; raise `FileExistsError` if the name exists.

        A crash can leave a partial file; use `replace` where that matters.
        """
        label = self._label(name)
        with _translate_errors(label):
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
        with _translate_errors(label):
            self._write(unfinished, data, label, durable=durable)
            with self._discarded_on_error(unfinished):
                os.rename(unfinished, name, src_dir_fd=self._held, dst_dir_fd=self._held)
            if durable:
                _flush(self._held)

    def remove(self, name: str) -> None:
        """Remove a file or symbolic link if it exists; durable on return."""
        with _translate_errors(self._label(name)):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._held)
            _flush(self._held)

    def names(self) -> list[str]:
        """Return the sorted names in the home, without temporary files."""
        with _translate_errors(self._prefix):
            found = os.listdir(self._held)  # noqa: PTH208 - a descriptor
        return sorted(name for name in found if not name.startswith(_UNFINISHED))

    def exists(self, name: str) -> bool:
        """Return whether the name exists, safe or not."""
        return self._look(name) is not None

    def check_file(self, name: str) -> bool:
        """Return whether a file exists; raise unless it is regular, has one link and is private to its owner."""
        found = self._look(name)
        if found is not None:
            _check_file(found, self._label(name))
        return found is not None

    def version_of(self, name: str) -> tuple[int, int, int] | None:
        """Return a value that changes with the content of a file, by one system call; None if it does not exist.

        A file that `replace` has written has another inode or another time than the one before it.
        """
        label = self._label(name)
        try:  # without `_translate_errors`, which takes longer than the call: a request waits for it
            found = os.stat(name, dir_fd=self._held, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _ours(error, quote(label)) from None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def path_of(self, name: str) -> str:
        """Return the path of a safe file, for a library that opens by path.

        The path of the home must still lead to the open directory. The caller checks other files that a library opens.
        """
        if not self.check_file(name):
            raise StateMissing(f"{quote(self._label(name))} does not exist")
        with _translate_errors(self._prefix):
            if not os.path.samestat(os.lstat(self._path), os.fstat(self._held)):
                raise HomeUnsafe("another folder was put in the place of the home")
        return f"{self._path}/{name}"

    def check_socket(self, name: str) -> bool:
        """Return whether a socket exists; raise if it is anything else, or accessible to others."""
        found = self._look(name)
        if found is not None:
            if not stat.S_ISSOCK(found.st_mode):
                raise HomeUnsafe(f"{quote(self._label(name))} is a link, or no socket: remove it")
            _check_alone(found, self._label(name), _FILE_MODE)
        return found is not None

    def socket_address(self, name: str) -> str:
        """Return the address of a Unix socket in the home, valid while the home is open.

        Such an address is limited to about a hundred bytes. On Linux, the descriptor replaces the path of the home,
        which also cannot lead elsewhere.
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

        A thread that holds it must not wait for it again. Without `wait`, raises `LedgerInUse` if others hold it. The
        lock file is not removed; a process that ends releases the lock.
        """
        with _translate_errors(self._label(name)):
            fd = self._lock(name, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            # A forked child shares the descriptor, so closing ours would not release the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _lock(self, name: str, how: int) -> int:
        while True:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | _FILE, _FILE_MODE, dir_fd=self._held)
            try:
                _check_file(os.fstat(fd), self._label(name))
                fcntl.flock(fd, how)
                found = self._look(name)
                if found is not None and os.path.samestat(found, os.fstat(fd)):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # The file was removed meanwhile, and others lock a new one.

    @property
    def _held(self) -> int:
        if self._fd < 0:  # which some functions of Python treat as the working directory
            raise LedgerUnavailable("the home was closed")
        return self._fd

    def _label(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise HomeUnsafe(f"{quote(name)} is not a name within the home")
        return self._prefix + name

    def _look(self, name: str) -> os.stat_result | None:
        with _translate_errors(self._label(name)):
            try:
                return os.stat(name, dir_fd=self._held, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def _write(self, name: str, data: bytes, label: str, *, durable: bool = True) -> None:
        """Write a new file with durable content, or remove it on failure. Its name is not durable yet."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, _FILE_MODE, dir_fd=self._held)
        with self._discarded_on_error(name), _closing(fd):
            _check_new(os.fstat(fd), label, _FILE_MODE)
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
            os.mkdir(place, _FOLDER_MODE, dir_fd=dir_fd)
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
        _check_alone(found, label, _FOLDER_MODE)
        if made:
            _check_new(found, label, _FOLDER_MODE)
            with _closing(os.open("..", _FOLDER, dir_fd=fd)) as above:
                _flush(above)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def _closing(fd: int) -> Iterator[int]:
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
def _translate_errors(label: str) -> Iterator[None]:
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


def _check_way(found: os.stat_result, label: str) -> None:
    """Raise if a user other than root and the current one could replace an entry of this directory."""
    if not stat.S_ISDIR(found.st_mode):
        raise HomeUnsafe(f"{quote(label)}, on the way to the home, is not a folder")
    if found.st_uid not in (0, os.geteuid()):
        raise HomeUnsafe(f"{quote(label)}, on the way to the home, belongs to uid {found.st_uid}: use another place")
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        fix = f"chmod go-w {shlex.quote(label)}"
        raise HomeUnsafe(f"{quote(label)}, on the way to the home, can be written to by others: {fix}")


def _check_file(found: os.stat_result, label: str) -> None:
    """Raise if a file is not regular, has other hard links, or is not private to the current user."""
    if not stat.S_ISREG(found.st_mode):
        raise HomeUnsafe(f"{quote(label)} is a link, or not a plain file: remove it")
    # A link count of 0 is allowed: the file was replaced after it was opened.
    if found.st_nlink > 1:
        raise HomeUnsafe(f"{quote(label)} has a second name, which may lie anywhere: copy it and remove both")
    _check_alone(found, label, _FILE_MODE)


def _check_alone(found: os.stat_result, label: str, right: int) -> None:
    """Raise if something belongs to another user or is accessible to others; `right` is the mode it should have."""
    if found.st_uid != os.geteuid():
        raise HomeUnsafe(f"{quote(label)} belongs to uid {found.st_uid}, not to the user who runs this")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise HomeUnsafe(f"{quote(label)} is open to others (mode {mode:04o}): chmod {right:o} {shlex.quote(label)}")


def _check_new(found: os.stat_result, label: str, right: int) -> None:
    """Raise if a new file has another mode than requested: a later chmod would leave a window of time."""
    if found.st_mode & 0o777 != right:
        raise HomeUnsafe(f"{quote(label)} cannot be made with mode {right:o}: set the umask to 077")
