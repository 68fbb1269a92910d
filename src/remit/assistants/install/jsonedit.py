"""Adds entries to arrays in a JSON file, sets members of its objects, and undoes both.

Invariant: all other bytes of the file are kept. New text follows the file's indentation and line ends. An entry is
found again by the protection id in it, wherever it is. A member is found by its path, and counts as set by Remit only
while it has the value that Remit gave it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from remit.assistants.install.jsontext import Document, Node, PathStep, is_same, parse_node, read_document, walk
from remit.assistants.install.plan import Entry, Member
from remit.assistants.records import PROTECTION_ID, SetMember
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

_DEFAULT_INDENT: Final = "  "
_INDENT: Final = re.compile(r"[\r\n]([ \t]+)\S")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def add_entries(data: bytes | None, entries: Iterable[Entry]) -> bytes:
    """Return the file with entries appended to their arrays. A missing or blank file is created."""
    for entry in entries:
        document = read_document(data or b"")
        data = document.bytes(_with_entry(document, entry))
    return data or b""


def remove_entries(data: bytes, mark: str, original: bytes | None = None) -> bytes:
    """Return the file without the array items that contain `mark`.

    Containers that are empty then are removed as well, unless they were empty in `original`, the file before Remit
    changed it. If others have added an item to a group that Remit wrote, their item is kept.
    """
    former_value = _value(original or b"")
    while True:
        document = read_document(data)
        path = _find_mark(document, re.compile(re.escape(mark)))
        if path is None:
            return data
        data = document.bytes(_without(document.text, _topmost_removable(path, former_value)))


def remove_at(data: bytes, where: Sequence[str | int]) -> bytes:
    """Return the file without the value at a path of member names and indexes. Its container is kept."""
    document = read_document(data)
    path = _resolve(document.root, where)
    if not where or len(path) < len(where):
        raise FieldInvalid("does not exist", place=".".join(("$", *map(str, where))))
    return document.bytes(_without(document.text, path[-1]))


def set_member(data: bytes | None, member: Member) -> tuple[bytes, SetMember | None]:
    """Return the file with a member set, and a record of the change: None if it had this value before."""
    document = read_document(data or b"")
    path = _resolve(document.root, member.where)
    if len(path) < len(member.where):
        made = SetMember(where=member.where, value=member.value, former=None)
        return document.bytes(_with_member(document, path, member.where, member.value)), made
    node, text = path[-1].node, document.text
    if is_same(parse_node(document, node), member.value):
        return data or b"", None
    text_of_value = _render(member.value, _style(document), _indent_at(text, node.start))
    changed = SetMember(where=member.where, value=member.value, former=text[node.start : node.end])
    return document.bytes(text[: node.start] + text_of_value + text[node.end :]), changed


def still_set(data: bytes | None, members: Iterable[SetMember]) -> tuple[SetMember, ...]:
    """Return the members that still have the value that Remit gave them."""
    return tuple(member for member in members if _path_if_set(read_document(data or b""), member))


def restore_members(data: bytes, members: Sequence[SetMember], original: bytes | None = None) -> bytes:
    """Return the file with the former values of members that still have Remit's value.

    `original` is used as in `remove_entries`. While the file has an entry of any protection, all members are kept,
    because that entry depends on them, and the protection may be stored in another home.
    """
    former_value = _value(original or b"") if members else None
    for member in reversed(members):
        document = read_document(data)
        path = _path_if_set(document, member)
        if path and _find_mark(document, PROTECTION_ID) is None:
            data = document.bytes(_with_former(document.text, path, member.former, former_value))
    return data


class _Style(NamedTuple):
    """The formatting of a file. `line_end` is empty for a file of one line."""

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
    return _Style((line_end or usual or ["\n"])[0], indent[1] if indent else _DEFAULT_INDENT, ": ")


def _with_entry(document: Document, entry: Entry) -> str:
    path = _resolve(document.root, entry.where)
    if len(path) < len(entry.where):
        return _with_member(document, path, entry.where, [entry.value])
    _check_kind(path[-1].node, "array", entry.where)
    return _append(document, path[-1].node, entry.value, None)


def _with_member(document: Document, path: Sequence[PathStep], where: Sequence[str], value: JSON) -> str:
    """Return the text with a new member and the missing objects that lead to it; `path` is what exists of them."""
    if document.root is None:
        style = _style(document)
        return _render(nest(where, value), style, "") + style.line_end
    node, depth = path[-1].node if path else document.root, len(path)
    _check_kind(node, "object", where[:depth])
    return _append(document, node, nest(where[depth + 1 :], value), where[depth])


def _resolve(root: Node | None, where: Sequence[str | int]) -> tuple[PathStep, ...]:
    """Return the path to a value, as far as it exists."""
    path, node = list[PathStep](), root
    for name in where:
        child = None if node is None else _child(node, name)
        if node is None or child is None:
            break
        path.append(PathStep(node, child))
        node = path[-1].node
    return tuple(path)


def _child(node: Node, name: str | int) -> int | None:
    """Return the index of the child with this member name or item index, or None."""
    if isinstance(name, int):
        return name if node.kind == "array" and name < len(node.children) else None
    return node.names.index(name) if name in node.names else None


def _path_if_set(document: Document, member: SetMember) -> tuple[PathStep, ...]:
    """Return the path to a member that still has the value that Remit gave it, else an empty path."""
    path = _resolve(document.root, member.where)
    found = len(path) == len(member.where) and is_same(parse_node(document, path[-1].node), member.value)
    return path if found else ()


def _with_former(text: str, path: tuple[PathStep, ...], former: str | None, former_value: JSON) -> str:
    """Return the text with the former value of a member, or without the member if it had none."""
    if former is None:
        return _without(text, _topmost_removable(path, former_value))
    node = path[-1].node
    return text[: node.start] + former + text[node.end :]


def _check_kind(node: Node, kind: str, where: Sequence[str]) -> None:
    if node.kind != kind:
        raise FieldInvalid(f"must be an {kind}", place=".".join(("$", *where)))


def nest(where: Sequence[str], value: JSON) -> JSON:
    """Return objects with one member each, from the root to a value."""
    for name in reversed(where):
        value = {name: value}
    return value


def _append(document: Document, container: Node, value: JSON, name: str | None) -> str:
    """Return the text with a child appended to a container; `name` is the member name in an object."""
    text, style = document.text, _style(document)
    before = f"{json.dumps(name, ensure_ascii=False)}{style.colon}" if name is not None else ""
    if container.children:
        gap = text[container.start + 1 : container.child_start(0)]
        end = container.children[-1].end
        separator, indent = _separator(gap, style)
        return text[:end] + "," + separator + before + _render(value, style, indent) + text[end:]
    if not style.line_end:
        return text[: container.start + 1] + before + _render(value, style, None) + text[container.end - 1 :]
    outer = _indent_at(text, container.start)
    inner = outer + style.indent
    filled = f"{style.line_end}{inner}{before}{_render(value, style, inner)}{style.line_end}{outer}"
    return text[: container.start + 1] + filled + text[container.end - 1 :]


def _separator(gap: str, style: _Style) -> tuple[str, str | None]:
    """Return the white space before a new child, and its indentation: None if the children are in one line."""
    if _LINE_END.search(gap):
        indent = re.split(r"[\r\n]", gap)[-1]
        return style.line_end + indent, indent
    return " " if style.colon == ": " else "", None


def _indent_at(text: str, position: int) -> str:
    """Return the indentation of the line at a position."""
    line = re.split(r"[\r\n]", text[:position])[-1]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _render(value: JSON, style: _Style, indent: str | None) -> str:
    """Return a value as text. Lines after the first start with `indent`; if that is None, it is one line."""
    if indent is None or not style.line_end:
        separators = (", ", ": ") if style.colon == ": " else (",", ":")
        return json.dumps(value, ensure_ascii=False, separators=separators)
    lines = json.dumps(value, ensure_ascii=False, indent=style.indent).split("\n")
    return f"{style.line_end}{indent}".join(lines)


def _find_mark(document: Document, mark: "re.Pattern[str]") -> tuple[PathStep, ...] | None:
    """Return the path to the first array item that contains `mark`, or None.

    Of several nested items, the innermost object is meant; without an object, the innermost array item.
    """
    if document.root is None or not mark.search(document.text):
        return None
    for path, node in walk(document.root):
        if node.kind == "text" and mark.search(str(parse_node(document, node))):
            arrays = [depth for depth, step in enumerate(path) if step.container.kind == "array"]
            objects = [depth for depth in arrays if path[depth].node.kind == "object"]
            if arrays:
                return path[: (objects or arrays)[-1] + 1]
    return None


def _topmost_removable(path: tuple[PathStep, ...], former_value: JSON) -> PathStep:
    """Return what to remove so that no container is left empty that was not empty before."""
    depth = len(path) - 1
    while depth > 0 and len(path[depth].container.children) == 1:
        group = path[depth].container.kind == "array" and depth > 1 and path[depth - 2].container.kind == "array"
        if not group and _was_empty(path[:depth], former_value):
            break
        depth -= 2 if group else 1
    return path[depth]


def _was_empty(path: Sequence[PathStep], former_value: JSON) -> bool:
    """Return whether a container existed before and was empty."""
    for step in path:
        if not isinstance(former_value, dict) or step.container.kind != "object":
            return False
        name = step.container.names[step.child]
        if name not in former_value:
            return False
        former_value = former_value[name]
    return not former_value


def _value(data: bytes) -> JSON:
    document = read_document(data)
    return None if document.root is None else parse_node(document, document.root)


def _without(text: str, step: PathStep) -> str:
    """Return the text without one child of a container."""
    container, index = step
    last = len(container.children) - 1
    if last == 0:
        return text[: container.start + 1] + text[container.end - 1 :]
    if index > 0:
        return text[: container.children[index - 1].end] + text[container.children[index].end :]
    return text[: container.child_start(0)] + text[container.child_start(1) :]
