"""How the Hub stands, and everything it holds: read, never changed.

An export needs no more memory for a million receipts than for one. A file of the home that cannot be read is said by
its name; what does not need that file goes on.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import orjson
from msgspec import DecodeError, json, structs, to_builtins

from remit.claims.receipt import SignedReceipt
from remit.claims.strictjson import JSON
from remit.errors import StateCorrupt, StateError, TokenError
from remit.governor.clock import timestamp
from remit.governor.export import export, session_view
from remit.governor.means import Means
from remit.governor.verification import VerificationState
from remit.hub.answers import receipt_answer
from remit.hub.reviews import load_known, review_of, source_members
from remit.ledger.records import Session
from remit.schemas.hub import (
    SCHEMA_VERSION,
    AdapterDetail,
    AdapterDetails,
    Adapters,
    BrokenSession,
    StatusAnswer,
    VerificationAnswer,
)
from remit.version import __version__

__all__ = ["Place", "Seen", "Sightings", "evidence", "status"]

# Of how many sessions, those that were started last, the ledger is asked what was seen.
_SESSIONS: Final = 256


class Place(NamedTuple):
    """Where a Hub is at home and reached; `check` raises if a file of the home is not what it must be."""

    home: str
    url: str
    check: Callable[[], None]
    verification: VerificationState


class Seen(NamedTuple):
    """The last that was seen of one type of source: when, in seconds since 1970, and the version it told."""

    at_s: int
    version: str | None


class Sightings:
    """Which types of sources have reported since the Hub started."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def note(self, kind: str, at_s: int, version: str | None) -> None:
        """Note that a source of this type has reported."""
        self._seen[kind] = Seen(at_s, version)

    def all_seen(self, means: Means) -> dict[str, Seen]:
        """Return the last that was seen by type, also of the sessions that were started last.

        The cost is bounded: an old session that has not reported since the Hub started is not looked for.
        """
        found = dict(self._seen)
        for session, source in means.reader.latest_sources(limit=_SESSIONS):
            told = _told(source.told)
            kind, seen = told.get("type", ""), Seen(session.iat, told.get("version"))
            if session.length and (kind not in found or found[kind].at_s < seen.at_s):
                found[kind] = seen
        return found


def _told(text: str) -> dict[str, str]:
    try:
        return json.decode(text, type=dict[str, str])
    except DecodeError:
        return {}  # nothing signs it: what cannot be read is left out


def status(means: Means, place: Place, sightings: Sightings) -> StatusAnswer:
    """Return the status of the Hub."""
    _check(place)
    reader = means.reader
    overview, kid = reader.overview(), reader.switches().kid
    latest = None if overview.last_receipt_id is None else reader.receipt(overview.last_receipt_id)
    return StatusAnswer(
        version=__version__,
        home=place.home,
        verifier_id=f"remit:{kid}",
        hub_url=place.url,
        sessions=overview.sessions,
        session_reviews=reader.source_count(),
        latest_receipt=None if latest is None else receipt_answer(_verified(means, latest.token)),
        public_key_pem=_public_pem(means, kid),
        adapters=Adapters(),
        adapter_details=_details(sightings.all_seen(means)),
        verification=_verification(means, place.verification, overview.sessions),
    )


_LISTED: Final = 100


def _verification(means: Means, state: VerificationState, sessions: int) -> VerificationAnswer:
    """Return up to where and when everything was verified."""
    summary, reader = state.summary, means.reader
    broken = {session.id: None for session in reader.broken_sessions(limit=_LISTED)} | state.faults()
    listed = tuple(
        BrokenSession(session_id=name, receipt=fault.index + 1 if fault else None, fault=fault.fault if fault else None)
        for name, fault in list(broken.items())[:_LISTED]
    )
    total = reader.broken_count() + sum(1 for name in state.faults() if _is_whole(means, name))
    if summary is None:
        return VerificationAnswer(
            state="broken" if total else "unknown",
            problem=state.problem,
            sessions=sessions,
            sessions_broken=total,
            broken=listed,
        )
    return VerificationAnswer(
        state="broken" if total else "verifying" if summary.verified_at is None else "verified",
        problem=state.problem,
        sessions=sessions,
        sessions_verified=min(summary.sessions_verified, sessions),
        sessions_broken=total,
        receipts_verified=summary.receipts_verified,
        verified_through=summary.through_receipt,
        verified_at=_time(summary.verified_at),
        pass_started_at=_time(summary.pass_started_at),
        last_full_pass_at=_time(summary.last_full_pass_at),
        broken=listed,
    )


def _is_whole(means: Means, name: str) -> bool:
    """Tell whether a session is not marked as broken in the ledger yet."""
    session = means.reader.session(name)
    return session is None or not session.broken


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else timestamp(seconds * 1000)


def _check(place: Place) -> None:
    """Raise if a file of the home is not what it must be, and say what to do as well."""
    try:
        place.check()
    except StateError as error:
        advice: list[str] = getattr(error, "__notes__", [])
        raise StateCorrupt(". ".join([str(error), *advice])) from error


def _public_pem(means: Means, kid: str) -> str:
    records = means.reader.keys()
    return next((record.public_pem for record in records if record.kid == kid), "")


def _details(seen: Mapping[str, Seen]) -> AdapterDetails:
    """Return what was really seen of each adapter. Whether an extension or a program is installed is not detectable."""
    on_macos = sys.platform == "darwin"
    by = "an observer with permission" if on_macos else "an observer; ours is for macOS only"
    return AdapterDetails(
        browser=_detail(seen.get("browser"), "any extension that is given the token"),
        desktop=_detail(seen.get("desktop"), by, installed=None if on_macos else False),
        cli=_detail(seen.get("cli"), "any program that is given the token"),
    )


def _detail(seen: Seen | None, by: str, *, installed: bool | None = None) -> AdapterDetail:
    return AdapterDetail(
        available=bool(installed) or seen is not None,
        by=by,
        installed=installed,
        last_event=None if seen is None else timestamp(seen.at_s * 1000),
        version=None if seen is None else seen.version,
    )


def evidence(means: Means, place: Place, sightings: Sightings) -> Iterator[bytes]:
    """Yield everything that the Hub holds, as one JSON document."""
    first: Mapping[str, JSON] = {
        "ok": True,
        "schema_version": SCHEMA_VERSION,
        "exported_at": timestamp(means.clock.now().wall_ms),
        "status": to_builtins(status(means, place, sightings)),
    }
    beside = {"session_reviews": partial(_review, means), "latest_receipts": partial(_latest, means)}
    return export(means.reader, first, view=partial(_view, means), beside=beside)


def _view(means: Means, session: Session) -> Mapping[str, JSON]:
    """Return what is shown of a session: who reports to it too, where an adapter does."""
    view = session_view(session) | {"ardur_session_id": session.id, "mission": _mission(means, session)}
    known = load_known(means, session.id)
    return view if known is None else view | {"source": source_members(known.told), "title": known.told.get("title")}


def _mission(means: Means, session: Session) -> str | None:
    try:
        return means.passport_of(session).mission.mission
    except StateCorrupt:
        return None  # the rest of what is there is no less true


def _review(means: Means, session: Session) -> bytes | None:
    known = load_known(means, session.id)
    return None if known is None else json.encode(review_of(session, known))


def _latest(means: Means, session: Session) -> bytes | None:
    kept = None if session.receipt_id is None else means.reader.receipt(session.receipt_id)
    if kept is None:
        return None
    try:
        answer = receipt_answer(_verified(means, kept.token))
    except StateCorrupt:
        return None  # it stands among the receipts, where whoever verifies them finds it
    return orjson.dumps({"ardur_session_id": session.id, **structs.asdict(answer)})


def _verified(means: Means, token: str) -> SignedReceipt:
    try:
        return means.receipt(token)
    except TokenError:
        raise StateCorrupt("a receipt in ledger.db does not verify: remit ledger check says more") from None
