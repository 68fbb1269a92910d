"""Suggests the lines of a profile that would permit a denied call.

The input are the changes to a passport of a remedy. Invariant: a suggestion is complete, and made of lines
that the parser accepts; if a change cannot be written as lines, there is no suggestion.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from remit.claims.mission import MACHINE_KINDS
from remit.claims.types import SideEffectClass
from remit.errors import InputError
from remit.profiles.phrases import Phrase, load_phrases, parse_phrase
from remit.profiles.words import lasting

_MAX_LINES: Final = 8
_PROGRAM: Final = re.compile(r"[^()]*\(([^()]+)\)")
_SERVER: Final = re.compile(r"mcp__([A-Za-z0-9][A-Za-z0-9_.-]*?)__.+")
_ESCAPED: Final = re.compile(r"\[([*?\[])\]")
_MISREAD: Final = re.compile(r"[“”]|<!--")
_MINUTE: Final = 60
_LETS: Final[Mapping[str, str]] = {
    "internal_write": "Let tools change files",
    "state_change": "Let tools change other things",
    "external_send": "Let tools send data",
}


class Wanted(Protocol):
    """One change to a passport, from a remedy."""

    @property
    def member(self) -> str:
        """Return the member to change."""

    @property
    def operation(self) -> str:
        """Return the operation: add or remove values, or raise a limit."""

    @property
    def values(self) -> Sequence[str | int]:
        """Return the values."""


class _Unsayable(Exception):
    """A change that cannot be written as a line of a profile."""


def suggest(changes: Sequence[Wanted]) -> str | None:
    """Return what to change in a profile, as a sentence without a full stop; None if no lines would do."""
    try:
        parts = list(_parts(changes))
    except _Unsayable:
        return None
    return " and ".join(parts) or None


def _parts(changes: Sequence[Wanted]) -> Iterator[str]:
    allowed = _suggest_allowed(changes)
    if len(allowed) > _MAX_LINES:
        raise _Unsayable
    if allowed:
        yield f"add {_quote_lines(phrase.written for phrase in allowed)} under Allowed"
    removed = [str(value) for value in _values(changes, "forbidden_tools")]
    if removed:
        yield f"take {_blocking(removed)} out of Blocked"
    for member, said in _LIMITS.items():
        for value in _values(changes, member):
            yield f"write “- At most {said(int(value))}” under Limits"


_LIMITS: Final[Mapping[str, Callable[[int], str]]] = {
    "max_tool_calls": lambda calls: f"{calls} tool calls",
    "max_duration_s": lambda seconds: lasting(-(-seconds // _MINUTE) * _MINUTE),
}


def _values(changes: Sequence[Wanted], member: str) -> list[str | int]:
    return [value for change in changes if change.member == member for value in change.values]


class _PhraseLine(Phrase):
    """A phrase as a line: its value as short as possible, in backticks if it would be misread otherwise."""

    __slots__ = ()

    @property
    def written(self) -> str:
        """Return the line without its dash. Raises if it cannot be written, or has quotes of its own."""
        if _MISREAD.search(self.value):
            raise _Unsayable
        for value in (self.value.removeprefix("https://"), self.value, f"`{self.value}`"):
            words = self._replace(value=value).words
            try:
                if parse_phrase(words, 0)[:2] == self[:2]:
                    return words
            except InputError:
                continue
        raise _Unsayable


def _suggest_allowed(changes: Sequence[Wanted]) -> list[_PhraseLine]:
    """Return the phrases to allow: resources first, because some include the tools and side effects."""
    sides = [str(side) for side in _values(changes, "allowed_side_effect_classes")]
    lines = [_place(str(entry), sends="external_send" in sides) for entry in _values(changes, "resource_scope")]
    lines += [
        _tool(str(tool))
        for tool in _values(changes, "allowed_tools")
        if not any(tool in line.known.allowed_entries for line in lines)
    ]
    brought: set[SideEffectClass] = {side for line in lines for side in line.known.effects}
    lines += [_PhraseLine(parse_phrase(_LETS[side], 0).name) for side in sides if side not in brought and side in _LETS]
    return list(dict.fromkeys(lines))


def _place(entry: str, *, sends: bool) -> _PhraseLine:
    kind, _, name = entry.partition("://")
    if kind in MACHINE_KINDS:
        return _state(kind, name)
    if entry.startswith("host://"):
        return _PhraseLine("connect-to", entry.removeprefix("host://").removesuffix(":0"))
    if "://" in entry:
        return _PhraseLine("send-to" if sends else "reach", entry.removesuffix("/"))
    return _PhraseLine("use-path", entry)


def _state(kind: str, name: str) -> _PhraseLine:
    """Return the phrase for a resource of the machine: a whole kind, or a named one."""
    phrases = load_phrases().items()
    whole = next((own for own, known in phrases if known.scope == (f"{kind}://{name}",)), None)
    own = next(own for own, known in phrases if known.machine == kind)
    return _PhraseLine(whole) if whole else _PhraseLine(own, _ESCAPED.sub(r"\1", name))


def _tool(entry: str) -> _PhraseLine:
    program = _PROGRAM.fullmatch(entry)
    if program:
        return _PhraseLine("run-program", program[1])
    name = _ESCAPED.sub(r"\1", entry)
    phrases = load_phrases().items()
    fixed = next(
        (own for own, known in phrases if not known.kind and name in known.tools and not known.unallowable), None
    )
    if fixed:
        return _PhraseLine(fixed)
    server = _SERVER.fullmatch(name)
    return _PhraseLine("use-server", server[1]) if server else _PhraseLine("use-tool", name)


def _blocking(entries: Sequence[str]) -> str:
    """Return the phrases that may have blocked these tools, joined by “or”."""
    found = [
        known.says[0]
        for known in load_phrases().values()
        if not known.kind and not known.unblockable and set(entries) & set(known.blocked_entries)
    ]
    programs = [f"Run {program[1]}" for entry in entries if (program := _PROGRAM.fullmatch(entry))]
    named = dict.fromkeys((*programs, *found)) or {f"Use the tool {entry}": None for entry in entries}
    return " or ".join(f"“- {words}”" for words in named)


def _quote_lines(lines: Iterator[str]) -> str:
    return " and ".join(f"“- {line}”" for line in lines)
