"""What an assistant accepts in a settings file: one value that it does not accept makes it drop the whole file.

The tables in `accepted/` say which members are known and which values they may have, in a part of JSON Schema; with
`whole`, a value is taken out as one. That of Claude Code follows the schema of its version 2.1.325, and what 2.1.197
accepts less of; where the program checks more than a schema can say, the table allows only what surely passes. Keeps
this invariant: a file in which nothing is refused here is one that the assistant does not drop. So a value that no
table allows for a known member is refused, and an unknown member only where the assistant refuses those. The monitor
of the settings and `remit doctor` ask here, and nowhere else.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias

from remit.assistants.install.jsonedit import remove_at
from remit.errors import quote

__all__ = ["Reader", "Where", "is_known", "named", "refused_in", "trusts_by_place", "without_refused"]

# Names of members and indexes of items, from the root.
Where: TypeAlias = "tuple[str | int, ...]"
_Schema: TypeAlias = Mapping[str, Any]

_HOOKS: Final = "hooks"
_PLAIN: Final = re.compile(r"[A-Za-z$_][A-Za-z0-9$_-]{0,59}")
_NUMBERS: Final = re.compile(r"\d+")
# Each pass takes out everything that is refused; what is left then can lack something in turn.
_MAX_PASSES: Final = 20
# Integers beyond this are none in JavaScript.
_SAFE: Final = 2**53 - 1


class Reader(NamedTuple):
    """Who reads a file: the assistant, and its version when it was protected; empty where that is not known."""

    assistant: str
    version: str = ""


class _Table(NamedTuple):
    """What is known of the settings of one assistant."""

    members: _Schema
    # Whether a file with an unknown member is dropped.
    is_closed: bool = False
    # Whether hooks are trusted by their place in the file.
    is_by_place: bool = False
    # For versions before the one named: what they accept less of.
    before: tuple[tuple[tuple[int, ...], _Schema], ...] = ()
    # Names of events whose hooks make the file one that is dropped where they stand outside of `hooks`, and the
    # members in which that is not looked for.
    guards: frozenset[str] = frozenset()
    unscanned: frozenset[str] = frozenset()


def refused_in(reader: Reader, value: Any) -> Iterator[Where]:  # noqa: ANN401 - whatever a file holds
    """Yield the places of what an assistant does not accept; the root where the file holds no object."""
    table = _table(reader.assistant)
    if table is None:
        return
    if not isinstance(value, dict):
        yield ()
        return
    found = list[Where]()
    for name, said in value.items():
        if table.is_closed and name not in table.members:
            found.append((name,))
        for schema in _schemas(table, reader.version, name):
            found += _refused(schema, said, (name,))
        if name not in table.unscanned and _holds_guard(table.guards, name, said):
            found.append((name,) if name != _HOOKS else _guard_in_hooks(table.guards, said))
    yield from dict.fromkeys(found)


def is_known(reader: Reader, name: str) -> bool:
    """Tell whether it is known what a member at the root of an assistant's settings may be."""
    table = _table(reader.assistant)
    return table is not None and name in table.members


def trusts_by_place(reader: Reader) -> bool:
    """Tell whether an assistant runs hooks only at the place in the file at which they were trusted."""
    table = _table(reader.assistant)
    return table is not None and table.is_by_place


def without_refused(reader: Reader, data: bytes, read: Callable[[bytes], Any]) -> bytes | None:
    """Return a file without what the assistant does not accept; None if there is nothing to accept in it."""
    for _ in range(_MAX_PASSES):
        refused = list(refused_in(reader, read(data)))
        if not refused:
            return data
        if () in refused:
            return None
        # The last first: a place does not change by what is taken out behind it.
        for where in sorted(refused, key=_order, reverse=True):
            if not any(where[:depth] in refused for depth in range(1, len(where))):
                data = remove_at(data, where)
    return None


def named(where: Where) -> str:
    """Return a place for a message; names are written by others."""
    parts = (f"[{one}]" if isinstance(one, int) else _shown(one) for one in where[:4])
    return ".".join(parts).replace(".[", "[") or "the file"


def _shown(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def _order(where: Where) -> tuple[tuple[str, int], ...]:
    return tuple(("", one) if isinstance(one, int) else (one, 0) for one in where)


@cache
def _table(assistant: str) -> _Table | None:
    file = files(__package__).joinpath("accepted", f"{assistant}.json")
    if not file.is_file():
        return None
    said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return _Table(
        members=said["members"],
        is_closed=said.get("closed", False),
        is_by_place=said.get("by_place", False),
        before=tuple((_numbers(version), members) for version, members in said.get("before", {}).items()),
        guards=frozenset(said.get("guards", ())),
        unscanned=frozenset(said.get("unscanned", ())),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(version)[:3]))


def _schemas(table: _Table, version: str, name: str) -> Iterator[_Schema]:
    """Yield what a member must be; an unknown version counts as an old one."""
    if name in table.members:
        yield table.members[name]
    yield from (members[name] for first, members in table.before if _numbers(version) < first and name in members)


def _refused(schema: _Schema, value: Any, where: Where) -> Iterator[Where]:  # noqa: ANN401
    """Yield the innermost places that can be taken out so that the rest is accepted."""
    if _accepts(schema, value):
        return
    inside = [*_refused_members(schema, value, where), *_refused_items(schema, value, where)]
    required = {(*where, name) for name in schema.get("required", ())}
    bare = {name: said for name, said in schema.items() if name not in ("properties", "additionalProperties", "items")}
    if schema.get("whole") or not inside or required.intersection(inside) or not _accepts(bare, value):
        yield where
    else:
        yield from inside


def _refused_members(schema: _Schema, value: Any, where: Where) -> Iterator[Where]:  # noqa: ANN401
    for name, said in value.items() if isinstance(value, dict) else ():
        known = _of_member(schema, name)
        if known is not None:
            yield from _refused(known, said, (*where, name))


def _refused_items(schema: _Schema, value: Any, where: Where) -> Iterator[Where]:  # noqa: ANN401
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _refused(schema["items"], item, (*where, index))


def _of_member(schema: _Schema, name: str) -> _Schema | None:
    known: _Schema | None = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    return known


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: _TYPES["number"](value) and value == int(value) and abs(value) <= _SAFE,
}


def _accepts_members(schema: _Schema, value: Any) -> bool:  # noqa: ANN401
    known = ((_of_member(schema, name), said) for name, said in value.items())
    return all(one is None or _accepts(one, said) for one, said in known)


# What each keyword asks of a value of the type that it is for.
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
    """Tell whether a text matches as in JavaScript: only the very end is one, and only ASCII digits are digits."""
    exact = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
    return re.search(exact, text, re.ASCII) is not None


def _holds_guard(guards: frozenset[str], name: str, value: Any) -> bool:  # noqa: ANN401
    """Tell whether a member of the root has hooks in it that ask about calls, elsewhere than where they belong."""
    if not guards:
        return False
    if name == _HOOKS:
        return _guard_in_hooks(guards, value) != ()
    return (name in guards and value not in (None, [])) or _has_guard(guards, value, groups=True)


def _guard_in_hooks(guards: frozenset[str], events: Any) -> Where:  # noqa: ANN401
    """Return the first event that has hooks of another one in it."""
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
        (name in guards and said not in (None, [])) or _has_guard(guards, said, groups=groups)
        for name, said in value.items()
    )
