"""Matches tools, programs and effects against the entries of a passport.

`Bash` and `git_*` name tools. `Bash(npm test)` names a program: such entries allow a command line of the tool only if
every program it would start begins with the words of one of them. A forbidden program is found with options between its
words too, because they do not change which command runs. A program that is not known counts as not allowed, and as
forbidden.

An entry of the resource scope is a path (with everything below it), a glob, a URL prefix, a resource of the machine
such as `db://app_dev`, or `**` for everything. Entries are compared by their text: a symbolic link must not make an
entry wider than what was signed. A relative entry starts at the passport's working directory; without one it covers
nothing. A wildcard character in brackets is an ordinary character, so an entry with only such wildcards is a plain
path.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Final, NamedTuple

from remit.claims.mission import EVERYTHING, escape_path, is_pattern, literal_path, parse_program
from remit.errors import FieldInvalid, quote
from remit.policy.call import Effect, SpawnedProgram
from remit.policy.files import join, refuse_text, without_dots
from remit.policy.machine import ANY, split_machine
from remit.policy.spawned import SYSTEM_FOLDERS
from remit.policy.urls import is_public_host, parse_url

__all__ = [
    "ProgramEntry",
    "Scope",
    "allows_tool",
    "build_scope",
    "covers",
    "escape_entry",
    "find_forbidden",
    "find_not_allowed",
    "literal_entry",
    "match_tool",
    "program_entries",
    "program_entry",
    "program_label",
    "tool_entry",
]

_GLOB: Final = re.compile(r"[*?\[]")
_URL_ENTRY: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)(.*)\Z", re.DOTALL)
# The characters and the length that `claims/mission.py` allows.
_NAMEABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{1,256}")
# Programs and subcommands that run what the next word names.
_RUN_THE_NEXT: Final = frozenset((
    "bash", "sh", "dash", "zsh", "fish", "source", "node", "ruby", "perl", "php", "python", "python3", "make", "just",
    "npx", "bunx", "uvx", "npm run", "pnpm run", "yarn run", "bun run", "deno run", "go run", "uv run", "npm exec",
))  # fmt: skip
_MODULE: Final = "-m"


class ProgramEntry(NamedTuple):
    """A parsed entry that names a program."""

    tool: str
    words: tuple[str, ...]
    entry: str


def match_tool(entries: Sequence[str], tool: str) -> str | None:
    """Return the entry that names a tool, exactly or as a glob; case and blanks matter.

    An entry such as `Bash(npm test)` also matches a tool of exactly that name; `allows_tool` leaves such entries out.
    """
    if tool in entries:
        return tool
    return next((entry for entry in entries if is_pattern(entry) and fnmatchcase(tool, entry)), None)


@lru_cache(maxsize=1024)
def allows_tool(entries: tuple[str, ...], tool: str) -> str | None:
    """Return the entry that allows a tool by its name; entries for programs are left out.

    A delegate can get `Read(x)` from a parent that has `Read`; it must not allow a tool that is called `Read(x)`.
    """
    return match_tool([entry for entry in entries if parse_program(entry) is None], tool)


def program_entries(entries: tuple[str, ...], tool: str, base: str | None) -> tuple[ProgramEntry, ...]:
    """Return the entries that name programs of a tool; relative paths start at `base`."""
    return tuple(named for named in _parse_entries(entries, base) if match_tool((named.tool,), tool) is not None)


@lru_cache(maxsize=512)
def _parse_entries(entries: tuple[str, ...], base: str | None) -> tuple[ProgramEntry, ...]:
    found = ((entry, parse_program(entry)) for entry in entries)
    return tuple(
        ProgramEntry(named[0], _normalize_program(named[1], base), entry) for entry, named in found if named is not None
    )


def _normalize_program(words: tuple[str, ...], base: str | None) -> tuple[str, ...]:
    """Return the words with the program in the form that `SpawnedProgram` uses."""
    folder, slash, name = words[0].rpartition("/")
    if not slash:
        return words
    if f"{folder}/" in SYSTEM_FOLDERS:
        return (name, *words[1:])
    if base is None and not words[0].startswith("/"):
        # Without a base a relative path matches no program.
        return words
    return (without_dots(join(base or "/", words[0])), *words[1:])


def find_not_allowed(allowed: Sequence[ProgramEntry], commands: Iterable[SpawnedProgram]) -> Iterator[SpawnedProgram]:
    """Yield the programs that no entry allows. One that only starts other programs is judged by those."""
    for launched in commands:
        if not launched.carrier and not any(_allows(named.words, launched) for named in allowed):
            yield launched


def _allows(wanted: tuple[str, ...], launched: SpawnedProgram) -> bool:
    size = len(wanted)
    if wanted in (launched.words[:size], launched.plain[:size]):
        return True
    # An entry may include the program that starts this one, as in `uv run pytest`.
    before: tuple[str, ...] = ()
    for carrier in reversed(launched.carriers):
        before = carrier + before
        if size > len(before) and wanted == (before + launched.words)[:size]:
            return True
    return False


def find_forbidden(
    forbidden: Sequence[ProgramEntry], commands: Iterable[SpawnedProgram]
) -> Iterator[tuple[ProgramEntry, SpawnedProgram]]:
    """Yield each entry that forbids a program, with the program."""
    for launched in commands:
        for named in forbidden:
            if _may_begin(named.words, launched):
                yield named, launched


def _may_begin(wanted: tuple[str, ...], launched: SpawnedProgram) -> bool:
    """Return whether a program may match an entry, in any directory and with options between the words."""
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
    """Return the positions where the next word may be: an option may or may not take a value."""
    reached = set(places)
    for at in range(min(places, default=0), len(given)):
        if at in reached and given[at][:1] in ("-", "+"):
            reached |= {at + 1, min(at + 2, len(given))}
    return reached


def tool_entry(tool: str) -> str | None:
    """Return the entry that would allow a tool, or None if a passport cannot express it."""
    entry = _GLOB.sub(lambda mark: f"[{mark[0]}]", tool)
    if parse_program(entry) is not None:
        # The text would name a program. As a glob, the closing bracket is an ordinary character.
        entry = f"{entry[:-1]}[)]"
    return entry if _NAMEABLE.fullmatch(entry) else None


def program_entry(tool: str, launched: SpawnedProgram, base: str | None) -> str | None:
    """Return the entry that would allow a program of a tool, or None if a passport cannot express it."""
    words = _identifying_words(launched)
    if words and base is not None and words[0].startswith(f"{base}/"):
        words = (f".{words[0][len(base) :]}", *words[1:])
    entry = f"{tool_entry(tool)}({' '.join(words)})"
    named = parse_program(entry)
    return entry if words and named is not None and named[1] == words and _NAMEABLE.fullmatch(entry) else None


def program_label(launched: SpawnedProgram) -> str:
    """Return the words that identify a program to a person."""
    return " ".join(_identifying_words(launched))


def _identifying_words(launched: SpawnedProgram) -> tuple[str, ...]:
    """Return the words that say what runs: the program with its subcommand, module or script."""
    words, known = launched.words, launched.plain or launched.words[:1]
    if words[1:2] == (_MODULE,):
        return words[:3]
    size = len(known)
    following = words[size : size + 1] if words[:size] == known and " ".join(known) in _RUN_THE_NEXT else ()
    return known if not following or following[0].startswith("-") else (*known, *following)


class _PathEntry(NamedTuple):
    """A path entry: the plain path, and its components if it is a glob."""

    plain: str
    # The prefix of all paths below it.
    inside: str
    # `/a/**` covers everything below `/a`, and reading the directory itself.
    below_only: bool
    glob: tuple[str, ...] | None


class _UrlEntry(NamedTuple):
    """A URL entry. A host with a wildcard matches public hosts only."""

    scheme: str
    host: "str | re.Pattern[str] | None"
    port: int | None
    path: str
    below_only: bool
    glob: tuple[str, ...] | None


class _MachineEntry(NamedTuple):
    """An entry for state of the machine; without a name it covers everything of its kind."""

    kind: str
    name: str | None
    below_only: bool


class Scope(NamedTuple):
    """The parsed entries of a mission."""

    everything: bool
    paths: tuple[_PathEntry, ...]
    urls: tuple[_UrlEntry, ...]
    machine: tuple[_MachineEntry, ...]
    base: str | None


@lru_cache(maxsize=512)
def build_scope(entries: tuple[str, ...], cwd: str | None) -> Scope:
    """Parse the entries of a resource scope."""
    base = cwd if cwd is not None and cwd.startswith("/") and not refuse_text(cwd) else None
    paths: list[_PathEntry] = []
    urls: list[_UrlEntry] = []
    machine: list[_MachineEntry] = []
    for entry in entries:
        if entry == EVERYTHING:
            continue
        if split := split_machine(entry):
            machine.extend(_machine_entry(*split))
        elif head := _URL_ENTRY.match(entry):
            urls.extend(_url_entry(head))
        elif (path := _path_entry(entry, base)) is not None:
            paths.append(path)
    first = next((path.plain for path in paths if path.glob is None), None)
    return Scope(EVERYTHING in entries, tuple(paths), tuple(urls), tuple(machine), base or first)


def _path_entry(entry: str, base: str | None) -> _PathEntry | None:
    """Parse a path entry; return None if it covers nothing: relative without a base, or not a normal path."""
    if entry.startswith("//") or refuse_text(entry):
        return None
    if not entry.startswith("/"):
        if base is None:
            return None
        entry = f"{escape_path(base)}/{entry}"
    names = [name for name in entry.split("/") if name not in ("", ".")]
    if ".." in names:
        return None
    below_only = bool(names) and names[-1] == "**"
    if below_only:
        names = names[:-1]
    plain = "/" + "/".join(names)
    literal = literal_path(plain)
    if literal is None:
        return _PathEntry(plain, "", below_only, tuple(names))
    return _PathEntry(literal, literal.removesuffix("/") + "/", below_only, None)


def _machine_entry(kind: str, text: str) -> list[_MachineEntry]:
    """Parse an entry for state of the machine; return none if it covers nothing. A wildcard must stand alone."""
    if text in (ANY, "**"):
        return [_MachineEntry(kind, None, below_only=False)]
    below_only = text.endswith("/**")
    # The slash keeps `literal_path` from reading the name as a URL, in which nothing is escaped.
    name = (literal_path("/" + text.removesuffix("/**").removesuffix("/")) or "/")[1:]
    return [_MachineEntry(kind, name, below_only)] if name and name != ANY else []


def _matches(names: tuple[str, ...], path: str, *, below_only: bool) -> bool:
    """Return whether a glob matches a path: `*` stays within a component, `**` matches any number of them.

    A failed match backtracks to the last `**` only, so the work is at most entry components times path components.
    """
    wanted = (*names, "?*", "**") if below_only else names
    given = [name for name in path.split("/") if name]
    at, seen, star, mark = 0, 0, -1, 0
    while seen < len(given):
        if at < len(wanted) and wanted[at] == "**":
            star, mark = at, seen
            at += 1
        elif at < len(wanted) and _name_matcher(wanted[at]).match(given[seen]):
            at, seen = at + 1, seen + 1
        elif star >= 0:
            mark += 1
            at, seen = star + 1, mark
        else:
            return False
    return all(name == "**" for name in wanted[at:])


@lru_cache(maxsize=1024)
def _name_matcher(name: str) -> "re.Pattern[str]":
    return re.compile(translate(name))


def _url_entry(head: "re.Match[str]") -> list[_UrlEntry]:
    scheme, host, path = head[1], head[2], head[3]
    if scheme == "host":
        name, _, port = host.partition(":") if not host.startswith("[") else (host, "", "")
        named = path in ("", "/") and not set("*?") & set(name) and (port.isdigit() or not port)
        return (
            [_UrlEntry("host", name.lower(), int(port) if port else None, "/", below_only=False, glob=None)]
            if named
            else []
        )
    below_only = path.endswith("/**")
    path = path.removesuffix("**") if below_only else path
    if host == "**" and path in ("", "/"):
        return [_UrlEntry(scheme, None, None, "/", below_only=False, glob=None)]
    wild = host.startswith("*.")
    probe = parse_url(f"{scheme}://{'x.' + host[2:] if wild else host}{_GLOB.split(path, maxsplit=1)[0] or '/'}")
    if probe.refusal or set("*?") & set(probe.host):
        return []
    matcher: str | re.Pattern[str] = re.compile(r"[^.].*\." + re.escape(probe.host[2:]) + r"\Z") if wild else probe.host
    if _GLOB.search(path):
        names = tuple(path.strip("/").split("/"))
        return [_UrlEntry(scheme, matcher, probe.port, path, below_only, names)]
    return [_UrlEntry(scheme, matcher, probe.port, probe.path, below_only, None)]


def covers(scope: Scope, effect: Effect) -> bool:
    """Return whether the scope covers an effect."""
    if scope.everything:
        return True
    if effect.verb in ("contact", "send"):
        return any(_covers_url(entry, effect.resource) for entry in scope.urls)
    if effect.steers and effect.beneath:
        # The scope must name the steering file below the folder, and cover the folder.
        named = _covers_path(scope.paths, effect._replace(resource=effect.steers))
        return named and covers(scope, effect._replace(steers=""))
    if effect.verb in ("read", "write", "delete"):
        return _covers_path(scope.paths, effect)
    if effect.verb == "manage":
        kind, name = split_machine(effect.resource) or ("", "")
        return any(_covers_machine(entry, kind, name) for entry in scope.machine)
    return effect.verb in ("run", "setenv")


def _covers_path(entries: tuple[_PathEntry, ...], effect: Effect) -> bool:
    """Return whether one of the entries covers an effect on a file."""
    path = effect.resource
    for entry in entries:
        if entry.glob is not None:
            # A glob cannot bound a recursive effect, nor the other hard links of a file.
            is_one = not effect.beneath and not effect.shared and not effect.steers
            covered = is_one and _matches(entry.glob, path, below_only=entry.below_only)
        elif effect.shared:
            # Another hard link may be outside of the scope, so the entry must name this file.
            covered = path == entry.plain and not entry.below_only
        elif effect.steers and not f"{entry.plain}/".startswith(f"{effect.steers}/"):
            # An entry for a parent folder does not cover a file that makes programs run code.
            covered = False
        elif path == entry.plain:
            covered = not entry.below_only or effect.verb == "read" or effect.beneath
        else:
            covered = path.startswith(entry.inside)
        if covered:
            return True
    return False


def _covers_machine(entry: _MachineEntry, kind: str, name: str) -> bool:
    """Return whether an entry covers a resource of the machine or one below it: `package://pip` covers `pip/six`."""
    if entry.kind != kind or entry.name is None:
        return entry.kind == kind
    return (name == entry.name and not entry.below_only) or (name != ANY and name.startswith(f"{entry.name}/"))


def _covers_url(entry: _UrlEntry, text: str) -> bool:
    if text.startswith("host://"):
        return _covers_host(entry, text.removeprefix("host://"))
    url = parse_url(text)
    if url.refusal or url.scheme != entry.scheme or not _covers_name(entry, url.host):
        return False
    if entry.port is not None and url.port != entry.port:
        return False
    if entry.glob is not None and _matches(entry.glob, url.path, below_only=entry.below_only):
        return True
    if entry.below_only:
        return url.path.startswith(entry.path)
    root = entry.path.removesuffix("/") + "/"
    return url.path == entry.path or url.path.startswith(root) or root == "/"


def _covers_host(entry: _UrlEntry, address: str) -> bool:
    """Return whether an entry `host://name:port` covers a connection; entries for URLs never do."""
    host, _, port = address.rpartition(":")
    return entry.scheme == "host" and entry.host == host and (entry.port is None or str(entry.port) == port)


def _covers_name(entry: _UrlEntry, host: str) -> bool:
    if isinstance(entry.host, str):
        return host == entry.host
    return is_public_host(host) and (entry.host is None or entry.host.match(host) is not None)


def escape_entry(resource: str) -> str:
    """Return the entry that covers exactly this resource: URLs as they are, other names with wildcards escaped."""
    if split := split_machine(resource):
        return resource if split[1] == ANY else f"{split[0]}://{escape_path(split[1])}"
    return resource if _URL_ENTRY.match(resource) else escape_path(resource)


def literal_entry(path: str, place: str) -> str:
    """Return the scope entry for a path and everything below it, with wildcard characters escaped.

    Every place that turns a path into a scope entry uses this. It raises `FieldInvalid` if the path is not absolute and
    normalized, is not UTF-8, or could be read as another path by other programs.
    """
    if not path.startswith("/") or path != posixpath.normpath(path):
        raise FieldInvalid("must be an absolute path without dots", place=place)
    entry = escape_path(path)
    refusal = refuse_text(path) or refuse_text(entry)
    if refusal:
        raise FieldInvalid(f"{quote(path)} cannot be part of a resource scope: {refusal}", place=place)
    return entry
