"""The requests of the governance proxy.

Pure, but for the random idempotency key of a call without one. Invariant: arguments are sent exactly or
refused; `NaN` does not become `null`. `response_checks.py` checks the responses, `transport.py` sends the calls.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from msgspec import UNSET

from remit.claims.canonical import canonicalize_arguments
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest
from remit.claims.strictjson import parse_object
from remit.claims.types import ID_STRING
from remit.client.call import ServiceCall, accept_any, read_back
from remit.client.response_checks import (
    CheckContext,
    check_attestation,
    check_delegation,
    check_evaluation,
    check_result,
    check_session_ended,
    check_session_start,
    require,
)
from remit.schemas.proxy import (
    AttestAnswer,
    AttestRequest,
    DelegateAnswer,
    DelegateRequest,
    EndRequest,
    EvaluateAnswer,
    EvaluateRequest,
    KillSwitchAnswer,
    KillSwitchRequest,
    ResultAnswer,
    ResultRequest,
    RevokeAnswer,
    RevokeRequest,
    SessionAnswer,
    StartAnswer,
    StartRequest,
)
from remit.schemas.shared import KeysAnswer

__all__ = [
    "attest",
    "delegate",
    "end",
    "evaluate",
    "keys",
    "kill_switch",
    "result",
    "revoke",
    "start",
]

_KEY_BYTES: Final = 16
_SESSION_ID: Final = re.compile(ID_STRING)


def start(token: str) -> ServiceCall[StartAnswer]:
    """Start the session of a passport. Starting it again returns the same session."""

    def check(answer: StartAnswer, _context: CheckContext) -> None:
        check_session_start(answer, token)

    _, body = read_back(StartRequest(token=token))
    return ServiceCall("POST", "/session/start", StartAnswer, check, body, secret=token)


def evaluate(
    session_id: str,
    tool_name: str,
    arguments: Mapping[str, Any],
    *,
    cwd: str | None = None,
    idempotency_key: str | None = None,
) -> ServiceCall[EvaluateAnswer]:
    """Ask for the decision on a tool call, before it is made.

    The key makes it repeatable: the same call under the same key gets the same receipt. Without one, a random one is
    made for this call, and no earlier receipt is accepted. `cwd` is in nothing that is signed.
    """
    canonical_arguments = canonicalize_arguments(dict(arguments))
    request, body = read_back(
        EvaluateRequest(
            session_id=session_id,
            tool_name=tool_name,
            arguments=parse_object(canonical_arguments, exact_integers=True),
            cwd=UNSET if cwd is None else cwd,
            idempotency_key=secrets.token_hex(_KEY_BYTES) if idempotency_key is None else idempotency_key,
        )
    )

    def check(answer: EvaluateAnswer, context: CheckContext) -> None:
        check_evaluation(answer, request, canonical_arguments, context, has_random_key=idempotency_key is None)

    return ServiceCall("POST", "/evaluate", EvaluateAnswer, check, body)


def result(session_id: str, receipt_id: str, result_hash: Digest) -> ServiceCall[ResultAnswer]:
    """Record the outcome of a call. A decision has one outcome; recording it again adds nothing."""
    request, body = read_back(ResultRequest(session_id=session_id, receipt_id=receipt_id, result_hash=result_hash))

    def check(answer: ResultAnswer, context: CheckContext) -> None:
        check_result(answer, request, context)

    return ServiceCall("POST", "/result", ResultAnswer, check, body)


def end(session_id: str) -> ServiceCall[SessionAnswer]:
    """End a session. A session that is over stays as it is."""

    def check(answer: SessionAnswer, _context: CheckContext) -> None:
        check_session_ended(answer, session_id, "$")

    _, body = read_back(EndRequest(session_id=session_id))
    return ServiceCall("POST", "/session/end", SessionAnswer, check, body)


def attest(session_id: str, *, end: bool = False) -> ServiceCall[AttestAnswer]:
    """Ask for an attestation of a session. It adds no receipt, so it may be repeated; each request makes a new one."""

    def check(answer: AttestAnswer, context: CheckContext) -> None:
        check_attestation(answer, session_id, context, is_over=end)

    require(_SESSION_ID.fullmatch(session_id), "is not the id of a session", "$.session_id")
    path = f"/sessions/{quote(session_id, safe=':')}/attest"
    _, body = read_back(AttestRequest(end=end))
    return ServiceCall("POST", path, AttestAnswer, check, body)


def delegate(
    session_id: str, mission: Mission, *, request_id: str, cnf: Confirmation | None = None
) -> ServiceCall[DelegateAnswer]:
    """Ask for a delegate's passport. The same request under the same id gets the same passport."""
    request, body = read_back(
        DelegateRequest(
            session_id=session_id, request_id=request_id, mission=mission, cnf=UNSET if cnf is None else cnf
        )
    )

    def check(answer: DelegateAnswer, context: CheckContext) -> None:
        check_delegation(answer, request, context)

    return ServiceCall("POST", "/delegate", DelegateAnswer, check, body)


def revoke(
    *, passport_id: str | None = None, session_id: str | None = None, lineage: bool = False, reason: str = ""
) -> ServiceCall[RevokeAnswer]:
    """Revoke a passport, or a session with or without its lineage. Revoking it again changes nothing."""
    revoked = passport_id if session_id is None else session_id

    def check(answer: RevokeAnswer, _context: CheckContext) -> None:
        require(answer.revoked == revoked, "is another id", "$.revoked")
        require(answer.session is not None or session_id is None, "is missing", "$.session")
        if answer.session is not None:
            check_session_ended(answer.session, answer.revoked, "$.session")

    _, body = read_back(
        RevokeRequest(
            passport_id=UNSET if passport_id is None else passport_id,
            session_id=UNSET if session_id is None else session_id,
            lineage=lineage,
            reason=reason,
        )
    )
    return ServiceCall("POST", "/revoke", RevokeAnswer, check, body, is_admin=True)


def kill_switch(*, on: bool) -> ServiceCall[KillSwitchAnswer]:
    """Revoke every session and refuse new ones, or allow new ones again.

    Only turning it on is retried: a repeated request to turn it off could undo one that turned it on in between.
    """

    def check(answer: KillSwitchAnswer, _context: CheckContext) -> None:
        require(answer.on is on, "is not what was requested", "$.on")

    _, body = read_back(KillSwitchRequest(on=on))
    return ServiceCall("POST", "/kill-switch", KillSwitchAnswer, check, body, is_admin=True, may_repeat=on)


def keys() -> ServiceCall[KeysAnswer]:
    """Request the public keys of the service. They do not prove its identity."""
    return ServiceCall("GET", "/.well-known/jwks.json", KeysAnswer, accept_any)
