"""A second judge for the passport's own rules: slow, obvious, and written from the rules, not from the other one.

It knows calls that name one path or one URL, on a file system without links.
"""

import fnmatch
import posixpath
from urllib.parse import urlsplit

from remit.claims.mission import Mission

__all__ = ["verdict"]


def verdict(
    mission: Mission, tool: str, resource: str | None, *, verb: str, side_effect: str, budget: tuple[int, int]
) -> str:
    """Return the code of the first refusal, or nothing."""
    if budget[0] <= 0:
        return "tool_calls_exhausted"
    if budget[1] <= 0:
        return "duration_exceeded"
    if any(named(entry, tool) for entry in mission.forbidden_tools):
        return "tool_forbidden"
    if not any(named(entry, tool) for entry in mission.allowed_tools):
        return "tool_not_allowed"
    if resource is not None and not in_scope(mission, resource, verb):
        return "out_of_scope"
    return "" if side_effect in mission.allowed_side_effect_classes else "side_effect_not_allowed"


def named(entry: str, tool: str) -> bool:
    """Names match exactly, or as a shell glob where the entry is one."""
    return entry == tool or (any(mark in entry for mark in "*?[") and fnmatch.fnmatchcase(tool, entry))


def in_scope(mission: Mission, resource: str, verb: str) -> bool:
    if "**" in mission.resource_scope:
        return True
    if "://" in resource:
        return any(url_in(entry, resource) for entry in mission.resource_scope if "://" in entry)
    start = mission.cwd or first_directory(mission)
    if start is None and not resource.startswith("/"):
        # Nobody can say where it starts.
        return False
    path = posixpath.normpath(posixpath.join(start or "/", resource))
    return any(path_in(entry, path, verb, mission.cwd) for entry in mission.resource_scope if "://" not in entry)


def first_directory(mission: Mission) -> str | None:
    directories = [entry.removesuffix("/**") or "/" for entry in mission.resource_scope if entry.startswith("/")]
    return next((entry for entry in directories if not set("*?[") & set(entry)), None)


def path_in(entry: str, path: str, verb: str, cwd: str | None) -> bool:
    if not entry.startswith("/"):
        if cwd is None:
            return False
        entry = posixpath.join(cwd, entry)
    below = entry.endswith("/**")
    names = [name for name in entry.removesuffix("/**").split("/") if name]
    parts = [name for name in path.split("/") if name]
    if not set("*?[") & set("".join(names)):
        beneath = parts[: len(names)] == names and len(parts) > len(names)
        return beneath or (parts == names and (not below or verb == "read"))
    return any(glob_is(names, parts[:length]) for length in range(len(parts)) if below) or (
        not below and glob_is(names, parts)
    )


def glob_is(names: list[str], parts: list[str]) -> bool:
    """Tell whether a glob means a path, trying every number of names for `**`."""
    if not names:
        return not parts
    if names[0] == "**":
        return any(glob_is(names[1:], parts[skip:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], names[0]) and glob_is(names[1:], parts[1:])


def url_in(entry: str, url: str) -> bool:
    wanted, given = urlsplit(entry.removesuffix("**")), urlsplit(url)
    if wanted.scheme != given.scheme or port(wanted.scheme, wanted.port) != port(given.scheme, given.port):
        return False
    host, asked = given.hostname or "", wanted.hostname or ""
    if asked.startswith("*."):
        if not (host.endswith(asked[1:]) and host != asked[2:]):
            return False
    elif host != asked:
        return False
    root = wanted.path.rstrip("/")
    path = posixpath.normpath(given.path or "/")
    if entry.endswith("/**"):
        folder = given.path.endswith(("/", "/.", "/.."))
        return (path + "/" if folder else path).startswith(root + "/")
    return path == (root or "/") or path.startswith(root + "/")


def port(scheme: str, given: int | None) -> int:
    return given or {"http": 80, "https": 443}[scheme]
