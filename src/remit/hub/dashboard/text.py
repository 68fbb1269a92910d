"""Text from outside, as it may be shown: what controls, hides or reorders other text is made visible.

Keeps this invariant: what `visible` returns reads in the order it is written, takes the room that it seems to take, and
can be encoded. Escaping for HTML is for the templates.
"""

from typing import Final
from unicodedata import category, combining

__all__ = ["visible"]

_KEPT: Final = frozenset("\n\t")
# Controls, formats, surrogates, private and unassigned characters, and separators of lines and paragraphs.
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# More marks on one letter than any script has would climb into the lines around it.
_MARKS: Final = 4
_PICTURES: Final = 0x2400
_C0: Final = 0x20


def visible(text: str) -> str:
    """Return text in which every character can be seen; lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    parts: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if combining(character) or category(character) == "Me" else 0
        unseen = character not in _KEPT and (marks > _MARKS or category(character) in _UNSEEN)
        parts.append(_named(character) if unseen else character)
    return "".join(parts)


def _named(character: str) -> str:
    number = ord(character)
    return chr(_PICTURES + number) if number < _C0 else f"⟨U+{number:04X}⟩"
