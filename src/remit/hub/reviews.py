"""The review of a session: what a person is told of it, kept up to date event by event.

Nothing here grows with the session: its counts are in its own row, and of what was done the last part is kept. What was
shown last stays in memory; whatever another process has added since is read again.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct, field

from remit.governor.clock import timestamp
from remit.governor.means import Means
from remit.ledger.records import Note, Session, Source
from remit.schemas.hub import ReviewAnswer

__all__ = ["MAX_ACTIONS", "Known", "LoadKnown", "Shelf", "load_known", "review_of", "source_members"]

MAX_ACTIONS: Final = 50
# Each can hold half a megabyte of what people have agreed to show.
_MAX_SESSIONS: Final = 64
_SOURCE: Final = ("type", "app", "origin", "process", "version")
_WORDS: Final[Mapping[str, str]] = {
    "compliant": "compliant",
    "violation": "in violation",
    "insufficient_evidence": "without enough evidence",
}
_actions_in: Final = msgspec.json.Decoder(list[Raw]).decode


class Known(Struct):
    """What is known of a session that reports: its source, and what was done last, as the JSON that is shown of it."""

    key: str
    told: Mapping[str, Any]
    # The number of the last event that was added.
    newest: int = 0
    source: dict[str, Any] = {}
    provider: str = ""
    # In one piece, because every answer shows all of it: each action with a comma behind it, and how long each is.
    text: bytearray = field(default_factory=bytearray)
    sizes: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Take from what was told, once, what every review says."""
        self.source = source_members(self.told)
        self.provider = _provider(self.told)

    def follow(self, note: Note) -> None:
        """Add what was done in an event, if it is the one that comes next; else it is missing, or there already."""
        if note.observed == self.newest + 1:
            self.add(note)

    def add(self, note: Note) -> None:
        """Add what was done in an event that is newer than all others, and drop what is too old to be shown."""
        for action in _actions_in(note.text):
            piece = bytes(action) + b","
            self.text += piece
            self.sizes.append(len(piece))
        while len(self.sizes) > MAX_ACTIONS:
            del self.text[: self.sizes.popleft()]
        self.newest = note.observed

    def lacks(self, observed: int) -> bool:
        """Tell whether something is missing of what was done up to this event."""
        return observed > self.newest

    def shown(self) -> Raw:
        """Return what was done last."""
        return Raw(b"[" + self.text[:-1] + b"]")


class Shelf:
    """What is known of the sessions that were looked at last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()

    def get(self, session_id: str) -> Known | None:
        """Return what is known of a session."""
        known = self._known.get(session_id)
        if known is not None:
            self._known.move_to_end(session_id)
        return known

    def put(self, session_id: str, known: Known) -> Known:
        """Keep what was read of a session, unless more was added while it was read; return what is kept."""
        there = self.get(session_id)
        if there is not None and there.newest >= known.newest:
            return there
        self._known[session_id] = known
        if len(self._known) > _MAX_SESSIONS:
            self._known.popitem(last=False)
        return known


@dataclass(frozen=True)
class LoadKnown:
    """Read what is kept of a session that reports."""

    session_id: str

    async def run(self, means: Means) -> Known | None:
        """Read it where that may take its time."""
        known: Known | None = await means.aside(lambda: load_known(means, self.session_id))
        return known


def load_known(means: Means, session_id: str) -> Known | None:
    """Return what is kept of a session; None if no adapter reports to it."""
    source = means.reader.source_of(session_id)
    return None if source is None else _known_of(source, means.reader.notes(session_id))


def _known_of(source: Source, notes: list[Note]) -> Known:
    """Return what is kept of a session as it is used here.

    Nothing signs this, and nothing depends on it: what cannot be read is left out, and the evidence stays what it is.
    """
    told = dict[str, str]()
    with suppress(msgspec.DecodeError):
        told = msgspec.json.decode(source.told, type=dict[str, str])
    known = Known(source.key, told)
    for note in sorted(notes):
        with suppress(msgspec.DecodeError):
            known.add(note)
    known.newest = max(known.newest, max((note.observed for note in notes), default=0))
    return known


def source_members(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return who reports, as it was told."""
    return {name: told[name] for name in _SOURCE if name in told}


def review_of(session: Session, known: Known, receipt_hash: str | None = None) -> ReviewAnswer:
    """Return the review of a session; `receipt_hash` is that of its last receipt, where its row does not say it yet."""
    verdicts = {
        "compliant": session.compliant,
        "violation": session.violation,
        "insufficient_evidence": session.insufficient_evidence,
    }
    return ReviewAnswer(
        session_id=known.key,
        ardur_session_id=session.id,
        source=known.source,
        provider=known.provider,
        title=known.told.get("title", ""),
        status=session.state,
        started_at=timestamp(session.started_ms),
        updated_at=timestamp(max(session.seen_wall_ms, session.started_ms)),
        observations=session.observed,
        verdicts=verdicts,  # type: ignore[arg-type]  # the keys are verdicts
        labels=tuple(session.marks.split()),
        latest_receipt_id=session.receipt_id,
        latest_receipt_hash=receipt_hash or session.receipt_hash,
        summary=_summary(session.observed, verdicts),
        actions=known.shown(),
    )


def _provider(told: Mapping[str, Any]) -> str:
    """Return whose service is watched: the host of the page, or the program."""
    try:
        host = urlsplit(told.get("origin") or "").hostname
    except ValueError:
        host = None
    return host or told.get("app") or "local"


def _summary(observed: int, verdicts: Mapping[str, int]) -> str:
    counted = ", ".join([f"{count} {_WORDS[verdict]}" for verdict, count in verdicts.items() if count])
    return f"{observed} observation{'' if observed == 1 else 's'}; receipts: {counted or 'none yet'}"
