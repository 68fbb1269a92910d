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

__all__ = ["Hook", "contains", "hooks_in", "parse_settings", "read_settings"]

_MAX_BYTES: Final = 4 * 1024 * 1024
_HOOKS: Final = "hooks"
_CALLING: Final = ("url", "command", "bash", "exec")
# Those whose hooks need no group around them.
_WITHOUT_GROUPS: Final = ("copilot",)


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
