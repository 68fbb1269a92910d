"""What stands behind the question mark of a request target.

Keeps this invariant: a query has one reading. What cannot be decoded, stands twice or is too much is refused, never
guessed; and no value is ever quoted in an error, since one may be a token.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from remit.errors import FieldInvalid, quote

__all__ = ["MAX_FIELDS", "parse_query"]

# How long a query can be is a matter of the request target.
MAX_FIELDS: Final = 16
_NOTHING: Final[Mapping[str, str]] = {}
_PLACE: Final = "query"
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_query(data: bytes) -> Mapping[str, str]:
    """Return what a query says, as `name=value&...`, or raise if it cannot be read, or has a name twice."""
    if not data:
        return _NOTHING
    fields = _fields(data)
    query = dict(fields)
    if len(query) < len(fields):
        names = [name for name, _ in fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise FieldInvalid(f"{quote(twice)} stands there more than once", place=_PLACE)
    return query


def _fields(data: bytes) -> list[tuple[str, str]]:
    try:
        text = data.decode("ascii")
        if _BAD_ESCAPE.search(text):
            raise FieldInvalid("has a percent sign that begins no escape", place=_PLACE)
        if text.count("&") >= MAX_FIELDS:
            raise FieldInvalid(f"has more than {MAX_FIELDS} fields", place=_PLACE)
        return parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeError:
        raise FieldInvalid("is not text in UTF-8", place=_PLACE) from None
