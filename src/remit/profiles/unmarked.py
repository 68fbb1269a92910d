"""Refuses text among the rules of a profile that looks like a rule but would be ignored.

Rules are list items with `- `. Text that looks like another kind of item, or that is a phrase or a limit without a
dash, is refused with its line. Keeps this invariant: no rule is lost silently. Other text is ignored.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final

from remit.errors import FieldInvalid, quote
from remit.profiles.limits import resembles_limit
from remit.profiles.lines import Line, plain_words
from remit.profiles.phrases import resembles_phrase

__all__ = ["refuse_unmarked"]

# Bullets that people and programs use, but that are not Markdown list items.
_BULLET: Final = re.compile(r"[\u00b7\u2010-\u2015\u2022\u2023\u2043\u2212\u2219\u25a0-\u25ff]|[-+](?![-+\s])|[-+*]\s")
_LEADING: Final = re.compile(
    r"[\W_]*(?:(?:[0-9]{1,9}|[A-Za-z])[.)\]]|(?:allowed|blocked|limits)\s*:)?[\W_]*", re.IGNORECASE
)
_TRAILING: Final = re.compile(r"[\s*_~|<>“”\u2018\u2019'\"!?;:,]+\Z")
_TAG: Final = re.compile(r"<[^<>]*>")
_FIRST: Final = re.compile(r"[,;:(]|\s(?:and|or|because)\s", re.IGNORECASE)


def refuse_unmarked(line: Line) -> None:
    """Raise for an item that continues on a second line, and for text that looks like a rule."""
    if line.kind == "item" and line.goes_on_at:
        raise FieldInvalid(
            "would continue the item above it: write an item on one line, and leave an empty line after it",
            place=f"line {line.goes_on_at}",
        )
    if line.kind == "text":
        for number, words in enumerate(line.words.split("\n"), line.number):
            if _BULLET.match(words) or any(map(_resembles_rule, _readings(words))):
                raise FieldInvalid(
                    f"{quote(words)} looks like a rule but is text: begin the line with “- ”, with one rule per line; "
                    "text like this belongs under ## Notes",
                    place=f"line {number}",
                )


def _readings(words: str) -> Iterator[str]:
    """Yield what a line may be meant as: each cell of a table, with and without marks, whole and up to a comma."""
    for cell in _TAG.sub(" ", unescape(words)).split("|"):
        bare = _LEADING.sub("", cell, count=1)
        for reading in dict.fromkeys((bare, _TRAILING.sub("", bare), _TRAILING.sub("", plain_words(bare)))):
            yield reading
            yield _FIRST.split(reading, maxsplit=1)[0]


def _resembles_rule(text: str) -> bool:
    return resembles_limit(text) or resembles_phrase(text)
