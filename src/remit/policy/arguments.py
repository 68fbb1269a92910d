"""The arguments of a call, one by one, each with the role that the catalog gives it.

Every string at any depth is yielded, the names of members included: what nobody marked is looked at for what it reads
like. A value that does not have the form its role needs is yielded as misshapen, never skipped.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from remit.claims.strictjson import JSON

__all__ = ["COMMAND_NAMES", "MISSHAPEN", "Argument", "is_command_name", "walk_arguments"]

MISSHAPEN: Final = "misshapen"
# Names under which tools take a command.
COMMAND_NAMES: Final = frozenset("command cmd commands argv bash shell shell_command bash_command commandLine".split())
_COMMAND_WORDS: Final = frozenset("command cmd commands argv commandline shellcommand bashcommand".split())
_ARGUMENT_NAMES: Final = frozenset("args arguments argv parameters".split())
# Names of what is started, where its words stand beside it.
_STARTED: Final = frozenset("program executable binary".split())
_PLAIN_ROLES: Final = frozenset(("data", "query"))
_LIST_ROLES: Final = frozenset(("command", "words"))
# Names that say nothing without the one above them.
_EMPTY_NAMES: Final = frozenset("name value id key".split())
_MAX_NAME: Final = 80
_ADDRESS: Final = re.compile(r"ur[li]|host|endpoint")


class Argument(NamedTuple):
    """One value: where it stands, what it is called, its role (nothing where it has none)."""

    place: str
    name: str
    role: str
    value: JSON


def walk_arguments(
    value: Mapping[str, JSON], roles: Mapping[str, str], place: str = "", above: str = ""
) -> Iterator[Argument]:
    """Yield every argument, one after the other; `place` and `above` say where an inner object stands."""
    if not _ARGUMENT_NAMES.isdisjoint(map(str.lower, value)):
        joined = _joined(place, value, roles)
        if joined is not None:
            yield joined
    for key, inner in value.items():
        name = key[:_MAX_NAME]
        where = f"{place}.{name}" if place else name
        if place or where not in roles:
            # The name may be a resource itself, as in an object of files by their paths.
            yield Argument(where, "", "", key)
        if name.lower() in _EMPTY_NAMES:
            name = f"{above}_{name}"
        if isinstance(inner, str):
            yield Argument(where, name, roles.get(where) or "", inner)
        else:
            yield from _values(where, name, inner, roles)


def _joined(place: str, value: Mapping[str, JSON], roles: Mapping[str, str]) -> Argument | None:
    """Return a command and its words where an object that nobody marked holds them side by side."""
    words: list[JSON] = []
    for name in sorted(value):
        where = f"{place}.{name}" if place else name
        if where not in roles and (
            is_command_name(name) or name.lower() in _STARTED or name.lower() in _ARGUMENT_NAMES
        ):
            inner = value[name]
            texts = (
                [str(word) for word in inner if not isinstance(word, dict | list)]
                if isinstance(inner, list)
                else [inner]
            )
            commanded = name.lower() not in _ARGUMENT_NAMES
            words = [*map(str, texts), *words] if commanded else [*words, *map(str, texts)]
    named = any(is_command_name(name) or name.lower() in _STARTED for name in value)
    return Argument(place or "command", "command", "words", words) if named and words else None


@lru_cache(maxsize=4096)
def is_command_name(name: str) -> bool:
    """Tell whether an argument is named like a command."""
    return name in COMMAND_NAMES or re.sub(r"[_-]", "", name.lower()) in _COMMAND_WORDS


def _values(place: str, name: str, value: JSON, roles: Mapping[str, str]) -> Iterator[Argument]:
    role = roles.get(place)
    if role in _PLAIN_ROLES:
        yield Argument(place, name, role, value)
    elif isinstance(value, str):
        yield Argument(place, name, role or "", value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and _ADDRESS.search(name.lower()):
        # An address may be written as a number.
        yield Argument(place, name, role or "", str(value))
    elif isinstance(value, list):
        yield from _elements(place, name, value, roles)
    elif isinstance(value, dict):
        if role is not None and value:
            yield Argument(place, name, MISSHAPEN, value)
        yield from walk_arguments(value, roles, place, name)


def _elements(place: str, name: str, value: list[JSON], roles: Mapping[str, str]) -> Iterator[Argument]:
    role = roles.get(place)
    if (_all_text(value) and role in _LIST_ROLES) or (role is None and is_command_name(name)):
        yield Argument(place, name, role or "words", value)
        return
    for inner in value:
        if isinstance(inner, str):
            yield Argument(place, name, role or roles.get(f"{place}[]", ""), inner)
        elif role is not None and isinstance(inner, list):
            yield Argument(place, name, MISSHAPEN, inner)
        elif isinstance(inner, dict | list):
            yield from _values(f"{place}[]", name, inner, roles)


def _all_text(value: list[JSON]) -> bool:
    return all(isinstance(word, str) for word in value)
