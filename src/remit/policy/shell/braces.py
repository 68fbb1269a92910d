"""Brace expansion: the words that `{a,b}` and `{1..3}` make of one word, before anything else is expanded."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from remit.policy.shell.syntax import Arithmetic, Parameter, Part, Text, Word

__all__ = ["MAX_ALTERNATIVES", "brace_alternatives", "expand_braces", "unknown_word"]

MAX_ALTERNATIVES: Final = 128
_MAX_BRACES: Final = 12
_MARKS: Final = re.compile(r"[,{}]|\.\.")
_SEQUENCE: Final = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})\Z|([A-Za-z])\.\.([A-Za-z])\Z")

_Atom: TypeAlias = "Part | str"


def expand_braces(text: str) -> list[str]:
    """Return the patterns that a file name pattern with braces stands for; too many are one that matches anything."""
    alternatives = list(brace_alternatives((Text(text, quoted=False),)))
    texts = [[part.value for part in parts if isinstance(part, Text)] for parts in alternatives]
    known = [len(text) for text in texts] == [len(parts) for parts in alternatives]
    return ["".join(text) for text in texts] if known and len(texts) <= MAX_ALTERNATIVES else ["/**"]


def brace_alternatives(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the part lists that brace expansion makes of one word."""
    braces = sum(part.value.count("{") for part in parts if isinstance(part, Text) and not part.quoted)
    if not braces:
        yield list(parts)
        return
    # What bash makes of marks of its own that are quoted depends on more than the quotes.
    odd = any(isinstance(part, Text) and part.quoted and _MARKS.search(part.value) for part in parts)
    if odd or braces > _MAX_BRACES:
        yield unknown_word(parts)
        return
    atoms: list[_Atom] = []
    for part in parts:
        if isinstance(part, Text) and not part.quoted:
            atoms.extend(part.value)
        else:
            atoms.append(part)
    budget = [MAX_ALTERNATIVES + 1]
    for expanded in _expand_atoms(atoms, budget):
        joined = _joined(expanded)
        # bash expands braces before it looks for names: what comes together then may be another name.
        yield unknown_word(parts) if _makes_names(joined) else joined
    if budget[0] <= 0:
        # There are more: what they are is not known.
        yield unknown_word(parts)


def unknown_word(parts: Sequence[Part]) -> list[Part]:
    """Return a word of which nothing is known, with the expansions that the parts hold: each is still evaluated."""
    unknown: list[Part] = [Parameter("{", "", None, quoted=False)]
    return unknown + [each for part in parts if not isinstance(part, Text) for each in (part, *unknown)]


def _expand_atoms(atoms: list[_Atom], budget: list[int]) -> Iterator[list[_Atom]]:
    for start, atom in enumerate(atoms):
        if atom == "{":
            choice = _choices(atoms, start)
            if choice is not None:
                choices, end = choice
                for chosen in choices:
                    for middle in _expand_atoms(chosen, budget):
                        for tail in _expand_atoms(atoms[end + 1 :], budget):
                            yield [*atoms[:start], *middle, *tail]
                return
    budget[0] -= 1
    if budget[0] > 0:
        yield atoms


def _choices(atoms: list[_Atom], start: int) -> tuple[list[list[_Atom]], int] | None:
    """Return what `{…}` at `start` offers and where it ends, or None where it is plain text."""
    depth, cuts = 0, [start]
    for at in range(start, len(atoms)):
        atom = atoms[at]
        if atom == "{":
            depth += 1
        elif atom == "," and depth == 1:
            cuts.append(at)
        elif atom == "}":
            depth -= 1
            if depth == 0:
                if len(cuts) > 1:
                    cuts.append(at)
                    return [atoms[left + 1 : right] for left, right in pairwise(cuts)], at
                sequence = _sequence(atoms[start + 1 : at])
                if sequence is not None:
                    return sequence, at
                if _closes_later(atoms[at + 1 :]):
                    return [list(unknown_word([atom for atom in atoms[start:] if not isinstance(atom, str)]))], len(
                        atoms
                    )
                return None
    return None


def _closes_later(atoms: list[_Atom]) -> bool:
    """Return whether a comma and a closing brace follow that may belong to braces which were closed without a comma."""
    depth, comma = 1, False
    for atom in atoms:
        depth += (atom == "{") - (atom == "}")
        comma = comma or (atom == "," and depth == 1)
        if depth == 0:
            return comma
    return False


def _sequence(atoms: list[_Atom]) -> list[list[_Atom]] | None:
    text = "".join(atom for atom in atoms if isinstance(atom, str))
    if ".." not in text:
        return None
    if len(text) != len(atoms) or "{" in text:
        # Beside other parts, or with braces inside, bash may take it for a sequence or not.
        return [list(unknown_word([atom for atom in atoms if not isinstance(atom, str)]))]
    match = _SEQUENCE.match(text)
    if not match or (match[1] and (match[1].lstrip("-").startswith("0") or match[2].lstrip("-").startswith("0"))):
        # Steps, padding and what bash may or may not take as a sequence: not worth a second opinion.
        unknown: list[_Atom] = [Parameter(f"{{{text}}}", "", None, quoted=False)]
        return [unknown]
    if match[3]:
        low, high = ord(match[3]), ord(match[4])
        return [[chr(code)] for code in _span(low, high)]
    low, high = int(match[1]), int(match[2])
    if abs(high - low) > MAX_ALTERNATIVES:
        return [[Arithmetic(Word((), ""))]]
    return [list(str(number)) for number in _span(low, high)]


def _span(low: int, high: int) -> range:
    return range(low, high + 1) if low <= high else range(low, high - 1, -1)


def _joined(atoms: Sequence[_Atom]) -> list[Part]:
    """Return the parts that the atoms make, with characters put together again."""
    parts: list[Part] = []
    text = ""
    for atom in atoms:
        if isinstance(atom, str):
            text += atom
            continue
        if text:
            parts.append(Text(text, quoted=False))
            text = ""
        parts.append(atom)
    if text:
        parts.append(Text(text, quoted=False))
    return parts


def _makes_names(parts: Sequence[Part]) -> bool:
    """Return whether a dollar sign or a bare name has come to stand before characters that may belong to a name."""
    for part, following in pairwise(parts):
        if isinstance(part, Text) and part.value.endswith("$"):
            return True
        opens = isinstance(part, Parameter) and part.bare and not part.quoted
        if opens and isinstance(following, Text) and not following.quoted and _NAME_PART.match(following.value):
            return True
        if opens and isinstance(following, Parameter) and following.name.startswith("{"):
            return True
    return False


_NAME_PART: Final = re.compile(r"[A-Za-z0-9_\[({@*#?$!-]")
