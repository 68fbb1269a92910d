"""Compares the settings files of an assistant with what Remit wrote to them.

Invariant: a hook counts as Remit's only if its file is byte for byte what Remit wrote, or if the hook is what Remit
would write today, at the place where the assistant reads it. A hook that merely contains the protection id does not.
Members that Remit sets besides hooks must have their value now, no matter who set it.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remit.assistants.claude_code.environment import ENVIRONMENT, NO_PROXY, lists_hub
from remit.assistants.doctor.settings import Hook, contains, hooks_in, parse_settings, read_settings
from remit.assistants.install.acceptance import SettingsReader, find_invalid, format_path
from remit.assistants.install.jsonedit import nest
from remit.assistants.install.jsontext import is_same
from remit.assistants.install.plan import FileChange, JsonEdit, Member, OwnFile, TomlBlock
from remit.assistants.records import Protection, WrittenFile


class RegistrationState(NamedTuple):
    """The state of the settings files of a protection."""

    # The hooks that Remit wrote.
    hooks: tuple[Hook, ...]
    # Sentences about what is not as it was written, without a full stop at the end.
    faults: tuple[str, ...]
    # The names of files that others have changed, but that still have all settings of Remit.
    changed: tuple[str, ...] = ()


def check_registration(protection: Protection, changes: Sequence[FileChange]) -> RegistrationState:
    """Return the state of the files of a protection; `changes` is what Remit would write today."""
    hooks, faults, changed = list[Hook](), list[str](), list[str]()
    if not protection.files:
        faults.append("it has written no file")
    for written in protection.files:
        planned = [change for change in changes if change.path == written.path]
        found = _in_file(written, protection, planned)
        hooks += found.hooks
        faults += found.faults
        changed += found.changed
    return RegistrationState(tuple(hooks), tuple(faults), tuple(changed))


def _in_file(written: WrittenFile, protection: Protection, planned: Sequence[FileChange]) -> RegistrationState:
    name = Path(written.path).name
    data = read_settings(written.path)
    if data is None:
        return RegistrationState((), (f"{name} is gone, or cannot be read",))
    settings = parse_settings(written.path, data)
    present = tuple(
        hook for hook in hooks_in(protection.assistant, settings, written.path) if hook.names(protection.id)
    )
    wrong = (*_wrong_members(settings, name, planned), *_invalid_values(written, protection, settings))
    if hashlib.sha256(data).hexdigest() == written.after:
        return RegistrationState(present, wrong)
    expected = [hook for change in planned for hook in _planned_hooks(change, protection.assistant)]
    ours = tuple(hook for hook in present if hook in expected)
    missing = dict.fromkeys(hook.event for hook in expected if hook not in present)
    faults = [*wrong]
    if missing:
        faults.append(f"{name} was changed: the hook for {', '.join(missing)} is missing, or another one")
    elif not _has_all(written, data.decode("utf-8", "replace"), settings, protection.id, planned):
        faults.append(f"{name} was changed: what was written there is not there any more")
    return RegistrationState(ours, tuple(faults), () if faults else (name,))


def _invalid_values(written: WrittenFile, protection: Protection, settings: Any) -> Iterator[str]:  # noqa: ANN401 - any value
    """Yield a sentence for each value that makes the assistant ignore the whole file."""
    if written.kind == "json" and isinstance(settings, dict):
        refused = find_invalid(SettingsReader(protection.assistant, protection.version), settings)
        name = Path(written.path).name
        yield from (f"{name} is dropped as a whole: {format_path(where)} is not accepted" for where in refused)


def _wrong_members(settings: Any, name: str, planned: Sequence[FileChange]) -> Iterator[str]:  # noqa: ANN401
    """Yield a sentence for each member that does not have its required value."""
    members = (member for change in planned if isinstance(change, JsonEdit) for member in change.members)
    for member in members:
        if not _has(settings, member):
            yield f"{'.'.join(member.where)} in {name} is not {json.dumps(member.value)}"


def _has(value: Any, member: Member) -> bool:  # noqa: ANN401
    for name in member.where:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return is_same(value, member.value)


def _has_all(written: WrittenFile, text: str, settings: Any, mark: str, planned: Sequence[FileChange]) -> bool:  # noqa: ANN401
    """Return whether a file that others have changed still has everything that Remit wrote, at the same places."""
    if written.kind == "whole":
        return any(isinstance(change, OwnFile) and change.text == text for change in planned)
    return mark in text and all(contains(settings, wanted) for change in planned for wanted in _added_values(change))


def _added_values(change: FileChange) -> Iterator[Any]:
    """Yield the values that a change adds to a file, each nested from the root."""
    if isinstance(change, JsonEdit):
        yield from (nest(entry.where, [entry.value]) for entry in change.entries)
    elif isinstance(change, TomlBlock):
        yield parse_settings(change.path, change.text.encode())


def _planned_hooks(change: FileChange, assistant: str) -> Iterator[Hook]:
    values = (
        [parse_settings(change.path, change.text.encode())] if isinstance(change, OwnFile) else _added_values(change)
    )
    for value in values:
        yield from hooks_in(assistant, value, change.path)


def sets_no_proxy(protection: Protection) -> bool:
    """Return whether a file of a protection sets NO_PROXY so that requests to the Hub use no proxy."""
    read = ((written.path, read_settings(written.path)) for written in protection.files)
    parsed = [parse_settings(path, data) for path, data in read if data is not None]
    variables = [one.get(ENVIRONMENT) for one in parsed if isinstance(one, dict)]
    return any(all(lists_hub(one.get(name)) for name in NO_PROXY) for one in variables if isinstance(one, dict))
