"""Carrying out a plan, and taking it back.

Keeps these invariants: nothing is written until every change was found possible, and the home knows how each file was
before it is touched; after an error all is as it was. Undoing gives a file back byte for byte if nobody has changed it
since, and takes out nothing but what is ours if somebody has.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec import structs

from remit.adapters.protection.files import Found, look, named_by, replace, unlink
from remit.adapters.protection.jsonedit import add_entries, remove_entries
from remit.adapters.protection.jsontext import read_document
from remit.adapters.protection.plan import Added, Block, Change, Plan, Whole
from remit.adapters.protection.records import FileKind, Protection, Protections, Written
from remit.adapters.protection.tomltext import add_block, remove_blocks
from remit.errors import FieldInvalid, RemitError

__all__ = ["Undone", "install", "uninstall"]

_KINDS: Final[Mapping[type, FileKind]] = {Added: "json", Block: "toml", Whole: "whole"}


class Undone(NamedTuple):
    """What undoing has come to for one file."""

    path: str
    what: str


class _Draft(NamedTuple):
    """A file that is to be written: as it was found, without anything of ours, and as it will be."""

    found: Found
    kind: FileKind
    base: bytes | None
    made: tuple[str, ...]
    new: bytes | None
    mode: int


def install(protections: Protections, protection: Protection, plan: Plan, wire: Mapping[str, Any]) -> Protection:
    """Return the protection as it is kept once its plan is carried out; the caller holds the lock."""
    former = protections.get(protection.id)
    done = list[_Draft]()
    try:
        drafts = _drafts(protection.id, plan.changes, _by_path(former), anew=True)
        kept = _carry_out(protections, protection, wire, drafts, done)
        if plan.settle is not None:
            drafts |= _drafts(protection.id, plan.settle(), _by_path(kept), anew=False)
            kept = _carry_out(protections, protection, wire, drafts, done)
    except BaseException:
        _take_back(done)
        if former is None:
            protections.remove(protection.id)
        else:
            protections.put(former)
        raise
    return kept


def uninstall(protections: Protections, protection: Protection) -> list[Undone]:
    """Undo what a protection has written, forget it, and tell what that came to; the caller holds the lock."""
    found = [(written, look(written.path)) for written in reversed(protection.files)]
    # All of it is known to be possible before any of it is done.
    steps = [(written, one, _undone(written, one, protection.id)) for written, one in found]
    for written, one, (data, _) in steps:
        if data is None and one.data is not None:
            unlink(one, written.made)
        elif data is not None and data != one.data:
            replace(one, data)
    protections.remove(protection.id)
    return [Undone(written.path, what) for written, _, (_, what) in steps]


def _by_path(protection: Protection | None) -> dict[str, Written]:
    return {} if protection is None else {written.path: written for written in protection.files}


def _drafts(mark: str, changes: Iterable[Change], former: Mapping[str, Written], *, anew: bool) -> dict[str, _Draft]:
    """Return what changes come to, by path; several of one file add up. `anew` leaves out what is ours by now."""
    drafts = dict[str, _Draft]()
    for change in changes:
        with named_by(change.path):
            draft = drafts.get(change.path) or _begun(change, mark, former.get(change.path), anew=anew)
            drafts[change.path] = draft._replace(new=_applied(change, mark, draft))
    return drafts


def _begun(change: Change, mark: str, former: Written | None, *, anew: bool) -> _Draft:
    found, kind = look(change.path), _KINDS[type(change)]
    base = _base(found, kind, mark, former)
    made = (*(former.made if former else ()), *found.missing)
    return _Draft(found, kind, base, tuple(dict.fromkeys(made)), base if anew else found.data, change.mode)


def _base(found: Found, kind: FileKind, mark: str, former: Written | None) -> bytes | None:
    """Return a file without anything of ours: as it was before, if nobody but us has changed it."""
    if found.data is None:
        return None
    if former is not None and _digest(found.data) == former.after:
        return former.before
    return _cleaned(kind, found.data, mark, None if former is None else former.before)


def _applied(change: Change, mark: str, draft: _Draft) -> bytes:
    if isinstance(change, Added):
        return add_entries(draft.new, change.entries)
    if isinstance(change, Block):
        return add_block(draft.new, mark, change.name, change.text)
    if draft.base is not None:
        raise FieldInvalid("is there already, and is not of Remit: move it away")
    return change.text.encode("utf-8")


def _carry_out(
    protections: Protections,
    protection: Protection,
    wire: Mapping[str, Any],
    drafts: Mapping[str, _Draft],
    done: list[_Draft],
) -> Protection:
    """Write what is not written yet, once the home knows of it."""
    kept = structs.replace(protection, files=tuple(_record(path, draft) for path, draft in drafts.items()))
    protections.put(kept, dict(wire))
    for draft in drafts.values():
        if draft not in done and draft.found.data != draft.new:
            replace(draft.found, draft.new or b"", mode=draft.mode)
            done.append(draft)
    return kept


def _record(path: str, draft: _Draft) -> Written:
    return Written(
        path=path,
        kind=draft.kind,
        before=draft.base,
        after=_digest(draft.new or b""),
        made=draft.made,
        mode=draft.found.mode,
    )


def _take_back(done: Iterable[_Draft]) -> None:
    """Put back what was found, the last first; what cannot be put back stays, and the error that led here is told."""
    for draft in reversed(list(done)):
        with suppress(RemitError):
            found = look(draft.found.path)
            if draft.found.data is None:
                unlink(found, draft.found.missing)
            else:
                replace(found, draft.found.data)


def _undone(written: Written, found: Found, mark: str) -> tuple[bytes | None, str]:
    """Return what a file is to be again, None for no file, and that in words."""
    original = written.before
    if found.data is None:
        return None, "was gone already"
    if _digest(found.data) == written.after:
        return original, "removed: Remit had made it" if original is None else "restored as it was, byte for byte"
    if found.data == original:
        return original, "was as before already"
    with named_by(written.path):
        clean = _cleaned(written.kind, found.data, mark, original)
        if clean == found.data:
            return clean, "changed since, and nothing of Remit is in it any more: left as it is"
        if original is None and (clean is None or _says_nothing(written.kind, clean)):
            return None, "removed: nothing but what Remit had put there was in it"
    return clean, "changed since: only what Remit had put there was taken out"


def _cleaned(kind: FileKind, data: bytes, mark: str, original: bytes | None) -> bytes | None:
    """Return a file without what is ours; one that is ours as a whole is none."""
    if kind == "json":
        return remove_entries(data, mark, original)
    if kind == "toml":
        return remove_blocks(data, mark)
    return None if mark.encode("ascii") in data else data


def _says_nothing(kind: FileKind, data: bytes) -> bool:
    if kind == "toml":
        return not data.strip()
    root = read_document(data).root
    return root is None or not (root.children or root.kind in ("text", "other"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
