"""Checks of the owner and mode of files and directories in a home."""

import os
import shlex
import stat
from typing import Final

from remit.errors import HomeUnsafe, quote

__all__ = ["FILE_MODE", "FOLDER_MODE", "check_alone", "check_file", "check_new", "check_way"]

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


def check_way(found: os.stat_result, label: str) -> None:
    """Raise if a user other than root and the current one could replace an entry of this directory."""
    if not stat.S_ISDIR(found.st_mode):
        raise HomeUnsafe(f"{quote(label)}, on the way to the home, is not a folder")
    if found.st_uid not in (0, os.geteuid()):
        raise HomeUnsafe(f"{quote(label)}, on the way to the home, belongs to uid {found.st_uid}: use another place")
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        fix = f"chmod go-w {shlex.quote(label)}"
        raise HomeUnsafe(f"{quote(label)}, on the way to the home, can be written to by others: {fix}")


def check_file(found: os.stat_result, label: str) -> None:
    """Raise if a file is not regular, has other hard links, or is not private to the current user."""
    if not stat.S_ISREG(found.st_mode):
        raise HomeUnsafe(f"{quote(label)} is a link, or not a plain file: remove it")
    # A link count of 0 is allowed: the file was replaced after it was opened.
    if found.st_nlink > 1:
        raise HomeUnsafe(f"{quote(label)} has a second name, which may lie anywhere: copy it and remove both")
    check_alone(found, label, FILE_MODE)


def check_alone(found: os.stat_result, label: str, right: int) -> None:
    """Raise if something belongs to another user or is accessible to others; `right` is the mode it should have."""
    if found.st_uid != os.geteuid():
        raise HomeUnsafe(f"{quote(label)} belongs to uid {found.st_uid}, not to the user who runs this")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise HomeUnsafe(f"{quote(label)} is open to others (mode {mode:04o}): chmod {right:o} {shlex.quote(label)}")


def check_new(found: os.stat_result, label: str, right: int) -> None:
    """Raise if a new file has another mode than requested: a later chmod would leave a window of time."""
    if found.st_mode & 0o777 != right:
        raise HomeUnsafe(f"{quote(label)} cannot be made with mode {right:o}: set the umask to 077")
