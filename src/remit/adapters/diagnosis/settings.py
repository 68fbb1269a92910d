"""The settings files of assistants, read as each assistant reads them: what counts stands at one place, and no other.

Keeps this invariant: a hook is one only at `hooks.EVENT[].hooks[]`, or at `hooks.EVENT[]` where the assistant wants it
so; the same text anywhere else is none. Files are untrusted: of one that cannot be read nothing is said.
"""

import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

from remit.errors import quote

__all__ = ["Hook", "contains", "hooks_in", "misshapen", "parse_settings", "read_settings"]

_MAX_BYTES: Final = 4 * 1024 * 1024
_HOOKS: Final = "hooks"
_CALLING: Final = ("url", "command", "bash", "exec")
# Those whose hooks need no group around them.
_WITHOUT_GROUPS: Final = ("copilot",)
# The kinds of hooks that are known to assistants which drop a whole file for one that they do not know.
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("command", "http", "mcp_tool", "prompt", "agent"),
    "codex": ("command", "mcp_tool", "prompt", "agent"),
}
# The text without which a hook of a kind is none.
_NEEDED: Final[Mapping[str, str]] = {"command": "command", "http": "url", "prompt": "prompt", "agent": "prompt"}
# What may stand at the root of a file, where nothing else may.
_ROOTS: Final[Mapping[str, tuple[str, ...]]] = {"codex": ("description", _HOOKS)}
# Members of the settings of Claude Code that are often set, and what they must be.
_MEMBERS: Final[Mapping[str, type]] = {"env": dict, "model": str, "permissions": dict, "statusLine": dict}
_NAMES: Final[Mapping[type, str]] = {dict: "object", str: "text"}
_TEXTS: Final = ("allow", "deny", "ask", "additionalDirectories")
_TEXT: Final = ("defaultMode", "disableBypassPermissionsMode")


class Hook(NamedTuple):
    """One hook as it stands in a file: the event it is for, what it says, and what its group says of it."""

    event: str
    path: str
    says: Mapping[str, Any]
    group: Mapping[str, Any] = MappingProxyType({})

    def names(self, mark: str) -> bool:
        """Tell whether what it calls names a protection."""
        texts = (self.says.get(name) for name in _CALLING)
        return any(mark in text for text in texts if isinstance(text, str))


def read_settings(path: str) -> bytes | None:
    """Return what a file holds; nothing where it is none, or cannot be read. Nobody waits for a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(_MAX_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else None
        except OSError:
            return None


def parse_settings(path: str, data: bytes) -> Any:  # noqa: ANN401 - whatever a file holds
    """Return what a file says; nothing for one that is neither JSON nor TOML."""
    text = data.decode("utf-8-sig", "replace")
    try:
        return tomllib.loads(text) if path.endswith(".toml") else json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    """Refuse NaN and the like, which make the file one that assistants drop."""
    raise ValueError(name)


def hooks_in(assistant: str, says: Any, path: str) -> Iterator[Hook]:  # noqa: ANN401
    """Yield the hooks that stand where an assistant looks for them."""
    events = says.get(_HOOKS) if isinstance(says, dict) else None
    for event, groups in events.items() if isinstance(events, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            yield from _in_group(assistant, group, Hook(event, path, {}))


def _in_group(assistant: str, group: Any, under: Hook) -> Iterator[Hook]:  # noqa: ANN401
    if not isinstance(group, dict):
        return
    hooks = group.get(_HOOKS)
    if isinstance(hooks, list):
        about = {name: said for name, said in group.items() if name != _HOOKS}
        yield from (under._replace(says=hook, group=about) for hook in hooks if isinstance(hook, dict))
    elif assistant in _WITHOUT_GROUPS:
        yield under._replace(says=group)


def contains(says: Any, wanted: Any) -> bool:  # noqa: ANN401
    """Tell whether all of `wanted` stands at its place: members in their objects, items in their arrays."""
    if isinstance(wanted, dict):
        return isinstance(says, dict) and all(name in says and contains(says[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return isinstance(says, list) and all(any(_is_same(one, item) for one in says) for item in wanted)
    return _is_same(says, wanted)


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Tell whether two values are the same, in which 1 is not true; TOML has values that JSON has not."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def misshapen(assistant: str, says: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield what makes an assistant drop a whole file of settings, as far as hooks and a few other members go.

    Versions differ: what one of them drops the file for counts for all.
    """
    if assistant not in _KINDS or not isinstance(says, dict):
        return
    for name in says if assistant in _ROOTS else ():
        if name not in _ROOTS[assistant]:
            yield f"{quote(name)} is nothing that it knows there"
    yield from _misshapen_hooks(says.get(_HOOKS, {}), _KINDS[assistant])
    if assistant == "claude-code":
        yield from _misshapen_members(says)


def _misshapen_hooks(events: Any, kinds: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401
    if not isinstance(events, dict):
        yield "hooks is no object"
        return
    for event, groups in events.items():
        if not isinstance(groups, list):
            yield f"hooks.{quote(event)} is no array"
        elif not all(_is_group(group, kinds) for group in groups):
            yield f"hooks.{quote(event)} holds a group that is none, or a hook that is none"


def _is_group(group: Any, kinds: tuple[str, ...]) -> bool:  # noqa: ANN401
    if not isinstance(group, dict) or not isinstance(group.get("matcher", ""), str):
        return False
    hooks = group.get(_HOOKS)
    return isinstance(hooks, list) and all(_is_hook(hook, kinds) for hook in hooks)


def _is_hook(hook: Any, kinds: tuple[str, ...]) -> bool:  # noqa: ANN401
    kind = hook.get("type") if isinstance(hook, dict) else None
    if kind not in kinds or not isinstance(hook.get(_NEEDED.get(kind, "type")), str):
        return False
    return type(hook.get("timeout", 0)) in (int, float)


def _misshapen_members(says: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in _MEMBERS.items():
        if name in says and not isinstance(says[name], kind):
            yield f"{name} is no {_NAMES[kind]}"
    permissions = says.get("permissions")
    if isinstance(permissions, dict):
        yield from _misshapen_permissions(permissions)


def _misshapen_permissions(permissions: Mapping[str, Any]) -> Iterator[str]:
    for name in _TEXTS:
        listed = permissions.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            yield f"permissions.{name} is no array of texts"
    yield from (f"permissions.{name} is no text" for name in _TEXT if not isinstance(permissions.get(name, ""), str))
