"""Missions: what an agent should do and may do, and narrowing that for a delegate.

Invariant: `narrow` only removes permissions. What the result permits, the parent permits too, whatever the file system
looks like, because entries are compared as text, and in case of doubt an entry is not covered. `policy/` judges calls
by a mission.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import eq
from typing import Annotated, Final, Literal, TypeAlias, get_args
from unicodedata import normalize

from msgspec import Meta, structs

from remit.claims.strictjson import JSON
from remit.claims.types import Claims, Count, SideEffectClass, convert, matches
from remit.errors import FieldInvalid, MissionWidened, quote

__all__ = [
    "EVERYTHING",
    "MACHINE_KINDS",
    "MAX_DURATION_S",
    "SIDE_EFFECT_CLASSES",
    "AgentId",
    "Duration",
    "MachineKind",
    "Mission",
    "MissionText",
    "Scope",
    "ScopeEntry",
    "SideEffectClasses",
    "ToolName",
    "ToolNames",
    "escape_path",
    "is_pattern",
    "literal_path",
    "narrow",
    "parse_mission",
    "parse_program",
]

EVERYTHING: Final = "**"
# State of the machine that is not in files has its own scope entries: `db://app_dev`, `db://*` for all of a kind.
MachineKind: TypeAlias = Literal["db", "container", "package", "process", "service"]
MACHINE_KINDS: Final[tuple[MachineKind, ...]] = get_args(MachineKind)
MAX_DURATION_S: Final = 366 * 24 * 3600
SIDE_EFFECT_CLASSES: Final[tuple[SideEffectClass, ...]] = get_args(SideEffectClass)

# Names, scopes and missions are shown on terminals and pages, so they may not have characters that control, hide or
# reorder text.
_UNSEEN: Final = r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_SHOWN: Final = rf"[^\x00-\x1f\x7f-\x9f{_UNSEEN}]"
_SHOWN_TEXT: Final = rf"[^\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}]"
AgentId: TypeAlias = Annotated[str, matches(_SHOWN + "{1,256}")]
ToolName: TypeAlias = Annotated[str, matches(_SHOWN + "{1,256}")]
ScopeEntry: TypeAlias = Annotated[str, matches(_SHOWN + "{1,4096}")]
MissionText: TypeAlias = Annotated[str, matches(_SHOWN_TEXT + "{1,4096}")]
Duration: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_DURATION_S)]
ToolNames: TypeAlias = Annotated[tuple[ToolName, ...], Meta(max_length=1000)]
Scope: TypeAlias = Annotated[tuple[ScopeEntry, ...], Meta(max_length=1000)]
SideEffectClasses: TypeAlias = Annotated[tuple[SideEffectClass, ...], Meta(max_length=16)]


class Mission(Claims, frozen=True, kw_only=True):
    """A task, the tools and resources that may be used for it, and limits."""

    agent_id: AgentId
    mission: MissionText
    allowed_tools: ToolNames = ()
    forbidden_tools: ToolNames = ()
    resource_scope: Scope = ()
    max_tool_calls: Count = 100
    max_duration_s: Duration = 3600
    allowed_side_effect_classes: SideEffectClasses = SIDE_EFFECT_CLASSES
    cwd: ScopeEntry | None = None


def parse_mission(value: object, defaults: Mapping[str, JSON] | None = None) -> Mission:
    """Return the mission in `value`, with `defaults` for missing members."""
    if not isinstance(value, Mapping):
        raise FieldInvalid("must be an object")
    return convert(Mission, {**(defaults or {}), **value})


def narrow(parent: Mission, child: Mission) -> Mission:
    """Return the mission of a delegate: `child`, if it permits nothing that `parent` does not.

    What the parent forbids stays forbidden, and relative paths are made absolute, so that they mean what was compared.
    Anything wider raises `MissionWidened` with the name of the member: nothing is removed silently.
    """
    scope = _anchor_scope(child, parent.cwd)
    covers_tool = _covers_tool if child.cwd in (None, parent.cwd) else _covers_tool_elsewhere
    _check_covered("allowed_tools", child.allowed_tools, parent.allowed_tools, covers_tool)
    _check_covered("resource_scope", scope, _anchor_scope(parent), _covers_scope)
    _check_cwd(parent, child.cwd)
    _check_covered(
        "allowed_side_effect_classes",
        child.allowed_side_effect_classes,
        parent.allowed_side_effect_classes,
        eq,
    )
    _check_at_most("max_tool_calls", child.max_tool_calls, parent.max_tool_calls)
    _check_at_most("max_duration_s", child.max_duration_s, parent.max_duration_s)
    forbidden = tuple(dict.fromkeys((*parent.forbidden_tools, *child.forbidden_tools)))
    return structs.replace(child, forbidden_tools=forbidden, resource_scope=scope, cwd=child.cwd or parent.cwd)


def is_pattern(entry: str) -> bool:
    """Return whether a list entry is a shell-style glob rather than a plain name or path."""
    return _WILDCARD.search(entry) is not None


_WILDCARD: Final = re.compile(r"[*?\[]")
# A wildcard character in brackets is a literal.
_ESCAPED: Final = re.compile(r"\[([*?\[])\]")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


def escape_path(path: str) -> str:
    """Return the scope entry that means exactly `path`, with each wildcard character in brackets."""
    return _WILDCARD.sub(lambda mark: f"[{mark[0]}]", path)


def literal_path(entry: str) -> str | None:
    """Return the path that a scope entry names, with its escapes resolved; None for one with an active wildcard."""
    return None if _first_wildcard(entry) is not None else _ESCAPED.sub(r"\1", entry)


def _first_wildcard(entry: str) -> int | None:
    """Return where the first wildcard of a scope entry is that is not escaped; in a URL, nothing is."""
    found = _WILDCARD.search(entry if _URL.match(entry) else _ESCAPED.sub("...", entry))
    return None if found is None else found.start()


def parse_program(entry: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the tool and the leading words of `Bash(npm test)`, or None for an entry that only names a tool."""
    tool, bracket, rest = entry.partition("(")
    words = tuple(rest[:-1].split()) if rest.endswith(")") else ()
    return (tool, words) if tool and bracket and words else None


def _check_covered(member: str, asked: Iterable[str], had: tuple[str, ...], covers: Callable[[str, str], bool]) -> None:
    for entry in asked:
        if not any(covers(own, entry) for own in had):
            raise MissionWidened(member, f"{quote(entry)} is not within what the parent may")


def _check_cwd(parent: Mission, asked: str | None) -> None:
    """Raise unless a delegate works in the directory of its parent, or in one that is clearly inside of it.

    The directory must be a plain path, not a glob, and must be unambiguous.
    """
    if asked in (None, parent.cwd):
        return
    places = (*_anchor_scope(parent), *([parent.cwd] if parent.cwd else []))
    literal = asked.startswith("/") and not is_pattern(asked) and _is_settled(asked)
    if not literal or not any(_contains(place, asked) for place in places):
        raise MissionWidened("cwd", f"{quote(asked)} is not plainly inside where the parent works or may touch")


def _contains(place: str, directory: str) -> bool:
    """Return whether a directory is, or lies below, what an entry of a scope or a working directory names."""
    root = place.removesuffix("/**").removesuffix("/")
    if place == EVERYTHING:
        return True
    plain = root == "" or (root.startswith("/") and not is_pattern(root) and _is_settled(root))
    return plain and place.startswith("/") and f"{directory.removesuffix('/')}/".startswith(f"{root}/")


def _check_at_most(member: str, asked: int, had: int) -> None:
    if asked > had:
        raise MissionWidened(member, f"{asked} is more than the parent's {had}")


def _covers_tool(own: str, asked: str) -> bool:
    """Return whether every tool or program that `asked` covers is covered by `own`.

    A tool covers its programs, and `Bash(npm)` covers `Bash(npm test)`; never the reverse.
    """
    if own == asked:
        return True
    program, wanted = parse_program(own), parse_program(asked)
    if program is None:
        return _covers_name(own, wanted[0] if wanted else asked)
    if wanted is None or wanted[1][: len(program[1])] != program[1]:
        return False
    return program[0] == wanted[0] or _covers_name(program[0], wanted[0])


def _covers_tool_elsewhere(own: str, asked: str) -> bool:
    """Return the same for a delegate in another directory, where a relative path is another program."""
    program = parse_program(asked)
    moved = program is not None and "/" in program[1][0] and not program[1][0].startswith("/")
    return _covers_tool(own, asked) and not (moved and parse_program(own) is not None)


def _covers_name(own: str, asked: str) -> bool:
    """Return whether every name that matches `asked` also matches `own`.

    Two globs are compared by their fixed beginnings: `git_*` covers `git_log*`, not the reverse.
    """
    if own == asked:
        return True
    if not is_pattern(asked):
        return is_pattern(own) and fnmatchcase(asked, own)
    return own.endswith("*") and not is_pattern(own[:-1]) and _fixed_part(asked).startswith(own[:-1])


def _fixed_part(pattern: str) -> str:
    """Return the text before the first wildcard."""
    return _WILDCARD.split(pattern, maxsplit=1)[0]


def _anchor_scope(mission: Mission, inherited_cwd: str | None = None) -> tuple[str, ...]:
    """Return the resource scope with relative paths joined to the working directory they start at."""
    cwd = mission.cwd or inherited_cwd or ""
    if not cwd.startswith("/") or not _is_settled(cwd):
        return mission.resource_scope
    start = escape_path(cwd.removesuffix("/"))
    return tuple(f"{start}/{entry}" if _is_relative(entry) else entry for entry in mission.resource_scope)


def _is_relative(entry: str) -> bool:
    """Return whether `entry` is a plain path that starts at a working directory, not at a home, drive or host."""
    return entry != EVERYTHING and not _ELSEWHERE.match(entry) and _is_settled(f"/{entry}")


def _covers_scope(own: str, asked: str) -> bool:
    """Return whether everything beneath `asked` is beneath `own`, judged by text alone.

    A plain path or URL covers what has it as a whole-component prefix, `/a/**` what lies below `/a`, and `db://*` all
    of its kind. Any other glob covers only itself. Text that a normaliser would change (`..`, `//`, `%2e`) proves
    nothing, and neither does a relative path that no working directory anchors: two readers could start it at
    different places.
    """
    if own == EVERYTHING or asked.startswith(_WHOLE_KINDS.get(own, "\0")):
        return True
    if not _ANCHOR.match(asked):
        return False
    # A root with an active wildcard proves nothing: the fixed part of `asked` has no wildcard.
    root = own.removesuffix("/**").removesuffix("/") + "/"
    beneath = _ANCHOR.match(root) is not None and _fixed_path(asked).startswith(root)
    return own in (asked, asked.removesuffix("/")) or (beneath and _is_settled(asked))


_WHOLE_KINDS: Final = {f"{kind}://{stars}": f"{kind}://" for kind in MACHINE_KINDS for stars in ("*", "**")}


def _fixed_path(entry: str) -> str:
    """Return the whole components before the first wildcard, with a closing slash where one was cut."""
    cut = _first_wildcard(entry)
    return entry.removesuffix("/") if cut is None else entry[: entry.rfind("/", 0, cut) + 1]


@lru_cache(maxsize=1024)
def _is_settled(entry: str) -> bool:
    """Return whether an anchored `entry` is unambiguous, so that it can be compared as text."""
    anchor = _ANCHOR.match(entry)
    path = "/" + entry[anchor.end() :] if anchor else entry
    plain = path.isprintable() and normalize("NFKC", path) == path
    return path == "/" or (plain and _UNSETTLED.search(path) is None)


# An absolute path, a URL, or a drive.
_ELSEWHERE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/|[A-Za-z]:|file:", re.IGNORECASE)
# The root of a file system, or a scheme and host.
_ANCHOR: Final = re.compile(r"/|[a-z][a-z0-9+.-]*://(?=[^/])")
# Empty and dot components, white space at either end of one, and characters that escape, divide or expand.
_UNSETTLED: Final = re.compile(r"//|/\.{1,2}(?:/|\Z)|/ | (?:/|\Z)|[\\%#@~$;]")
