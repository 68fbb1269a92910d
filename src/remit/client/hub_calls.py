"""What can be asked of the Personal Hub: each request, and which answers are believed.

Pure, but for the random key of an event that comes without one. Keeps this invariant: an event that is sent again on
the way gets the receipt that it has, and no second one.
"""

import secrets
from dataclasses import replace
from typing import Final

from msgspec import to_builtins

from remit.claims.canonical import canonicalize_arguments
from remit.claims.jws import unsafe_peek
from remit.claims.shapes import shape
from remit.claims.strictjson import parse_object
from remit.client import calls
from remit.client.beliefs import Grounds, must
from remit.client.call import Call, take_any
from remit.client.hub_beliefs import check_observed
from remit.schemas.hub import (
    CheckAnswer,
    Event,
    MissionAsked,
    ObserveAnswer,
    ObserveRequest,
    SessionTold,
    SourceTold,
    StartAnswer,
    StartRequest,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer
from remit.schemas.shared import Answer, Request

__all__ = ["attest", "check", "export", "observe", "start", "status"]

_KEY_BYTES: Final = 16


def _body(request: Request) -> bytes:
    """Return the JSON of a request, once the service's own rules take it. What has no exact JSON form is refused."""
    body = canonicalize_arguments(to_builtins(request))
    shape(type(request), parse_object(body, exact_integers=True))
    return body


def start(
    source: SourceTold, *, session: SessionTold | None = None, mission: MissionAsked | None = None
) -> Call[StartAnswer]:
    """Start a session, or find the one that this source and session have. Started again, it is the same session."""

    def check(answer: StartAnswer, _grounds: Grounds) -> None:
        must(answer.source.get("type") == source.type, "is another source", "$.source.type")
        jti = (unsafe_peek(answer.token).claims or {}).get("jti")
        must(jti == answer.ardur_session_id, "is not that of the passport", "$.ardur_session_id")

    request = StartRequest(source=source, session=session, mission=mission)
    return Call("POST", "/v1/sessions/start", StartAnswer, check, _body(request))


def observe(
    source: SourceTold,
    event: Event,
    *,
    session: SessionTold | None = None,
    mission: MissionAsked | None = None,
    idempotency_key: str | None = None,
) -> Call[ObserveAnswer]:
    """Report an event, and ask for its receipt.

    The key makes it repeatable: the same event under the same key gets the same receipt. Without one, a random one is
    made for this event.
    """
    key = secrets.token_hex(_KEY_BYTES) if idempotency_key is None else idempotency_key
    request = _observed(source, event, session, mission, key)

    def check(answer: ObserveAnswer, grounds: Grounds) -> None:
        check_observed(answer, request, grounds, is_drawn=idempotency_key is None)

    return Call("POST", "/v1/events/observe", ObserveAnswer, check, _body(request))


def check(
    source: SourceTold, event: Event, *, session: SessionTold | None = None, mission: MissionAsked | None = None
) -> Call[CheckAnswer]:
    """Ask what would be decided on an event. Nothing is kept of it."""
    request = _observed(source, event, session, mission, None)
    return Call("POST", "/v1/policy/check", CheckAnswer, take_any, _body(request))


def attest(session_id: str, *, end: bool = False) -> Call[AttestAnswer]:
    """Ask for a signed statement over a session. Asked twice there are two, and both are true: no receipt is added."""
    asked = calls.attest(session_id, end=end)
    return replace(asked, path=f"/v1{asked.path}")


def status() -> Call[StatusAnswer]:
    """Ask how the Hub stands."""
    return Call("GET", "/v1/status", StatusAnswer, take_any)


def export() -> Call[Answer]:
    """Ask for all evidence. The answer is too long to be held: it is read in parts."""
    return Call("GET", "/v1/export", Answer, take_any)


def _observed(
    source: SourceTold, event: Event, session: SessionTold | None, mission: MissionAsked | None, key: str | None
) -> ObserveRequest:
    return ObserveRequest(
        source=source,
        event=event,
        session=session,
        mission=mission,
        idempotency_key=key,
    )
