"""The working folder of an assistant's session, for a protection that applies to every folder.

Too general folders are refused: the root, home directories and their parents, and system directories. A session without
a folder may access nothing. This module does not access the file system.
"""

import posixpath
import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from msgspec import structs

from remit.claims.mission import EVERYTHING, Mission, escape_path
from remit.errors import FieldInvalid
from remit.policy.scope import literal_entry

_PLACE: Final = "cwd"
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# System directories: no working folder may be in them, except in those of `_WITHIN_SYSTEM`.
_SYSTEM: Final = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr",
    "/var/lib", "/var/run", "/System", "/Library", "/Applications", "/private/etc", "/private/var/db",
)  # fmt: skip
_WITHIN_SYSTEM: Final = ("/usr/src", "/usr/local/src", "/run/media", "/run/user", "/dev/shm")  # noqa: S108
# Directories that contain the folders of several users or programs: they are refused, but not their subdirectories.
_SHARED: Final = (
    *_SYSTEM, *_WITHIN_SYSTEM, "/", "/home", "/lost+found", "/media", "/mnt", "/opt", "/private", "/private/tmp",
    "/private/var", "/private/var/tmp", "/root", "/snap", "/srv", "/usr/local", "/var", "/Users", "/Volumes",
    "/tmp", "/var/tmp",  # noqa: S108 - what is refused
)  # fmt: skip


class FolderCheck(NamedTuple):
    """A folder that a session may work in, or the reason why it may not."""

    folder: str | None
    refusal: str = ""


class MissionTemplate(NamedTuple):
    """A mission template for any folder that a session starts in, and the home directories, which are refused."""

    mission: Mission
    homes: frozenset[str]

    def in_folder(self, folder: str | None) -> Mission:
        """Return the mission for a folder."""
        return mission_in_folder(self.mission, self.homes, folder)


def check_folder(folder: str, homes: Collection[str]) -> FolderCheck:
    """Check a folder, given by its real path: it must not be too general, and a passport must be able to name it."""
    try:
        literal_entry(folder, _PLACE)
    except FieldInvalid as error:
        return FolderCheck(None, error.problem)
    if folder in _SHARED or (_is_below(folder, _SYSTEM) and not _is_below(folder, _WITHIN_SYSTEM)):
        return FolderCheck(None, f"{folder} is a system directory, or contains the directories of several users")
    if any(PurePosixPath(home).is_relative_to(folder) for home in homes):
        return FolderCheck(None, f"{folder} is a home directory, or contains one")
    return FolderCheck(folder)


def _is_below(folder: str, roots: Iterable[str]) -> bool:
    return any(folder == root or folder.startswith(f"{root}/") for root in roots)


def mission_in_folder(mission: Mission, homes: Collection[str], folder: str | None) -> Mission:
    """Return a mission with its relative scope entries resolved in a folder; without a folder, it allows no access.

    The folder may be that of an earlier session, so it need not exist any more. Its name is escaped in the entries.
    """
    if folder is None or check_folder(folder, homes).folder is None:
        return mission_without_folder(mission)
    scope = tuple(_entry_in(entry, folder) for entry in mission.resource_scope)
    return structs.replace(mission, cwd=folder, resource_scope=scope)


def mission_without_folder(mission: Mission) -> Mission:
    """Return a mission that allows access to nothing."""
    return structs.replace(mission, cwd=None, resource_scope=())


def _entry_in(entry: str, folder: str) -> str:
    """Return an entry as an absolute path: entries of delegates are compared with it as text."""
    if entry.startswith("/") or _URL.match(entry) or entry == EVERYTHING:
        return entry
    return posixpath.normpath(f"{escape_path(folder)}/{entry}")
