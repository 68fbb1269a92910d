"""Reads hooks from settings files as the assistants do.

Invariant: a hook counts only at `hooks.EVENT[].hooks[]`, or at `hooks.EVENT[]` for assistants that read it there. Files
are untrusted; one that cannot be read or parsed has no hooks.
"""

import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

_MAX_BYTES: Final = 4 * 1024 * 1024
_HOOKS: Final = "hooks"
_TARGET_MEMBERS: Final = ("url", "command", "bash", "exec")
# Assistants whose hooks need not be in a group.
_WITHOUT_GROUPS: Final = ("copilot",)


class Hook(NamedTuple):
    """One hook in a settings file."""

    event: str
    path: str
    # The members of the hook, and the other members of its group.
    says: Mapping[str, Any]
    group: Mapping[str, Any] = MappingProxyType({})

    def names(self, mark: str) -> bool:
        """Return whether its URL or command contains a protection id."""
        texts = (self.says.get(name) for name in _TARGET_MEMBERS)
        return any(mark in text for text in texts if isinstance(text, str))


def read_settings(path: str) -> bytes | None:
    """Return the content of a regular file; None if there is none or it cannot be read. Does not block on a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(_MAX_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else None
        except OSError:
            return None


def parse_settings(path: str, data: bytes) -> Any:  # noqa: ANN401 - any value
    """Parse a file as TOML or JSON, by its suffix. Return None if it is not valid."""
    text = data.decode("utf-8-sig", "replace")
    try:
        return tomllib.loads(text) if path.endswith(".toml") else json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    """Reject NaN and the like, for which assistants ignore the file."""
    raise ValueError(name)


def hooks_in(assistant: str, settings: Any, path: str) -> Iterator[Hook]:  # noqa: ANN401
    """Yield the hooks at the places where an assistant reads them."""
    events = settings.get(_HOOKS) if isinstance(settings, dict) else None
    for event, groups in events.items() if isinstance(events, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            yield from _in_group(assistant, group, Hook(event, path, {}))


def _in_group(assistant: str, group: Any, template: Hook) -> Iterator[Hook]:  # noqa: ANN401
    if not isinstance(group, dict):
        return
    hooks = group.get(_HOOKS)
    if isinstance(hooks, list):
        other = {name: value for name, value in group.items() if name != _HOOKS}
        yield from (template._replace(says=hook, group=other) for hook in hooks if isinstance(hook, dict))
    elif assistant in _WITHOUT_GROUPS:
        yield template._replace(says=group)


def contains(value: Any, wanted: Any) -> bool:  # noqa: ANN401
    """Return whether `value` contains all of `wanted`. Objects and arrays may have further items."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(name in value and contains(value[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return isinstance(value, list) and all(any(_is_same(one, item) for one in value) for item in wanted)
    return _is_same(value, wanted)


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether two values are equal and of the same types: 1 is not true. Values may be those of TOML."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)
