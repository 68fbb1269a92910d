"""Carries out installation plans, and undoes them.

Invariants:

- Nothing is written until all changes are known to be possible and the former content of each file is recorded.
- After an error, all files are as they were before.
- Undoing restores a file byte for byte if it has not been changed since. Otherwise only what Remit added is removed.

The first release removed the read permission of other users from files with a token. Such a file gets its former mode
back when it is written without a token.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import structs

from remit.assistants.install.files import FileSnapshot, adding_path, read_file, remove_file, replace_file
from remit.assistants.install.jsonedit import add_entries, remove_entries, restore_members, set_member, still_set
from remit.assistants.install.jsontext import read_document
from remit.assistants.install.plan import FileChange, JsonEdit, Member, OwnFile, Plan, TomlBlock
from remit.assistants.install.tomltext import add_block, remove_blocks
from remit.assistants.records import PROTECTION_ID, FileKind, Protection, Protections, SetMember, WrittenFile
from remit.errors import FieldInvalid, RemitError, StateCorrupt

_OWNER_ONLY: Final = 0o700
# Hooks of one protection are removed at a time, which is slow: a file with more of them was crafted to be slow.
_MAX_STALE: Final = 100
_KINDS: Final[Mapping[type, FileKind]] = {JsonEdit: "json", TomlBlock: "toml", OwnFile: "whole"}


class UndoneFile(NamedTuple):
    """The result of undoing the changes to one file."""

    path: str
    # A phrase for the user.
    what: str


class _Draft(NamedTuple):
    """A file to write."""

    # The file as it is now.
    found: FileSnapshot
    kind: FileKind
    # Its content without anything that Remit added.
    base: bytes | None
    # The folders that were created for it.
    made: tuple[str, ...]
    # Its content after the changes.
    new: bytes | None
    mode: int
    # The members that Remit has set in it.
    members: tuple[SetMember, ...] = ()
    mode_before: int | None = None

    @property
    def target(self) -> FileSnapshot:
        """The file to replace, with the mode that it will have."""
        return self.found._replace(mode=self.mode_before)


def install(
    protections: Protections, protection: Protection, plan: Plan, wire: Mapping[str, Any], *, adopted: bool = False
) -> Protection:
    """Carry out a plan and return the protection as stored. The caller holds the lock.

    `adopted` means that the shared settings had hooks with this id before, which another user wrote.
    """
    existed, former = protections.holds(protection.id), load_intact(protections, protection.id)
    done = list[_Draft]()
    drafter = _Drafter(protections, protection.id, adopted=adopted)
    try:
        drafts = drafter.draft_changes(plan.changes, _by_path(former), anew=True)
        stored = _carry_out(protections, protection, wire, drafts, done)
        if plan.settle is not None:
            drafts |= drafter.draft_changes(plan.settle(), _by_path(stored), anew=False)
            stored = _carry_out(protections, protection, wire, drafts, done)
    except BaseException:
        _roll_back(done)
        if former is not None:
            protections.put(former)
        elif not existed:
            protections.remove(protection.id)
        raise
    return stored


def load_intact(protections: Protections, name: str) -> Protection | None:
    """Return a protection, or None if it does not exist or its record is damaged."""
    try:
        return protections.get(name)
    except StateCorrupt:
        return None


def uninstall(protections: Protections, protection: Protection) -> list[UndoneFile]:
    """Undo all changes of a protection, delete its record, and return what was done. The caller holds the lock."""
    found = [(written, read_file(written.path)) for written in reversed(protection.files)]
    # All results are computed before the first file is written.
    steps = [(written, one, _undo_with_stale(protections, written, one, protection.id)) for written, one in found]
    for written, one, (data, _) in steps:
        if data is None and one.data is not None:
            remove_file(one, written.made)
        elif data is not None and (data != one.data or written.closed):
            replace_file(_with_former_mode(one, written), data)
    protections.remove(protection.id)
    return [UndoneFile(written.path, what) for written, _, (_, what) in steps]


def _by_path(protection: Protection | None) -> dict[str, WrittenFile]:
    return {} if protection is None else {written.path: written for written in protection.files}


def _with_former_mode(found: FileSnapshot, written: WrittenFile) -> FileSnapshot:
    """Return a file with its former mode, if the first release restricted it and it has not been changed since."""
    before = written.mode
    is_ours = written.closed and before is not None and found.mode == before & _OWNER_ONLY
    return found._replace(mode=before) if is_ours else found


class _Drafter(NamedTuple):
    """Computes the new content of files for one protection."""

    protections: Protections
    mark: str
    adopted: bool

    def draft_changes(
        self, changes: Iterable[FileChange], former: Mapping[str, WrittenFile], *, anew: bool
    ) -> dict[str, _Draft]:
        """Return a draft for each path; several changes to one file accumulate.

        With `anew`, a draft starts without what the protection has added to the file before.
        """
        drafts = dict[str, _Draft]()
        for change in changes:
            with adding_path(change.path):
                draft = drafts.get(change.path) or self._start(change, former.get(change.path), anew=anew)
                drafts[change.path] = _apply(change, self.mark, draft)
        return drafts

    def _start(self, change: FileChange, former: WrittenFile | None, *, anew: bool) -> _Draft:
        found, kind = read_file(change.path), _KINDS[type(change)]
        clean = self._without_stale(kind, _base(found, kind, self.mark, former))
        content = self._without_shared(kind, clean, former) if anew else found.data
        shared = self.adopted and former is None and found.data is not None
        return _Draft(
            found,
            kind,
            base=found.data if shared else clean,
            made=tuple(dict.fromkeys((*(former.made if former else ()), *found.missing))),
            new=content,
            mode=change.mode,
            members=still_set(content, former.members if former else ()),
            mode_before=found.mode if former is None else _with_former_mode(found, former).mode,
        )

    def _without_stale(self, kind: FileKind, data: bytes | None) -> bytes | None:
        return None if data is None else _remove_stale(self.protections, kind, data, self.mark)

    def _without_shared(self, kind: FileKind, data: bytes | None, former: WrittenFile | None) -> bytes | None:
        """Return the content without hooks of this protection that another user added to the shared file."""
        has_ours = kind == "json" and self.mark.encode("ascii") in (data or b"")
        return _remove_additions(kind, data or b"", self.mark, former) if has_ours else data


def _base(found: FileSnapshot, kind: FileKind, mark: str, former: WrittenFile | None) -> bytes | None:
    """Return a file without anything that Remit added: its former content, if it has not been changed by others."""
    if found.data is None:
        return None
    if former is not None and _digest(found.data) == former.after:
        return former.before
    return _remove_additions(kind, found.data, mark, former)


def _apply(change: FileChange, mark: str, draft: _Draft) -> _Draft:
    if isinstance(change, JsonEdit):
        # Entries are added last, so that they are at the same place when the plan is carried out again.
        draft = _with_members(draft, change.members)
        return draft._replace(new=add_entries(draft.new, change.entries))
    if isinstance(change, TomlBlock):
        return draft._replace(new=add_block(draft.new, mark, change.name, change.text))
    if draft.base is not None:
        raise FieldInvalid("exists already, and Remit did not write it: move it away")
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
    """Store the record of the protection, then write the files that are not written yet."""
    stored = structs.replace(protection, files=tuple(_record(path, draft) for path, draft in drafts.items()))
    protections.put(stored, dict(wire))
    for draft in drafts.values():
        if draft not in done and (draft.found.data, draft.found) != (draft.new, draft.target):
            replace_file(draft.target, draft.new or b"", mode=draft.mode)
            done.append(draft)
    return stored


def _record(path: str, draft: _Draft) -> WrittenFile:
    return WrittenFile(
        path=path,
        kind=draft.kind,
        before=draft.base,
        after=_digest(draft.new or b""),
        made=draft.made,
        mode=draft.mode_before,
        members=draft.members,
    )


def _roll_back(done: Iterable[_Draft]) -> None:
    """Restore files, the last one first. Errors are ignored: the caller raises the one that led here."""
    for draft in reversed(list(done)):
        with suppress(RemitError):
            found = read_file(draft.found.path)
            if draft.found.data is None:
                remove_file(found, draft.found.missing)
            else:
                replace_file(found._replace(mode=draft.found.mode), draft.found.data)


def _undo_with_stale(
    protections: Protections, written: WrittenFile, found: FileSnapshot, mark: str
) -> tuple[bytes | None, str]:
    """Return the result of `_undo`, without stale hooks."""
    data, what = _undo(written, found, mark)
    if data is None:
        return None, what
    with adding_path(written.path):
        return _remove_stale(protections, written.kind, data, mark), what


def _undo(written: WrittenFile, found: FileSnapshot, mark: str) -> tuple[bytes | None, str]:
    """Return the content that a file gets back, None for no file, and a phrase for the user."""
    original = written.before
    if found.data is None:
        return None, "was gone already"
    if _digest(found.data) == written.after:
        return original, "removed: Remit had made it" if original is None else "restored as it was, byte for byte"
    if found.data == original:
        return original, "was as before already"
    is_shared = written.kind == "json" and mark.encode("ascii") in (original or b"")
    with adding_path(written.path):
        clean = found.data if is_shared else _remove_additions(written.kind, found.data, mark, written)
        if clean == found.data:
            why = "its hooks are shared with others" if is_shared else "nothing of Remit is in it any more"
            return clean, f"changed since, and {why}: left as it is"
        if original is None and (clean is None or _is_empty(written.kind, clean)):
            return None, "removed: nothing but what Remit had put there was in it"
    return clean, "changed since: only what Remit had put there was taken out"


def _remove_additions(kind: FileKind, data: bytes, mark: str, written: WrittenFile | None) -> bytes | None:
    """Return a file without what Remit added, or None if Remit wrote all of it."""
    if kind == "json":
        original, members = (written.before, written.members) if written else (None, ())
        return restore_members(remove_entries(data, mark, original), members, original)
    if kind == "toml":
        return remove_blocks(data, mark)
    return None if mark.encode("ascii") in data else data


def _is_empty(kind: FileKind, data: bytes) -> bool:
    if kind == "toml":
        return not data.strip()
    root = read_document(data).root
    return root is None or not (root.children or root.kind in ("text", "other"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _remove_stale(protections: Protections, kind: FileKind, data: bytes, own: str) -> bytes:
    """Return a settings file without hooks of protections that this home no longer has, which would block forever.

    Only hooks that name a wire file in this home are removed: others may belong to another home. Hooks of the
    protection `own` are kept.
    """
    if kind != "json":
        return data
    text = data.decode("utf-8", "replace")
    for name in islice(dict.fromkeys(PROTECTION_ID.findall(text)), _MAX_STALE):
        wire_path = json.dumps(protections.wire_path(name), ensure_ascii=False)[1:-1]
        if name != own and not protections.holds(name) and wire_path in text:
            data = remove_entries(data, name)
    return data
