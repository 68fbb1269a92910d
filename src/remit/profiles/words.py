"""Describes a mission in plain words.

Invariant: it does not promise more than is enforced. Calls are judged by what they are known to do, not by
what code does that they run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from remit.claims.mission import EVERYTHING, MACHINE_KINDS, Mission, literal_path
from remit.claims.types import SideEffectClass
from remit.profiles.phrases import KnownPhrase, load_phrases
from remit.profiles.values import server_entries

_MOST: Final = 12
_PROGRAM: Final = re.compile(r".*\((.+)\)", re.DOTALL)
_SERVER: Final = re.compile(r"mcp__(.+)__\*")
_UNITS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_SIDES: Final[Mapping[SideEffectClass, str]] = {
    "internal_write": "change files",
    "state_change": "change other things, such as tasks and processes",
    "external_send": "send data",
}


def describe_mission(mission: Mission) -> list[str]:
    """Describe a mission, one sentence per line."""
    return [
        f"It is asked to: {mission.mission}",
        *_describe_allowed(mission),
        *_forbidden(mission),
        *_places(mission),
        *_effects(mission),
        *_warn_unbounded(mission),
        f"It may make {_format_count(mission.max_tool_calls, 'tool call')} in {lasting(mission.max_duration_s)}.",
        "Everything else is denied.",
    ]


def lasting(seconds: int) -> str:
    """Return a duration in the largest unit that expresses it exactly."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return _format_count(seconds // size, unit)


def _format_count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _describe_allowed(mission: Mission) -> Iterator[str]:
    entries = mission.allowed_tools
    if not entries:
        yield "It may use no tool."
    scoped = {*entries, *mission.resource_scope}
    known = (known for known in load_phrases().values() if not known.unallowable)
    whole = _whole(scoped, {one: frozenset((*one.allowed_entries, *one.scope)) for one in known})
    yield from (f"It may {one.does}." for one in whole)
    yield from _by_name(_rest(entries, (one.allowed_entries for one in whole)), "may")


def _forbidden(mission: Mission) -> Iterator[str]:
    entries = mission.forbidden_tools
    known = (known for known in load_phrases().values() if not known.unblockable)
    whole = _whole({*entries}, {one: frozenset(one.blocked_entries) for one in known})
    yield from (f"It may not {one.refuses or one.does}." for one in whole)
    yield from _by_name(_rest(entries, (one.blocked_entries for one in whole)), "may not")


def _whole(named: set[str], phrases: Mapping[KnownPhrase, frozenset[str]]) -> list[KnownPhrase]:
    """Return the phrases whose entries are all present, without those that another one includes."""
    whole = {one: own for one, own in phrases.items() if not one.kind and own and named >= own}
    return [one for one, own in whole.items() if not any(own < other for other in whole.values())]


def _rest(entries: Sequence[str], said: Iterable[Sequence[str]]) -> list[str]:
    named = {entry for one in said for entry in one}
    return [entry for entry in entries if entry not in named]


def _by_name(entries: Sequence[str], verb: str) -> Iterator[str]:
    programs = [found[1] for entry in entries if (found := _PROGRAM.fullmatch(entry))]
    servers = [found[1] for entry in entries if (found := _SERVER.fullmatch(entry))]
    counted = {entry for server in servers for entry in server_entries(server)}
    others = [entry for entry in entries if not _PROGRAM.fullmatch(entry) and entry not in counted]
    for words, named in (
        ("run: ", [f"“{program}”" for program in programs]),
        ("use the tools of: ", servers),
        ("use: ", others),
    ):
        if named:
            yield f"It {verb} {words}{_format_list(named)}."


def _format_list(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _places(mission: Mission) -> Iterator[str]:
    if EVERYTHING in mission.resource_scope:
        yield "It may use everything: every file and every host."
        return
    machine = [entry for entry in mission.resource_scope if entry.partition("://")[0] in MACHINE_KINDS]
    hosts = [entry for entry in mission.resource_scope if "://" in entry and entry not in machine]
    paths = list(_folders(entry for entry in mission.resource_scope if "://" not in entry))
    yield f"It may use: {_format_list(paths)}, and everything in it." if paths else "It may use no file."
    yield f"It may reach: {_format_list(hosts)}." if hosts else "It may reach no host."
    if machine:
        yield f"It may use and change: {_format_list(machine)}."


def _folders(entries: Iterable[str]) -> Iterator[str]:
    for entry in entries:
        if entry == ".":
            yield "the folder that it is started in"
        else:
            yield literal_path(entry) or entry


def _effects(mission: Mission) -> Iterator[str]:
    for words, kept in (("Its calls may", True), ("Denied is every call that is known to", False)):
        sides = [said for side, said in _SIDES.items() if (side in mission.allowed_side_effect_classes) is kept]
        if sides:
            yield f"{words} {', '.join(sides)}."


def _warn_unbounded(mission: Mission) -> Iterator[str]:
    """Yield a warning if a command may run code, which is the side effect “change other things”."""
    looking = load_phrases()["look-with-commands"].allowed_entries
    shells = load_phrases()["run-commands"].tools
    runs = any(
        _PROGRAM.fullmatch(entry) or any(fnmatchcase(tool, entry) for tool in shells)
        for entry in mission.allowed_tools
        if entry not in looking
    )
    if runs and "state_change" in mission.allowed_side_effect_classes:
        yield "What code that a command runs does, such as a script or a test, is not known: only a sandbox limits it."
