"""The requests to the Personal Hub.

Pure, except that an event without an idempotency key gets a random one. Invariant: an event that is sent again by a
retry gets the receipt that it already has.
"""

import secrets
from dataclasses import replace
from typing import Final

from msgspec import to_builtins

from remit.claims.canonical import canonicalize_arguments
from remit.claims.jws import unsafe_peek
from remit.claims.strictjson import parse_object
from remit.claims.types import convert
from remit.client import calls
from remit.client.call import ServiceCall, accept_any
from remit.client.hub_response_checks import check_observation
from remit.client.response_checks import CheckContext, require
from remit.schemas.hub import (
    CheckAnswer,
    Event,
    HubStartAnswer,
    HubStartRequest,
    ObserveAnswer,
    ObserveRequest,
    RequestedMission,
    SessionInfo,
    SourceInfo,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer
from remit.schemas.shared import Answer, RequestBody

__all__ = ["attest", "check", "export", "observe", "start", "status"]

_KEY_BYTES: Final = 16


def _body(request: RequestBody) -> bytes:
    """Return the JSON of a request, checked by the rules of the service. Raises if JSON cannot represent a value."""
    body = canonicalize_arguments(to_builtins(request))
    convert(type(request), parse_object(body, exact_integers=True))
    return body


def start(
    source: SourceInfo, *, session: SessionInfo | None = None, mission: RequestedMission | None = None
) -> ServiceCall[HubStartAnswer]:
    """Start the session of a source and a session key. Starting it again returns the same session."""

    def check_response(answer: HubStartAnswer, _context: CheckContext) -> None:
        require(answer.source.get("type") == source.type, "is not the requested source", "$.source.type")
        jti = (unsafe_peek(answer.token).claims or {}).get("jti")
        require(jti == answer.ardur_session_id, "is not that of the passport", "$.ardur_session_id")

    request = HubStartRequest(source=source, session=session, mission=mission)
    return ServiceCall("POST", "/v1/sessions/start", HubStartAnswer, check_response, _body(request))


def observe(
    source: SourceInfo,
    event: Event,
    *,
    session: SessionInfo | None = None,
    mission: RequestedMission | None = None,
    idempotency_key: str | None = None,
) -> ServiceCall[ObserveAnswer]:
    """Report an event, and ask for its receipt.

    The key makes it repeatable: the same event under the same key gets the same receipt. Without one, a random one is
    made for this event.
    """
    key = secrets.token_hex(_KEY_BYTES) if idempotency_key is None else idempotency_key
    request = _observe_request(source, event, session, mission, key)

    def check_response(answer: ObserveAnswer, context: CheckContext) -> None:
        check_observation(answer, request, context, has_random_key=idempotency_key is None)

    return ServiceCall("POST", "/v1/events/observe", ObserveAnswer, check_response, _body(request))


def check(
    source: SourceInfo, event: Event, *, session: SessionInfo | None = None, mission: RequestedMission | None = None
) -> ServiceCall[CheckAnswer]:
    """Ask for the decision on an event without recording it."""
    request = _observe_request(source, event, session, mission, None)
    return ServiceCall("POST", "/v1/policy/check", CheckAnswer, accept_any, _body(request))


def attest(session_id: str, *, end: bool = False) -> ServiceCall[AttestAnswer]:
    """Ask for an attestation of a session. It adds no receipt, so it may be repeated; each request makes a new one."""
    call = calls.attest(session_id, end=end)
    return replace(call, path=f"/v1{call.path}")


def status() -> ServiceCall[StatusAnswer]:
    """Ask for the status of the Hub."""
    return ServiceCall("GET", "/v1/status", StatusAnswer, accept_any)


def export() -> ServiceCall[Answer]:
    """Ask for all evidence. The response is too large to buffer: stream it."""
    return ServiceCall("GET", "/v1/export", Answer, accept_any)


def _observe_request(
    source: SourceInfo, event: Event, session: SessionInfo | None, mission: RequestedMission | None, key: str | None
) -> ObserveRequest:
    return ObserveRequest(
        source=source,
        event=event,
        session=session,
        mission=mission,
        idempotency_key=key,
    )
