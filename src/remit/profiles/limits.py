"""Parses the limits of a profile: the number of calls, and the duration.

Invariant: a limit is a whole number of a known unit that fits into a passport, or an error with its line.
"""

import re
from typing import Final, NamedTuple

from remit.claims.mission import MAX_DURATION_S
from remit.claims.strictjson import MAX_INTEGER
from remit.errors import FieldInvalid, quote

_LIMIT: Final = re.compile(
    r"(?:at most|up to|no more than)? ?(?P<number>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,18})"
    r" (?P<unit>(?:tool )?calls?|seconds?|minutes?|hours?|days?)\.?",
    re.IGNORECASE,
)
_BEGUN: Final = re.compile(r"(?:at most|up to|no more than)\s", re.IGNORECASE)
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


class Limit(NamedTuple):
    """One limit: the member of `Profile` that it sets, and its value."""

    member: str
    value: int


def parse_limit(words: str, line: int) -> Limit:
    """Parse a limit. Raises `FieldInvalid` with the line number."""
    said = _LIMIT.fullmatch(" ".join(words.split()))
    if said is None:
        raise FieldInvalid(
            f"{quote(words)} is not a limit: write “At most 500 tool calls” or “At most 8 hours”", place=f"line {line}"
        )
    number, unit = int(said["number"].replace(",", "")), said["unit"].casefold().rstrip("s")
    limit, most = (
        (Limit("max_duration_s", number * _SECONDS[unit]), MAX_DURATION_S)
        if unit in _SECONDS
        else (Limit("max_tool_calls", number), MAX_INTEGER)
    )
    if not 1 <= limit.value <= most:
        raise FieldInvalid("must be at least one, and no more than a passport can hold", place=f"line {line}")
    return limit


def resembles_limit(text: str) -> bool:
    """Return whether a text is a limit or begins like one."""
    words = " ".join(text.split())
    return bool(_BEGUN.match(words) or _LIMIT.fullmatch(words))
