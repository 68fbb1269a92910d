"""Query parameters of pages, links to other pages, and paging.

Invariant: a link leads to a page of the dashboard. It contains only fixed parts, quoted ids and known parameters; never
other input, such as a token.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from remit.errors import FieldInvalid

PREFIX: Final = "/dashboard/"
PAGE_SIZE: Final = 50
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,14}")


class Links(NamedTuple):
    """Builds links. From a page that does not refresh itself, links lead to pages that do not either."""

    live: bool

    def __call__(self, *parts: str, **query: str | int | None) -> str:
        """Return the path and query of a page."""
        parameters = {name: value for name, value in query.items() if value is not None}
        if not self.live:
            parameters.setdefault("live", "off")
        path = PREFIX + "/".join(quote(part, safe="") for part in parts)
        return path + (f"?{urlencode(parameters)}" if parameters else "")


class Pager(NamedTuple):
    """The position of a page in a list, newest first. `newest`: whether it is the first page.

    `newer`, `older` and `oldest` are the `before` parameters of other pages, if there are any; `text` is the position
    in words.
    """

    newest: bool
    newer: int | None = None
    older: int | None = None
    oldest: int | None = None
    text: str = ""


def is_live(query: Mapping[str, str]) -> bool:
    """Return whether the page refreshes itself."""
    return parse_choice(query, "live", ("on", "off")) == "on"


def parse_choice(query: Mapping[str, str], name: str, options: Sequence[str]) -> str:
    """Return the value of a parameter, which must be one of the options; the first one if it is missing."""
    value = query.get(name, options[0])
    if value not in options:
        raise FieldInvalid(f"must be one of {', '.join(options)}", place=name)
    return value


def parse_position(query: Mapping[str, str], name: str = "before") -> int | None:
    """Return a position in a list, which must be a whole number above zero; None if it is missing."""
    value = query.get(name)
    if value is None:
        return None
    if not _WHOLE.fullmatch(value):
        raise FieldInvalid("must be a whole number above zero", place=name)
    return int(value)


def chain_pager(length: int, before: int | None) -> tuple[int, int, Pager]:
    """Return the receipt number after which to read, how many to read, and the pager, for a page of a chain."""
    last = length if before is None else min(before - 1, length)
    after = max(0, last - PAGE_SIZE)
    text = f"{after + 1} to {last} of {length}" if last > after else f"none of {length}"
    newest = last >= length
    newer = None if newest else last + PAGE_SIZE + 1
    older = after + 1 if after else None
    oldest = min(PAGE_SIZE, length) + 1 if after else None
    return after, last - after, Pager(newest, newer, older, oldest, text)
