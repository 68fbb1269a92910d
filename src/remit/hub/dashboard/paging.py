"""What the address of a page says: its parameters, read strictly, and links to other pages.

Keeps this invariant: a link is made of parts of ours and of ids, each quoted; it leads below the dashboard, and carries
nothing else that came in, least of all a token.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from remit.errors import FieldInvalid

__all__ = ["PAGE", "PREFIX", "Links", "Pager", "choice", "is_live", "place", "seq_pager"]

PREFIX: Final = "/dashboard/"
PAGE: Final = 50
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,14}")


class Links(NamedTuple):
    """Makes links; while the page stands still, so do those it leads to."""

    live: bool

    def __call__(self, *parts: str, **query: str | int | None) -> str:
        """Return the address of a page."""
        asked = {name: value for name, value in query.items() if value is not None}
        if not self.live:
            asked.setdefault("live", "off")
        path = PREFIX + "/".join(quote(part, safe="") for part in parts)
        return path + (f"?{urlencode(asked)}" if asked else "")


class Pager(NamedTuple):
    """Where a list stands in the whole: from where its neighbours are read, if there are any, and what it shows.

    `newest` tells whether it begins with the newest, so that what comes in next will be seen.
    """

    newest: bool
    newer: int | None = None
    older: int | None = None
    oldest: int | None = None
    told: str = ""


def is_live(query: Mapping[str, str]) -> bool:
    """Tell whether the page renews itself."""
    return choice(query, "live", ("on", "off")) == "on"


def choice(query: Mapping[str, str], name: str, options: Sequence[str]) -> str:
    """Return which of the options is asked for; the first where nothing is said."""
    value = query.get(name, options[0])
    if value not in options:
        raise FieldInvalid(f"must be one of {', '.join(options)}", place=name)
    return value


def place(query: Mapping[str, str], name: str = "before") -> int | None:
    """Return a place in a list; None where nothing is said."""
    value = query.get(name)
    if value is None:
        return None
    if not _WHOLE.fullmatch(value):
        raise FieldInvalid("must be a whole number above zero", place=name)
    return int(value)


def seq_pager(length: int, before: int | None) -> tuple[int, int, Pager]:
    """Return after which number to read how much of a chain, and where that stands: by arithmetic alone."""
    last = length if before is None else min(before - 1, length)
    after = max(0, last - PAGE)
    told = f"{after + 1} to {last} of {length}" if last > after else f"none of {length}"
    newest = last >= length
    newer = None if newest else last + PAGE + 1
    older = after + 1 if after else None
    oldest = min(PAGE, length) + 1 if after else None
    return after, last - after, Pager(newest, newer, older, oldest, told)
