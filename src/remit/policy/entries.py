"""What the entries of a passport's tool lists name: tools, and programs of a shell.

`Bash` and `git_*` name tools. `Bash(npm test)` names a program: a command line of the tool is allowed by such entries
only if every program that it would start begins with the words of one of them. What is forbidden is looked for behind
options too, because they do not change which command it is. Doubt is "not allowed", and it is "forbidden".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple

from remit.claims.mission import is_pattern, parse_program
from remit.policy.call import Launched
from remit.policy.files import join, without_dots
from remit.policy.shell.launches import SYSTEM_FOLDERS

__all__ = [
    "Named",
    "allows_tool",
    "forbidding",
    "named_programs",
    "names_tool",
    "not_allowed",
    "program_entry",
    "tool_entry",
    "worded_program",
]

_WILDCARD: Final = re.compile(r"[*?\[]")
# What a passport can hold, as `claims/mission.py` says.
_NAMEABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{1,256}")
# Programs and sub commands that run what the next word names.
_RUN_THE_NEXT: Final = frozenset((
    "bash", "sh", "dash", "zsh", "fish", "source", "node", "ruby", "perl", "php", "python", "python3", "make", "just",
    "npx", "bunx", "uvx", "npm run", "pnpm run", "yarn run", "bun run", "deno run", "go run", "uv run", "npm exec",
))  # fmt: skip
_MODULE: Final = "-m"


class Named(NamedTuple):
    """An entry that names a program, ready to be compared."""

    tool: str
    words: tuple[str, ...]
    entry: str


def names_tool(entries: Sequence[str], tool: str) -> str | None:
    """Return the entry that names a tool, exactly or as a glob; nothing is trimmed or folded.

    An entry of the form `Bash(npm test)` may be meant for programs. That is for the caller to know: see `allows_tool`.
    """
    if tool in entries:
        return tool
    return next((entry for entry in entries if is_pattern(entry) and fnmatchcase(tool, entry)), None)


def allows_tool(entries: tuple[str, ...], tool: str) -> str | None:
    """Return the entry that allows a tool by its name: one that names programs of a tool allows no other tool.

    A delegate gets `Read(x)` from a parent that has `Read`; so it must not mean a tool that is called `Read(x)`.
    """
    naming = _naming_tools(entries)
    return tool if tool in naming else names_tool(naming, tool)


@lru_cache(maxsize=512)
def _naming_tools(entries: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(entry for entry in entries if parse_program(entry) is None)


def named_programs(entries: tuple[str, ...], tool: str, base: str | None) -> tuple[Named, ...]:
    """Return the entries that name programs of a tool; a relative path starts at `base`."""
    return tuple(named for named in _programs(entries, base) if names_tool((named.tool,), tool) is not None)


@lru_cache(maxsize=512)
def _programs(entries: tuple[str, ...], base: str | None) -> tuple[Named, ...]:
    found = ((entry, parse_program(entry)) for entry in entries)
    return tuple(Named(named[0], _settled(named[1], base), entry) for entry, named in found if named is not None)


def _settled(words: tuple[str, ...], base: str | None) -> tuple[str, ...]:
    """Return the words with the program named as `Launched` does."""
    folder, slash, name = words[0].rpartition("/")
    if not slash:
        return words
    if f"{folder}/" in SYSTEM_FOLDERS:
        return (name, *words[1:])
    if base is None and not words[0].startswith("/"):
        # Relative to nowhere: no program has such a name.
        return words
    return (without_dots(join(base or "/", words[0])), *words[1:])


def not_allowed(allowed: Sequence[Named], commands: Iterable[Launched]) -> Iterator[Launched]:
    """Yield the programs that no entry allows. One that only starts others is judged by those."""
    for launched in commands:
        if not launched.carrier and not any(_allows(named.words, launched) for named in allowed):
            yield launched


def _allows(wanted: tuple[str, ...], launched: Launched) -> bool:
    size = len(wanted)
    if wanted in (launched.words[:size], launched.plain[:size]):
        return True
    # An entry may also spell out what starts the program, as in `uv run pytest`, if it reaches the program itself.
    before: tuple[str, ...] = ()
    for carrier in reversed(launched.carriers):
        before = carrier + before
        if size > len(before) and wanted == (before + launched.words)[:size]:
            return True
    return False


def forbidding(forbidden: Sequence[Named], commands: Iterable[Launched]) -> Iterator[tuple[Named, Launched]]:
    """Yield each entry that forbids a program, with the program."""
    for launched in commands:
        for named in forbidden:
            if _may_begin(named.words, launched):
                yield named, launched


def _may_begin(wanted: tuple[str, ...], launched: Launched) -> bool:
    """Tell whether a program may be meant, wherever it lies, with options before or between the words."""
    given, known = launched.words, launched.plain[1:]
    if not given:
        return True
    other = known and wanted[1 : 1 + len(known)] != known[: len(wanted) - 1]
    if other or given[0].rpartition("/")[2] != wanted[0].rpartition("/")[2]:
        return False
    places = {1}
    for word in wanted[1:]:
        reached = _behind_options(given, places)
        if launched.more and len(given) in reached:
            return True
        places = {at + 1 for at in reached if at < len(given) and given[at] == word}
    return bool(places)


def _behind_options(given: tuple[str, ...], places: set[int]) -> set[int]:
    """Return the places where the next word may be: an option may have a value, or none."""
    reached = set(places)
    for at in range(min(places, default=0), len(given)):
        if at in reached and given[at][:1] in ("-", "+"):
            reached |= {at + 1, min(at + 2, len(given))}
    return reached


def tool_entry(tool: str) -> str | None:
    """Return the entry that would allow a tool, or None where a passport cannot name it."""
    entry = _WILDCARD.sub(lambda mark: f"[{mark[0]}]", tool)
    if parse_program(entry) is not None:
        # As it stands, it would name a program: written as a glob, the last bracket is only a character.
        entry = f"{entry[:-1]}[)]"
    return entry if _NAMEABLE.fullmatch(entry) else None


def program_entry(tool: str, launched: Launched, base: str | None) -> str | None:
    """Return the entry that would allow a program of a tool, or None where a passport cannot name it."""
    words = _characteristic(launched)
    if words and base is not None and words[0].startswith(f"{base}/"):
        words = (f".{words[0][len(base) :]}", *words[1:])
    entry = f"{tool_entry(tool)}({' '.join(words)})"
    named = parse_program(entry)
    return entry if words and named is not None and named[1] == words and _NAMEABLE.fullmatch(entry) else None


def worded_program(launched: Launched) -> str:
    """Return the words by which a person knows a program."""
    return " ".join(_characteristic(launched))


def _characteristic(launched: Launched) -> tuple[str, ...]:
    """Return as many words as say what is run: a sub command, a module, a script."""
    words, known = launched.words, launched.plain or launched.words[:1]
    if words[1:2] == (_MODULE,):
        return words[:3]
    size = len(known)
    following = words[size : size + 1] if words[:size] == known and " ".join(known) in _RUN_THE_NEXT else ()
    return known if not following or following[0].startswith("-") else (*known, *following)
