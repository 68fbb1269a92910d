"""Makes invisible characters in untrusted text visible: those that control, hide or reorder other text.

Invariant: the result of `make_visible` is displayed in the order of its characters, has no invisible characters, and
can be encoded. Templates do the escaping for HTML.
"""

from typing import Final
from unicodedata import category, combining

_KEPT: Final = frozenset("\n\t")
# Controls, formats, surrogates, private and unassigned characters, and separators of lines and paragraphs.
_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Combining marks on one letter. No script has more, and many would overlap the lines around it.
_MARKS: Final = 4
_PICTURES: Final = 0x2400
_C0: Final = 0x20


def make_visible(text: str) -> str:
    """Return text with invisible characters replaced by visible ones. Line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    parts: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if combining(character) or category(character) == "Me" else 0
        is_invisible = character not in _KEPT and (marks > _MARKS or category(character) in _INVISIBLE)
        parts.append(_replace(character) if is_invisible else character)
    return "".join(parts)


def _replace(character: str) -> str:
    number = ord(character)
    return chr(_PICTURES + number) if number < _C0 else f"⟨U+{number:04X}⟩"
