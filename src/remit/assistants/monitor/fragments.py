"""The settings that Remit wrote to a file of an assistant: find them, check for them, and merge them back in.

Invariants:

- A file is in force only if it has all settings that Remit wrote and the assistant accepts the file: one value that it
  does not accept makes it ignore the whole file (`acceptance.py`).
- What Remit wrote is determined by the digest in the record of the protection, never by the content of the file.
- Settings of others are kept, except for values that the assistant does not accept. If the file cannot be parsed, or
  cannot take Remit's settings, it is replaced by its last good content.

Works on bytes. `restorer.py` decides which files to check, and when.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from remit.assistants.claude_code.layers import NO_SHELL_IN_SKILLS
from remit.assistants.install.acceptance import (
    SettingsReader,
    find_invalid,
    format_path,
    remove_invalid,
    trusts_by_position,
)
from remit.assistants.install.jsonedit import add_entries, remove_at, remove_entries, set_member
from remit.assistants.install.jsontext import BOM
from remit.assistants.install.plan import Entry, Member
from remit.assistants.install.tomltext import add_block
from remit.assistants.records import PROTECTION_ID, FileKind, WrittenFile
from remit.claims.strictjson import JSON, parse_json
from remit.errors import FieldInvalid, InputError

# Members that turn hooks off in the settings of some assistant, each with the value that does so.
_SWITCHES: Final = (Member(("disableAllHooks",), value=True), Member(("hooksConfig", "enabled"), value=False))
# Members that hooks depend on. They are kept as they were, even if Remit did not set them.
_DEPENDENCIES: Final = ((NO_SHELL_IN_SKILLS,),)
_BLOCK: Final = r"^# >>> remit {0} ([a-z][a-z0-9-]*):[^\n]*\n((?:[^\n]*\n)*?)# <<< remit {0} \1$"
_MAX_IDS: Final = 100
_MAX_NOT_ACCEPTED: Final = 10
_EVERYTHING: Final = "all that Remit has written"
_ABSENT: Final = object()


class SettingsFragment(NamedTuple):
    """The settings that Remit wrote to one file."""

    kind: FileKind
    # The id of the protection, which marks entries and blocks as written by Remit.
    mark: str
    # The whole file as it was when it was last in force.
    data: bytes
    entries: tuple[Entry, ...] = ()
    members: tuple[Member, ...] = ()
    # The former values of the members that can turn hooks off; None for a member that was missing.
    switches: tuple[Member, ...] = ()
    # Names and lines of TOML blocks.
    blocks: tuple[tuple[str, str], ...] = ()
    # The assistant, which has to accept the file.
    reader: SettingsReader | None = None


def find_fragment(
    written: WrittenFile, mark: str, data: bytes | None, reader: SettingsReader | None = None
) -> SettingsFragment | None:
    """Return the settings that Remit wrote to a file. None if the digest in the record does not confirm them."""
    with suppress(InputError):
        original = recover_written(written, mark, data)
        return None if original is None else _EXTRACT[written.kind](written, mark, original)._replace(reader=reader)
    return None


def recover_written(written: WrittenFile, mark: str, data: bytes | None) -> bytes | None:
    """Return the bytes that Remit wrote to a file, given its content now. None if they cannot be recovered.

    If others have changed the file since, the marked settings in it are added to the content that it had before Remit
    wrote to it, and the result must have the recorded digest.
    """
    if data is not None:
        with suppress(InputError):
            for candidate in _candidates(written, mark, data):
                if hashlib.sha256(candidate).hexdigest() == written.after:
                    return candidate
    return None


def is_parseable(kind: FileKind, data: bytes | None) -> bool:
    """Return whether a file exists, is not blank, and can be parsed."""
    try:
        return not _is_blank(data) and (kind == "whole" or isinstance(_PARSE[kind](data or b""), dict))
    except InputError:
        return False


def find_missing(fragment: SettingsFragment, data: bytes | None) -> tuple[str, ...]:
    """Return the names of members and blocks that a file lacks to be in force. Empty if it is in force."""
    if fragment.kind == "whole" or data is None:
        return () if data == fragment.data else (_EVERYTHING,)
    try:
        value = _PARSE[fragment.kind](data)
    except InputError:
        return (_EVERYTHING,)
    missing = _missing_blocks(fragment, value, data) if fragment.kind == "toml" else _missing_members(fragment, value)
    return tuple(dict.fromkeys((*missing, *islice(_describe_refused(fragment, value), _MAX_NOT_ACCEPTED))))


def merge(fragment: SettingsFragment, data: bytes | None) -> bytes | None:
    """Return a file with Remit's settings added. None if the file is blank or cannot take them."""
    if data is not None and not _is_blank(data) and fragment.kind != "whole":
        with suppress(InputError):
            merged = _with_blocks(fragment, data) if fragment.kind == "toml" else _with_members(fragment, data)
            if not find_missing(fragment, merged):
                return merged
    return None


def keeps_other_settings(fragment: SettingsFragment, data: bytes) -> bool:
    """Return whether merging keeps all settings of others: the assistant accepts each of them."""
    return fragment.kind != "json" or not any(_describe_refused(fragment, _parse_json(data)))


def _is_blank(data: bytes | None) -> bool:
    return not (data or b"").strip(b" \t\r\n\0")


def _json_fragment(written: WrittenFile, mark: str, data: bytes) -> SettingsFragment:
    value = _parse_json(data)
    members = (*(member.where for member in written.members), *_DEPENDENCIES)
    known = ((where, _get(value, where)) for where in dict.fromkeys(members))
    return SettingsFragment(
        "json",
        mark,
        data,
        entries=tuple(_entries(value, mark)),
        members=tuple(Member(where, found) for where, found in known if found is not _ABSENT),
        switches=tuple(Member(off.where, _none_if_absent(_get(value, off.where))) for off in _SWITCHES),
    )


def _toml_fragment(_: WrittenFile, mark: str, data: bytes) -> SettingsFragment:
    return SettingsFragment("toml", mark, data, blocks=tuple(_blocks(mark, data)))


def _whole_fragment(_: WrittenFile, mark: str, data: bytes) -> SettingsFragment:
    return SettingsFragment("whole", mark, data)


_EXTRACT: Final[Mapping[FileKind, Callable[[WrittenFile, str, bytes], SettingsFragment]]] = {
    "json": _json_fragment,
    "toml": _toml_fragment,
    "whole": _whole_fragment,
}


def _candidates(written: WrittenFile, mark: str, data: bytes) -> Iterator[bytes]:
    yield data
    yield _rebuild(written, mark, data)


def _rebuild(written: WrittenFile, mark: str, data: bytes) -> bytes:
    """Return the content from before Remit wrote to the file, with the marked settings in it now added."""
    before = written.before
    if written.kind == "json":
        for member in written.members:
            before, _ = set_member(before, Member(member.where, member.value))
        before = add_entries(before, _entries(_parse_json(data), mark))
    elif written.kind == "toml":
        _parse_toml(data)
        for name, text in _blocks(mark, data):
            before = add_block(before, mark, name, text)
    return before or b""


def _entries(value: JSON, mark: str, where: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Yield the array items that contain the mark. Arrays inside of them are not searched."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _entries(item, mark, (*where, name))
    elif isinstance(value, list):
        yield from (Entry(where, item) for item in value if mark in json.dumps(item))


def _blocks(mark: str, data: bytes) -> Iterator[tuple[str, str]]:
    for found in re.finditer(_BLOCK.format(re.escape(mark)), _lines(data), re.MULTILINE):
        yield found[1], found[2]


def _lines(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _missing_members(fragment: SettingsFragment, value: JSON) -> Iterator[str]:
    for entry in fragment.entries:
        items = _get(value, entry.where)
        if not (isinstance(items, list) and any(_equal(entry.value, item) for item in items)):
            yield ".".join(entry.where)
        elif _needs_position(fragment) and _index(entry, value) != _index(entry, _parse_json(fragment.data)):
            yield f"the place of {'.'.join(entry.where)}"
    for member in fragment.members:
        if not _equal(_get(value, member.where), member.value):
            yield ".".join(member.where)
    yield from (".".join(former.where) for former in _find_turned_off(fragment, value))


def _describe_refused(fragment: SettingsFragment, value: JSON) -> Iterator[str]:
    """Describe each value that makes the assistant ignore the file."""
    if fragment.reader is not None and fragment.kind == "json":
        yield from (f"an accepted value of {format_path(where)}" for where in find_invalid(fragment.reader, value))


def _find_turned_off(fragment: SettingsFragment, value: JSON) -> Iterator[Member]:
    """Yield the former values of the members that turn hooks off now and did not before."""
    for off, was in zip(_SWITCHES, fragment.switches, strict=True):
        if _equal(_get(value, off.where), off.value) and not _equal(was.value, off.value):
            yield was


def _missing_blocks(fragment: SettingsFragment, value: JSON, data: bytes) -> Iterator[str]:
    """Yield the blocks that are missing as text, or as values: the text may be inside of a string."""
    present = dict(_blocks(fragment.mark, data))
    for name, text in fragment.blocks:
        if present.get(name) != text or not _contains(value, _parse_toml(text.encode("utf-8"))):
            yield name


def _with_members(fragment: SettingsFragment, data: bytes) -> bytes:
    accepted = remove_invalid(fragment.reader, data, _parse_json) if fragment.reader else data
    if accepted is None:
        raise FieldInvalid("has no value that the assistant accepts")
    merged = remove_entries(accepted, fragment.mark)
    for member in fragment.members:
        merged, _ = set_member(merged, member)
    for was in _find_turned_off(fragment, _parse_json(merged)):
        merged = remove_at(merged, was.where) if was.value is None else set_member(merged, was)[0]
    if _needs_position(fragment):
        return _with_entries_in_place(fragment, merged)
    return add_entries(merged, fragment.entries)


def _with_entries_in_place(fragment: SettingsFragment, data: bytes) -> bytes:
    """Return a file with Remit's entries at their former positions, and the entries of others after them."""
    former = _parse_json(fragment.data)
    for entry in fragment.entries:
        items = _get(_parse_json(data), entry.where)
        index = _index(entry, former)
        following = items[index:] if isinstance(items, list) else []
        for position in reversed(range(index, index + len(following))):
            data = remove_at(data, (*entry.where, position))
        data = add_entries(data, (entry, *(Entry(entry.where, item) for item in following)))
    return data


def _needs_position(fragment: SettingsFragment) -> bool:
    return fragment.reader is not None and trusts_by_position(fragment.reader)


def _index(entry: Entry, value: JSON) -> int:
    """Return the index of an entry in its array, which must contain it."""
    return next(index for index, item in enumerate(_get(value, entry.where)) if _equal(entry.value, item))


def _with_blocks(fragment: SettingsFragment, data: bytes) -> bytes:
    for name, text in fragment.blocks:
        data = add_block(data, fragment.mark, name, text)
    return data


def _parse_json(data: bytes) -> JSON:
    plain = data.removeprefix(BOM.encode("utf-8"))
    value = parse_json(plain) if plain.strip(b" \t\r\n") else {}
    _check_id_count(json.dumps(value))
    return value


def _parse_toml(data: bytes) -> JSON:
    try:
        text = data.decode("utf-8")
        _check_id_count(text)
        return tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise FieldInvalid("is not TOML") from None


def _check_id_count(text: str) -> None:
    """Reject a file with very many protection ids: it was crafted to make removing them slow."""
    if sum(1 for _ in islice(PROTECTION_ID.finditer(text), _MAX_IDS + 1)) > _MAX_IDS:
        raise FieldInvalid("names too many protections")


_PARSE: Final[Mapping[FileKind, Callable[[bytes], JSON]]] = {"json": _parse_json, "toml": _parse_toml}


def _get(value: Any, where: Sequence[str]) -> Any:  # noqa: ANN401 - any value
    for name in where:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _none_if_absent(value: Any) -> JSON:  # noqa: ANN401
    return None if value is _ABSENT else value


def _contains(value: Any, ours: Any) -> bool:  # noqa: ANN401
    """Return whether `value` contains all of `ours`. Tables and arrays may have further items."""
    if isinstance(ours, dict):
        return isinstance(value, dict) and all(name in value and _contains(value[name], ours[name]) for name in ours)
    if isinstance(ours, list):
        return isinstance(value, list) and all(any(_equal(item, one) for one in value) for item in ours)
    return _equal(value, ours)


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether two values are equal as JSON, in which 1 is not true. Dates of TOML are compared by their repr."""
    if _ABSENT in (one, other):
        return False
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)
