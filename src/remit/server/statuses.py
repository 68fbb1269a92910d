"""HTTP statuses and bodies for errors: a table over the error tree. A class without an entry has that of its base.

Invariant: a client gets the message of an error only if it is a `RemitError`, whose messages contain no paths and no
secrets. For other errors the message is fixed.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec import json

from remit.errors import (
    AccessError,
    AudienceMismatch,
    BodyTooLarge,
    DelegationTooDeep,
    EvidenceError,
    HeadersTooLarge,
    HolderMismatch,
    HookSecretWrong,
    HostRefused,
    HttpMalformed,
    HubTokenRequired,
    InputError,
    KeyMaterialError,
    KillSwitchOn,
    LedgerError,
    MediaTypeRefused,
    MethodRefused,
    MissionWidened,
    OriginRefused,
    PassportError,
    PassportExpired,
    PassportRevoked,
    PassportUnregistered,
    RateLimited,
    ReceiptNotFound,
    RemitError,
    RequestConflict,
    RequestError,
    RequestTooSlow,
    RouteNotFound,
    ServiceBusy,
    ServiceError,
    SessionNotFound,
    SessionSealed,
    StateCorrupt,
    StateError,
    TokenError,
    TokenRequired,
    TooManyTries,
)
from remit.schemas.shared import ErrorAnswer


class Status(NamedTuple):
    """An HTTP status, and the error code in the body."""

    status: int
    error_code: str


INTERNAL: Final = Status(500, "internal_error")
STATUSES: Final[Mapping[type[RemitError], Status]] = {
    RemitError: INTERNAL,
    InputError: Status(400, "bad_request"),
    KeyMaterialError: INTERNAL,
    EvidenceError: INTERNAL,
    ServiceError: INTERNAL,
    # The only signed tokens that clients send are passports.
    TokenError: Status(401, "passport_invalid"),
    PassportError: Status(401, "passport_invalid"),
    PassportExpired: Status(401, "passport_expired"),
    PassportRevoked: Status(403, "passport_revoked"),
    PassportUnregistered: Status(403, "passport_unregistered"),
    AudienceMismatch: Status(403, "audience_mismatch"),
    MissionWidened: Status(403, "mission_widened"),
    DelegationTooDeep: Status(403, "delegation_too_deep"),
    RequestError: Status(409, "request_conflict"),
    SessionNotFound: Status(404, "session_not_found"),
    ReceiptNotFound: Status(404, "receipt_not_found"),
    SessionSealed: Status(409, "session_sealed"),
    RequestConflict: Status(409, "request_conflict"),
    KillSwitchOn: Status(403, "kill_switch"),
    HolderMismatch: Status(403, "holder_mismatch"),
    RateLimited: Status(429, "rate_limited"),
    # No decision is returned if its receipt cannot be stored.
    LedgerError: Status(503, "ledger_unavailable"),
    StateError: Status(503, "ledger_unavailable"),
    StateCorrupt: Status(500, "state_corrupt"),
    AccessError: Status(400, "bad_request"),
    HttpMalformed: Status(400, "bad_request"),
    HeadersTooLarge: Status(431, "headers_too_large"),
    BodyTooLarge: Status(413, "body_too_large"),
    RequestTooSlow: Status(408, "request_too_slow"),
    HostRefused: Status(403, "host_not_allowed"),
    RouteNotFound: Status(404, "not_found"),
    MethodRefused: Status(405, "method_not_allowed"),
    MediaTypeRefused: Status(415, "unsupported_media_type"),
    OriginRefused: Status(403, "origin_not_allowed"),
    TokenRequired: Status(401, "auth_required"),
    HubTokenRequired: Status(401, "hub_auth_required"),
    HookSecretWrong: Status(401, "hook_secret_wrong"),
    TooManyTries: Status(429, "too_many_tries"),
    ServiceBusy: Status(503, "busy"),
}

_Headers: TypeAlias = list[tuple[bytes, bytes]]
_RETRY: Final[_Headers] = [(b"retry-after", b"1")]


def get_status(error: BaseException) -> Status:
    """Return the status of an error; `INTERNAL` if it is not a `RemitError`."""
    return next((STATUSES[base] for base in type(error).__mro__ if base in STATUSES), INTERNAL)


def error_body(error: BaseException) -> bytes:
    """Return the body of an error response."""
    code = get_status(error).error_code
    message = (
        "internal error; the log of the service has details under this request id"
        if code == INTERNAL.error_code
        else str(error)
    )
    return json.encode(ErrorAnswer(error=message, error_code=code))


def headers_for(error: BaseException) -> _Headers:
    """Return the further headers of an error response."""
    if isinstance(error, MethodRefused):
        return [(b"allow", error.allowed.encode("ascii"))]
    if isinstance(error, HubTokenRequired | TokenRequired):
        return [(b"www-authenticate", b"Bearer")]
    return _RETRY if get_status(error).status in (429, 503) else []
