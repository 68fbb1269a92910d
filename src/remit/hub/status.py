"""The status of the Hub: `GET /v1/status`. Reads the ledger, and never writes to it."""

import sys
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import DecodeError, json

from remit.errors import StateCorrupt, StateError
from remit.governor.clock import format_timestamp
from remit.governor.context import Context
from remit.governor.verification import VerificationState
from remit.hub.answers import receipt_answer, verify_stored_receipt
from remit.schemas.hub import (
    AdapterDetail,
    AdapterDetails,
    Adapters,
    BrokenSession,
    StatusAnswer,
    VerificationAnswer,
)
from remit.version import __version__

# How many of the newest sessions are read from the ledger for the activity of sources.
_SESSIONS: Final = 256


class HubInfo(NamedTuple):
    """The home and the URL of a Hub, and the state of its verifier."""

    home: str
    url: str
    # Raises `StateError` if the settings of the home cannot be read.
    check_settings: Callable[[], None]
    verification: VerificationState


class LastEvent(NamedTuple):
    """When a type of source sent its last event, in seconds since 1970, and the version of the adapter."""

    at_s: int
    version: str | None


class SourceActivity:
    """Records the last event of each type of source."""

    def __init__(self) -> None:
        self._last: dict[str, LastEvent] = {}

    def record(self, source_type: str, at_s: int, version: str | None) -> None:
        """Record an event of a source of this type."""
        self._last[source_type] = LastEvent(at_s, version)

    def last_events(self, context: Context) -> dict[str, LastEvent]:
        """Return the last event by type of source: those recorded here, and those of the newest sessions in the ledger.

        The cost is bounded: a session that is older than these counts only if it had an event since the Hub started.
        """
        last = dict(self._last)
        for session, source in context.reader.latest_sources(limit=_SESSIONS):
            details = _source_details(source.told)
            source_type, event = details.get("type", ""), LastEvent(session.iat, details.get("version"))
            if session.length and (source_type not in last or last[source_type].at_s < event.at_s):
                last[source_type] = event
        return last


def _source_details(text: str) -> dict[str, str]:
    try:
        return json.decode(text, type=dict[str, str])
    except DecodeError:
        return {}  # it is not signed, and nothing depends on it


def build_status(context: Context, info: HubInfo, activity: SourceActivity) -> StatusAnswer:
    """Return the status of the Hub."""
    _check_settings(info)
    reader = context.reader
    overview, kid = reader.overview(), reader.ledger_state().kid
    latest = None if overview.last_receipt_id is None else reader.receipt(overview.last_receipt_id)
    return StatusAnswer(
        version=__version__,
        home=info.home,
        verifier_id=f"remit:{kid}",
        hub_url=info.url,
        sessions=overview.sessions,
        session_reviews=reader.source_count(),
        latest_receipt=None if latest is None else receipt_answer(verify_stored_receipt(context, latest.token)),
        public_key_pem=_public_pem(context, kid),
        adapters=Adapters(),
        adapter_details=_adapter_details(activity.last_events(context)),
        verification=_verification(context, info.verification, overview.sessions),
    )


# Broken sessions that the status lists.
_LISTED: Final = 100


def _verification(context: Context, state: VerificationState, sessions: int) -> VerificationAnswer:
    """Return the progress of the verifier, and the sessions with broken chains."""
    summary, reader = state.summary, context.reader
    broken = {session.id: None for session in reader.broken_sessions(limit=_LISTED)} | state.faults()
    listed = tuple(
        BrokenSession(session_id=name, receipt=fault.index + 1 if fault else None, fault=fault.fault if fault else None)
        for name, fault in list(broken.items())[:_LISTED]
    )
    total = reader.broken_count() + sum(1 for name in state.faults() if not _is_marked_broken(context, name))
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


def _is_marked_broken(context: Context, session_id: str) -> bool:
    """Return whether the ledger has a session marked as broken."""
    session = context.reader.session(session_id)
    return session is not None and bool(session.broken)


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else format_timestamp(seconds * 1000)


def _check_settings(info: HubInfo) -> None:
    """Raise `StateCorrupt`, with the advice that the error has as notes, if the settings cannot be read."""
    try:
        info.check_settings()
    except StateError as error:
        advice: list[str] = getattr(error, "__notes__", [])
        raise StateCorrupt(". ".join([str(error), *advice])) from error


def _public_pem(context: Context, kid: str) -> str:
    records = context.reader.keys()
    return next((record.public_pem for record in records if record.kid == kid), "")


def _adapter_details(last: Mapping[str, LastEvent]) -> AdapterDetails:
    """Return the activity of each adapter. Whether an extension or a program is installed cannot be detected."""
    on_macos = sys.platform == "darwin"
    by = "an observer with permission" if on_macos else "an observer; that of Remit is for macOS only"
    return AdapterDetails(
        browser=_adapter_detail(last.get("browser"), "any extension that is given the token"),
        desktop=_adapter_detail(last.get("desktop"), by, installed=None if on_macos else False),
        cli=_adapter_detail(last.get("cli"), "any program that is given the token"),
    )


def _adapter_detail(last: LastEvent | None, by: str, *, installed: bool | None = None) -> AdapterDetail:
    return AdapterDetail(
        available=bool(installed) or last is not None,
        by=by,
        installed=installed,
        last_event=None if last is None else format_timestamp(last.at_s * 1000),
        version=None if last is None else last.version,
    )
