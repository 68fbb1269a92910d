"""Brace expansion: replaces a word such as `{a,b}` or `{1..3}` by several, before any other expansion."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from remit.policy.shell.parse.syntax import Arithmetic, Parameter, Part, Text, Word

MAX_ALTERNATIVES: Final = 128
_MAX_BRACES: Final = 12
_MARKS: Final = re.compile(r"[,{}]|\.\.")
_SEQUENCE: Final = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})\Z|([A-Za-z])\.\.([A-Za-z])\Z")

_Atom: TypeAlias = "Part | str"


def expand_braces(text: str) -> list[str]:
    """Return the globs that a glob with braces stands for; too many become one that matches anything."""
    alternatives = list(brace_alternatives((Text(text, quoted=False),)))
    texts = [[part.value for part in parts if isinstance(part, Text)] for parts in alternatives]
    known = [len(text) for text in texts] == [len(parts) for parts in alternatives]
    return ["".join(text) for text in texts] if known and len(texts) <= MAX_ALTERNATIVES else ["/**"]


def brace_alternatives(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the parts of each word that brace expansion makes of one word."""
    braces = sum(part.value.count("{") for part in parts if isinstance(part, Text) and not part.quoted)
    if not braces:
        yield list(parts)
        return
    # How bash handles quoted braces and commas depends on more than the quotes.
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
        joined = _join_atoms(expanded)
        # bash expands braces before parameters: the parts joined now may form another name.
        yield unknown_word(parts) if _makes_names(joined) else joined
    if budget[0] <= 0:
        # There are more alternatives, which are not known.
        yield unknown_word(parts)


def unknown_word(parts: Sequence[Part]) -> list[Part]:
    """Return an unknown word that keeps the expansions of the parts, because each of them is still evaluated."""
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
    """Return the alternatives of `{…}` at `start` and where it ends, or None if it is plain text."""
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
    """Return whether a later comma and closing brace may belong to braces that were closed without a comma."""
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
        # With other parts or braces inside, bash may or may not take it as a sequence.
        return [list(unknown_word([atom for atom in atoms if not isinstance(atom, str)]))]
    match = _SEQUENCE.match(text)
    if not match or (match[1] and (match[1].lstrip("-").startswith("0") or match[2].lstrip("-").startswith("0"))):
        # Steps, padding and other forms that bash may or may not take as a sequence are treated as unknown.
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


def _join_atoms(atoms: Sequence[_Atom]) -> list[Part]:
    """Return the atoms as parts, with adjacent characters joined."""
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
    """Return whether a dollar sign or a bare name now precedes characters that may become part of a name."""
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
