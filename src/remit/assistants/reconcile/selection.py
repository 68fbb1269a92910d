"""Selects the transcripts to compare with the ledger: those of sessions in the ledger, and of protected folders.

A session that bypassed its hooks is not in the ledger, or not all of it. So all transcripts of protected folders are
read too, from the time on at which each folder was protected. A file that cannot be read does not stop the selection;
it counts as a transcript with an unreadable line.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from remit.assistants.reconcile.calls import Transcript, TranscriptCall, TranscriptReader
from remit.assistants.reconcile.evidence import GovernedSession
from remit.assistants.records import Protection
from remit.errors import FieldInvalid, SessionNotFound, StateMissing
from remit.governor.clock import format_timestamp

# The session ids of assistants are UUIDs, and file names end in them.
_ID_LENGTH: Final = 36
_SECOND: Final = len("2000-01-01T00:00:00")


class SelectedTranscripts(NamedTuple):
    """The selected transcripts."""

    transcripts: tuple[Transcript, ...]
    # The ids of sessions without a transcript.
    missing: tuple[str, ...]
    # The start of protection for each session id.
    since: Mapping[str, str]


class _Protected(NamedTuple):
    """A protected folder, None for any, and the start of its protection."""

    folder: str | None
    since: str


def select_by_path(
    reader: TranscriptReader,
    paths: Sequence[Path],
    governed: Sequence[GovernedSession],
    protections: Mapping[str, Protection],
) -> SelectedTranscripts:
    """Select the transcripts at these paths."""
    return SelectedTranscripts(tuple(reader.read(path) for path in paths), (), _since(governed, protections))


def select_recent(
    reader: TranscriptReader,
    config: Path,
    governed: Sequence[GovernedSession],
    protections: Mapping[str, Protection],
    *,
    oldest_ms: int,
) -> SelectedTranscripts:
    """Select the transcripts of sessions that were used since `oldest_ms`, and all others of protected folders.

    A session without permitted calls, such as one of a canary, need not have a transcript. Raises `SessionNotFound` if
    there are neither transcripts nor sessions that lack one.
    """
    recent = [one for one in governed if any(each.seen_wall_ms >= oldest_ms for each in one.sessions)]
    read, missing = dict[Path, Transcript](), list[str]()
    for one in recent:
        found = {path: _read(reader, path) for path in reader.find(config, one.name)}
        read |= found
        missing += [one.name] if one.has_permitted and not found else []
    protected = [_Protected(one.folder, _protected_since(one, governed)) for one in protections.values()]
    transcripts = (*read.values(), *_others(reader, config, protected, read.keys()))
    if not transcripts and not missing:
        nothing = SessionNotFound(f"the ledger has no session of {reader.name}, and there is no transcript")
        nothing.add_note(f"Protect it first: remit protect {reader.name}; or name a transcript.")
        raise nothing
    return SelectedTranscripts(transcripts, tuple(missing), _since(governed, protections))


def _read(reader: TranscriptReader, path: Path) -> Transcript:
    """Parse a transcript. One that cannot be opened counts as one with a bad line."""
    try:
        return reader.read(path)
    except (FieldInvalid, StateMissing):
        return Transcript(str(path), path.stem[-_ID_LENGTH:], (), bad_lines=1)


def _protected_since(protection: Protection, governed: Sequence[GovernedSession]) -> str:
    """Return the start of protection of a folder: a protection that was renewed has earlier sessions."""
    started = (format_timestamp(one.started_ms) for one in governed if one.protection == protection.id)
    return min([protection.made_at, *started])


def _since(governed: Sequence[GovernedSession], protections: Mapping[str, Protection]) -> dict[str, str]:
    """Return the start of protection for each session. It may be before the start of the session in the ledger."""
    since = dict[str, str]()
    for one in governed:
        made = [protections[one.protection].made_at] if one.protection in protections else []
        since[one.name] = min(
            [format_timestamp(one.started_ms), *made, *([since[one.name]] if one.name in since else [])]
        )
    return since


def _others(
    reader: TranscriptReader, config: Path, protected: Sequence[_Protected], known: Container[Path]
) -> Iterator[Transcript]:
    """Yield the other transcripts, with the calls that were made in protected folders.

    The session id in a file is not used: a session that bypassed its hooks could claim another one.
    """
    read = dict[Path, Transcript]()
    for one in protected:
        for path in reader.find_in_folder(config, one.folder):
            if path not in read and path not in known and not _is_before(_changed_at(path), one):
                read[path] = _read(reader, path)
    for transcript in read.values():
        calls = tuple(call for call in transcript.calls if any(_is_within(call, one) for one in protected))
        if calls or transcript.bad_lines or transcript.cut:
            yield transcript._replace(calls=calls)


def _changed_at(path: Path) -> str:
    """Return the modification time of a file in the format of receipts; empty if it is gone."""
    try:
        return format_timestamp(path.stat().st_mtime_ns // 1_000_000)
    except OSError:
        return ""


def _is_before(moment: str, protected: _Protected) -> bool:
    """Return whether a time is before the protection of a folder. Only whole seconds are compared."""
    return moment[:_SECOND] < protected.since[:_SECOND]


def _is_within(call: TranscriptCall, protected: _Protected) -> bool:
    """Return whether a call was made in a folder while it was protected."""
    if call.at and _is_before(call.at, protected):
        return False
    return protected.folder is None or PurePath(call.cwd or protected.folder).is_relative_to(protected.folder)
