"""The table of phrases that a profile consists of, and the parser of one phrase.

Invariant: a line is a phrase of the table, or an error that names the nearest one. Nothing is guessed.
"""

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, NamedTuple

from msgspec import Struct, convert

from remit.claims.mission import MachineKind
from remit.claims.types import SideEffectClass
from remit.errors import FieldInvalid, quote
from remit.profiles.values import KINDS, QUOTES, program_entry, server_entries

# How similar two texts must be for one to be a misspelling of the other.
_NEAR: Final = 0.6
_SAME: Final = 0.85
# Longer text is not a misspelling of a phrase without a value, and slow to compare.
_MAX_SLIP: Final = 60


class Spoiled(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A side effect that weakens a phrase: what is true then, or why both cannot be allowed."""

    by: SideEffectClass
    then: str = ""
    refused: str = ""


class KnownPhrase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phrase of the table. phrases.toml documents the members."""

    says: tuple[str, ...]
    does: str
    refuses: str = ""
    tools: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    with_tools: tuple[str, ...] = ()
    with_programs: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    machine: MachineKind | None = None
    effects: tuple[SideEffectClass, ...] = ()
    bars: tuple[SideEffectClass, ...] = ()
    covers: tuple[str, ...] = ()
    spoiled: Spoiled | None = None
    caution: str = ""
    runs_code: bool = False
    unblockable: str = ""
    unallowable: str = ""
    unlike: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Return the kind of its value; empty if it has none."""
        return self.says[0].partition("{")[2].rstrip("}")

    @property
    def allowed_entries(self) -> tuple[str, ...]:
        """Return what it adds to the allowed tools, apart from its value."""
        return (*self.tools, *self.with_tools, *map(program_entry, (*self.programs, *self.with_programs)))

    @property
    def blocked_entries(self) -> tuple[str, ...]:
        """Return what it adds to the forbidden tools, apart from its value."""
        return (*self.tools, *self.blocks, *map(program_entry, self.programs))


class Phrase(NamedTuple):
    """One line of a profile: the phrase, its value and the line number."""

    name: str
    value: str = ""
    line: int = 0

    @property
    def known(self) -> KnownPhrase:
        """Return its entry in the table."""
        return load_phrases()[self.name]

    @property
    def words(self) -> str:
        """Return it as it is written in a profile."""
        return self.known.says[0].replace(f"{{{self.known.kind}}}", self.value)

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the entries of its value for a list of tools."""
        if self.known.kind == "program":
            return (program_entry(self.value),)
        if self.known.kind == "tool":
            return (self.value,)
        return _of_server(self.value) if self.known.kind == "server" else ()


def _of_server(server: str) -> tuple[str, ...]:
    """Return the globs for a server's tools, without those that would also match a tool of an assistant."""
    entries = server_entries(server)
    ours = _all_tools()
    apart = [glob for glob in entries[2:] if not any(tool.startswith(glob[:-1]) for tool in ours)]
    return (*entries[:2], *apart)


@lru_cache(maxsize=1)
def _all_tools() -> frozenset[str]:
    phrases = load_phrases().values()
    return frozenset(tool for known in phrases for tool in (*known.tools, *known.with_tools, *known.blocks))


@lru_cache(maxsize=1)
def load_phrases() -> Mapping[str, KnownPhrase]:
    """Return the table of phrases by name."""
    text = package_files("remit.profiles").joinpath("phrases.toml").read_text(encoding="utf-8")
    return {name: convert(table, KnownPhrase) for name, table in tomllib.loads(text).items()}


def parse_phrase(text: str, line: int) -> Phrase:
    """Parse a phrase. Raises `FieldInvalid` with the nearest phrase."""
    said = _plain(text)
    fixed = _load_fixed().get(said.casefold())
    if fixed is not None:
        return Phrase(fixed, "", line)
    for name, beginning in _beginnings():
        if said.casefold().startswith(beginning):
            value = said[len(beginning) :].strip()
            return Phrase(name, _value(name, value, said, line), line)
    raise _unknown(said, line)


def resembles_phrase(text: str) -> bool:
    """Return whether a text is a phrase, or so similar that it may be meant as one.

    For a phrase that can be blocked, its beginning is enough: losing a blocking rule would be the worst mistake.
    """
    said = _plain(text)
    if len(said) <= _MAX_SLIP and _nearest(said, _SAME, values=False):
        return True
    for name, beginning in _beginnings():
        if said.casefold().startswith(beginning):
            known, value = load_phrases()[name], said[len(beginning) :].strip()
            meant = value and value.casefold().split()[0] not in known.unlike
            return bool(meant and (not known.unblockable or KINDS[known.kind].read(value) is not None))
    return False


def _plain(text: str) -> str:
    """Return a line with single spaces and without a full stop; the dots of a path stay."""
    said = " ".join(text.split())
    return said[:-1] if said[-1:] == "." and (said[-2:-1].isalnum() or said[-2:-1] in '`"') else said


def _value(name: str, text: str, said: str, line: int) -> str:
    known = load_phrases()[name]
    kind = KINDS[known.kind]
    value = kind.read(text)
    if not text.startswith(QUOTES) and _is_slip(known, text, said, taken=value is not None):
        raise _unknown(said, line)
    if value is None:
        raise FieldInvalid(f"{quote(text)} is not {kind.wanted}", place=f"line {line}")
    return value


def _is_slip(known: KnownPhrase, text: str, said: str, *, taken: bool) -> bool:
    """Return whether a value is rather a misspelled phrase, as in “Run developper commands”."""
    words = text.casefold().split()
    alone = taken and len(words) == 1  # a single valid word is a value: “ctest” is not a misspelling of “tests”
    return words[0] in known.unlike or (not alone and bool(_nearest(said, _SAME, values=False)))


def _unknown(said: str, line: int) -> FieldInvalid:
    nearest = _nearest(said, _NEAR, values=True)
    hint = f"; the nearest is “{nearest}”" if nearest else ""
    error = FieldInvalid(f"{quote(said)} is not a known phrase{hint}", place=f"line {line}")
    error.add_note("Use the phrases of docs/start/profile.md; put a value that looks like a phrase into backticks.")
    return error


def _nearest(said: str, likeness: float, *, values: bool) -> str:
    spoken = {text.casefold(): text for text in _phrase_texts() if values or "{" not in text}
    found = get_close_matches(said.casefold(), spoken, 1, likeness)
    if not found and values:
        # A value makes a line unlike its phrase, so compare the first word.
        begun = {text.partition(" {")[0]: text for text in spoken if "{" in text}
        found = [begun[text] for text in get_close_matches(said.casefold().partition(" ")[0], begun, 1, likeness)]
    return spoken[found[0]].replace("{", "<").replace("}", ">") if found else ""


def _phrase_texts() -> Iterator[str]:
    return (text for known in load_phrases().values() for text in known.says)


@lru_cache(maxsize=1)
def _load_fixed() -> Mapping[str, str]:
    return {text.casefold(): name for name, known in load_phrases().items() for text in known.says if not known.kind}


@lru_cache(maxsize=1)
def _beginnings() -> tuple[tuple[str, str], ...]:
    """Return the beginnings of phrases with a value, the longest first."""
    valued = [
        (name, text.partition("{")[0].casefold())
        for name, known in load_phrases().items()
        if known.kind
        for text in known.says
    ]
    return tuple(sorted(valued, key=lambda one: -len(one[1])))
