"""Which transcripts are held against the ledger: those of sessions that it knows, and those that it should know.

A session that was run past its hooks leaves no trace in the ledger, or none of that part of it. So all transcripts of
protected folders are looked through too, from the moment on at which each was protected. A file that cannot be read
stops nothing, and is not forgotten.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from remit.assistants.doctor.evidence import Governed
from remit.assistants.reconcile.calls import Call, Transcript, TranscriptReader
from remit.assistants.records import Protection
from remit.errors import FieldInvalid, StateMissing
from remit.governor.clock import timestamp

__all__ = ["Selected", "named", "of_ledger"]

# Assistants name their sessions by a UUID, and the files of these end in it.
_ID_LENGTH: Final = 36
_SECOND: Final = len("2000-01-01T00:00:00")


class Selected(NamedTuple):
    """Transcripts, the sessions whose transcript is not there, and from when on calls of a session count."""

    transcripts: tuple[Transcript, ...]
    missing: tuple[str, ...]
    since: Mapping[str, str]


class _Protected(NamedTuple):
    """A folder, None for any, and from when on it is protected."""

    folder: str | None
    since: str


def named(
    reader: TranscriptReader,
    paths: Sequence[Path],
    governed: Sequence[Governed],
    protections: Mapping[str, Protection],
) -> Selected:
    """Return the transcripts at these paths."""
    return Selected(tuple(reader.read(path) for path in paths), (), _since(governed, protections))


def of_ledger(
    reader: TranscriptReader,
    config: Path,
    governed: Sequence[Governed],
    recent: Sequence[Governed],
    protections: Mapping[str, Protection],
) -> Selected:
    """Return the transcripts of recent sessions, and all others of protected folders.

    One of which the ledger has heard without permitting anything, as of a check, needs none.
    """
    read, missing = dict[Path, Transcript](), list[str]()
    for one in recent:
        found = {path: _read(reader, path) for path in reader.find(config, one.name)}
        read |= found
        missing += [one.name] if one.has_permitted and not found else []
    protected = [_Protected(one.folder, _protected_since(one, governed)) for one in protections.values()]
    others = _others(reader, config, protected, read.keys())
    return Selected((*read.values(), *others), tuple(missing), _since(governed, protections))


def _read(reader: TranscriptReader, path: Path) -> Transcript:
    """Return what a file tells; one that cannot be opened, or is none, is as a line that cannot be read."""
    try:
        return reader.read(path)
    except (FieldInvalid, StateMissing):
        return Transcript(str(path), path.stem[-_ID_LENGTH:], (), bad_lines=1)


def _protected_since(protection: Protection, governed: Sequence[Governed]) -> str:
    """Return from when on a folder is protected: a protection that is made anew has been heard of before."""
    heard = (timestamp(one.started_ms) for one in governed if one.protection == protection.id)
    return min([protection.made_at, *heard])


def _since(governed: Sequence[Governed], protections: Mapping[str, Protection]) -> dict[str, str]:
    """Return from when on each session is protected: before it was first heard of it may have run past its hooks."""
    since = dict[str, str]()
    for one in governed:
        made = [protections[one.protection].made_at] if one.protection in protections else []
        since[one.name] = min([timestamp(one.started_ms), *made, *([since[one.name]] if one.name in since else [])])
    return since


def _others(
    reader: TranscriptReader, config: Path, protected: Sequence[_Protected], known: Container[Path]
) -> Iterator[Transcript]:
    """Yield what sessions of other files have called in protected folders, once these were.

    What a file says of its session does not count: one that was run past its hooks could name another.
    """
    read = dict[Path, Transcript]()
    for one in protected:
        for path in reader.found_in(config, one.folder):
            if path not in read and path not in known and not _is_before(_changed_at(path), one):
                read[path] = _read(reader, path)
    for transcript in read.values():
        calls = tuple(call for call in transcript.calls if any(_is_within(call, one) for one in protected))
        if calls or transcript.bad_lines or transcript.cut:
            yield transcript._replace(calls=calls)


def _changed_at(path: Path) -> str:
    """Return when a file was changed last, as receipts write it; never where it has gone."""
    try:
        return timestamp(path.stat().st_mtime_ns // 1_000_000)
    except OSError:
        return ""


def _is_before(moment: str, protected: _Protected) -> bool:
    """Tell whether a moment is before a folder was protected: by the second, as one of the two may say no more."""
    return moment[:_SECOND] < protected.since[:_SECOND]


def _is_within(call: Call, protected: _Protected) -> bool:
    """Tell whether a call was made in a folder while it was protected."""
    if call.at and _is_before(call.at, protected):
        return False
    return protected.folder is None or PurePath(call.cwd or protected.folder).is_relative_to(protected.folder)
