"""Validates settings files as the assistant does: one invalid value makes it ignore the whole file.

The tables in `accepted/` define the valid values of each member in a subset of JSON Schema; with `whole`, an invalid
value is removed as a whole, not in parts. The table of Claude Code follows the schema of version 2.1.325, with the
restrictions of 2.1.197. Where Claude Code checks more than a schema can express, the table allows only what certainly
passes. Invariant: the assistant does not ignore a file that is valid here. So an unlisted value of a known member is
invalid, and an unknown member is invalid only if the assistant rejects unknown members. The settings monitor and
`remit doctor` both use this module.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias

from remit.assistants.install.jsonedit import remove_at
from remit.errors import quote

# A path of member names and item indexes from the root.
Where: TypeAlias = "tuple[str | int, ...]"
_Schema: TypeAlias = Mapping[str, Any]

_HOOKS: Final = "hooks"
_PLAIN: Final = re.compile(r"[A-Za-z$_][A-Za-z0-9$_-]{0,59}")
_NUMBERS: Final = re.compile(r"\d+")
# Each pass removes all invalid values. That can make others invalid, such as an object that lacks a member then.
_MAX_PASSES: Final = 20
# The largest safe integer in JavaScript.
_MAX_SAFE_INTEGER: Final = 2**53 - 1


class SettingsReader(NamedTuple):
    """The assistant that reads a file, and its version when it was protected; empty if unknown."""

    assistant: str
    version: str = ""


class _SettingsTable(NamedTuple):
    """The table of one assistant."""

    members: _Schema
    # Whether a file with an unknown member is ignored.
    is_closed: bool = False
    # Whether hooks are trusted by their position in the file.
    is_by_place: bool = False
    # Further restrictions of versions before the given one.
    before: tuple[tuple[tuple[int, ...], _Schema], ...] = ()
    # Names of hook events that make the file invalid if they are outside of `hooks`, and the members that are not
    # searched for them.
    guards: frozenset[str] = frozenset()
    unscanned: frozenset[str] = frozenset()


def find_invalid(reader: SettingsReader, value: Any) -> Iterator[Where]:  # noqa: ANN401 - any value
    """Yield the paths of invalid values; the root if the file is not an object."""
    table = _table(reader.assistant)
    if table is None:
        return
    if not isinstance(value, dict):
        yield ()
        return
    found = list[Where]()
    for name, member_value in value.items():
        if table.is_closed and name not in table.members:
            found.append((name,))
        for schema in _schemas(table, reader.version, name):
            found += _find_refused(schema, member_value, (name,))
        if name not in table.unscanned and _holds_guard(table.guards, name, member_value):
            found.append((name,) if name != _HOOKS else _guard_in_hooks(table.guards, member_value))
    yield from dict.fromkeys(found)


def is_known(reader: SettingsReader, name: str) -> bool:
    """Return whether the table of an assistant has a member at the root."""
    table = _table(reader.assistant)
    return table is not None and name in table.members


def trusts_by_position(reader: SettingsReader) -> bool:
    """Return whether an assistant runs hooks only at the position in the file at which they were trusted."""
    table = _table(reader.assistant)
    return table is not None and table.is_by_place


def remove_invalid(reader: SettingsReader, data: bytes, read: Callable[[bytes], Any]) -> bytes | None:
    """Return a file without its invalid values, or None if nothing valid is left."""
    for _ in range(_MAX_PASSES):
        refused = list(find_invalid(reader, read(data)))
        if not refused:
            return data
        if () in refused:
            return None
        # The last first, because removing a value changes the paths of those after it.
        for where in sorted(refused, key=_order, reverse=True):
            if not any(where[:depth] in refused for depth in range(1, len(where))):
                data = remove_at(data, where)
    return None


def format_path(where: Where) -> str:
    """Return a path for a message. Unusual names are quoted, because anyone may have written them."""
    parts = (f"[{one}]" if isinstance(one, int) else _quote_unusual(one) for one in where[:4])
    return ".".join(parts).replace(".[", "[") or "the file"


def _quote_unusual(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def _order(where: Where) -> tuple[tuple[str, int], ...]:
    return tuple(("", one) if isinstance(one, int) else (one, 0) for one in where)


@cache
def _table(assistant: str) -> _SettingsTable | None:
    file = files(__package__).joinpath("accepted", f"{assistant}.json")
    if not file.is_file():
        return None
    member_value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return _SettingsTable(
        members=member_value["members"],
        is_closed=member_value.get("closed", False),
        is_by_place=member_value.get("by_place", False),
        before=tuple((_numbers(version), members) for version, members in member_value.get("before", {}).items()),
        guards=frozenset(member_value.get("guards", ())),
        unscanned=frozenset(member_value.get("unscanned", ())),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(version)[:3]))


def _schemas(table: _SettingsTable, version: str, name: str) -> Iterator[_Schema]:
    """Yield the schemas of a member. An unknown version counts as the oldest."""
    if name in table.members:
        yield table.members[name]
    yield from (members[name] for first, members in table.before if _numbers(version) < first and name in members)


def _find_refused(schema: _Schema, value: Any, where: Where) -> Iterator[Where]:  # noqa: ANN401
    """Yield the innermost paths whose removal makes the value valid."""
    if _accepts(schema, value):
        return
    inside = [*_find_refused_members(schema, value, where), *_find_refused_items(schema, value, where)]
    required = {(*where, name) for name in schema.get("required", ())}
    bare = {
        name: member_value
        for name, member_value in schema.items()
        if name not in ("properties", "additionalProperties", "items")
    }
    if schema.get("whole") or not inside or required.intersection(inside) or not _accepts(bare, value):
        yield where
    else:
        yield from inside


def _find_refused_members(schema: _Schema, value: Any, where: Where) -> Iterator[Where]:  # noqa: ANN401
    for name, member_value in value.items() if isinstance(value, dict) else ():
        known = _of_member(schema, name)
        if known is not None:
            yield from _find_refused(known, member_value, (*where, name))


def _find_refused_items(schema: _Schema, value: Any, where: Where) -> Iterator[Where]:  # noqa: ANN401
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _find_refused(schema["items"], item, (*where, index))


def _of_member(schema: _Schema, name: str) -> _Schema | None:
    known: _Schema | None = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    return known


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: _TYPES["number"](value) and value == int(value) and abs(value) <= _MAX_SAFE_INTEGER,
}


def _accepts_members(schema: _Schema, value: Any) -> bool:  # noqa: ANN401
    known = ((_of_member(schema, name), member_value) for name, member_value in value.items())
    return all(one is None or _accepts(one, member_value) for one, member_value in known)


# The type that each keyword applies to, and its check.
_KEYWORDS: Final[Mapping[str, tuple[str, Callable[[Any, _Schema], bool]]]] = {
    "properties": ("object", lambda value, schema: _accepts_members(schema, value)),
    "additionalProperties": ("object", lambda value, schema: _accepts_members(schema, value)),
    "required": ("object", lambda value, schema: all(name in value for name in schema["required"])),
    "items": ("array", lambda value, schema: all(_accepts(schema["items"], item) for item in value)),
    "minItems": ("array", lambda value, schema: len(value) >= schema["minItems"]),
    "minLength": ("string", lambda value, schema: len(value) >= schema["minLength"]),
    "maxLength": ("string", lambda value, schema: len(value) <= schema["maxLength"]),
    "pattern": ("string", lambda value, schema: _matches(schema["pattern"], value)),
    "minimum": ("number", lambda value, schema: value >= schema["minimum"]),
    "maximum": ("number", lambda value, schema: value <= schema["maximum"]),
    "exclusiveMinimum": ("number", lambda value, schema: value > schema["exclusiveMinimum"]),
}


def _accepts(schema: _Schema, value: Any) -> bool:  # noqa: ANN401
    if "type" in schema and not _TYPES[schema["type"]](value):
        return False
    if "enum" in schema and not any(type(one) is type(value) and one == value for one in schema["enum"]):
        return False
    if "anyOf" in schema and not any(_accepts(one, value) for one in schema["anyOf"]):
        return False
    for keyword, (kind, holds) in _KEYWORDS.items():
        if keyword in schema and _TYPES[kind](value) and not holds(value, schema):
            return False
    return True


def _matches(pattern: str, text: str) -> bool:
    """Return whether a text matches as in JavaScript, with `$` only at the very end and only ASCII digits."""
    exact = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
    return re.search(exact, text, re.ASCII) is not None


def _holds_guard(guards: frozenset[str], name: str, value: Any) -> bool:  # noqa: ANN401
    """Return whether a member of the root contains hooks of a guarded event at a place where they do not belong."""
    if not guards:
        return False
    if name == _HOOKS:
        return _guard_in_hooks(guards, value) != ()
    return (name in guards and value not in (None, [])) or _has_guard(guards, value, groups=True)


def _guard_in_hooks(guards: frozenset[str], events: Any) -> Where:  # noqa: ANN401
    """Return the path of the first event that contains hooks of another event, or an empty path."""
    for event, groups in events.items() if isinstance(events, dict) else ():
        if _has_guard(guards, groups, groups=False):
            return (_HOOKS, event)
    return ()


def _has_guard(guards: frozenset[str], value: Any, *, groups: bool) -> bool:  # noqa: ANN401
    if isinstance(value, list):
        return any(_has_guard(guards, item, groups=groups) for item in value)
    if not isinstance(value, dict):
        return False
    if groups and isinstance(value.get(_HOOKS), list | dict) and value[_HOOKS] not in ([], {}):
        return True
    return any(
        (name in guards and member_value not in (None, [])) or _has_guard(guards, member_value, groups=groups)
        for name, member_value in value.items()
    )
