"""The profile that a command works with: the file that was named, the one that lies there, else a template.

Keeps these invariants: a template stands in only for a file that is not there, not for one that cannot be read; and the
folder that a profile names lies in the one that it starts from, links followed.
"""

import hashlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from remit.cli.resources import real_path
from remit.config import user_path
from remit.errors import FieldInvalid, InputError, quote
from remit.profiles.lines import MAX_BYTES, decode_profile
from remit.profiles.profile import Profile, parse_profile
from remit.profiles.templates import DEFAULT_TEMPLATE, template

__all__ = ["PROFILE_FILE", "Chosen", "choose_profile", "folder_of"]

PROFILE_FILE: Final = "REMIT.md"


class Chosen(NamedTuple):
    """A profile, where it came from, and its digest. `path` is absolute; without one it is a template."""

    profile: Profile
    source: str
    path: str | None
    digest: str


def choose_profile(named: str | None, folder: str | None) -> Chosen:
    """Return the profile that was named, else the one of a folder, if one is meant, else the usual template."""
    path = Path(_expanded(named)) if named is not None else Path(folder or "/", PROFILE_FILE)
    if named is None and (folder is None or not _is_there(path)):
        text = template(DEFAULT_TEMPLATE)
        return Chosen(parse_profile(text), f"template {DEFAULT_TEMPLATE}", None, _digest(text.encode("utf-8")))
    data = _read(path)
    try:
        profile = parse_profile(decode_profile(data))
        return Chosen(profile, str(path), real_path(str(path), "--profile"), _digest(data))
    except InputError as error:
        raise FieldInvalid(error.problem, place=f"{path.name} {error.place}") from None


def folder_of(profile: Profile, start: str) -> str:
    """Return the folder that a profile is for, absolute and real, or raise where a link leads out of `start`."""
    whole = os.path.realpath(start)
    folder = real_path(os.path.join(start, profile.folder), "Folder")  # noqa: PTH118 - dots stay
    if os.path.commonpath((whole, folder)) != whole:
        raise FieldInvalid(f"{quote(profile.folder)} is a link that leads elsewhere: use “Use” for it", place="Folder")
    return folder


def _expanded(named: str) -> str:
    try:
        return user_path(named)
    except InputError as error:
        raise FieldInvalid(error.problem, place="--profile") from None


def _is_there(path: Path) -> bool:
    """Tell whether something has this name: a link that leads nowhere does, and what cannot be seen may."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        raise FieldInvalid("cannot be read", place=path.name) from None
    return True


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise FieldInvalid("is not a file", place=path.name)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError:
        raise FieldInvalid("cannot be read", place=path.name) from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
