"""What is ours in a file of an assistant: found again, missed, and put back beside what others have written there.

Keeps these invariants: a file is in force only if all of ours is in it and the assistant accepts the file, because one
value that it does not accept makes it drop the whole file (`acceptance.py`). What counts as ours is what the record of
the protection vouches for, by the digest of the file as it was written, and never whatever stands there now. What
others have changed stays, but for what the assistant does not accept, unless the file can no longer be read, or can no
longer take what is ours. Works on bytes. Which files, and when, is for `keeping.py`.
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
from remit.assistants.install.acceptance import Reader, named, refused_in, trusts_by_place, without_refused
from remit.assistants.install.jsonedit import add_entries, remove_at, remove_entries, set_member
from remit.assistants.install.jsontext import BOM
from remit.assistants.install.plan import Entry, Member
from remit.assistants.install.tomltext import add_block
from remit.assistants.records import ANY_ID, FileKind, Written
from remit.claims.strictjson import JSON, parse_json
from remit.errors import FieldInvalid, InputError

__all__ = ["Part", "as_written", "is_legible", "keeps_all", "merge", "missing_in", "part_of", "put_in"]

# What turns hooks off where it stands, in settings of any assistant, and the value that does.
_SWITCHES: Final = (Member(("disableAllHooks",), value=True), Member(("hooksConfig", "enabled"), value=False))
# What hooks count on beside them: it stays as it was, whoever has set it.
_STEADY: Final = ((NO_SHELL_IN_SKILLS,),)
_BLOCK: Final = r"^# >>> remit {0} ([a-z][a-z0-9-]*):[^\n]*\n((?:[^\n]*\n)*?)# <<< remit {0} \1$"
_MAX_NAMED: Final = 100
_MAX_NOT_ACCEPTED: Final = 10
_ALL: Final = "all that Remit has written"
_ABSENT: Final = object()


class Part(NamedTuple):
    """What is ours in one file; `data` is the whole file as it last was with all of it in place."""

    kind: FileKind
    mark: str
    data: bytes
    entries: tuple[Entry, ...] = ()
    members: tuple[Member, ...] = ()
    # Those that turn hooks off, as they stood: a value of None is for one that was not there.
    switches: tuple[Member, ...] = ()
    # The name and the lines of each.
    blocks: tuple[tuple[str, str], ...] = ()
    # Who has to accept the file.
    reader: Reader | None = None


def part_of(written: Written, mark: str, data: bytes | None, reader: Reader | None = None) -> Part | None:
    """Return what is ours in a file that `reader` reads, or None where nothing shows what that was.

    If others have changed the file, what names us in it must give the bytes that were written once it is added to what
    was there before.
    """
    with suppress(InputError):
        was = as_written(written, mark, data)
        return None if was is None else _FOUND[written.kind](written, mark, was)._replace(reader=reader)
    return None


def as_written(written: Written, mark: str, data: bytes | None) -> bytes | None:
    """Return the bytes that were written to a file, from what it holds now; None where they cannot be told."""
    if data is not None:
        with suppress(InputError):
            for was in _candidates(written, mark, data):
                if hashlib.sha256(was).hexdigest() == written.after:
                    return was
    return None


def is_legible(kind: FileKind, data: bytes | None) -> bool:
    """Tell whether a file is there and can be read as what it is; an empty one is as good as gone."""
    try:
        return not _is_blank(data) and (kind == "whole" or isinstance(_READ[kind](data or b""), dict))
    except InputError:
        return False


def missing_in(part: Part, data: bytes | None) -> tuple[str, ...]:
    """Return what a file lacks to be in force, in names of members and blocks; nothing where it is in force."""
    if part.kind == "whole" or data is None:
        return () if data == part.data else (_ALL,)
    try:
        value = _READ[part.kind](data)
    except InputError:
        return (_ALL,)
    lacking = _blocks_missing(part, value, data) if part.kind == "toml" else _members_missing(part, value)
    return tuple(dict.fromkeys((*lacking, *islice(_not_accepted(part, value), _MAX_NOT_ACCEPTED))))


def put_in(part: Part, data: bytes | None) -> bytes:
    """Return the file with all of ours in it: beside what others have written, or as it last was if that cannot be."""
    merged = merge(part, data)
    return part.data if merged is None else merged


def merge(part: Part, data: bytes | None) -> bytes | None:
    """Return a file of others with all of ours in it; None if it cannot take that, or says nothing."""
    if data is not None and not _is_blank(data) and part.kind != "whole":
        with suppress(InputError):
            merged = _with_blocks(part, data) if part.kind == "toml" else _with_members(part, data)
            if not missing_in(part, merged):
                return merged
    return None


def keeps_all(part: Part, data: bytes) -> bool:
    """Tell whether merging leaves everything of others in a file that can be merged: nothing in it is refused."""
    return part.kind != "json" or not any(_not_accepted(part, _read_json(data)))


def _is_blank(data: bytes | None) -> bool:
    return not (data or b"").strip(b" \t\r\n\0")


def _json_part(written: Written, mark: str, data: bytes) -> Part:
    value = _read_json(data)
    steady = (*(member.where for member in written.members), *_STEADY)
    known = ((where, _at(value, where)) for where in dict.fromkeys(steady))
    return Part(
        "json",
        mark,
        data,
        entries=tuple(_entries(value, mark)),
        members=tuple(Member(where, found) for where, found in known if found is not _ABSENT),
        switches=tuple(Member(off.where, _or_none(_at(value, off.where))) for off in _SWITCHES),
    )


def _toml_part(_: Written, mark: str, data: bytes) -> Part:
    return Part("toml", mark, data, blocks=tuple(_blocks(mark, data)))


def _whole_part(_: Written, mark: str, data: bytes) -> Part:
    return Part("whole", mark, data)


_FOUND: Final[Mapping[FileKind, Callable[[Written, str, bytes], Part]]] = {
    "json": _json_part,
    "toml": _toml_part,
    "whole": _whole_part,
}


def _candidates(written: Written, mark: str, data: bytes) -> Iterator[bytes]:
    yield data
    yield _rebuilt(written, mark, data)


def _rebuilt(written: Written, mark: str, data: bytes) -> bytes:
    """Return what was there before with what names us now."""
    before = written.before
    if written.kind == "json":
        for member in written.members:
            before, _ = set_member(before, Member(member.where, member.value))
        before = add_entries(before, _entries(_read_json(data), mark))
    elif written.kind == "toml":
        _read_toml(data)
        for name, text in _blocks(mark, data):
            before = add_block(before, mark, name, text)
    return before or b""


def _entries(value: JSON, mark: str, where: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Yield what names a protection in arrays, the outermost of each."""
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


def _members_missing(part: Part, value: JSON) -> Iterator[str]:
    for entry in part.entries:
        items = _at(value, entry.where)
        if not (isinstance(items, list) and any(_same(entry.value, item) for item in items)):
            yield ".".join(entry.where)
        elif _is_by_place(part) and _index(entry, value) != _index(entry, _read_json(part.data)):
            yield f"the place of {'.'.join(entry.where)}"
    for member in part.members:
        if not _same(_at(value, member.where), member.value):
            yield ".".join(member.where)
    yield from (".".join(was.where) for was in _turned_off(part, value))


def _not_accepted(part: Part, value: JSON) -> Iterator[str]:
    """Yield a phrase for each thing for which the assistant would drop the file."""
    if part.reader is not None and part.kind == "json":
        yield from (f"an accepted value of {named(where)}" for where in refused_in(part.reader, value))


def _turned_off(part: Part, value: JSON) -> Iterator[Member]:
    """Yield the switches that are off and were not, as they were."""
    for off, was in zip(_SWITCHES, part.switches, strict=True):
        if _same(_at(value, off.where), off.value) and not _same(was.value, off.value):
            yield was


def _blocks_missing(part: Part, value: JSON, data: bytes) -> Iterator[str]:
    """Yield blocks that are not there as text, or do not mean there what they mean: they may stand in a string."""
    standing = dict(_blocks(part.mark, data))
    for name, text in part.blocks:
        if standing.get(name) != text or not _holds(value, _read_toml(text.encode("utf-8"))):
            yield name


def _with_members(part: Part, data: bytes) -> bytes:
    accepted = without_refused(part.reader, data, _read_json) if part.reader else data
    if accepted is None:
        raise FieldInvalid("holds nothing that is accepted")
    merged = remove_entries(accepted, part.mark)
    for member in part.members:
        merged, _ = set_member(merged, member)
    for was in _turned_off(part, _read_json(merged)):
        merged = remove_at(merged, was.where) if was.value is None else set_member(merged, was)[0]
    if _is_by_place(part):
        return _with_entries_in_place(part, merged)
    return add_entries(merged, part.entries)


def _with_entries_in_place(part: Part, data: bytes) -> bytes:
    """Return a file with our entries where they were: what others have put there follows them."""
    was = _read_json(part.data)
    for entry in part.entries:
        items = _at(_read_json(data), entry.where)
        index = _index(entry, was)
        following = items[index:] if isinstance(items, list) else []
        for place in reversed(range(index, index + len(following))):
            data = remove_at(data, (*entry.where, place))
        data = add_entries(data, (entry, *(Entry(entry.where, item) for item in following)))
    return data


def _is_by_place(part: Part) -> bool:
    return part.reader is not None and trusts_by_place(part.reader)


def _index(entry: Entry, value: JSON) -> int:
    """Return where in its array an entry stands that is there."""
    return next(index for index, item in enumerate(_at(value, entry.where)) if _same(entry.value, item))


def _with_blocks(part: Part, data: bytes) -> bytes:
    for name, text in part.blocks:
        data = add_block(data, part.mark, name, text)
    return data


def _read_json(data: bytes) -> JSON:
    plain = data.removeprefix(BOM.encode("utf-8"))
    value = parse_json(plain) if plain.strip(b" \t\r\n") else {}
    _check_few(json.dumps(value))
    return value


def _read_toml(data: bytes) -> JSON:
    try:
        text = data.decode("utf-8")
        _check_few(text)
        return tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise FieldInvalid("is not TOML") from None


def _check_few(text: str) -> None:
    """Raise if it names protections so often that taking them out one by one would take long: that is made to."""
    if sum(1 for _ in islice(ANY_ID.finditer(text), _MAX_NAMED + 1)) > _MAX_NAMED:
        raise FieldInvalid("names more protections than anyone has")


_READ: Final[Mapping[FileKind, Callable[[bytes], JSON]]] = {"json": _read_json, "toml": _read_toml}


def _at(value: Any, where: Sequence[str]) -> Any:  # noqa: ANN401 - whatever a file holds
    for name in where:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _or_none(value: Any) -> JSON:  # noqa: ANN401
    return None if value is _ABSENT else value


def _holds(value: Any, ours: Any) -> bool:  # noqa: ANN401
    """Tell whether tables hold all of ours: in a table others may stand beside it, what is in an array is as it was."""
    if isinstance(ours, dict):
        return isinstance(value, dict) and all(name in value and _holds(value[name], ours[name]) for name in ours)
    if isinstance(ours, list):
        return isinstance(value, list) and all(any(_same(item, one) for one in value) for item in ours)
    return _same(value, ours)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Tell whether two values are the same, in which 1 is not true; TOML has dates as well."""
    if _ABSENT in (one, other):
        return False
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)
