"""Joins the pieces of a word to a field: an exact text, a glob, a path below a directory, or unknown."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from remit.policy.field import Field
from remit.policy.shell.evaluate.state import Unknown

_GLOB: Final = re.compile(r"[*?\[]")
_BRACKETED: Final = re.compile(r"[*?\[\]!^-]")


class Piece(NamedTuple):
    """A piece of a field: literal text, text with active globs, or an unknown value."""

    text: str
    active: bool = False
    unknown_value: Unknown | None = None


def piece_of(value: "str | Unknown", *, active: bool) -> Piece:
    """Return the piece for a value."""
    if isinstance(value, str):
        return Piece(value, active)
    return Piece("", active, value)


def field_of(pieces: Sequence[Piece], source: str) -> Field:
    """Join pieces to a field."""
    quoted = not (pieces and pieces[0].active)
    unknowns = [piece for piece in pieces if piece.unknown_value is not None]
    unknown = [
        piece
        for piece in unknowns
        if piece.unknown_value is not None and piece.unknown_value.kind not in ("number", "plain")
    ]
    splits = any(piece.active for piece in unknown) or (bool(unknown) and is_glob(pieces))
    if len(pieces) > 1 and pieces[0].unknown_value is not None and not unknown:
        # It may be empty, and then the next piece starts the word.
        return Field("", "unknown", source, quoted, splits=pieces[0].active)
    if not unknown and _has_odd_brackets(pieces):
        # A star matches everything that the brackets match.
        known = _known_prefix(pieces)
        deeper = "/" in "".join(piece.text for piece in pieces)[len(known) :]
        text = _GLOB.sub(lambda mark: f"[{mark[0]}]", known) + ("*/**" if deeper else "*")
        return Field(text, "pattern", source, quoted)
    if unknown:
        return _unknown_field(pieces, unknown, source)._replace(quoted=quoted, splits=splits)
    if unknowns or is_glob(pieces):
        text = "".join(_as_pattern(piece) for piece in pieces)
        return Field(text, "pattern", source, quoted, numbered=bool(unknowns))
    return Field("".join(piece.text for piece in pieces), "exact", source, quoted)


def _unknown_field(pieces: Sequence[Piece], unknown: Sequence[Piece], source: str) -> Field:
    """Return a field of which only the prefix, or only the directory, is known."""
    first = next(index for index, piece in enumerate(pieces) if piece is unknown[0])
    before = _known_prefix(pieces[:first])
    after = "".join(piece.text for piece in pieces[first + 1 :])
    unknown_value = unknown[0].unknown_value
    bounded = (
        unknown_value is not None and unknown_value.kind == "below" and len(unknown) == 1 and not unknown[0].active
    )
    # If the path may be empty, the next piece starts at the root.
    starts = first == 0 and (not after or (unknown_value is not None and unknown_value.filled))
    if unknown_value is not None and bounded and starts and ".." not in after and _separated(pieces[first + 1 :]):
        filled = unknown_value.filled or bool(after)
        known = Field(
            unknown_value.text, "below", source, linked=unknown_value.linked, bare=unknown_value.bare, filled=filled
        )
        return known._replace(cwd=unknown_value.cwd)
    return Field(before, "unknown", source)


def _known_prefix(pieces: Sequence[Piece]) -> str:
    """Return the known prefix of a field, up to the first number or wildcard."""
    known = ""
    for piece in pieces:
        wildcard = _GLOB.search(piece.text) if piece.active else None
        known += piece.text[: wildcard.start()] if wildcard else piece.text
        if wildcard or piece.unknown_value is not None:
            break
    return known


def _separated(pieces: Sequence[Piece]) -> bool:
    """Return whether the pieces after a path below a directory stay below it: they start with a slash, or are empty."""
    following = next((piece for piece in pieces if piece.text or piece.unknown_value is not None), None)
    return following is None or following.text.startswith("/")


def is_glob(pieces: Sequence[Piece]) -> bool:
    """Return whether the pieces contain a wildcard; an unclosed bracket is an ordinary character."""
    active = "".join(piece.text if piece.active else "\0" * len(piece.text) for piece in pieces)
    opening = active.find("[")
    return "*" in active or "?" in active or (opening >= 0 and any("]" in piece.text for piece in pieces))


def _has_odd_brackets(pieces: Sequence[Piece]) -> bool:
    """Return whether a glob has brackets that shells read differently, or that are partly quoted."""
    active = "".join(piece.text for piece in pieces if piece.active)
    if "[" not in active:
        return False
    quoted = any(not piece.active and _BRACKETED.search(piece.text) for piece in pieces)
    return quoted or "[[" in active or "[:" in active


def _as_pattern(piece: Piece) -> str:
    if piece.unknown_value is not None:
        return "?*" if piece.unknown_value.kind == "plain" else "*"
    return piece.text if piece.active else _GLOB.sub(lambda mark: f"[{mark[0]}]", piece.text)
