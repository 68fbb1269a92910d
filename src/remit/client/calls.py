"""What can be asked of the governance proxy: each request, and which answers are believed.

Pure, but for the random key of a call that comes without one. Keeps this invariant: nothing turns into something else
on the way (`NaN` into `null`). What makes an answer believed is for `beliefs.py`, how it travels for `wire.py`.
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
from remit.claims.shapes import ID_STRING
from remit.claims.strictjson import parse_object
from remit.client.beliefs import (
    Grounds,
    check_attested,
    check_delegated,
    check_evaluated,
    check_over,
    check_recorded,
    check_started,
    must,
)
from remit.client.call import Call, read_back, take_any
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


def start(token: str) -> Call[StartAnswer]:
    """Start the session of a passport. Started again, it is the same session."""

    def check(answer: StartAnswer, _grounds: Grounds) -> None:
        check_started(answer, token)

    _, body = read_back(StartRequest(token=token))
    return Call("POST", "/session/start", StartAnswer, check, body, secret=token)


def evaluate(
    session_id: str,
    tool_name: str,
    arguments: Mapping[str, Any],
    *,
    cwd: str | None = None,
    idempotency_key: str | None = None,
) -> Call[EvaluateAnswer]:
    """Ask for the decision on a tool call, before it is made.

    The key makes it repeatable: the same call under the same key gets the same receipt. Without one, a random one is
    made for this call, and no receipt from before is believed. Nothing that is signed names `cwd`.
    """
    form = canonicalize_arguments(dict(arguments))
    request, body = read_back(
        EvaluateRequest(
            session_id=session_id,
            tool_name=tool_name,
            arguments=parse_object(form, exact_integers=True),
            cwd=UNSET if cwd is None else cwd,
            idempotency_key=secrets.token_hex(_KEY_BYTES) if idempotency_key is None else idempotency_key,
        )
    )

    def check(answer: EvaluateAnswer, grounds: Grounds) -> None:
        check_evaluated(answer, request, form, grounds, is_drawn=idempotency_key is None)

    return Call("POST", "/evaluate", EvaluateAnswer, check, body)


def result(session_id: str, receipt_id: str, result_hash: Digest) -> Call[ResultAnswer]:
    """Record what became of a call. One decision has one outcome, so the same again is found and not added."""
    request, body = read_back(ResultRequest(session_id=session_id, receipt_id=receipt_id, result_hash=result_hash))

    def check(answer: ResultAnswer, grounds: Grounds) -> None:
        check_recorded(answer, request, grounds)

    return Call("POST", "/result", ResultAnswer, check, body)


def end(session_id: str) -> Call[SessionAnswer]:
    """End a session. One that is over stays as it is."""

    def check(answer: SessionAnswer, _grounds: Grounds) -> None:
        check_over(answer, session_id, "$")

    _, body = read_back(EndRequest(session_id=session_id))
    return Call("POST", "/session/end", SessionAnswer, check, body)


def attest(session_id: str, *, end: bool = False) -> Call[AttestAnswer]:
    """Ask for a signed statement over a session. Asked twice there are two, and both are true: no receipt is added."""

    def check(answer: AttestAnswer, grounds: Grounds) -> None:
        check_attested(answer, session_id, grounds, is_over=end)

    must(_SESSION_ID.fullmatch(session_id), "is not the id of a session", "$.session_id")
    path = f"/sessions/{quote(session_id, safe=':')}/attest"
    _, body = read_back(AttestRequest(end=end))
    return Call("POST", path, AttestAnswer, check, body)


def delegate(
    session_id: str, mission: Mission, *, request_id: str, cnf: Confirmation | None = None
) -> Call[DelegateAnswer]:
    """Ask for a delegate's passport. The same request under the same id gets the same passport."""
    request, body = read_back(
        DelegateRequest(
            session_id=session_id, request_id=request_id, mission=mission, cnf=UNSET if cnf is None else cnf
        )
    )

    def check(answer: DelegateAnswer, grounds: Grounds) -> None:
        check_delegated(answer, request, grounds)

    return Call("POST", "/delegate", DelegateAnswer, check, body)


def revoke(
    *, passport_id: str | None = None, session_id: str | None = None, lineage: bool = False, reason: str = ""
) -> Call[RevokeAnswer]:
    """Revoke a passport, or a session with its lineage or without. What is revoked stays so, however often."""
    revoked = passport_id if session_id is None else session_id

    def check(answer: RevokeAnswer, _grounds: Grounds) -> None:
        must(answer.revoked == revoked, "is something else", "$.revoked")
        must(answer.session is not None or session_id is None, "is missing", "$.session")
        if answer.session is not None:
            check_over(answer.session, answer.revoked, "$.session")

    _, body = read_back(
        RevokeRequest(
            passport_id=UNSET if passport_id is None else passport_id,
            session_id=UNSET if session_id is None else session_id,
            lineage=lineage,
            reason=reason,
        )
    )
    return Call("POST", "/revoke", RevokeAnswer, check, body, is_admin=True)


def kill_switch(*, on: bool) -> Call[KillSwitchAnswer]:
    """Stop everything, or let sessions start again.

    Only the stop is repeated: a release that arrives a second time could undo a stop that somebody has made in between.
    """

    def check(answer: KillSwitchAnswer, _grounds: Grounds) -> None:
        must(answer.on is on, "is not as it was asked for", "$.on")

    _, body = read_back(KillSwitchRequest(on=on))
    return Call("POST", "/kill-switch", KillSwitchAnswer, check, body, is_admin=True, may_repeat=on)


def keys() -> Call[KeysAnswer]:
    """Ask for the public keys that have signed here. They prove nothing of who holds them."""
    return Call("GET", "/.well-known/jwks.json", KeysAnswer, take_any)
