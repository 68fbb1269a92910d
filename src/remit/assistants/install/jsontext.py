"""Parses a JSON file into a tree of nodes with their positions, so that an edit can keep all other bytes.

Invariant: only strict JSON is accepted (`strictjson`), with an optional byte order mark, which is kept. Comments,
duplicate members and the like are refused. `jsonedit.py` makes the edits.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.claims.strictjson import JSON, parse_json
from remit.errors import InputError, JsonSyntax

BOM: Final = "\ufeff"
_Kind: TypeAlias = Literal["object", "array", "text", "other"]


class Node(NamedTuple):
    """One value and its position in the text."""

    kind: _Kind
    start: int
    end: int
    # The names of the members of an object, and the positions at which the names start.
    names: tuple[str, ...] = ()
    keys: tuple[int, ...] = ()
    children: "tuple[Node, ...]" = ()

    def child_start(self, index: int) -> int:
        """Return where a child starts, including its name if it has one."""
        return self.keys[index] if self.kind == "object" else self.children[index].start


class PathStep(NamedTuple):
    """One step of a path: a container, and the index of one of its children."""

    container: Node
    child: int

    @property
    def node(self) -> Node:
        """The child."""
        return self.container.children[self.child]


class Document(NamedTuple):
    """A parsed file."""

    # Without the byte order mark.
    text: str
    has_bom: bool
    # None if the file is blank.
    root: Node | None

    def bytes(self, text: str) -> bytes:
        """Encode another text like this one, with a byte order mark if this one has it."""
        return (BOM * self.has_bom + text).encode("utf-8")


def read_document(data: bytes) -> Document:
    """Parse a file."""
    has_bom = data.startswith(BOM.encode("utf-8"))
    plain = data[len(BOM.encode("utf-8")) :] if has_bom else data
    if not plain.strip(b" \t\r\n"):
        return Document(plain.decode("ascii"), has_bom, None)
    try:
        parse_json(plain)
    except JsonSyntax as error:
        raise _comment_error(plain.decode("utf-8")) or error from None
    text = plain.decode("utf-8")
    return Document(text, has_bom, _node(_tokens(text)))


def parse_node(document: Document, node: Node) -> JSON:
    """Return the value of a node."""
    value: JSON = json.loads(document.text[node.start : node.end])
    return value


def is_same(one: JSON, other: JSON) -> bool:
    """Return whether two values are equal as JSON, in which 1 is not true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def walk(root: Node) -> Iterator[tuple[tuple[PathStep, ...], Node]]:
    """Yield each node with the path to it. Containers come before their children."""
    pending: list[tuple[tuple[PathStep, ...], Node]] = [((), root)]
    while pending:
        path, node = pending.pop()
        yield path, node
        pending.extend(((*path, PathStep(node, index)), child) for index, child in enumerate(node.children))


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<comment>//|/\*)')
_Tokens: TypeAlias = "Iterator[re.Match[str]]"


def _tokens(text: str) -> _Tokens:
    return _TOKEN.finditer(text)


def _comment_error(text: str) -> InputError | None:
    """Return the error for a file with comments, or None if it has none."""
    for found in _COMMENT.finditer(text):
        if found["comment"]:
            line = text.count("\n", 0, found.start()) + 1
            return JsonSyntax(f"this file has comments (line {line}); Remit does not rewrite what it cannot read")
    return None


def _node(tokens: _Tokens) -> Node:
    """Parse the next value. The text is known to be valid JSON, so errors are not handled."""
    found = next(tokens)
    return _node_from(found, tokens)


def _node_from(found: "re.Match[str]", tokens: _Tokens) -> Node:
    if found[0] == "{":
        return _object(found.start(), tokens)
    if found[0] == "[":
        return _array(found.start(), tokens)
    return Node("text" if found[0][0] == '"' else "other", found.start(), found.end())


def _object(start: int, tokens: _Tokens) -> Node:
    names, keys, children = list[str](), list[int](), list[Node]()
    for found in tokens:
        if found[0] == "}":
            return Node("object", start, found.end(), tuple(names), tuple(keys), tuple(children))
        if found[0] != ",":
            names.append(json.loads(found[0]))
            keys.append(found.start())
            next(tokens)
            children.append(_node(tokens))
    raise JsonSyntax("an object has no end")


def _array(start: int, tokens: _Tokens) -> Node:
    children = list[Node]()
    for found in tokens:
        if found[0] == "]":
            return Node("array", start, found.end(), children=tuple(children))
        if found[0] != ",":
            children.append(_node_from(found, tokens))
    raise JsonSyntax("an array has no end")
