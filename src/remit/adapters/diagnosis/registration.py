"""What stands in the files of an assistant by now, held against what was written there.

Keeps this invariant: a hook counts as ours, to be asked or run, only if its file is byte for byte what we wrote, or the
hook itself is what we would write today. A hook that only names a protection is anybody's.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from remit.adapters.protection.plan import Added, Block, Change, Whole
from remit.adapters.protection.records import Protection, Written

__all__ = ["Hook", "Registered", "registered"]

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_DEPTH: Final = 32
_CALLING: Final = ("url", "command", "bash", "exec")
_HOOKS: Final = "hooks"


class Hook(NamedTuple):
    """One hook as it stands in a file: the event it is for, what it says, and what its group says of it."""

    event: str
    path: str
    says: Mapping[str, Any]
    group: Mapping[str, Any] = MappingProxyType({})


class Registered(NamedTuple):
    """The hooks that are ours, and what is not as it was written: a sentence each, without a closing stop."""

    hooks: tuple[Hook, ...]
    faults: tuple[str, ...]


def registered(protection: Protection, changes: Sequence[Change]) -> Registered:
    """Return what stands in the files of a protection; `changes` are what would be written there today."""
    hooks, faults = list[Hook](), list[str]()
    if not protection.files:
        faults.append("it has written no file")
    for written in protection.files:
        planned = [change for change in changes if change.path == written.path]
        found = _in_file(written, protection.id, planned)
        hooks += found.hooks
        faults += found.faults
    return Registered(tuple(hooks), tuple(faults))


def _in_file(written: Written, mark: str, planned: Sequence[Change]) -> Registered:
    name = Path(written.path).name
    data = _data(written.path)
    if data is None:
        return Registered((), (f"{name} is gone, or cannot be read",))
    there = tuple(_hooks_in(_parsed(written.path, data), written.path, mark))
    if hashlib.sha256(data).hexdigest() == written.after:
        return Registered(there, ())
    expected = [hook for change in planned for hook in _planned(change, mark)]
    missing = [hook.event for hook in expected if hook not in there]
    ours = tuple(hook for hook in there if hook in expected)
    if missing:
        said = f"the hook for {', '.join(dict.fromkeys(missing))} is missing, or another one"
        return Registered(ours, (f"{name} was changed: {said}",))
    if not _holds(written, data.decode("utf-8", "replace"), mark, planned):
        return Registered(ours, (f"{name} was changed: what was written there is not there any more",))
    return Registered(ours, ())


def _holds(written: Written, text: str, mark: str, planned: Sequence[Change]) -> bool:
    """Tell whether a file that others have changed still holds what was written, apart from hooks."""
    if written.kind == "whole":
        return any(isinstance(change, Whole) and change.text == text for change in planned)
    lines = text.replace("\r\n", "\n")
    blocks = (change.text.strip("\n") for change in planned if isinstance(change, Block))
    return mark in text and all(block in lines for block in blocks)


def _data(path: str) -> bytes | None:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return None


def _planned(change: Change, mark: str) -> Iterator[Hook]:
    if isinstance(change, Added):
        for entry in change.entries:
            nested: Any = [entry.value]
            for name in reversed(entry.where):
                nested = {name: nested}
            yield from _hooks_in(nested, change.path, mark)
    elif isinstance(change, Whole | Block):
        yield from _hooks_in(_parsed(change.path, change.text.encode()), change.path, mark)


def _parsed(path: str, data: bytes) -> Any:  # noqa: ANN401 - whatever a file holds
    """Return what a file says; nothing for one that is neither JSON nor TOML."""
    text = data.decode("utf-8-sig", "replace")
    try:
        return tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _hooks_in(value: Any, path: str, mark: str) -> Iterator[Hook]:  # noqa: ANN401 - whatever a file holds
    """Yield the hooks that name a protection, with the event that they stand under."""
    waiting: list[tuple[Any, Hook, int]] = [(value, Hook("", path, {}), 0)]
    while waiting:
        one, under, depth = waiting.pop(0)
        if isinstance(one, dict) and _names(one, mark):
            yield under._replace(says=one)
        elif depth < _MAX_DEPTH:
            waiting += [(item, below, depth + 1) for item, below in _within(one, under)]


def _names(members: Mapping[str, Any], mark: str) -> bool:
    texts = (members.get(name) for name in _CALLING)
    return any(mark in text for text in texts if isinstance(text, str))


def _within(value: Any, under: Hook) -> Iterator[tuple[Any, Hook]]:  # noqa: ANN401
    """Yield what lies in a value, with what is known of it by its place."""
    if isinstance(value, list):
        yield from ((item, under) for item in value)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name != _HOOKS:
                yield item, under._replace(event=name)
            elif isinstance(item, list):
                yield item, under._replace(group={other: said for other, said in value.items() if other != _HOOKS})
            else:
                yield item, under
