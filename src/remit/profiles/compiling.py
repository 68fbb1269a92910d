"""Compiles a profile to a mission.

Invariant: blocked wins. A blocked phrase forbids its tools and programs, removes its side effects from the
whole mission, and cancels the allowed phrases that it covers. `remarks_on` reports such effects.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from remit.claims.mission import SIDE_EFFECT_CLASSES, Mission, escape_path, literal_path, parse_mission
from remit.claims.types import SideEffectClass, encode
from remit.errors import FieldInvalid
from remit.policy.scope import literal_entry
from remit.profiles.phrases import Phrase
from remit.profiles.profile import Profile

# Turns an absolute path, or one that begins with `~`, into entries of a resource scope.
Resolve: TypeAlias = Callable[[str], Sequence[str]]

# A passport is a token of at most 16 KiB; base64 turns three bytes into four characters.
_MAX_BYTES: Final = 11_000
_UNBOUNDED: Final = "; what the scripts it runs do is not known, and not limited by that"


def compile_profile(profile: Profile, folder: str | None, agent_id: str, *, resolve: Resolve | None = None) -> Mission:
    """Return the mission of a profile for one folder, which must be absolute and real.

    Without a folder, the mission is for the folder that the assistant is started in, and paths stay relative. `resolve`
    resolves links in other paths; without it, paths are used as written, and `~` is refused.
    """
    allowed, effects = _select_allowed(profile), _effects(profile)
    _refuse_spoiled(allowed, effects)
    mission = parse_mission(
        {
            "agent_id": agent_id,
            "mission": profile.mission,
            "allowed_tools": _once(entry for one in allowed for entry in (*one.known.allowed_entries, *one.tools)),
            "forbidden_tools": _once(
                entry for one in profile.blocked for entry in (*one.known.blocked_entries, *one.tools)
            ),
            "resource_scope": _once(_scope(profile, allowed, folder, resolve)),
            "max_tool_calls": profile.max_tool_calls,
            "max_duration_s": profile.max_duration_s,
            "allowed_side_effect_classes": list(effects),
            "cwd": folder,
        }
    )
    if len(encode(mission)) > _MAX_BYTES:
        raise FieldInvalid("is too long for one passport: remove some lines", place="profile")
    return mission


def _once(entries: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(entries))


def _select_allowed(profile: Profile) -> tuple[Phrase, ...]:
    blockers = _blockers(profile)
    return tuple(one for one in profile.allowed if one not in blockers)


def _blockers(profile: Profile) -> Mapping[Phrase, Phrase]:
    """Return the allowed phrases that a blocked phrase cancels, each with that phrase."""
    found: dict[Phrase, Phrase] = {}
    for one in profile.allowed:
        for blocked in profile.blocked:
            if one[:2] == blocked[:2] or one.name in blocked.known.covers:
                found.setdefault(one, blocked)
    return found


def _effects(profile: Profile) -> tuple[SideEffectClass, ...]:
    asked = {"none", *(side for one in _select_allowed(profile) for side in one.known.effects)}
    barred = {side for one in profile.blocked for side in one.known.bars}
    return tuple(side for side in SIDE_EFFECT_CLASSES if side in asked - barred)


def _refuse_spoiled(allowed: Sequence[Phrase], effects: Sequence[SideEffectClass]) -> None:
    for one in allowed:
        spoiled = one.known.spoiled
        if spoiled and spoiled.refused and spoiled.by in effects:
            raise FieldInvalid(f"“{one.words}” is not possible here: {spoiled.refused}", place=f"line {one.line}")


def _scope(profile: Profile, allowed: Sequence[Phrase], folder: str | None, resolve: Resolve | None) -> Iterator[str]:
    if folder is None:
        if profile.folder != ".":
            raise FieldInvalid(
                "must not be set in a profile that is for any folder the assistant is started in", place="Folder"
            )
        yield "."
    else:
        yield from _folder_entries(folder)
    for one in allowed:
        yield from one.known.scope
        if one.known.kind == "path":
            yield from _path(one, folder, resolve)
        elif one.known.machine is not None:
            yield f"{one.known.machine}://{escape_path(one.value)}"
        elif one.known.kind == "site":
            yield one.value
        elif one.known.kind == "address":
            yield f"host://{one.value}"


def _folder_entries(folder: str) -> tuple[str, ...]:
    """Return the scope entry for a folder and everything in it."""
    return (literal_entry(folder, "$.folder"),)


def _path(phrase: Phrase, folder: str | None, resolve: Resolve | None) -> Sequence[str]:
    path = phrase.value
    if path.startswith("~"):
        if resolve is None:
            raise FieldInvalid(
                f"{path!r} begins with an unknown home directory: write out the path", place=f"line {phrase.line}"
            )
        return resolve(path)
    if not path.startswith("/") and folder is None:
        inside = posixpath.normpath(path)
        if inside.startswith(".."):
            raise FieldInvalid(
                "leads out of a folder that is not known yet: write out the path", place=f"line {phrase.line}"
            )
        return (inside,)
    whole = posixpath.normpath(posixpath.join(escape_path(folder or "/"), path))
    if resolve is not None:
        return resolve(whole)
    literal = literal_path(whole)
    return (whole,) if literal is None else _folder_entries(literal)


def remarks_on(profile: Profile) -> list[str]:
    """Return remarks on a profile that compiles: lines that allow less or more than they seem to."""
    effects = _effects(profile)
    remarks = [
        f"line {one.line}: “{one.words}” is not allowed, because “{blocked.words}” is blocked"
        for one, blocked in _blockers(profile).items()
    ]
    remarks += [
        f"line {one.line}: “{one.words}”{remark}"
        for one in _select_allowed(profile)
        for remark in _remarks(one, effects)
    ]
    if not _select_allowed(profile):
        remarks.append("nothing is allowed: every call is denied")
    return remarks


def _remarks(phrase: Phrase, effects: Sequence[SideEffectClass]) -> Iterator[str]:
    known = phrase.known
    missing = " and ".join(_SIDES[side] for side in known.effects if side not in effects)
    if missing:
        unbounded = _UNBOUNDED if known.runs_code and "state_change" in effects else ""
        yield f" does not cover calls that are known to {missing}, which is blocked{unbounded}"
    if known.spoiled and known.spoiled.by in effects:
        yield f": {known.spoiled.then}, because other lines let it {_SIDES[known.spoiled.by]}"
    if known.caution:
        yield f": {known.caution}"


_SIDES: Final[Mapping[SideEffectClass, str]] = {
    "none": "do nothing",
    "internal_write": "change files",
    "state_change": "change things other than files",
    "external_send": "send data",
}
