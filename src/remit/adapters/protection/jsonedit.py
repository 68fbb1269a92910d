"""Entries put into the arrays of a JSON file, and taken out again, in the manner in which the file is written.

Keeps this invariant: bytes outside of what is put in or taken out are the same afterwards. What is put in follows the
file's indentation and line ends; what is taken out is found by the id of the protection in it, wherever it stands.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from remit.adapters.protection.jsontext import Document, Node, Step, read_document, value_of, walk
from remit.adapters.protection.plan import Entry
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["add_entries", "remove_entries"]

_USUAL_INDENT: Final = "  "
_INDENT: Final = re.compile(r"[\r\n]([ \t]+)\S")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def add_entries(data: bytes | None, entries: Iterable[Entry]) -> bytes:
    """Return the file with entries at the end of their arrays; one that is not there, or empty, begins with them."""
    for entry in entries:
        document = read_document(data or b"")
        data = document.bytes(_with_entry(document, entry))
    return data or b""


def remove_entries(data: bytes, mark: str, original: bytes | None = None) -> bytes:
    """Return the file without what holds `mark` in an array, and without what is empty then and was not so before.

    `original` is the file before anything was put in; of a group of ours with an entry of others, theirs stays.
    """
    had = _value(original or b"")
    while True:
        document = read_document(data)
        way = _way_to(document, mark)
        if way is None:
            return data
        data = document.bytes(_without(document.text, _outermost(way, had)))


class _Style(NamedTuple):
    """How a file is written: its line end, nothing for a file in one line; and its indentation."""

    line_end: str
    indent: str
    colon: str


def _style(document: Document) -> _Style:
    root = document.root
    inside = "" if root is None else document.text[root.start : root.end]
    line_end = _LINE_END.search(inside)
    indent = _INDENT.search(inside)
    if line_end is None and root is not None and root.children:
        return _Style("", "", ": " if '": ' in inside else ":")
    usual = _LINE_END.search(document.text)
    return _Style((line_end or usual or ["\n"])[0], indent[1] if indent else _USUAL_INDENT, ": ")


def _with_entry(document: Document, entry: Entry) -> str:
    if document.root is None:
        style = _style(document)
        return _rendered(_nested(entry.where, entry.value), style, "") + style.line_end
    node = document.root
    for depth, name in enumerate(entry.where):
        _check_kind(node, "object", entry.where[:depth])
        child = node.member(name)
        if child is None:
            return _inserted(document, node, _nested(entry.where[depth + 1 :], entry.value), name)
        node = child
    _check_kind(node, "array", entry.where)
    return _inserted(document, node, entry.value, None)


def _check_kind(node: Node, kind: str, where: Sequence[str]) -> None:
    if node.kind != kind:
        raise FieldInvalid(f"must be an {kind}, and is something else", place=".".join(("$", *where)))


def _nested(where: Sequence[str], value: JSON) -> JSON:
    made: JSON = [value]
    for name in reversed(where):
        made = {name: made}
    return made


def _inserted(document: Document, container: Node, value: JSON, name: str | None) -> str:
    """Return the text with one more child at the end of a container, which has a name in an object."""
    text, style = document.text, _style(document)
    before = f"{json.dumps(name, ensure_ascii=False)}{style.colon}" if name is not None else ""
    if container.children:
        gap = text[container.start + 1 : container.spot(0)]
        end = container.children[-1].end
        apart, indent = _apart(gap, style)
        return text[:end] + "," + apart + before + _rendered(value, style, indent) + text[end:]
    if not style.line_end:
        return text[: container.start + 1] + before + _rendered(value, style, None) + text[container.end - 1 :]
    outer = _indent_at(text, container.start)
    inner = outer + style.indent
    filled = f"{style.line_end}{inner}{before}{_rendered(value, style, inner)}{style.line_end}{outer}"
    return text[: container.start + 1] + filled + text[container.end - 1 :]


def _apart(gap: str, style: _Style) -> tuple[str, str | None]:
    """Return what stands before a further child, and its indentation: None where children follow in one line."""
    if _LINE_END.search(gap):
        indent = re.split(r"[\r\n]", gap)[-1]
        return style.line_end + indent, indent
    return " " if style.colon == ": " else "", None


def _indent_at(text: str, spot: int) -> str:
    """Return the indentation of the line that holds a spot."""
    line = re.split(r"[\r\n]", text[:spot])[-1]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _rendered(value: JSON, style: _Style, indent: str | None) -> str:
    """Return a value as text whose further lines begin with `indent`, or all of it in one line."""
    if indent is None or not style.line_end:
        separators = (", ", ": ") if style.colon == ": " else (",", ":")
        return json.dumps(value, ensure_ascii=False, separators=separators)
    lines = json.dumps(value, ensure_ascii=False, indent=style.indent).split("\n")
    return f"{style.line_end}{indent}".join(lines)


def _way_to(document: Document, mark: str) -> tuple[Step, ...] | None:
    """Return the way to the first thing of ours, or None: the innermost object in an array, else the text in one."""
    if document.root is None or mark not in document.text:
        return None
    for way, node in walk(document.root):
        if node.kind == "text" and mark in str(value_of(document, node)):
            arrays = [depth for depth, step in enumerate(way) if step.container.kind == "array"]
            objects = [depth for depth in arrays if way[depth].container.children[way[depth].child].kind == "object"]
            if arrays:
                return way[: (objects or arrays)[-1] + 1]
    return None


def _outermost(way: tuple[Step, ...], had: JSON) -> Step:
    """Return what to take out so that nothing empty is left that was not so before."""
    depth = len(way) - 1
    while depth > 0 and len(way[depth].container.children) == 1:
        group = way[depth].container.kind == "array" and depth > 1 and way[depth - 2].container.kind == "array"
        if not group and _was_empty(way[:depth], had):
            break
        depth -= 2 if group else 1
    return way[depth]


def _was_empty(way: Sequence[Step], had: JSON) -> bool:
    """Tell whether a container was there before, with nothing in it."""
    for step in way:
        if not isinstance(had, dict) or step.container.kind != "object":
            return False
        name = step.container.names[step.child]
        if name not in had:
            return False
        had = had[name]
    return not had


def _value(data: bytes) -> JSON:
    document = read_document(data)
    return None if document.root is None else value_of(document, document.root)


def _without(text: str, step: Step) -> str:
    """Return the text without one child of a container."""
    container, index = step
    last = len(container.children) - 1
    if last == 0:
        return text[: container.start + 1] + text[container.end - 1 :]
    if index > 0:
        return text[: container.children[index - 1].end] + text[container.children[index].end :]
    return text[: container.spot(0)] + text[container.spot(1) :]
