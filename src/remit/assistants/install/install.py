"""Carrying out a plan, and taking it back.

Keeps these invariants: nothing is written until every change was found possible, and the home knows how each file was
before it is touched; after an error all is as it was. Undoing gives a file back byte for byte if nobody has changed it
since, and takes back nothing but what is ours if somebody has. The first release has closed files to others while a
token was in them; they get their mode back when they are written without one.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec import structs

from remit.assistants.install.files import Found, look, named_by, replace, unlink
from remit.assistants.install.jsonedit import add_entries, put_back, remove_entries, set_member, still_set
from remit.assistants.install.jsontext import read_document
from remit.assistants.install.plan import Added, Block, Change, Member, Plan, Whole
from remit.assistants.install.stale import without_stale
from remit.assistants.install.tomltext import add_block, remove_blocks
from remit.assistants.records import FileKind, Protection, Protections, SetMember, Written
from remit.errors import FieldInvalid, RemitError, StateCorrupt

__all__ = ["Undone", "install", "intact", "uninstall"]

_OWNER_ONLY: Final = 0o700
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
    # Those that have a value of ours in it.
    members: tuple[SetMember, ...] = ()
    mode_before: int | None = None

    @property
    def target(self) -> Found:
        """What is to be replaced, with the mode that it is to have."""
        return self.found._replace(mode=self.mode_before)


def install(
    protections: Protections, protection: Protection, plan: Plan, wire: Mapping[str, Any], *, adopted: bool = False
) -> Protection:
    """Return the protection as it is kept once its plan is carried out; the caller holds the lock.

    `adopted` says that hooks of this id were there before, written by others who share the file.
    """
    held, former = protections.holds(protection.id), intact(protections, protection.id)
    done = list[_Draft]()
    scribe = _Scribe(protections, protection.id, adopted=adopted)
    try:
        drafts = scribe.drafts(plan.changes, _by_path(former), anew=True)
        kept = _carry_out(protections, protection, wire, drafts, done)
        if plan.settle is not None:
            drafts |= scribe.drafts(plan.settle(), _by_path(kept), anew=False)
            kept = _carry_out(protections, protection, wire, drafts, done)
    except BaseException:
        _take_back(done)
        if former is not None:
            protections.put(former)
        elif not held:
            protections.remove(protection.id)
        raise
    return kept


def intact(protections: Protections, name: str) -> Protection | None:
    """Return a protection, or None for one that is not there or damaged: it can be made anew from what is there."""
    try:
        return protections.get(name)
    except StateCorrupt:
        return None


def uninstall(protections: Protections, protection: Protection) -> list[Undone]:
    """Undo what a protection has written, forget it, and tell what that came to; the caller holds the lock."""
    found = [(written, look(written.path)) for written in reversed(protection.files)]
    # All of it is known to be possible before any of it is done.
    steps = [(written, one, _undone_wholly(protections, written, one, protection.id)) for written, one in found]
    for written, one, (data, _) in steps:
        if data is None and one.data is not None:
            unlink(one, written.made)
        elif data is not None and (data != one.data or written.closed):
            replace(_opened_again(one, written), data)
    protections.remove(protection.id)
    return [Undone(written.path, what) for written, _, (_, what) in steps]


def _by_path(protection: Protection | None) -> dict[str, Written]:
    return {} if protection is None else {written.path: written for written in protection.files}


def _opened_again(found: Found, written: Written) -> Found:
    """Return a file with the mode that it had before it was closed, if it is as it was closed."""
    before = written.mode
    is_ours = written.closed and before is not None and found.mode == before & _OWNER_ONLY
    return found._replace(mode=before) if is_ours else found


class _Scribe(NamedTuple):
    """Draws up what files will be, for one protection."""

    protections: Protections
    mark: str
    adopted: bool

    def drafts(self, changes: Iterable[Change], former: Mapping[str, Written], *, anew: bool) -> dict[str, _Draft]:
        """Return what changes come to, by path; several of one file add up. `anew` leaves out what is ours by now."""
        drafts = dict[str, _Draft]()
        for change in changes:
            with named_by(change.path):
                draft = drafts.get(change.path) or self._begun(change, former.get(change.path), anew=anew)
                drafts[change.path] = _applied(change, self.mark, draft)
        return drafts

    def _begun(self, change: Change, former: Written | None, *, anew: bool) -> _Draft:
        found, kind = look(change.path), _KINDS[type(change)]
        clean = self._stripped(kind, _base(found, kind, self.mark, former))
        begin = self._cleaned_of_shared(kind, clean, former) if anew else found.data
        shared = self.adopted and former is None and found.data is not None
        return _Draft(
            found,
            kind,
            base=found.data if shared else clean,
            made=tuple(dict.fromkeys((*(former.made if former else ()), *found.missing))),
            new=begin,
            mode=change.mode,
            members=still_set(begin, former.members if former else ()),
            mode_before=found.mode if former is None else _opened_again(found, former).mode,
        )

    def _stripped(self, kind: FileKind, data: bytes | None) -> bytes | None:
        return None if data is None else without_stale(self.protections, kind, data, self.mark)

    def _cleaned_of_shared(self, kind: FileKind, data: bytes | None, former: Written | None) -> bytes | None:
        """Return what was there before without hooks of ours that others had brought."""
        has_ours = kind == "json" and self.mark.encode("ascii") in (data or b"")
        return _cleaned(kind, data or b"", self.mark, former) if has_ours else data


def _base(found: Found, kind: FileKind, mark: str, former: Written | None) -> bytes | None:
    """Return a file without anything of ours: as it was before, if nobody but us has changed it."""
    if found.data is None:
        return None
    if former is not None and _digest(found.data) == former.after:
        return former.before
    return _cleaned(kind, found.data, mark, former)


def _applied(change: Change, mark: str, draft: _Draft) -> _Draft:
    if isinstance(change, Added):
        # Entries come last: they are found again without a record too, and stand where they stood then.
        draft = _with_members(draft, change.members)
        return draft._replace(new=add_entries(draft.new, change.entries))
    if isinstance(change, Block):
        return draft._replace(new=add_block(draft.new, mark, change.name, change.text))
    if draft.base is not None:
        raise FieldInvalid("is there already, and is not of Remit: move it away")
    return draft._replace(new=change.text.encode("utf-8"))


def _with_members(draft: _Draft, members: Iterable[Member]) -> _Draft:
    for member in members:
        new, changed = set_member(draft.new, member)
        draft = draft._replace(new=new, members=(*draft.members, *([changed] if changed else [])))
    return draft


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
        if draft not in done and (draft.found.data, draft.found) != (draft.new, draft.target):
            replace(draft.target, draft.new or b"", mode=draft.mode)
            done.append(draft)
    return kept


def _record(path: str, draft: _Draft) -> Written:
    return Written(
        path=path,
        kind=draft.kind,
        before=draft.base,
        after=_digest(draft.new or b""),
        made=draft.made,
        mode=draft.mode_before,
        members=draft.members,
    )


def _take_back(done: Iterable[_Draft]) -> None:
    """Put back what was found, the last first; what cannot be put back stays, and the error that led here is told."""
    for draft in reversed(list(done)):
        with suppress(RemitError):
            found = look(draft.found.path)
            if draft.found.data is None:
                unlink(found, draft.found.missing)
            else:
                replace(found._replace(mode=draft.found.mode), draft.found.data)


def _undone_wholly(protections: Protections, written: Written, found: Found, mark: str) -> tuple[bytes | None, str]:
    """Return the same as `_undone`, without hooks that nobody else would undo."""
    data, what = _undone(written, found, mark)
    if data is None:
        return None, what
    with named_by(written.path):
        return without_stale(protections, written.kind, data, mark), what


def _undone(written: Written, found: Found, mark: str) -> tuple[bytes | None, str]:
    """Return what a file is to be again, None for no file, and that in words."""
    original = written.before
    if found.data is None:
        return None, "was gone already"
    if _digest(found.data) == written.after:
        return original, "removed: Remit had made it" if original is None else "restored as it was, byte for byte"
    if found.data == original:
        return original, "was as before already"
    is_shared = written.kind == "json" and mark.encode("ascii") in (original or b"")
    with named_by(written.path):
        clean = found.data if is_shared else _cleaned(written.kind, found.data, mark, written)
        if clean == found.data:
            why = "its hooks are shared with others" if is_shared else "nothing of Remit is in it any more"
            return clean, f"changed since, and {why}: left as it is"
        if original is None and (clean is None or _says_nothing(written.kind, clean)):
            return None, "removed: nothing but what Remit had put there was in it"
    return clean, "changed since: only what Remit had put there was taken out"


def _cleaned(kind: FileKind, data: bytes, mark: str, written: Written | None) -> bytes | None:
    """Return a file without what is ours; one that is ours as a whole is none."""
    if kind == "json":
        original, members = (written.before, written.members) if written else (None, ())
        return put_back(remove_entries(data, mark, original), members, original)
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
