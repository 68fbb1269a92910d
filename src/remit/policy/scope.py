"""Is every effect inside the passport's resource scope.

An entry is a path (with everything beneath), a glob, a URL prefix, a resource of the machine such as `db://app_dev`, or
`**` for everything. Entries are compared by
their text: a link must never make an entry wider than what was signed. A relative entry starts at the passport's
working directory; without one it covers nothing. A wildcard character in brackets is a name like any other, so an entry
whose wildcards are all in brackets is a plain path.
"""

import posixpath
import re
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

from remit.claims.mission import EVERYTHING, escape_path, literal_path
from remit.errors import FieldInvalid, quote
from remit.policy.call import Effect
from remit.policy.files import refuse_text
from remit.policy.machine import ANY, split_machine
from remit.policy.urls import is_public_host, parse_url

__all__ = ["Scope", "build_scope", "covers", "escape_entry", "literal_entry"]

_GLOB: Final = re.compile(r"[*?\[]")
_URL_ENTRY: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)(.*)\Z", re.DOTALL)


class _Path(NamedTuple):
    """A path entry: the directory or file by its plain text, and the names of the glob where it is one."""

    plain: str
    # `/a/**` covers what lies below `/a`, and reading the directory itself.
    below_only: bool
    glob: tuple[str, ...] | None


class _UrlEntry(NamedTuple):
    """A URL entry. A host with a wildcard only matches public hosts."""

    scheme: str
    host: "str | re.Pattern[str] | None"
    port: int | None
    path: str
    below_only: bool
    glob: tuple[str, ...] | None


class _MachineEntry(NamedTuple):
    """An entry for state of the machine; without a name it covers all of its kind."""

    kind: str
    name: str | None
    below_only: bool


class Scope(NamedTuple):
    """The entries of a mission, read once."""

    everything: bool
    paths: tuple[_Path, ...]
    urls: tuple[_UrlEntry, ...]
    machine: tuple[_MachineEntry, ...]
    base: str | None


@lru_cache(maxsize=512)
def build_scope(entries: tuple[str, ...], cwd: str | None) -> Scope:
    """Return the entries in a form that can be compared."""
    base = cwd if cwd is not None and cwd.startswith("/") and not refuse_text(cwd) else None
    paths: list[_Path] = []
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


def _path_entry(entry: str, base: str | None) -> _Path | None:
    """Return a path entry, or None for one that covers nothing: relative to nowhere, or not plainly a path."""
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
    return _Path(plain, below_only, tuple(names)) if literal is None else _Path(literal, below_only, None)


def _machine_entry(kind: str, text: str) -> list[_MachineEntry]:
    """Return the entry, or none for one that covers nothing: a wildcard stands alone, for all of the kind."""
    if text in (ANY, "**"):
        return [_MachineEntry(kind, None, below_only=False)]
    below_only = text.endswith("/**")
    # Behind a slash the name of a process is not taken for a URL, in which nothing is escaped.
    name = (literal_path("/" + text.removesuffix("/**").removesuffix("/")) or "/")[1:]
    return [_MachineEntry(kind, name, below_only)] if name and name != ANY else []


def _matches(names: tuple[str, ...], path: str, *, below_only: bool) -> bool:
    """Tell whether a glob means a path: `*` stays within a name, `**` stands for any number of names.

    The last `**` met is where a failed match goes on from, so the work is at most names times components.
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
    """Tell whether an effect is inside the scope."""
    if scope.everything:
        return True
    if effect.verb in ("contact", "send"):
        return any(_covers_url(entry, effect.resource) for entry in scope.urls)
    if effect.steers and effect.beneath:
        # What steers programs lies beneath: the scope has to name that, and to cover the folder.
        named = any(_covers_path(entry, effect._replace(resource=effect.steers)) for entry in scope.paths)
        return named and covers(scope, effect._replace(steers=""))
    if effect.verb in ("read", "write", "delete"):
        return any(_covers_path(entry, effect) for entry in scope.paths)
    if effect.verb == "manage":
        kind, name = split_machine(effect.resource) or ("", "")
        return any(_covers_machine(entry, kind, name) for entry in scope.machine)
    return effect.verb in ("run", "setenv")


def _covers_path(entry: _Path, effect: Effect) -> bool:
    path = effect.resource
    if entry.glob is not None:
        # A recursive effect reaches what no pattern of names can bound, and a shared file has names elsewhere.
        is_one = not effect.beneath and not effect.shared and not effect.steers
        return is_one and _matches(entry.glob, path, below_only=entry.below_only)
    if effect.shared:
        # Another name of the file may lie outside: only an entry that names this very file means it.
        return path == entry.plain and not entry.below_only
    if effect.steers and not f"{entry.plain}/".startswith(f"{effect.steers}/"):
        # An entry for a folder above does not mean a file that makes programs run code.
        return False
    if path == entry.plain:
        return not entry.below_only or effect.verb == "read" or effect.beneath
    root = entry.plain if entry.plain != "/" else ""
    return path.startswith(root + "/")


def _covers_machine(entry: _MachineEntry, kind: str, name: str) -> bool:
    """Tell whether an entry means a resource: the one it names and what is beneath, `package://pip/six` for `pip`."""
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
    """Tell whether an entry `host://name:port` names a bare connection; one for URLs never does."""
    host, _, port = address.rpartition(":")
    return entry.scheme == "host" and entry.host == host and (entry.port is None or str(entry.port) == port)


def _covers_name(entry: _UrlEntry, host: str) -> bool:
    if isinstance(entry.host, str):
        return host == entry.host
    return is_public_host(host) and (entry.host is None or entry.host.match(host) is not None)


def escape_entry(resource: str) -> str:
    """Return the scope entry that means exactly this resource: a URL as it is, other names with wildcards escaped."""
    if split := split_machine(resource):
        return resource if split[1] == ANY else f"{split[0]}://{escape_path(split[1])}"
    return resource if _URL_ENTRY.match(resource) else escape_path(resource)


def literal_entry(path: str, place: str) -> str:
    """Return the scope entry that means a path and everything beneath it, whatever characters its names have.

    Every place where a path becomes an entry of a scope uses this. `FieldInvalid` says why a path cannot be an entry:
    it is not absolute and normalized, it is not UTF-8, or another program could read its text as another place.
    """
    if not path.startswith("/") or path != posixpath.normpath(path):
        raise FieldInvalid("must be an absolute path without dots", place=place)
    entry = escape_path(path)
    refusal = refuse_text(path) or refuse_text(entry)
    if refusal:
        raise FieldInvalid(f"{quote(path)} cannot be part of a resource scope: {refusal}", place=place)
    return entry
