"""Parses the query of a request target.

Invariants: a query that does not decode, has a repeated name or too many fields is refused. No value is quoted in an
error, because it may be a token.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from remit.errors import FieldInvalid, quote

# The limit of the request target also limits the length of a query.
MAX_FIELDS: Final = 16
_NOTHING: Final[Mapping[str, str]] = {}
_PLACE: Final = "query"
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_query(data: bytes) -> Mapping[str, str]:
    """Return the fields of a query in the form `name=value&...`, or raise `FieldInvalid`."""
    if not data:
        return _NOTHING
    fields = _fields(data)
    query = dict(fields)
    if len(query) < len(fields):
        names = [name for name, _ in fields]
        repeated = next(name for name in names if names.count(name) > 1)
        raise FieldInvalid(f"{quote(repeated)} is repeated", place=_PLACE)
    return query


def _fields(data: bytes) -> list[tuple[str, str]]:
    try:
        text = data.decode("ascii")
        if _BAD_ESCAPE.search(text):
            raise FieldInvalid("has an invalid percent escape", place=_PLACE)
        if text.count("&") >= MAX_FIELDS:
            raise FieldInvalid(f"has more than {MAX_FIELDS} fields", place=_PLACE)
        return parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeError:
        raise FieldInvalid("is not UTF-8", place=_PLACE) from None
