"""Sessions as pages show them: identity, state, used budget, and the state of the chain."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from remit.claims.mission import EVERYTHING, Mission
from remit.governor.clock import Moment
from remit.governor.lifecycle import count_elapsed, session_status
from remit.governor.receipts import clip
from remit.governor.verification import SessionProgress
from remit.hub.dashboard.entries import ReceiptEntry
from remit.hub.dashboard.formatting import FormattedTime, TimeFormatter, format_duration, format_number
from remit.hub.dashboard.labels import STATES, Badge, describe_fault
from remit.ledger.records import MAX_NOTES, EventNote, LedgerState, Session, Source

_TITLE: Final = 120
_WORDS: Final = 80
_EXCERPT: Final = 600
_LISTED: Final = 100
_FULL: Final = 100.0
_PROXY: Final = "proxy"


class BudgetBar(NamedTuple):
    """A budget as a bar: the used and the reserved part in percent, and both in words."""

    used: float
    held: float
    text: str


class ChainStatus(NamedTuple):
    """Whether a chain is whole: the tone, one sentence, and advice."""

    tone: str
    text: str
    advice: str = ""


class SessionCard(NamedTuple):
    """A session in a list."""

    id: str
    number: int
    title: str
    agent: str
    source: str
    state: Badge
    started: FormattedTime
    length: int
    permit: int
    deny: int
    unknown: int
    calls: BudgetBar
    time: BudgetBar
    chain: ChainStatus
    last: ReceiptEntry | None = None


class PassportLimits(NamedTuple):
    """The grants of a passport."""

    mission: str
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...]
    scope: tuple[str, ...]
    effects: tuple[str, ...]
    cwd: str


class ReviewAction(NamedTuple):
    """One action of a review, as an adapter has reported it."""

    when: str
    kind: str
    role: str
    text: str
    verdict: str
    receipt_id: str


def build_card(
    session: Session,
    *,
    mission: Mission | None,
    source: Source | None,
    ledger_state: LedgerState,
    now: Moment,
    times: TimeFormatter,
    progress: SessionProgress,
    last: ReceiptEntry | None = None,
) -> SessionCard:
    """Return the card of a session as of now. Without a mission, its passport does not verify."""
    session = count_elapsed(session, now)
    return SessionCard(
        id=session.id,
        number=session.number,
        title=session_title(session, mission, source),
        agent=clip(session.actor, _WORDS),
        source=_describe_source(_source_details(source)),
        state=_state(session, ledger_state),
        started=times.when(session.started_ms // 1000),
        length=session.length,
        permit=session.compliant,
        deny=session.violation,
        unknown=session.insufficient_evidence,
        calls=_calls(session),
        time=_time(session),
        chain=chain_status(session, progress, times),
        last=last,
    )


def session_title(session: Session, mission: Mission | None, source: Source | None) -> str:
    """Return the title of a session: that of its source, or its mission."""
    title = _source_details(source).get("title") or (mission.mission if mission else "A passport that does not verify")
    return clip(" ".join(title.split()) or session.id, _TITLE)


def _source_details(source: Source | None) -> Mapping[str, str]:
    """Return the details that a source has sent about itself, if they are strings."""
    try:
        text: Any = msgspec.json.decode(source.told) if source else {}
    except msgspec.MsgspecError:
        return {}
    return {name: text for name, text in text.items() if isinstance(text, str)} if isinstance(text, dict) else {}


def _describe_source(text: Mapping[str, str]) -> str:
    parts = [clip(text[name], _WORDS) for name in ("type", "app", "origin", "process") if text.get(name)]
    return " · ".join(parts) or _PROXY


def _state(session: Session, ledger_state: LedgerState) -> Badge:
    refusal = session.cause or (session_status(session, ledger_state).refusal if session.state == "active" else "")
    if session.state == "active" or refusal in ("kill_switch", "protection_tampered"):
        return STATES.get(refusal or "active", STATES["revoked"])
    return STATES[session.state]


def _calls(session: Session) -> BudgetBar:
    left = max(0, session.limit - session.used - session.reserved)
    text = f"{format_number(session.used)} of {format_number(session.limit)} calls used"
    if session.reserved:
        text += f", {format_number(session.reserved)} set aside"
    if session.state == "active":
        text += f", {format_number(left)} left"
    return BudgetBar(_share(session.used, session.limit), _share(session.reserved, session.limit), text)


def _time(session: Session) -> BudgetBar:
    whole = -(-session.lifetime_ms // 1000)
    if session.state != "active":
        lasted = max(0, (session.ended_ms or session.started_ms) - session.started_ms) // 1000
        return BudgetBar(
            _share(lasted, whole), 0.0, f"Over after {format_duration(lasted)}; it had {format_duration(whole)}"
        )
    left = session.duration_left_s
    text = (
        f"{format_duration(left)} of {format_duration(whole)} left"
        if left
        else f"no time left of {format_duration(whole)}"
    )
    return BudgetBar(_share(whole - min(left, whole), whole), 0.0, text)


def _share(part: int, whole: int) -> float:
    return round(min(_FULL, _FULL * part / whole), 2) if whole > 0 else _FULL


def chain_status(session: Session, progress: SessionProgress, times: TimeFormatter) -> ChainStatus:
    """Return the state of the chain of a session, as far as it was verified."""
    fault = progress.fault
    if fault is not None:
        place = f"receipt {format_number(fault.index + 1)} of {format_number(session.length)}"
        text = f"Broken at {place}: it {describe_fault(fault.fault)}."
        return ChainStatus("broken", text, _BROKEN)
    if session.broken:
        return ChainStatus("broken", "Quarantined: the chain was found broken.", _BROKEN)
    if not session.length:
        return ChainStatus("plain", "No receipts yet.")
    if progress.complete:
        return ChainStatus("permit", _describe_verified(progress, times))
    text = f"Verified to receipt {format_number(progress.verified)} of {format_number(session.length)} so far."
    return ChainStatus("plain", text, "The rest is verified in the background.")


_BROKEN: Final = "Trust nothing from there on. Run “remit ledger check” for details; a backup may have what is missing."


def _describe_verified(progress: SessionProgress, times: TimeFormatter) -> str:
    """Return the sentence for a chain that was verified in full."""
    text = f"Verified to receipt {format_number(progress.length)} of {format_number(progress.length)}"
    return f"{text}." if progress.at is None else f"{text}, at {times.when(progress.at).clock}."


def passport_limits(mission: Mission) -> PassportLimits:
    """Return the grants of a mission. Long lists are cut, with a note at the end."""
    scope = ("everything",) if mission.resource_scope == (EVERYTHING,) else mission.resource_scope
    return PassportLimits(
        mission.mission,
        _clip_list(mission.allowed_tools),
        _clip_list(mission.forbidden_tools),
        _clip_list(scope),
        _clip_list(mission.allowed_side_effect_classes),
        mission.cwd or "",
    )


def _clip_list(entries: tuple[str, ...]) -> tuple[str, ...]:
    rest = len(entries) - _LISTED
    return entries if rest <= 0 else (*entries[:_LISTED], f"and {rest} more")


def review_actions(notes: list[EventNote]) -> tuple[ReviewAction, ...]:
    """Return the actions of a review, newest first. Notes are not signed: values of a wrong type are skipped."""
    actions = (action for note in reversed(notes) for action in reversed(_actions(note)))
    return tuple(_review_action(action) for action in islice(actions, MAX_NOTES))


def _actions(note: EventNote) -> list[Mapping[str, object]]:
    try:
        text: Any = msgspec.json.decode(note.text)
    except msgspec.MsgspecError:
        return []
    return [action for action in (text if isinstance(text, list) else [text]) if isinstance(action, dict)]


def _review_action(action: Mapping[str, object]) -> ReviewAction:
    def text(name: str, length: int = _WORDS) -> str:
        value = action.get(name)
        return clip(value, length) if isinstance(value, str) else ""

    return ReviewAction(
        text("observed_at"),
        text("kind"),
        text("role"),
        text("summary", _EXCERPT) or text("text_excerpt", _EXCERPT),
        text("verdict"),
        text("receipt_id"),
    )
