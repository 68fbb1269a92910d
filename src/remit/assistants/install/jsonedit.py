"""Entries put into the arrays of a JSON file and members set in its objects, and all of it taken back again.

Keeps this invariant: bytes outside of what is put in or taken out are the same afterwards. What is put in follows the
file's indentation and line ends. An entry is found again by the id of the protection in it, wherever it stands; a
member by its place, and it is ours only as long as it has the value that it was given.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from remit.assistants.install.jsontext import Document, Node, Step, is_same, read_document, value_of, walk
from remit.assistants.install.plan import Entry, Member
from remit.assistants.records import ANY_ID, SetMember
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["add_entries", "put_back", "remove_at", "remove_entries", "set_member", "still_set"]

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
        way = _way_to(document, re.compile(re.escape(mark)))
        if way is None:
            return data
        data = document.bytes(_without(document.text, _outermost(way, had)))


def remove_at(data: bytes, where: Sequence[str | int]) -> bytes:
    """Return the file without what stands at a place in it, named by members and indexes; what holds it stays."""
    document = read_document(data)
    way = _along(document.root, where)
    if not where or len(way) < len(where):
        raise FieldInvalid("is not there", place=".".join(("$", *map(str, where))))
    return document.bytes(_without(document.text, way[-1]))


def set_member(data: bytes | None, member: Member) -> tuple[bytes, SetMember | None]:
    """Return the file with a value for a member, and what that has changed: None if it had this value before."""
    document = read_document(data or b"")
    way = _along(document.root, member.where)
    if len(way) < len(member.where):
        made = SetMember(where=member.where, value=member.value, former=None)
        return document.bytes(_with_member(document, way, member.where, member.value)), made
    node, text = way[-1].node, document.text
    if is_same(value_of(document, node), member.value):
        return data or b"", None
    rendered = _rendered(member.value, _style(document), _indent_at(text, node.start))
    changed = SetMember(where=member.where, value=member.value, former=text[node.start : node.end])
    return document.bytes(text[: node.start] + rendered + text[node.end :]), changed


def still_set(data: bytes | None, members: Iterable[SetMember]) -> tuple[SetMember, ...]:
    """Return those of the members that have the value still that they were given."""
    return tuple(member for member in members if _set_in(read_document(data or b""), member))


def put_back(data: bytes, members: Sequence[SetMember], original: bytes | None = None) -> bytes:
    """Return the file with its members as they were before, those that have our value still; `original` as above.

    While the entry of any protection is in it, they stay: it counts on them, and its home may be another one.
    """
    had = _value(original or b"") if members else None
    for member in reversed(members):
        document = read_document(data)
        way = _set_in(document, member)
        if way and _way_to(document, ANY_ID) is None:
            data = document.bytes(_with_former(document.text, way, member.former, had))
    return data


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
    way = _along(document.root, entry.where)
    if len(way) < len(entry.where):
        return _with_member(document, way, entry.where, [entry.value])
    _check_kind(way[-1].node, "array", entry.where)
    return _inserted(document, way[-1].node, entry.value, None)


def _with_member(document: Document, way: Sequence[Step], where: Sequence[str], value: JSON) -> str:
    """Return the text with a member that is not there, and with the objects that lead to it; `way` is what is there."""
    if document.root is None:
        style = _style(document)
        return _rendered(_nested(where, value), style, "") + style.line_end
    node, depth = way[-1].node if way else document.root, len(way)
    _check_kind(node, "object", where[:depth])
    return _inserted(document, node, _nested(where[depth + 1 :], value), where[depth])


def _along(root: Node | None, where: Sequence[str | int]) -> tuple[Step, ...]:
    """Return the way to a place, as far as it is there."""
    way, node = list[Step](), root
    for name in where:
        child = None if node is None else _child(node, name)
        if node is None or child is None:
            break
        way.append(Step(node, child))
        node = way[-1].node
    return tuple(way)


def _child(node: Node, name: str | int) -> int | None:
    """Return which child of a node is meant by the name of a member, or by the index of an item."""
    if isinstance(name, int):
        return name if node.kind == "array" and name < len(node.children) else None
    return node.names.index(name) if name in node.names else None


def _set_in(document: Document, member: SetMember) -> tuple[Step, ...]:
    """Return the way to a member that has the value still that it was given, else nothing."""
    way = _along(document.root, member.where)
    found = len(way) == len(member.where) and is_same(value_of(document, way[-1].node), member.value)
    return way if found else ()


def _with_former(text: str, way: tuple[Step, ...], former: str | None, had: JSON) -> str:
    """Return the text with what a member was before, or without it."""
    if former is None:
        return _without(text, _outermost(way, had))
    node = way[-1].node
    return text[: node.start] + former + text[node.end :]


def _check_kind(node: Node, kind: str, where: Sequence[str]) -> None:
    if node.kind != kind:
        raise FieldInvalid(f"must be an {kind}, and is something else", place=".".join(("$", *where)))


def _nested(where: Sequence[str], value: JSON) -> JSON:
    for name in reversed(where):
        value = {name: value}
    return value


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


def _way_to(document: Document, mark: "re.Pattern[str]") -> tuple[Step, ...] | None:
    """Return the way to the first thing of ours, or None: the innermost object in an array, else the text in one."""
    if document.root is None or not mark.search(document.text):
        return None
    for way, node in walk(document.root):
        if node.kind == "text" and mark.search(str(value_of(document, node))):
            arrays = [depth for depth, step in enumerate(way) if step.container.kind == "array"]
            objects = [depth for depth in arrays if way[depth].node.kind == "object"]
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
