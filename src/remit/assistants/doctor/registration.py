"""What stands in the files of an assistant by now, held against what was written there.

Keeps this invariant: a hook counts as ours, to be asked or run, only if its file is byte for byte what we wrote, or the
hook itself is what we would write today, where the assistant looks for it. A hook that only names a protection is
anybody's. What has to be set beside hooks must be set now, whoever has set it.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remit.assistants.claude_code.environment import ENVIRONMENT, NO_PROXY, lists_hub
from remit.assistants.doctor.settings import Hook, contains, hooks_in, parse_settings, read_settings
from remit.assistants.install.acceptance import Reader, find_invalid, shown_where
from remit.assistants.install.jsontext import is_same
from remit.assistants.install.plan import FileChange, JsonEdit, Member, OwnFile, TomlBlock
from remit.assistants.records import Protection, WrittenFile

__all__ = ["Registered", "excepts_hub", "registered"]


class Registered(NamedTuple):
    """The hooks that are ours, and what is not as it was written: a sentence each, without a closing stop."""

    hooks: tuple[Hook, ...]
    faults: tuple[str, ...]
    # The names of files that others have changed since, though all of ours stands in them.
    changed: tuple[str, ...] = ()


def registered(protection: Protection, changes: Sequence[FileChange]) -> Registered:
    """Return what stands in the files of a protection; `changes` are what would be written there today."""
    hooks, faults, changed = list[Hook](), list[str](), list[str]()
    if not protection.files:
        faults.append("it has written no file")
    for written in protection.files:
        planned = [change for change in changes if change.path == written.path]
        found = _in_file(written, protection, planned)
        hooks += found.hooks
        faults += found.faults
        changed += found.changed
    return Registered(tuple(hooks), tuple(faults), tuple(changed))


def _in_file(written: WrittenFile, protection: Protection, planned: Sequence[FileChange]) -> Registered:
    name = Path(written.path).name
    data = read_settings(written.path)
    if data is None:
        return Registered((), (f"{name} is gone, or cannot be read",))
    says = parse_settings(written.path, data)
    there = tuple(hook for hook in hooks_in(protection.assistant, says, written.path) if hook.names(protection.id))
    unset = (*_unset(says, name, planned), *_dropped(written, protection, says))
    if hashlib.sha256(data).hexdigest() == written.after:
        return Registered(there, unset)
    expected = [hook for change in planned for hook in _planned(change, protection.assistant)]
    ours = tuple(hook for hook in there if hook in expected)
    missing = dict.fromkeys(hook.event for hook in expected if hook not in there)
    faults = [*unset]
    if missing:
        faults.append(f"{name} was changed: the hook for {', '.join(missing)} is missing, or another one")
    elif not _holds(written, data.decode("utf-8", "replace"), says, protection.id, planned):
        faults.append(f"{name} was changed: what was written there is not there any more")
    return Registered(ours, tuple(faults), () if faults else (name,))


def _dropped(written: WrittenFile, protection: Protection, says: Any) -> Iterator[str]:  # noqa: ANN401 - whatever a file holds
    """Yield a sentence for each value for which the assistant drops the whole file."""
    if written.kind == "json" and isinstance(says, dict):
        refused = find_invalid(Reader(protection.assistant, protection.version), says)
        name = Path(written.path).name
        yield from (f"{name} is dropped as a whole: {shown_where(where)} is not accepted" for where in refused)


def _unset(says: Any, name: str, planned: Sequence[FileChange]) -> Iterator[str]:  # noqa: ANN401
    """Yield a sentence for each member that has not the value which it must have."""
    members = (member for change in planned if isinstance(change, JsonEdit) for member in change.members)
    for member in members:
        if not _has(says, member):
            yield f"{'.'.join(member.where)} in {name} is not {json.dumps(member.value)}"


def _has(value: Any, member: Member) -> bool:  # noqa: ANN401
    for name in member.where:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return is_same(value, member.value)


def _nested(where: Sequence[str], value: Any) -> Any:  # noqa: ANN401
    for name in reversed(where):
        value = {name: value}
    return value


def _holds(written: WrittenFile, text: str, says: Any, mark: str, planned: Sequence[FileChange]) -> bool:  # noqa: ANN401
    """Tell whether a file that others have changed still holds what was written, each thing at its place."""
    if written.kind == "whole":
        return any(isinstance(change, OwnFile) and change.text == text for change in planned)
    return mark in text and all(contains(says, wanted) for change in planned for wanted in _said_by(change))


def _said_by(change: FileChange) -> Iterator[Any]:
    """Yield what a change puts into a file, from its root on."""
    if isinstance(change, JsonEdit):
        yield from (_nested(entry.where, [entry.value]) for entry in change.entries)
    elif isinstance(change, TomlBlock):
        yield parse_settings(change.path, change.text.encode())


def _planned(change: FileChange, assistant: str) -> Iterator[Hook]:
    said = [parse_settings(change.path, change.text.encode())] if isinstance(change, OwnFile) else _said_by(change)
    for says in said:
        yield from hooks_in(assistant, says, change.path)


def excepts_hub(protection: Protection) -> bool:
    """Tell whether a file of a protection sees to it that no proxy is asked in the place of the Hub."""
    read = ((written.path, read_settings(written.path)) for written in protection.files)
    said = [parse_settings(path, data) for path, data in read if data is not None]
    variables = [one.get(ENVIRONMENT) for one in said if isinstance(one, dict)]
    return any(all(lists_hub(one.get(name)) for name in NO_PROXY) for one in variables if isinstance(one, dict))
