"""A session as pages show it: who it is, how it stands, what it has used, and how whole its chain is."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from remit.claims.mission import EVERYTHING, Mission
from remit.governor.clock import Moment
from remit.governor.lifecycle import standing_of, touched
from remit.governor.receipts import clip
from remit.governor.verification import Progress
from remit.hub.dashboard.entries import Entry
from remit.hub.dashboard.figures import Times, When, number, span
from remit.hub.dashboard.words import STATES, Mark, fault_in_words
from remit.ledger.records import NOTES_KEPT, Note, Session, Source, Switches

__all__ = [
    "Bar",
    "Card",
    "Chain",
    "Deed",
    "Limits",
    "card_of",
    "chain_of",
    "deeds_of",
    "limits_of",
    "title_of",
]

_TITLE: Final = 120
_WORDS: Final = 80
_EXCERPT: Final = 600
_LISTED: Final = 100
_FULL: Final = 100.0
_PROXY: Final = "proxy"


class Bar(NamedTuple):
    """A budget as a bar: what is used and what is set aside, in hundredths of the whole, and in words."""

    used: float
    held: float
    told: str


class Chain(NamedTuple):
    """How whole a chain is: in a tone, in one sentence, and what to do about it."""

    tone: str
    told: str
    advice: str = ""


class Card(NamedTuple):
    """A session as it is listed."""

    id: str
    number: int
    title: str
    agent: str
    source: str
    state: Mark
    started: When
    length: int
    permit: int
    deny: int
    unknown: int
    calls: Bar
    time: Bar
    chain: Chain
    last: Entry | None = None


class Limits(NamedTuple):
    """What a passport grants, in words."""

    mission: str
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...]
    scope: tuple[str, ...]
    effects: tuple[str, ...]
    cwd: str


class Deed(NamedTuple):
    """One action of a review: what an adapter has told of an event."""

    when: str
    kind: str
    role: str
    told: str
    verdict: str
    receipt_id: str


def card_of(
    session: Session,
    *,
    mission: Mission | None,
    source: Source | None,
    switches: Switches,
    now: Moment,
    times: Times,
    progress: Progress,
    last: Entry | None = None,
) -> Card:
    """Return a session as it stands now. Without a mission its passport does not verify."""
    session = touched(session, now)
    return Card(
        id=session.id,
        number=session.number,
        title=title_of(session, mission, source),
        agent=clip(session.actor, _WORDS),
        source=_source_in_words(_told(source)),
        state=_state(session, switches),
        started=times.when(session.started_ms // 1000),
        length=session.length,
        permit=session.compliant,
        deny=session.violation,
        unknown=session.insufficient_evidence,
        calls=_calls(session),
        time=_time(session),
        chain=chain_of(session, progress, times),
        last=last,
    )


def title_of(session: Session, mission: Mission | None, source: Source | None) -> str:
    """Return what a session is called: what its adapter has told, or what it was asked to do."""
    title = _told(source).get("title") or (mission.mission if mission else "A passport that does not verify")
    return clip(" ".join(title.split()) or session.id, _TITLE)


def _told(source: Source | None) -> Mapping[str, str]:
    """Return what a source has told of itself; texts only."""
    try:
        told: Any = msgspec.json.decode(source.told) if source else {}
    except msgspec.MsgspecError:
        return {}
    return {name: text for name, text in told.items() if isinstance(text, str)} if isinstance(told, dict) else {}


def _source_in_words(told: Mapping[str, str]) -> str:
    parts = [clip(told[name], _WORDS) for name in ("type", "app", "origin", "process") if told.get(name)]
    return " · ".join(parts) or _PROXY


def _state(session: Session, switches: Switches) -> Mark:
    refusal = session.cause or (standing_of(session, switches).refusal if session.state == "active" else "")
    if session.state == "active" or refusal in ("kill_switch", "protection_tampered"):
        return STATES.get(refusal or "active", STATES["revoked"])
    return STATES[session.state]


def _calls(session: Session) -> Bar:
    left = max(0, session.limit - session.used - session.reserved)
    told = f"{number(session.used)} of {number(session.limit)} calls used"
    if session.reserved:
        told += f", {number(session.reserved)} set aside"
    if session.state == "active":
        told += f", {number(left)} left"
    return Bar(_share(session.used, session.limit), _share(session.reserved, session.limit), told)


def _time(session: Session) -> Bar:
    whole = -(-session.lifetime_ms // 1000)
    if session.state != "active":
        lasted = max(0, (session.ended_ms or session.started_ms) - session.started_ms) // 1000
        return Bar(_share(lasted, whole), 0.0, f"Over after {span(lasted)}; it had {span(whole)}")
    left = session.duration_left_s
    told = f"{span(left)} of {span(whole)} left" if left else f"no time left of {span(whole)}"
    return Bar(_share(whole - min(left, whole), whole), 0.0, told)


def _share(part: int, whole: int) -> float:
    return round(min(_FULL, _FULL * part / whole), 2) if whole > 0 else _FULL


def chain_of(session: Session, progress: Progress, times: Times) -> Chain:
    """Return how whole the chain of a session is, as far as it was verified."""
    fault = progress.fault
    if fault is not None:
        place = f"receipt {number(fault.index + 1)} of {number(session.length)}"
        told = f"Broken at {place}: it {fault_in_words(fault.fault)}."
        return Chain("broken", told, _BROKEN)
    if session.broken:
        return Chain("broken", "Quarantined: the chain was found broken.", _BROKEN)
    if not session.length:
        return Chain("plain", "No receipts yet.")
    if progress.complete:
        return Chain("permit", _verified(progress, times))
    told = f"Verified to receipt {number(progress.verified)} of {number(session.length)} so far."
    return Chain("plain", told, "The rest is verified in the background.")


_BROKEN: Final = "Trust nothing from there on. “remit ledger check” says more, and a backup may have what is missing."


def _verified(progress: Progress, times: Times) -> str:
    """Return that a chain is whole, and when that was found."""
    told = f"Verified to receipt {number(progress.length)} of {number(progress.length)}"
    return f"{told}." if progress.at is None else f"{told}, at {times.when(progress.at).clock}."


def limits_of(mission: Mission) -> Limits:
    """Return what a mission grants; long lists are cut, and say so."""
    scope = ("everything",) if mission.resource_scope == (EVERYTHING,) else mission.resource_scope
    return Limits(
        mission.mission,
        _listed(mission.allowed_tools),
        _listed(mission.forbidden_tools),
        _listed(scope),
        _listed(mission.allowed_side_effect_classes),
        mission.cwd or "",
    )


def _listed(entries: tuple[str, ...]) -> tuple[str, ...]:
    rest = len(entries) - _LISTED
    return entries if rest <= 0 else (*entries[:_LISTED], f"and {rest} more")


def deeds_of(notes: list[Note]) -> tuple[Deed, ...]:
    """Return the actions of a review, newest first. Notes are not signed, so nothing is taken for granted."""
    actions = (action for note in reversed(notes) for action in reversed(_actions(note)))
    return tuple(_deed(action) for action in islice(actions, NOTES_KEPT))


def _actions(note: Note) -> list[Mapping[str, object]]:
    try:
        told: Any = msgspec.json.decode(note.text)
    except msgspec.MsgspecError:
        return []
    return [action for action in (told if isinstance(told, list) else [told]) if isinstance(action, dict)]


def _deed(action: Mapping[str, object]) -> Deed:
    def text(name: str, length: int = _WORDS) -> str:
        value = action.get(name)
        return clip(value, length) if isinstance(value, str) else ""

    return Deed(
        text("observed_at"),
        text("kind"),
        text("role"),
        text("summary", _EXCERPT) or text("text_excerpt", _EXCERPT),
        text("verdict"),
        text("receipt_id"),
    )
