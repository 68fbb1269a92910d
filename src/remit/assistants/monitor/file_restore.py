"""Restores a settings file by atomic replacement, whatever has replaced it.

Only the settings monitor uses this: `remit protect` itself refuses files that are not regular. A new file is written
beside the old one, flushed, and renamed over it. So the mode, owner, link count and size of the old file do not matter,
and the target of a symbolic link is not changed. Parent directories that were removed, replaced or made read-only are
restored first, from the protected folder downwards; nothing above that folder is changed.

Each step is relative to an open directory and follows no symbolic link, from the root of the file system on. The
topmost directory, and a directory that is reached through a link of the user, must have the same device and inode as
when the file was last in force. As root, nothing is written through a link, nor into a directory that belongs to
neither root nor the owner of the file.
"""

import errno
import fcntl
import os
import secrets
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final, NamedTuple

# At most so many bytes of a file are read. No settings file of an assistant is larger.
MAX_READ: Final = 1024 * 1024
_ATTEMPTS: Final = 8
_WRITABLE: Final = stat.S_IRWXU
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Parent directories need only be searchable, not readable, where the system supports O_PATH.
_OPEN_PARENT: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Linux: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, and the immutable and append-only flags.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_LOCKING_FLAGS: Final = 0x10 | 0x20
_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class Component(NamedTuple):
    """One component of a path, as it was when the file was last in force."""

    name: str
    # The target, if it is a symbolic link.
    link: str | None
    mode: int
    owner: tuple[int, int]


class Location(NamedTuple):
    """Where a file was when it was last in force: a path below a directory that must still exist."""

    anchor: str
    # Device and inode of that directory.
    anchor_identity: tuple[int, int]
    components: tuple[Component, ...]
    # The path with symbolic links resolved.
    real: str
    # Device and inode of the parent directory of `real`.
    parent_identity: tuple[int, int]
    # Mode and owner of the file itself, not of a link to it.
    mode: int
    owner: tuple[int, int]


class Displaced(NamedTuple):
    """What was found in place of the file or of one of its parent directories."""

    # A description.
    what: str
    # Its content, if it is a regular file that could be read.
    data: bytes | None = None
    # The name that it was renamed to, if it was.
    moved_to: str = ""


class NotRestored(Exception):
    """The file could not be restored; the text is the reason."""


def locate(path: str, folder: str | None) -> Location | None:
    """Return the location of a file, or None if it cannot be examined.

    `restore` may restore the directories between `folder` and the file; for a file outside of `folder`, only its parent
    directory.
    """
    target = PurePath(path)
    anchor = PurePath(folder) if folder and target.is_relative_to(folder) else target.parent.parent
    names = target.relative_to(anchor).parts
    try:
        status = os.stat(path)  # noqa: PTH116 - like the other system calls here
        components = tuple(_components(anchor, names))
        real_anchor, real = Path(os.path.realpath(anchor)), Path(os.path.realpath(path))
        identities = [_identity(one.lstat()) for one in (real_anchor, real.parent, real)]
    except OSError:
        return None
    is_linked = any(component.link is not None for component in components)
    # A link may be changed while the path is resolved.
    if identities[2] != _identity(status) or not (is_linked or real == real_anchor.joinpath(*names)):
        return None
    mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    return Location(str(real_anchor), identities[0], components, str(real), identities[1], mode, owner)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _components(anchor: PurePath, names: tuple[str, ...]) -> Iterator[Component]:
    path = Path(anchor)
    for name in names:
        path /= name
        status = path.lstat()
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None  # noqa: PTH115 - the exact text
        yield Component(name, link, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))


def restore(location: Location, content: Callable[[bytes | None], bytes]) -> list[Displaced]:
    """Write the file again, and return what it replaced.

    `content` is called with the first `MAX_READ` + 1 bytes of the file that is there now, or with None if there is no
    regular file that can be read, and returns the bytes to write. Raises `NotRestored`.
    """
    displaced = list[Displaced]()
    try:
        with _open_parent(location, displaced) as (folder, component):
            _replace(folder, component, location, content, displaced)
    except OSError as error:
        raise NotRestored(f"it cannot be written ({errno.errorcode.get(error.errno or 0, 'unknown error')})") from None
    return displaced


@contextmanager
def _open_parent(location: Location, displaced: list[Displaced]) -> Iterator[tuple[int, Component]]:
    """Open the parent directory of the file, after restoring the directories and the link that lead to it."""
    *above, last = location.components
    links = [component for component in location.components if component.link is not None]
    if links and os.geteuid() == 0:
        raise NotRestored("a symbolic link leads to it, and root does not write through links")
    if len(links) > 1:
        raise NotRestored("more than one symbolic link leads to it")
    fd = _open_directory(location.anchor, location.anchor_identity)
    try:
        for component in above:
            if component.link is not None:
                break
            below = _enter_directory(fd, component, displaced)
            os.close(fd)
            fd = below
            _check_owner(fd, location)
        if links:
            _restore_link(fd, links[0], displaced)
            target = PurePath(location.real)
            os.close(fd)
            fd = -1
            fd = _open_directory(str(target.parent), location.parent_identity)
            last = Component(target.name, None, location.mode, location.owner)
        yield fd, last
    finally:
        if fd >= 0:
            os.close(fd)


def _open_directory(path: str, identity: tuple[int, int]) -> int:
    """Open a directory by its real path without following links. Its device and inode must be `identity`."""
    fd = os.open("/", _OPEN_PARENT)
    try:
        for name in PurePath(path).parts[1:]:
            below = os.open(name, _OPEN_PARENT, dir_fd=fd)
            os.close(fd)
            fd = below
        if _identity(os.fstat(fd)) == identity:
            return os.open(".", _OPEN_DIRECTORY, dir_fd=fd)
    except OSError:
        pass
    finally:
        os.close(fd)
    raise NotRestored("its directory is gone, or is another one now")


def _check_owner(fd: int, location: Location) -> None:
    """As root, refuse a directory in which a user other than the owner of the file could replace it."""
    if os.geteuid() == 0 and os.fstat(fd).st_uid not in (0, location.owner[0]):
        raise NotRestored("its directory belongs to another user")


def _enter_directory(fd: int, component: Component, displaced: list[Displaced]) -> int:
    """Open a directory, which is created or made accessible first if necessary."""
    for _ in range(_ATTEMPTS):
        try:
            return os.open(component.name, _OPEN_DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            _make_writable(fd)
            with suppress(FileExistsError):
                os.mkdir(component.name, _WRITABLE, dir_fd=fd)
                _set_owner(fd, component)
        except PermissionError:
            _set_mode(fd, component.name, component.mode | _WRITABLE)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            _move_away(fd, component.name, displaced)
    raise NotRestored("its directory is replaced again and again")


def _set_owner(fd: int, component: Component) -> None:
    """Give a new directory its former mode and owner. A directory that is not empty is not the new one: leave it."""
    directory = os.open(component.name, _OPEN_DIRECTORY, dir_fd=fd)
    try:
        if os.listdir(directory):  # noqa: PTH208 - by its descriptor
            return
        if os.geteuid() == 0:
            os.fchown(directory, *component.owner)
        os.fchmod(directory, component.mode | _WRITABLE)
    finally:
        os.close(directory)


def _restore_link(fd: int, component: Component, displaced: list[Displaced]) -> None:
    """Restore a symbolic link."""
    with suppress(OSError):
        if os.readlink(component.name, dir_fd=fd) == component.link:
            return
    _make_writable(fd)
    _move_away(fd, component.name, displaced)
    temporary = _temporary_name(component.name)
    os.symlink(component.link or "", temporary, dir_fd=fd)
    with _removing(fd, temporary):
        os.rename(temporary, component.name, src_dir_fd=fd, dst_dir_fd=fd)


def _replace(
    fd: int,
    component: Component,
    location: Location,
    content: Callable[[bytes | None], bytes],
    displaced: list[Displaced],
) -> None:
    """Replace the file. If it keeps changing, it is replaced nevertheless after a few attempts."""
    name = component.name
    for attempt in range(_ATTEMPTS):
        fingerprint = _fingerprint(fd, name)
        existing = _describe(fd, name)
        data = content(existing.data if existing else None)
        temporary = _temporary_name(name)
        with _removing(fd, temporary):
            _write(fd, temporary, data, location)
            if _fingerprint(fd, name) != fingerprint and attempt < _ATTEMPTS // 2:
                continue
            try:
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError as error:
                _remove_obstacle(fd, name, error, displaced)
                continue
        os.fsync(fd)
        displaced += [existing] if existing else []
        return
    raise NotRestored("it is replaced again and again")


def _remove_obstacle(fd: int, name: str, error: OSError, displaced: list[Displaced]) -> None:
    """Remove what made the rename fail with `error`, or raise `error`."""
    if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
        _move_away(fd, name, displaced)
    elif error.errno in (errno.EPERM, errno.EACCES):
        _unlock(fd, name)
        _make_writable(fd)
    else:
        raise error


def _write(fd: int, name: str, data: bytes, location: Location) -> None:
    _make_writable(fd)
    file = os.open(name, _CREATE_FILE, 0o600, dir_fd=fd)
    try:
        if os.geteuid() == 0:
            os.fchown(file, *location.owner)
        os.fchmod(file, location.mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _describe(fd: int, name: str) -> Displaced | None:
    """Describe a directory entry, with its content if it is a regular file that can be read. None if it is missing."""
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        what = next((words for is_kind, words in _KINDS if is_kind(status.st_mode)), "a special file")
        target = f" to {os.readlink(name, dir_fd=fd)}" if stat.S_ISLNK(status.st_mode) else ""
        return Displaced(what + target)
    details = [f"of {status.st_size:,} bytes", f"with mode {stat.S_IMODE(status.st_mode):03o}"]
    details += [f"with {status.st_nlink} links"] if status.st_nlink > 1 else []
    details += [f"of uid {status.st_uid}"] if status.st_uid != os.geteuid() else []
    return Displaced(f"a file {', '.join(details)}", _read(fd, name))


def _read(fd: int, name: str) -> bytes | None:
    """Return the first `MAX_READ` + 1 bytes of a file, or None if it cannot be read."""
    try:
        file = os.open(name, _OPEN_FILE, dir_fd=fd)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        try:
            return stream.read(MAX_READ + 1) if stat.S_ISREG(os.fstat(file).st_mode) else None
        except OSError:
            return None


def _fingerprint(fd: int, name: str) -> tuple[int, ...]:
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _move_away(fd: int, name: str, displaced: list[Displaced]) -> None:
    """Rename a directory entry to an unused name beside it. An empty directory is removed."""
    existing = _describe(fd, name)
    if existing is None:
        return
    with suppress(OSError):
        os.rmdir(name, dir_fd=fd)
        return
    aside = f"{name}.remit-aside-{secrets.token_hex(4)}"
    _make_writable(fd)
    try:
        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
    except PermissionError:
        _unlock(fd, name)
        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
    displaced.append(existing._replace(data=None, moved_to=aside))


def _make_writable(fd: int) -> None:
    """Make a directory writable for this user, if it belongs to the user and is not."""
    _clear_flags(fd)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=os.access in os.supports_effective_ids):
        with suppress(OSError):
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | _WRITABLE)


def _set_mode(fd: int, name: str, mode: int) -> None:
    """Change the mode of a directory that may not be readable, without following a link."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=fd, follow_symlinks=False)
        return
    # Linux has no chmod by name that does not follow links; the link in /proc leads to the opened directory.
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            os.chmod(f"/proc/self/fd/{opened}", mode)  # noqa: PTH101 - not a path of the user
    finally:
        os.close(opened)


def _unlock(fd: int, name: str) -> None:
    """Clear the flags of a file that forbid replacing it, if the system permits that."""
    with suppress(OSError):
        file = os.open(name, _OPEN_FILE, dir_fd=fd)
        try:
            _clear_flags(file)
        finally:
            os.close(file)


def _clear_flags(fd: int) -> None:
    change_flags = getattr(os, "chflags", None)
    with suppress(OSError, struct.error):
        if change_flags is not None:  # not on Linux
            change_flags(f"/dev/fd/{fd}", 0)
            return
        (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
        if flags & _LOCKING_FLAGS:
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags & ~_LOCKING_FLAGS))


def _temporary_name(name: str) -> str:
    return f".{name[:200]}.remit-{secrets.token_hex(8)}"


@contextmanager
def _removing(fd: int, name: str) -> Iterator[None]:
    """Remove a temporary file on exit, if it was not renamed."""
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(name, dir_fd=fd)
