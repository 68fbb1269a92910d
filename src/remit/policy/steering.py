"""Finds files that steer programs: writing one makes a later, harmless-looking command run code.

`git status` runs what `.git/config` says. So writing such a file changes state, and for the most dangerous ones the
resource scope must name the file itself, not only a parent folder. The table is `steering.toml`.
"""

import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, NamedTuple

from msgspec import Struct, convert

from remit.policy.call import Effect
from remit.policy.files import Files

_HOMES: Final = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|/var/root|/private/var/root)\Z")
_IN_GIT: Final = re.compile(r".*/\.git/", re.DOTALL | re.IGNORECASE)
# In a bare repository, these files have the same function as in `.git`.
_IN_REPOSITORY: Final = re.compile(
    r"(.*)/(?:config|config\.worktree|commondir|hooks(?:/.*)?|info/attributes|(?:objects|refs)/.*|packed-refs|index)\Z",
    re.DOTALL | re.IGNORECASE,
)
# The file that makes a folder a git repository.
_HEAD: Final = "/head"
# The tables of these programs record their own work on `.git` as one effect.
_OWN_WORK: Final = re.compile(r"(?:git|gh|git-lfs|pre-commit)(?: [a-z-]+)*\Z")
_WILDCARD: Final = re.compile(r"[*?\[]")
# Everything below a folder: what is unpacked or copied there, and what `find . -type f` lists.
_ALL: Final = ("**", "**/*")


class Steering(NamedTuple):
    """A file that steers programs: `root` is the file, or the folder of the table that contains it.

    With `by_name`, the scope must name it.
    """

    by_name: bool
    root: str


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    by_name: bool
    ends: tuple[str, ...]
    in_home: bool = False


@lru_cache(maxsize=1)
def _tables() -> tuple[tuple[_Table, "re.Pattern[str]"], ...]:
    text = package_files("remit.policy").joinpath("steering.toml").read_text(encoding="utf-8")
    tables = convert(tomllib.loads(text), dict[str, _Table])
    return tuple((table, _pattern(table.ends)) for table in tables.values())


def _pattern(ends: Iterable[str]) -> "re.Pattern[str]":
    files = "|".join(_end(end) for end in ends if not end.endswith("/"))
    # A pattern that never matches.
    folders = "|".join(_end(end.removesuffix("/")) for end in ends if end.endswith("/")) or r"(?!)"
    text = f"(?P<above>.*?)/(?:(?P<file>{files})|(?P<folder>{folders})(?:/.*)?)\\Z"
    return re.compile(text, re.DOTALL | re.IGNORECASE)


def _end(end: str) -> str:
    return "".join("(?:[^/]+/)*" if name == "**" else f"{_name(name)}/" for name in end.split("/")).removesuffix("/")


def _name(name: str) -> str:
    """Return the pattern for one component, in which a star does not match a slash."""
    return "[^/]*".join(re.escape(part) for part in name.split("*"))


def steering_at(path: str, files: Files, made: frozenset[str] = frozenset()) -> Steering | None:
    """Return the `Steering` of a file at an absolute path, or None if it is not known to steer anything.

    `made` are folders that become repositories.
    """
    found = _by_table(path, files.home)
    if (found is None or not found.by_name) and _IN_GIT.match(path) is None:
        inside = _IN_REPOSITORY.match(path)
        if path.lower().endswith(_HEAD) or (
            inside is not None and (inside[1] in made or _is_repository(inside[1], files))
        ):
            return Steering(by_name=True, root=path)
    return found


def _is_repository(folder: str, files: Files) -> bool:
    return files.resolve(f"{folder}/HEAD").exists and files.resolve(f"{folder}/objects").exists


@lru_cache(maxsize=4096)
def _by_table(path: str, home: str | None) -> Steering | None:
    for table, pattern in _tables():
        found = pattern.match(path)
        if found is not None and (not table.in_home or found["above"] == home or _HOMES.match(found["above"])):
            return Steering(table.by_name, path[: max(found.end("file"), found.end("folder"))])
    return None


def mark_steering(effects: Iterable[Effect], files: Files) -> tuple[tuple[Effect, ...], bool]:
    """Mark the effects that the scope must name; also return whether any effect writes a file that steers programs."""
    given = tuple(effects)
    for effect in given:
        if effect.verb == "write":
            break
    else:
        return given, False
    marked: list[Effect] = []
    writes = False
    made = frozenset(effect.resource[: -len(_HEAD)] for effect in given if _is_own_work(effect, _HEAD))
    for effect in given:
        found = _written_steering(effect, files, made) if effect.verb == "write" else None
        writes |= found is not None
        marked.append(effect._replace(steers=found.root) if found is not None and found.by_name else effect)
    return tuple(marked), writes


def _is_own_work(effect: Effect, *ends: str) -> bool:
    """Return whether git itself writes this file as part of its work, and its path ends in one of `ends`."""
    return _OWN_WORK.match(effect.source) is not None and effect.resource.lower().endswith(ends)


def _written_steering(effect: Effect, files: Files, made: frozenset[str]) -> Steering | None:
    if effect.beneath and effect.picks and (effect.resource in made or _is_repository(effect.resource, files)):
        return Steering(by_name=True, root=effect.resource)
    if _is_own_work(effect, "/.git", _HEAD) or (effect.beneath and _OWN_WORK.match(effect.source)):
        return None
    return (_picked_steering(effect, files) if effect.beneath else None) or steering_at(effect.resource, files, made)


def _picked_steering(effect: Effect, files: Files) -> Steering | None:
    """Return the `Steering` of files written in a repository below a folder, if they are picked by name or all are."""
    git = f"{effect.resource}/.git"
    deep, slash, name = effect.picks.rpartition("/")
    if effect.picks in _ALL:
        return Steering(by_name=True, root=git) if files.resolve(git).exists else None
    named = _by_table(f"{git}/{name}", None) if slash and deep and not _WILDCARD.search(name) else None
    return named if named is not None and named.by_name else None
