"""The review of a session: a summary for its user, updated with every event.

Its size is bounded: counts are in the row of the session, and only the last actions are kept. The most
recently used reviews are cached; events that another process has added since are read from the ledger.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct, field

from remit.governor.clock import format_timestamp
from remit.governor.context import Context
from remit.ledger.records import EventNote, Session, Source
from remit.schemas.hub import ReviewAnswer

MAX_ACTIONS: Final = 50
# Reviews in the cache. With consent to visible text, one can take half a megabyte.
_MAX_SESSIONS: Final = 64
_SOURCE: Final = ("type", "app", "origin", "process", "version")
_WORDS: Final[Mapping[str, str]] = {
    "compliant": "compliant",
    "violation": "in violation",
    "insufficient_evidence": "without enough evidence",
}
_decode_actions: Final = msgspec.json.Decoder(list[Raw]).decode


class Review(Struct):
    """The source of a session, and its last actions as JSON."""

    key: str
    # What the adapter has sent about itself and the session: title, type, app, origin, process, version.
    details: Mapping[str, Any]
    # The number of the last event whose actions are here.
    newest: int = 0
    source: dict[str, Any] = {}
    provider: str = ""
    # The JSON of the last actions, each followed by a comma, in one piece because every answer has all of it; and the
    # length of each.
    text: bytearray = field(default_factory=bytearray)
    sizes: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Compute the members that are the same in every answer."""
        self.source = source_members(self.details)
        self.provider = _provider(self.details)

    def add_if_next(self, note: EventNote) -> None:
        """Add the actions of an event if it is the next one. If not, it is here already, or others are missing."""
        if note.observed == self.newest + 1:
            self.add(note)

    def add(self, note: EventNote) -> None:
        """Add the actions of an event that is newer than all others, and drop the oldest beyond `MAX_ACTIONS`."""
        for action in _decode_actions(note.text):
            piece = bytes(action) + b","
            self.text += piece
            self.sizes.append(len(piece))
        while len(self.sizes) > MAX_ACTIONS:
            del self.text[: self.sizes.popleft()]
        self.newest = note.observed

    def lacks(self, observed: int) -> bool:
        """Return whether actions up to the event of this number are missing."""
        return observed > self.newest

    def actions(self) -> Raw:
        """Return the last actions as a JSON array."""
        return Raw(b"[" + self.text[:-1] + b"]")


class ReviewCache:
    """An LRU cache of reviews by session."""

    def __init__(self) -> None:
        self._reviews: OrderedDict[str, Review] = OrderedDict()

    def get(self, session_id: str) -> Review | None:
        """Return the review of a session if it is cached."""
        review = self._reviews.get(session_id)
        if review is not None:
            self._reviews.move_to_end(session_id)
        return review

    def put(self, session_id: str, review: Review) -> Review:
        """Cache a review unless the cached one is at least as new, and return the one that is cached now."""
        cached = self.get(session_id)
        if cached is not None and cached.newest >= review.newest:
            return cached
        self._reviews[session_id] = review
        if len(self._reviews) > _MAX_SESSIONS:
            self._reviews.popitem(last=False)
        return review


@dataclass(frozen=True)
class LoadReview:
    """Loads the review of a session, in a thread."""

    session_id: str

    async def run(self, context: Context) -> Review | None:
        """Return the review; None if the session has no source."""
        review: Review | None = await context.to_thread(lambda: load_review(context, self.session_id))
        return review


def load_review(context: Context, session_id: str) -> Review | None:
    """Return the review of a session from the ledger; None if the session has no source."""
    source = context.reader.source_of(session_id)
    return None if source is None else _decode_review(source, context.reader.notes(session_id))


def _decode_review(source: Source, notes: list[EventNote]) -> Review:
    """Return the review in stored rows. They are neither signed nor evidence: rows that do not decode are skipped."""
    details = dict[str, str]()
    with suppress(msgspec.DecodeError):
        details = msgspec.json.decode(source.told, type=dict[str, str])
    review = Review(source.key, details)
    for note in sorted(notes):
        with suppress(msgspec.DecodeError):
            review.add(note)
    review.newest = max(review.newest, max((note.observed for note in notes), default=0))
    return review


def source_members(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `details` that describe the source."""
    return {name: details[name] for name in _SOURCE if name in details}


def review_answer(session: Session, review: Review, receipt_hash: str | None = None) -> ReviewAnswer:
    """Return the review of a session as the API has it.

    `receipt_hash` is the hash of its last receipt, if the row of the session does not have it yet.
    """
    verdicts = {
        "compliant": session.compliant,
        "violation": session.violation,
        "insufficient_evidence": session.insufficient_evidence,
    }
    # In the API, `session_id` is the key that the source uses, and `ardur_session_id` the id in the ledger.
    return ReviewAnswer(
        session_id=review.key,
        ardur_session_id=session.id,
        source=review.source,
        provider=review.provider,
        title=review.details.get("title", ""),
        status=session.state,
        started_at=format_timestamp(session.started_ms),
        updated_at=format_timestamp(max(session.seen_wall_ms, session.started_ms)),
        observations=session.observed,
        verdicts=verdicts,  # type: ignore[arg-type]  # the keys are verdicts
        labels=tuple(session.marks.split()),
        latest_receipt_id=session.receipt_id,
        latest_receipt_hash=receipt_hash or session.receipt_hash,
        summary=_summary(session.observed, verdicts),
        actions=review.actions(),
    )


def _provider(details: Mapping[str, Any]) -> str:
    """Return the host of the observed page, or the name of the observed program."""
    try:
        host = urlsplit(details.get("origin") or "").hostname
    except ValueError:
        host = None
    return host or details.get("app") or "local"


def _summary(observed: int, verdicts: Mapping[str, int]) -> str:
    counted = ", ".join([f"{count} {_WORDS[verdict]}" for verdict, count in verdicts.items() if count])
    return f"{observed} observation{'' if observed == 1 else 's'}; receipts: {counted or 'none yet'}"
