"""What the pieces of a word make together: an exact field, a glob, something below a directory, or unknown."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from remit.policy.shell.world import Field, Mystery

__all__ = ["Piece", "field_of", "piece_of"]

_GLOB: Final = re.compile(r"[*?\[]")


class Piece(NamedTuple):
    """A stretch of a field: text that stands for itself, text in which globs are active, or a mystery."""

    text: str
    active: bool = False
    mystery: Mystery | None = None


def piece_of(value: "str | Mystery", *, active: bool) -> Piece:
    """Return the piece that a value makes."""
    if isinstance(value, str):
        return Piece(value, active)
    return Piece("", active, value)


def field_of(pieces: Sequence[Piece], source: str) -> Field:
    """Return the field that the pieces make together."""
    quoted = not (pieces and pieces[0].active)
    hidden = [piece for piece in pieces if piece.mystery is not None]
    unknown = [piece for piece in hidden if piece.mystery is not None and piece.mystery.kind != "number"]
    splits = any(piece.active for piece in unknown)
    if len(pieces) > 1 and pieces[0].mystery is not None and not unknown:
        # A number may be missing, and then what follows starts the word.
        return Field("", "unknown", source, quoted, splits=pieces[0].active)
    if unknown:
        return _unknown_field(pieces, unknown, source)._replace(quoted=quoted, splits=splits)
    if hidden or _is_glob(pieces):
        return Field("".join(_as_pattern(piece) for piece in pieces), "pattern", source, quoted)
    return Field("".join(piece.text for piece in pieces), "exact", source, quoted)


def _unknown_field(pieces: Sequence[Piece], unknown: Sequence[Piece], source: str) -> Field:
    """Return a field of which only the beginning is known, or only the directory it lies in."""
    first = next(index for index, piece in enumerate(pieces) if piece is unknown[0])
    before = "".join(piece.text for piece in pieces[:first])
    after = "".join(piece.text for piece in pieces[first + 1 :])
    mystery = unknown[0].mystery
    bounded = mystery is not None and mystery.kind == "below" and len(unknown) == 1 and not unknown[0].active
    if mystery is not None and bounded and not before and ".." not in after:
        return Field(mystery.text, "below", source, cwd=mystery.cwd, linked=mystery.linked)
    return Field(before, "unknown", source)


def _is_glob(pieces: Sequence[Piece]) -> bool:
    """Tell whether the pieces hold a wildcard; a bracket that is never closed stands for itself."""
    active = "".join(piece.text if piece.active else "\0" * len(piece.text) for piece in pieces)
    opening = active.find("[")
    return "*" in active or "?" in active or (opening >= 0 and any("]" in piece.text for piece in pieces))


def _as_pattern(piece: Piece) -> str:
    if piece.mystery is not None:
        return "*"
    return piece.text if piece.active else _GLOB.sub(lambda mark: f"[{mark[0]}]", piece.text)
