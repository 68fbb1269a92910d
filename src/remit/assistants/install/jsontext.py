"""The text of a JSON file as a tree of places, so that a change can leave every other byte as it is.

Keeps this invariant: what it reads is JSON that every reader understands alike (`strictjson`), after a byte order mark
that is kept. Comments, duplicates and everything else that is not so are refused, by line where that can be told.
What is changed, and how it is laid out, is for `jsonedit.py`.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.claims.strictjson import JSON, parse_json
from remit.errors import InputError, JsonSyntax

__all__ = ["BOM", "Document", "Node", "Step", "is_same", "read_document", "value_of", "walk"]

BOM: Final = "\ufeff"
_Kind: TypeAlias = Literal["object", "array", "text", "other"]


class Node(NamedTuple):
    """One value: where it stands, and what is in it. `keys` are the starts of the members' names."""

    kind: _Kind
    start: int
    end: int
    names: tuple[str, ...] = ()
    keys: tuple[int, ...] = ()
    children: "tuple[Node, ...]" = ()

    def spot(self, index: int) -> int:
        """Return where a child begins, with its name if it has one."""
        return self.keys[index] if self.kind == "object" else self.children[index].start


class Step(NamedTuple):
    """A container, and which of its children is meant."""

    container: Node
    child: int

    @property
    def node(self) -> Node:
        """The child itself."""
        return self.container.children[self.child]


class Document(NamedTuple):
    """A text without its mark, whether it had one, and its tree: None where nothing is written."""

    text: str
    marked: bool
    root: Node | None

    def bytes(self, text: str) -> bytes:
        """Return another text as this one was written."""
        return (BOM * self.marked + text).encode("utf-8")


def read_document(data: bytes) -> Document:
    """Return the places in a file; one of nothing but white space has none."""
    marked = data.startswith(BOM.encode("utf-8"))
    plain = data[len(BOM.encode("utf-8")) :] if marked else data
    if not plain.strip(b" \t\r\n"):
        return Document(plain.decode("ascii"), marked, None)
    try:
        parse_json(plain)
    except JsonSyntax as error:
        raise _commented(plain.decode("utf-8")) or error from None
    text = plain.decode("utf-8")
    return Document(text, marked, _node(_tokens(text)))


def value_of(document: Document, node: Node) -> JSON:
    """Return the value that stands there."""
    value: JSON = json.loads(document.text[node.start : node.end])
    return value


def is_same(one: JSON, other: JSON) -> bool:
    """Tell whether two values are the same JSON, in which 1 is not true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def walk(root: Node) -> Iterator[tuple[tuple[Step, ...], Node]]:
    """Give every value with the way to it, from the outside in."""
    waiting: list[tuple[tuple[Step, ...], Node]] = [((), root)]
    while waiting:
        way, node = waiting.pop()
        yield way, node
        waiting.extend(((*way, Step(node, index)), child) for index, child in enumerate(node.children))


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<comment>//|/\*)')
_Tokens: TypeAlias = "Iterator[re.Match[str]]"


def _tokens(text: str) -> _Tokens:
    return _TOKEN.finditer(text)


def _commented(text: str) -> InputError | None:
    """Return the error for a file with comments, if that is what is wrong with it."""
    for found in _COMMENT.finditer(text):
        if found["comment"]:
            line = text.count("\n", 0, found.start()) + 1
            return JsonSyntax(f"this file has comments (line {line}); Remit does not rewrite what it cannot read")
    return None


def _node(tokens: _Tokens) -> Node:
    """Return the next value. The text was read before, so only what must come can come."""
    found = next(tokens)
    return _begun(found, tokens)


def _begun(found: "re.Match[str]", tokens: _Tokens) -> Node:
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
            children.append(_begun(found, tokens))
    raise JsonSyntax("an array has no end")
