"""The arguments of a call, one by one, each with the role that the catalog gives it.

Every string at any depth is yielded, the names of members included: what nobody marked is looked at for what it reads
like. A value that does not have the form its role needs is yielded as misshapen, never skipped.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from remit.claims.strictjson import JSON

__all__ = ["COMMAND_NAMES", "MISSHAPEN", "Argument", "walk_arguments"]

MISSHAPEN: Final = "misshapen"
# Names under which tools take a command.
COMMAND_NAMES: Final = frozenset("command cmd commands argv bash shell shell_command bash_command commandLine".split())
_ARGUMENT_NAMES: Final = ("args", "arguments", "argv", "parameters")
_PLAIN_ROLES: Final = frozenset(("data", "query"))
_LIST_ROLES: Final = frozenset(("command", "words"))
# Names that say nothing without the one above them.
_EMPTY_NAMES: Final = frozenset("name value id key".split())
_MAX_NAME: Final = 80


class Argument(NamedTuple):
    """One value: where it stands, what it is called, its role (nothing where it has none)."""

    place: str
    name: str
    role: str
    value: JSON


def walk_arguments(arguments: Mapping[str, JSON], roles: Mapping[str, str]) -> Iterator[Argument]:
    """Yield every argument."""
    yield from _members("", "", dict(arguments), roles)


def _members(place: str, above: str, value: dict[str, JSON], roles: Mapping[str, str]) -> Iterator[Argument]:
    joined = _joined(place, value, roles)
    if joined is not None:
        yield joined
    for key, inner in value.items():
        name = key[:_MAX_NAME]
        where = f"{place}.{name}" if place else name
        if place or where not in roles:
            # The name may be a resource itself, as in an object of files by their paths.
            yield Argument(where, "", "", key)
        yield from _values(where, f"{above}_{name}" if name.lower() in _EMPTY_NAMES else name, inner, roles)


def _joined(place: str, value: dict[str, JSON], roles: Mapping[str, str]) -> Argument | None:
    """Return a command and its words where an object that nobody marked holds them side by side."""
    for name in COMMAND_NAMES.intersection(value):
        command, where = value[name], f"{place}.{name}" if place else name
        for other in _ARGUMENT_NAMES:
            words = value.get(other)
            if isinstance(command, str) and isinstance(words, list) and where not in roles and _all_text(words):
                return Argument(where, name, "words", [command, *words])
    return None


def _values(place: str, name: str, value: JSON, roles: Mapping[str, str]) -> Iterator[Argument]:
    role = roles.get(place)
    if role in _PLAIN_ROLES:
        yield Argument(place, name, role, value)
    elif isinstance(value, str):
        yield Argument(place, name, role or "", value)
    elif isinstance(value, list):
        yield from _elements(place, name, value, roles)
    elif isinstance(value, dict):
        if role is not None and value:
            yield Argument(place, name, MISSHAPEN, value)
        yield from _members(place, name, value, roles)


def _elements(place: str, name: str, value: list[JSON], roles: Mapping[str, str]) -> Iterator[Argument]:
    role = roles.get(place)
    if _all_text(value) and (role in _LIST_ROLES or (role is None and name in COMMAND_NAMES)):
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
