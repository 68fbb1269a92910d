"""Restoring a settings file by atomic replacement, whatever was put in its place.

The settings monitor uses this, and nothing else does: `remit protect` itself refuses files that are not plain. A new
file is written beside the old one, flushed, and renamed over its name. So neither the mode, the owner, the number of
links nor the size of what stands there matters, and what a link points to is not touched. Directories on the way that
were removed, replaced or made read-only are put right first, from the protected folder downwards; nothing above that
is changed. Every step is relative to an open directory and follows no link, from the root of the file system on. The
directory to begin with, and one that a link of a person leads to, must be the same (device and inode) as when the file
was last in force. As root, nothing is written through a link, nor into a directory that belongs to neither root nor the
owner of the file.
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

__all__ = ["MAX_READ", "Component", "Displaced", "Location", "NotRestored", "locate", "restore"]

# What is read of a file; a settings file that is larger is not one that an assistant wrote.
MAX_READ: Final = 1024 * 1024
_ATTEMPTS: Final = 8
_WRITABLE: Final = stat.S_IRWXU
_FOLDER_MODE: Final = 0o755
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Directories on the way to another one may be searched and need not be readable, where the system knows the difference.
_PASSED: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Linux: ioctl numbers to read and set the attributes of a file, and the two that forbid to change it.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_FROZEN: Final = 0x10 | 0x20
_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class Component(NamedTuple):
    """One component of a path, as it was while the file was in force."""

    name: str
    # What the link says, where it is a symbolic link.
    link: str | None
    mode: int
    owner: tuple[int, int]


class Location(NamedTuple):
    """Where a file was while it was in force: the path below a directory that must still be there."""

    anchor: str
    # Device and inode of that directory.
    anchor_identity: tuple[int, int]
    components: tuple[Component, ...]
    # Where the path led: this differs from the path only where links are on the way.
    real: str
    # Device and inode of the directory that `real` is in.
    parent_identity: tuple[int, int]
    # Of the file itself, whatever links lead to it.
    mode: int
    owner: tuple[int, int]


class Displaced(NamedTuple):
    """What stood where the file belongs: in words, with its bytes if they could be read, or where it is now."""

    what: str
    data: bytes | None = None
    moved_to: str = ""


class NotRestored(Exception):
    """The file could not be put back; the text says why."""


def locate(path: str, folder: str | None) -> Location | None:
    """Return where a file is now, or None if it cannot be looked at.

    Directories below `folder` may be put right later; of a path outside of it, the last directory alone.
    """
    place = PurePath(path)
    anchor = PurePath(folder) if folder and place.is_relative_to(folder) else place.parent.parent
    names = place.relative_to(anchor).parts
    try:
        found = os.stat(path)  # noqa: PTH116 - with the calls of its kind
        steps = tuple(_component(anchor, names))
        real_anchor, real = Path(os.path.realpath(anchor)), Path(os.path.realpath(path))
        identities = [_identity(one.lstat()) for one in (real_anchor, real.parent, real)]
    except OSError:
        return None
    is_linked = any(step.link is not None for step in steps)
    # Links may be exchanged while the path is resolved.
    if identities[2] != _identity(found) or not (is_linked or real == real_anchor.joinpath(*names)):
        return None
    mode, owner = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
    return Location(str(real_anchor), identities[0], steps, str(real), identities[1], mode, owner)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _component(anchor: PurePath, names: tuple[str, ...]) -> Iterator[Component]:
    place = Path(anchor)
    for name in names:
        place /= name
        found = place.lstat()
        link = os.readlink(place) if stat.S_ISLNK(found.st_mode) else None  # noqa: PTH115 - as it is written
        yield Component(name, link, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))


def restore(location: Location, content: Callable[[bytes | None], bytes]) -> list[Displaced]:
    """Write the file again; return what had to make way.

    `content` is given what stands there if that is a plain file of at most `MAX_READ` bytes, else None, and returns
    the bytes to write. Raises `NotRestored`.
    """
    displaced = list[Displaced]()
    try:
        with _parent(location, displaced) as (folder, component):
            _replace(folder, component, location, content, displaced)
    except OSError as error:
        raise NotRestored(f"it cannot be written ({errno.errorcode.get(error.errno or 0, 'unknown error')})") from None
    return displaced


@contextmanager
def _parent(location: Location, displaced: list[Displaced]) -> Iterator[tuple[int, Component]]:
    """Open the directory that the file belongs in, with every directory and link on the way as it was."""
    *above, last = location.components
    links = [component for component in location.components if component.link is not None]
    if links and os.geteuid() == 0:
        raise NotRestored("a symbolic link leads to it, and root does not write through links")
    if len(links) > 1:
        raise NotRestored("more than one symbolic link leads to it")
    fd = _opened(location.anchor, location.anchor_identity)
    try:
        for component in above:
            if component.link is not None:
                break
            below = _entered(fd, component, displaced)
            os.close(fd)
            fd = below
            _check_owner(fd, location)
        if links:
            _put_link(fd, links[0], displaced)
            target = PurePath(location.real)
            os.close(fd)
            fd = -1
            fd = _opened(str(target.parent), location.parent_identity)
            last = Component(target.name, None, location.mode, location.owner)
        yield fd, last
    finally:
        if fd >= 0:
            os.close(fd)


def _opened(path: str, identity: tuple[int, int]) -> int:
    """Open a directory by its real path without following any link; it must be the one that is remembered."""
    fd = os.open("/", _PASSED)
    try:
        for name in PurePath(path).parts[1:]:
            below = os.open(name, _PASSED, dir_fd=fd)
            os.close(fd)
            fd = below
        if _identity(os.fstat(fd)) == identity:
            return os.open(".", _FOLDER, dir_fd=fd)
    except OSError:
        pass
    finally:
        os.close(fd)
    raise NotRestored("the directory that holds it is gone, or is another one now")


def _check_owner(fd: int, location: Location) -> None:
    """Refuse, as root, a directory in which a user other than the owner of the file could exchange it."""
    if os.geteuid() == 0 and os.fstat(fd).st_uid not in (0, location.owner[0]):
        raise NotRestored("the directory that holds it belongs to another user")


def _entered(fd: int, component: Component, displaced: list[Displaced]) -> int:
    """Return a directory, made or put right if need be."""
    for _ in range(_ATTEMPTS):
        try:
            return os.open(component.name, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            _permit(fd)
            with suppress(FileExistsError):
                os.mkdir(component.name, _WRITABLE, dir_fd=fd)
                _own(fd, component)
        except PermissionError:
            _set_mode(fd, component.name, component.mode | _WRITABLE)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            _move_away(fd, component.name, displaced)
    raise NotRestored("the directory that holds it is replaced again and again")


def _own(fd: int, component: Component) -> None:
    """Give a new directory the mode and the owner of the one before; one that is not empty is not the new one."""
    made = os.open(component.name, _FOLDER, dir_fd=fd)
    try:
        if os.listdir(made):  # noqa: PTH208 - by its descriptor
            return
        if os.geteuid() == 0:
            os.fchown(made, *component.owner)
        os.fchmod(made, component.mode | _WRITABLE)
    finally:
        os.close(made)


def _put_link(fd: int, component: Component, displaced: list[Displaced]) -> None:
    """Put a symbolic link back that was there before."""
    with suppress(OSError):
        if os.readlink(component.name, dir_fd=fd) == component.link:
            return
    _permit(fd)
    _move_away(fd, component.name, displaced)
    unfinished = _unfinished(component.name)
    os.symlink(component.link or "", unfinished, dir_fd=fd)
    with _discarded(fd, unfinished):
        os.rename(unfinished, component.name, src_dir_fd=fd, dst_dir_fd=fd)


def _replace(
    fd: int,
    component: Component,
    location: Location,
    content: Callable[[bytes | None], bytes],
    displaced: list[Displaced],
) -> None:
    """Replace whatever has the name of the file; one that changes all the time is replaced all the same."""
    name = component.name
    for attempt in range(_ATTEMPTS):
        seen = _seen(fd, name)
        there = _look(fd, name)
        data = content(there.data if there else None)
        unfinished = _unfinished(name)
        with _discarded(fd, unfinished):
            _write(fd, unfinished, data, location)
            if _seen(fd, name) != seen and attempt < _ATTEMPTS // 2:
                continue
            try:
                os.rename(unfinished, name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError as error:
                _clear_way(fd, name, error, displaced)
                continue
        os.fsync(fd)
        displaced += [there] if there else []
        return
    raise NotRestored("it is replaced again and again")


def _clear_way(fd: int, name: str, error: OSError, displaced: list[Displaced]) -> None:
    """Remove what keeps a file from being renamed over another one."""
    if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
        _move_away(fd, name, displaced)
    elif error.errno in (errno.EPERM, errno.EACCES):
        _unfreeze(fd, name)
        _permit(fd)
    else:
        raise error


def _write(fd: int, name: str, data: bytes, location: Location) -> None:
    _permit(fd)
    file = os.open(name, _WRITE, 0o600, dir_fd=fd)
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


def _look(fd: int, name: str) -> Displaced | None:
    """Return what has a name, with its bytes if it is a plain file that can be read."""
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        what = next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "a special file")
        target = f" to {os.readlink(name, dir_fd=fd)}" if stat.S_ISLNK(found.st_mode) else ""
        return Displaced(what + target)
    odd = [f"of {found.st_size:,} bytes", f"with mode {stat.S_IMODE(found.st_mode):03o}"]
    odd += [f"with {found.st_nlink} links"] if found.st_nlink > 1 else []
    odd += [f"of uid {found.st_uid}"] if found.st_uid != os.geteuid() else []
    return Displaced(f"a file {', '.join(odd)}", _read(fd, name))


def _read(fd: int, name: str) -> bytes | None:
    """Return the bytes of a file, cut after one more than `MAX_READ`; None if it cannot be read."""
    try:
        file = os.open(name, _READ, dir_fd=fd)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        try:
            return opened.read(MAX_READ + 1) if stat.S_ISREG(os.fstat(file).st_mode) else None
        except OSError:
            return None


def _seen(fd: int, name: str) -> tuple[int, ...]:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _move_away(fd: int, name: str, displaced: list[Displaced]) -> None:
    """Rename what has a name to one beside it; an empty directory is removed."""
    there = _look(fd, name)
    if there is None:
        return
    with suppress(OSError):
        os.rmdir(name, dir_fd=fd)
        return
    aside = f"{name}.remit-aside-{secrets.token_hex(4)}"
    _permit(fd)
    try:
        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
    except PermissionError:
        _unfreeze(fd, name)
        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
    displaced.append(there._replace(data=None, moved_to=aside))


def _permit(fd: int) -> None:
    """Make a directory one that we may write to, if it is ours and is not."""
    _clear_flags(fd)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=os.access in os.supports_effective_ids):
        with suppress(OSError):
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | _WRITABLE)


def _set_mode(fd: int, name: str, mode: int) -> None:
    """Change the mode of a directory that may not be readable, without following a link."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=fd, follow_symlinks=False)
        return
    # Linux cannot do this by name; the link in /proc leads to what was opened.
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        if stat.S_ISDIR(os.fstat(held).st_mode):
            os.chmod(f"/proc/self/fd/{held}", mode)  # noqa: PTH101 - no path of a person
    finally:
        os.close(held)


def _unfreeze(fd: int, name: str) -> None:
    """Clear the attributes of a file that forbid to replace it, where the system lets us."""
    with suppress(OSError):
        file = os.open(name, _READ, dir_fd=fd)
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
        if flags & _FROZEN:
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags & ~_FROZEN))


def _unfinished(name: str) -> str:
    return f".{name[:200]}.remit-{secrets.token_hex(8)}"


@contextmanager
def _discarded(fd: int, name: str) -> Iterator[None]:
    """Remove a file of ours that was not renamed."""
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(name, dir_fd=fd)
