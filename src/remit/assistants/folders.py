"""The folder that an assistant works in, where its protection is for every folder.

The start of a session names it, and whoever has the token of the hooks can send a start. So the folder has to exist, it
is taken by its real path and as a literal, and a folder that holds everything is refused: the root, the home of any
user and what lies above one, and folders of the system. A session without a folder may touch nothing.
"""

import os
import posixpath
import pwd
from collections.abc import Collection
from pathlib import Path

from remit.governor.placing import Placement, check_folder

__all__ = ["find_folder", "home_directories"]


def home_directories(user_home: str | None) -> frozenset[str]:
    """Return the home directories of all users, by their names and by their real paths."""
    named = {entry.pw_dir for entry in pwd.getpwall()} | ({user_home} if user_home else set())
    absolute = {posixpath.normpath(path) for path in named if path.startswith("/") and "\0" not in path}
    return frozenset(absolute | {os.path.realpath(path) for path in absolute})


def find_folder(cwd: str | None, homes: Collection[str]) -> Placement:
    """Return the folder that a start names: absolute, real, existing, and not one that holds everything."""
    if cwd is None or not cwd.startswith("/"):
        return Placement(None, "its start did not name an absolute folder")
    try:
        folder = os.path.realpath(cwd, strict=True)
    except (OSError, ValueError):
        folder = ""
    if not folder or not Path(folder).is_dir():
        return Placement(None, "the folder that it was started in does not exist, or is not a directory")
    return check_folder(folder, homes)
