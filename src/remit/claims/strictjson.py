"""The parser for untrusted JSON.

Invariant: every conforming parser understands an accepted value in the same way: UTF-8, no duplicate members, no number
that a double cannot represent, no lone surrogates, and bounded size and depth. Everything else raises an `InputError`
with the place. `types.py` and its users interpret the members. In the arguments of tool calls, integers of up to 64
digits are accepted and exact, because other systems use them as ids.
"""

import json
import math
import re
from itertools import pairwise
from typing import Any, Final, TypeAlias

import orjson

from remit.errors import (
    InputError,
    JsonDuplicateMember,
    JsonLoneSurrogate,
    JsonNotUtf8,
    JsonNumberRefused,
    JsonSyntax,
    JsonTooDeep,
    JsonTooLarge,
    quote,
)

__all__ = [
    "JSON",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_INTEGER",
    "MAX_MEMBERS",
    "MAX_NUMBER",
    "MAX_STRING",
    "parse_json",
    "parse_object",
]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
# Libraries that build decoders from annotations do not support recursive types.
JSON = Any  # type: ignore[assignment, misc]

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64
MAX_MEMBERS: Final = 10_000
MAX_STRING: Final = 256 * 1024
MAX_NUMBER: Final = 64
MAX_DIGITS: Final = 64
MAX_INTEGER: Final = 2**53 - 1


def parse_json(data: bytes, *, max_bytes: int = MAX_BYTES, exact_integers: bool = False) -> JSON:
    """Return the value of `data`; with `exact_integers`, integers may have up to `MAX_DIGITS` digits."""
    if len(data) > max_bytes:
        raise JsonTooLarge(f"{len(data)} bytes, at most {max_bytes} are read")
    value = _reread(data)
    if value is _UNSURE:
        return _read_closely(data, _EXACT_DECODER if exact_integers else _DECODER)
    return value  # type: ignore[return-value]  # it is JSON then


def parse_object(data: bytes, *, max_bytes: int = MAX_BYTES, exact_integers: bool = False) -> dict[str, JSON]:
    """Return the object in `data`; any other value is refused."""
    value = parse_json(data, max_bytes=max_bytes, exact_integers=exact_integers)
    if not isinstance(value, dict):
        raise JsonSyntax("must be an object")
    return value


_UNSURE: Final = object()


def _reread(data: bytes) -> object:
    """Return the value if it encodes to exactly the same bytes, else `_UNSURE`, and every member must be inspected.

    Equal bytes prove the invariant without inspecting each member: a duplicate would be lost, and a number out of
    range or in an unusual notation would be encoded differently. It works for what most programs send (compact, no
    needless escapes) and takes a fifth of the time. Limits are checked first, by counting brackets, commas and bytes.
    """
    small = len(data) <= MAX_STRING and data.count(b",") <= MAX_MEMBERS - MAX_DEPTH
    if not small or data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        return _UNSURE
    try:
        value: object = orjson.loads(data)
        same = orjson.dumps(value, option=orjson.OPT_STRICT_INTEGER) == data
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return _UNSURE
    return value if same else _UNSURE


def _read_closely(data: bytes, decoder: json.JSONDecoder) -> JSON:
    """Return the value after inspecting every member, or raise for the first flaw."""
    value = _decode(data, decoder)
    if isinstance(value, InputError):
        raise value
    _inspect(value)
    return value  # type: ignore[return-value]  # every value in it was inspected


def _decode(data: bytes, decoder: json.JSONDecoder) -> object:
    """Return the decoded value, including flaws, or the error if it cannot be decoded.

    The error is returned, not raised, so that the decoder's error, which contains the whole text, is not its context.
    """
    try:
        text = data.decode("utf-8")
        if text.startswith("\ufeff"):
            return JsonNotUtf8("starts with a byte order mark")
        return decoder.decode(text)
    except UnicodeDecodeError as error:
        return JsonNotUtf8(f"not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        return JsonSyntax(f"not JSON at line {error.lineno}, column {error.colno}")
    except RecursionError:
        return JsonTooDeep(f"nested deeper than {MAX_DEPTH}")


class _Flaw:
    """A placeholder for a flaw that the decoder has found, until the inspection determines its place."""

    __slots__ = ("error", "problem")

    def __init__(self, error: type[InputError], problem: str) -> None:
        self.error = error
        self.problem = problem


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | _Flaw:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names = sorted(name for name, _ in pairs)
    twice = next(one for one, other in pairwise(names) if one == other)
    return _Flaw(JsonDuplicateMember, f"member {quote(twice)} is repeated")


def _integer(literal: str) -> int | _Flaw:
    if len(literal) > MAX_NUMBER:
        return _Flaw(JsonTooLarge, f"a number of {len(literal)} characters, at most {MAX_NUMBER}")
    value = int(literal)
    if abs(value) > MAX_INTEGER:
        return _Flaw(JsonNumberRefused, "an integer beyond 2^53 - 1 is not exact in every reader")
    return value


def _exact_integer(literal: str) -> int | _Flaw:
    digits = len(literal) - literal.startswith("-")
    if digits > MAX_DIGITS:
        return _Flaw(JsonTooLarge, f"an integer of {digits} digits, at most {MAX_DIGITS}")
    return int(literal)


def _real(literal: str) -> float | _Flaw:
    if len(literal) > MAX_NUMBER:
        return _Flaw(JsonTooLarge, f"a number of {len(literal)} characters, at most {MAX_NUMBER}")
    value = float(literal)
    if math.isinf(value):
        return _Flaw(JsonNumberRefused, "a number beyond the range of a double")
    return value


def _constant(literal: str) -> _Flaw:
    return _Flaw(JsonNumberRefused, f"{literal} is not a JSON number")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_real, parse_constant=_constant
)
_EXACT_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_exact_integer, parse_float=_real, parse_constant=_constant
)

_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_Path: TypeAlias = tuple[str | int, ...]


def _inspect(root: object) -> None:
    """Raise for the first flaw, lone surrogate or exceeded limit, in the order of the text."""
    members = 0
    waiting: list[tuple[object, _Path]] = [(root, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, _Flaw):
            raise value.error(value.problem, place=_place(path))
        if isinstance(value, str):
            _inspect_string(value, path)
        elif isinstance(value, dict | list):
            members += len(value)
            if members > MAX_MEMBERS:
                raise JsonTooLarge(f"more than {MAX_MEMBERS} members", place=_place(path))
            if len(path) >= MAX_DEPTH:
                raise JsonTooDeep(f"nested deeper than {MAX_DEPTH}", place=_place(path))
            waiting.extend(reversed(_inside(value, path)))


def _inside(value: dict[str, object] | list[object], path: _Path) -> list[tuple[object, _Path]]:
    """Return the children of an object or array with their paths; names are inspected too."""
    if isinstance(value, list):
        return [(item, (*path, index)) for index, item in enumerate(value)]
    for name in value:
        _inspect_string(name, path)
    return [(item, (*path, name)) for name, item in value.items()]


def _inspect_string(value: str, path: _Path) -> None:
    if len(value) > MAX_STRING:
        raise JsonTooLarge(f"a string of more than {MAX_STRING} characters", place=_place(path))
    if not value.isascii() and _HALF_CHARACTER.search(value):
        raise JsonLoneSurrogate("a string has a lone surrogate", place=_place(path))


def _place(path: _Path) -> str:
    """Return the path in the usual notation: `$.tools[2]`, with odd and long names quoted."""
    return "$" + "".join(map(_step, path[:_SHOWN_STEPS]))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    plain = step.isascii() and step.isidentifier() and len(step) <= _SHOWN_NAME
    return f".{step}" if plain else f"[{quote(step)}]"


_SHOWN_STEPS: Final = 16
_SHOWN_NAME: Final = 60
