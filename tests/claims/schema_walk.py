"""Walks a JSON Schema beside a value: makes values that obey it, and others that break one rule each.

Knows the keywords that `receipt.schema.json` uses, and fails on any other, so that none goes untested.
"""

import copy
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

from hypothesis import strategies as st

SCHEMA: dict[str, Any] = json.loads(files("remit.claims").joinpath("receipt.schema.json").read_bytes())

Node = dict[str, Any]
Path = tuple[str | int, ...]

KNOWN = {
    "$ref", "$schema", "$id", "$defs", "title", "description", "type", "enum", "pattern", "minLength", "maxLength",
    "minimum", "maximum", "format", "properties", "required", "additionalProperties", "propertyNames",
    "minProperties", "items", "anyOf", "oneOf", "if", "then", "else",
}  # fmt: skip

WRONG_TYPES: tuple[Any, ...] = (None, True, 0, 1.5, -1, "text of some length", "", [], ["x"], {}, {"a": 1})

MOMENTS = [
    "2026-02-28T23:59:59Z",
    "2024-02-29T00:00:00z",
    "2000-02-29t00:00:00.000001+23:59",
    "0000-01-01T00:00:00-00:00",
    "2016-12-31T23:59:60Z",
    "2016-12-31T15:59:60.5-08:00",
    "2017-01-01T05:29:60+05:30",
    "2026-01-01T12:00:60Z",
    "1900-02-29T00:00:00Z",
    "2026-02-29T00:00:00Z",
    "2026-04-31T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z",
    "2026-01-00T00:00:00Z",
    "2026-01-32T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:60:00Z",
    "2026-01-01T00:00:61Z",
    "2026-01-01T00:00:00",
    "2026-01-01T00:00:00+24:00",
    "2026-01-01T00:00:00+0100",
    "2026-01-01T00:00:00.Z",
    "2026-1-1T00:00:00Z",
    "26-01-01T00:00:00Z",
    "2026-01-01",
    "now",
    "٢026-01-01T00:00:00Z",
    "2026-01-01T00:00:00Z\n",
    "2026-01-01T00:00:00Z ",
    "2026-01-01 00:00:00Z",
]


def resolve(node: Node | bool) -> Node:
    """Return the node itself, with a reference followed."""
    if isinstance(node, bool):
        return {}
    unknown = node.keys() - KNOWN
    assert not unknown, f"no test knows {unknown}"
    if "$ref" in node:
        return resolve(SCHEMA["$defs"][node["$ref"].removeprefix("#/$defs/")])
    return node


def obeying(node: Node | bool) -> st.SearchStrategy[Any]:
    """Return a strategy for values that obey the node; cross-field rules are for the caller."""
    node = resolve(node)
    for choice in ("anyOf", "oneOf"):
        if choice in node:
            return st.one_of(*map(obeying, node[choice]))
    if "enum" in node:
        return st.sampled_from(node["enum"])
    kinds = node.get("type", ["null", "boolean", "string"])
    return st.one_of(*(_of_type(kind, node) for kind in ([kinds] if isinstance(kinds, str) else kinds)))


def _of_type(kind: str, node: Node) -> st.SearchStrategy[Any]:
    limits = {"min_value": node.get("minimum"), "max_value": node.get("maximum")}
    simple: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "integer": st.integers(**limits),
        "number": st.floats(0, 1e9) | st.integers(0, 1000),
    }
    if kind in simple:
        return simple[kind]
    return {"string": _string, "array": _array, "object": _object}[kind](node)


def _string(node: Node) -> st.SearchStrategy[str]:
    if "format" in node:
        return st.datetimes().map(lambda moment: f"{moment.isoformat()}Z")
    low, high = node.get("minLength", 0), min(node.get("maxLength", 90), 90)
    if "pattern" in node:
        # A pattern that may repeat at will gets the length limits that stand beside it.
        bounded = re.sub(r"\+\$$", f"{{{max(low, 1)},{high}}}$", node["pattern"])
        return _matching(bounded)
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=low, max_size=high)


def _matching(pattern: str) -> st.SearchStrategy[str]:
    """Return what a pattern matches. Characters of one class are drawn as a text, which is many times faster."""
    if found := re.fullmatch(r"\^(\[[^]]+\])\{(\d+)(?:,(\d+))?\}\$", pattern):
        alphabet = "".join(filter(re.compile(found[1]).match, map(chr, range(128))))
        return st.text(alphabet, min_size=int(found[2]), max_size=int(found[3] or found[2]))
    return st.from_regex(pattern.replace("$", r"\Z"))


def _array(node: Node) -> st.SearchStrategy[list[Any]]:
    return st.lists(obeying(node["items"]), max_size=3)


def _object(node: Node) -> st.SearchStrategy[dict[str, Any]]:
    if "properties" in node:
        known = {name: obeying(member) for name, member in node["properties"].items()}
        required = {name: known[name] for name in node["required"]}
        optional = {name: known[name] for name in known.keys() - required.keys()}
        return st.fixed_dictionaries(required, optional=optional)
    names = _matching(resolve(node["propertyNames"])["pattern"])
    members = obeying(node["additionalProperties"])
    return st.dictionaries(names, members, min_size=node.get("minProperties", 0), max_size=3)


ABSENT = object()


class Breakage(NamedTuple):
    """One change to a value: where, which rule it tries, and what comes there instead."""

    where: Path
    rule: str
    replacement: Any

    def __str__(self) -> str:
        return f"{self.rule} at {'/'.join(map(str, self.where)) or 'root'}: {self.replacement!r:.80}"

    def applied_to(self, value: Any) -> Any:
        """Return a copy of the whole value with the change made."""
        whole = [copy.deepcopy(value)]
        holder: Any = whole
        *way, last = (0, *self.where)
        for step in way:
            holder = holder[step]
        if self.replacement is ABSENT:
            del holder[last]
        else:
            holder[last] = self.replacement
        return whole[0]


def breakages(value: Any) -> list[Breakage]:
    """Return a change for every rule of the schema at every place of `value`."""
    return [Breakage(*breakage) for breakage in _breakages(value, SCHEMA, ())]


def _breakages(value: Any, node: Node | bool, path: Path) -> Iterator[tuple[Path, str, Any]]:
    node = resolve(node)
    yield from ((path, "type", wrong) for wrong in WRONG_TYPES)
    for choice in ("anyOf", "oneOf"):
        for branch in node.get(choice, ()):
            if _looks_like(value, resolve(branch)):
                yield from _breakages(value, branch, path)
    yield from ((path, "enum", wrong) for wrong in _beside(node.get("enum")))
    if isinstance(value, str):
        yield from ((path, rule, wrong) for rule, wrong in _bad_strings(value, node))
    if "minimum" in node:
        edges = (node["minimum"], node["minimum"] - 1, node["maximum"], node["maximum"] + 1)
        yield from ((path, "limits", edge) for edge in edges)
    if isinstance(value, dict):
        yield from _bad_objects(value, node, path)
    if isinstance(value, list) and "items" in node:
        for index, item in enumerate(value):
            yield from _breakages(item, node["items"], (*path, index))


def _looks_like(value: Any, branch: Node) -> bool:
    kinds: dict[str, type] = {"string": str, "object": dict, "null": type(None)}
    fits = isinstance(value, kinds[branch["type"]])
    return fits and (not isinstance(value, dict) or value.keys() >= set(branch["required"]))


def _beside(allowed: list[str] | None) -> list[str]:
    return [] if allowed is None else [*allowed, allowed[0] + "x", allowed[0].upper(), allowed[0] + "\n", ""]


def _bad_strings(value: str, node: Node) -> Iterator[tuple[str, str]]:
    if "minLength" in node:
        yield from (("minLength", value[: node["minLength"] + change]) for change in (-1, 0))
    if "maxLength" in node:
        long = (value or "x") * 4100
        yield from (("maxLength", long[: node["maxLength"] + change]) for change in (0, 1))
    if "pattern" in node:
        odd = ("\n", " ", "\u00e9", "\u0661", "=", "a")
        yield from (("pattern", value + letter) for letter in odd)
        yield from (("pattern", value[:-1] + letter) for letter in odd)
        yield from (("pattern", wrong) for wrong in (value[1:], value * 9, value.upper(), f"{value}\n{value}"))
    if "format" in node:
        yield from (("format", moment) for moment in MOMENTS)


def _bad_objects(value: dict[str, Any], node: Node, path: Path) -> Iterator[tuple[Path, str, Any]]:
    yield from (((*path, name), "required", ABSENT) for name in value)
    yield ((*path, "unknown_member"), "additionalProperties", 1)
    if "minProperties" in node:
        yield (path, "minProperties", {})
    for name, item in value.items():
        if "propertyNames" in node:
            for wrong in ("", "a b", "a\n", "a\nb", "x" * 64, "x" * 65, "\u00e9"):
                yield (path, "propertyNames", {wrong: item})
            yield from _breakages(item, node["additionalProperties"], (*path, name))
        else:
            yield from _breakages(item, node.get("properties", {}).get(name, True), (*path, name))
