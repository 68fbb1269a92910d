"""What the pieces of a word make together: an exact field, a glob, something below a directory, or unknown."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from remit.policy.shell.state import Field, Unknown

__all__ = ["Piece", "field_of", "is_glob", "piece_of"]

_GLOB: Final = re.compile(r"[*?\[]")
_BRACKETED: Final = re.compile(r"[*?\[\]!^-]")


class Piece(NamedTuple):
    """A stretch of a field: text that stands for itself, text in which globs are active, or a mystery."""

    text: str
    active: bool = False
    mystery: Unknown | None = None


def piece_of(value: "str | Unknown", *, active: bool) -> Piece:
    """Return the piece that a value makes."""
    if isinstance(value, str):
        return Piece(value, active)
    return Piece("", active, value)


def field_of(pieces: Sequence[Piece], source: str) -> Field:
    """Return the field that the pieces make together."""
    quoted = not (pieces and pieces[0].active)
    hidden = [piece for piece in pieces if piece.mystery is not None]
    unknown = [piece for piece in hidden if piece.mystery is not None and piece.mystery.kind not in ("number", "plain")]
    splits = any(piece.active for piece in unknown) or (bool(unknown) and is_glob(pieces))
    if len(pieces) > 1 and pieces[0].mystery is not None and not unknown:
        # It may be empty, and then what follows starts the word.
        return Field("", "unknown", source, quoted, splits=pieces[0].active)
    if not unknown and _has_odd_brackets(pieces):
        # Whatever the brackets match, a star matches too.
        known = _known_prefix(pieces)
        deeper = "/" in "".join(piece.text for piece in pieces)[len(known) :]
        text = _GLOB.sub(lambda mark: f"[{mark[0]}]", known) + ("*/**" if deeper else "*")
        return Field(text, "pattern", source, quoted)
    if unknown:
        return _unknown_field(pieces, unknown, source)._replace(quoted=quoted, splits=splits)
    if hidden or is_glob(pieces):
        text = "".join(_as_pattern(piece) for piece in pieces)
        return Field(text, "pattern", source, quoted, numbered=bool(hidden))
    return Field("".join(piece.text for piece in pieces), "exact", source, quoted)


def _unknown_field(pieces: Sequence[Piece], unknown: Sequence[Piece], source: str) -> Field:
    """Return a field of which only the beginning is known, or only the directory it lies in."""
    first = next(index for index, piece in enumerate(pieces) if piece is unknown[0])
    before = _known_prefix(pieces[:first])
    after = "".join(piece.text for piece in pieces[first + 1 :])
    mystery = unknown[0].mystery
    bounded = mystery is not None and mystery.kind == "below" and len(unknown) == 1 and not unknown[0].active
    # Where the path may be empty, what follows starts at the root.
    starts = first == 0 and (not after or (mystery is not None and mystery.filled))
    if mystery is not None and bounded and starts and ".." not in after and _separated(pieces[first + 1 :]):
        filled = mystery.filled or bool(after)
        known = Field(mystery.text, "below", source, linked=mystery.linked, bare=mystery.bare, filled=filled)
        return known._replace(cwd=mystery.cwd)
    return Field(before, "unknown", source)


def _known_prefix(pieces: Sequence[Piece]) -> str:
    """Return the text that a field starts with, up to the first number or wildcard."""
    known = ""
    for piece in pieces:
        wildcard = _GLOB.search(piece.text) if piece.active else None
        known += piece.text[: wildcard.start()] if wildcard else piece.text
        if wildcard or piece.mystery is not None:
            break
    return known


def _separated(pieces: Sequence[Piece]) -> bool:
    """Return whether what follows a path below a directory stays below it: a separator comes first, or nothing does."""
    following = next((piece for piece in pieces if piece.text or piece.mystery is not None), None)
    return following is None or following.text.startswith("/")


def is_glob(pieces: Sequence[Piece]) -> bool:
    """Return whether the pieces hold a wildcard; a bracket that is never closed stands for itself."""
    active = "".join(piece.text if piece.active else "\0" * len(piece.text) for piece in pieces)
    opening = active.find("[")
    return "*" in active or "?" in active or (opening >= 0 and any("]" in piece.text for piece in pieces))


def _has_odd_brackets(pieces: Sequence[Piece]) -> bool:
    """Return whether a wildcard has brackets that are not read alike everywhere, or that are quoted in parts."""
    active = "".join(piece.text for piece in pieces if piece.active)
    if "[" not in active:
        return False
    quoted = any(not piece.active and _BRACKETED.search(piece.text) for piece in pieces)
    return quoted or "[[" in active or "[:" in active


def _as_pattern(piece: Piece) -> str:
    if piece.mystery is not None:
        return "?*" if piece.mystery.kind == "plain" else "*"
    return piece.text if piece.active else _GLOB.sub(lambda mark: f"[{mark[0]}]", piece.text)
