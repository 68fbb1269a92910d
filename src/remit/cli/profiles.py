"""The profile that a command works with: the file that was named, the one that lies there, else a template."""

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from remit.cli.resources import real_path
from remit.errors import FieldInvalid, InputError
from remit.profiles.lines import MAX_BYTES, decode_profile
from remit.profiles.profile import Profile, parse_profile
from remit.profiles.templates import DEFAULT_TEMPLATE, template

__all__ = ["PROFILE_FILE", "Chosen", "choose_profile"]

PROFILE_FILE: Final = "REMIT.md"


class Chosen(NamedTuple):
    """A profile, where it came from, and its digest. `path` is absolute; without one it is a template."""

    profile: Profile
    source: str
    path: str | None
    digest: str


def choose_profile(named: str | None, folder: str) -> Chosen:
    """Return the profile that was named, else the one of a folder, else the usual template."""
    path = Path(named) if named is not None else Path(folder, PROFILE_FILE)
    if named is None and not path.exists():
        text = template(DEFAULT_TEMPLATE)
        return Chosen(parse_profile(text), f"template {DEFAULT_TEMPLATE}", None, _digest(text.encode("utf-8")))
    data = _read(path)
    try:
        profile = parse_profile(decode_profile(data))
        return Chosen(profile, str(path), real_path(str(path), "--profile"), _digest(data))
    except InputError as error:
        raise FieldInvalid(error.problem, place=f"{path.name} {error.place}") from None


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
