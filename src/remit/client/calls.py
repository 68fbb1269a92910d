"""What can be asked of the governance proxy: each request, and what an answer must say to belong to it.

Pure, but for the random key of a call that comes without one. Keeps these invariants: what is sent was read back by the
rules that the service will hold it to, and nothing turns into something else on the way (`NaN` into `null`). An answer
that permits must say so in every part. How it travels is for `wire.py`.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from msgspec import UNSET

from remit.claims.canonical import canonicalize, sha256_hex
from remit.claims.keys import Keyring
from remit.claims.mission import Mission
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest, Receipt, verify_receipt
from remit.claims.shapes import ID_STRING, encode, shape
from remit.claims.strictjson import parse_object
from remit.errors import FieldInvalid
from remit.messages.proxy import (
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
from remit.messages.shared import Answer, HealthAnswer, KeysAnswer, Request

__all__ = [
    "Call",
    "attest",
    "delegate",
    "end",
    "evaluate",
    "health",
    "keys",
    "kill_switch",
    "result",
    "revoke",
    "start",
]

_Answer = TypeVar("_Answer", bound=Answer)
_KEY_BYTES: Final = 16
_SESSION_ID: Final = re.compile(ID_STRING)
# As receipts write the names of tools: a longer one is cut, and ends in its digest.
_MAX_TOOL: Final = 256
_TOOL_START: Final = 200
_TOOL_DIGEST: Final = 32


@dataclass(frozen=True)
class Call(Generic[_Answer]):
    """One request. `check` raises for an answer of the right shape that does not belong to it.

    `may_repeat` says that asking twice comes to the same as asking once. `secret` is what no message may show.
    """

    method: str
    path: str
    kind: type[_Answer]
    check: Callable[[_Answer, Keyring | None], None] = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    may_repeat: bool = True
    is_admin: bool = False
    secret: str = field(default="", repr=False)


def _body(request: Request) -> bytes:
    """Return the JSON of a request that obeys its rules."""
    body = encode(request)
    shape(type(request), parse_object(body))
    return body


def _take(_answer: Answer, _keyring: Keyring | None) -> None:
    """Check nothing: the answer names nothing that was asked for."""


def _must(holds: object, problem: str, place: str) -> None:
    if not holds:
        raise FieldInvalid(problem, place=place)


def start(token: str) -> Call[StartAnswer]:
    """Start the session of a passport. Started again, it is the same session."""
    return Call("POST", "/session/start", StartAnswer, _take, _body(StartRequest(token=token)), secret=token)


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
    made for this call.
    """
    form = canonicalize(dict(arguments))
    request = EvaluateRequest(
        session_id=session_id,
        tool_name=tool_name,
        arguments=parse_object(form),
        cwd=UNSET if cwd is None else cwd,
        idempotency_key=secrets.token_hex(_KEY_BYTES) if idempotency_key is None else idempotency_key,
    )

    def check(answer: EvaluateAnswer, keyring: Keyring | None) -> None:
        receipt = _check_receipt(answer, session_id, keyring)
        _check_decision(answer, receipt)
        if receipt is not None:
            _must(receipt.arguments_hash.lower() == sha256_hex(form), "is about other arguments", "$.receipt")
            _must(_names(receipt.tool, tool_name), "is about another tool", "$.receipt")

    return Call("POST", "/evaluate", EvaluateAnswer, check, _body(request))


def result(session_id: str, receipt_id: str, result_hash: Digest) -> Call[ResultAnswer]:
    """Record what became of a call. One decision has one outcome, so the same again is found and not added."""

    def check(answer: ResultAnswer, keyring: Keyring | None) -> None:
        receipt = _check_receipt(answer, session_id, keyring)
        if receipt is not None:
            _must(receipt.verdict == answer.verdict, "is not what the receipt says", "$.verdict")
            _must(receipt.result_hash == result_hash, "is about another outcome", "$.receipt")

    request = ResultRequest(session_id=session_id, receipt_id=receipt_id, result_hash=result_hash)
    return Call("POST", "/result", ResultAnswer, check, _body(request))


def end(session_id: str) -> Call[SessionAnswer]:
    """End a session. One that is over stays as it is."""

    def check(answer: SessionAnswer, _keyring: Keyring | None) -> None:
        _check_over(answer, session_id, "$")

    return Call("POST", "/session/end", SessionAnswer, check, _body(EndRequest(session_id=session_id)))


def attest(session_id: str, *, end: bool = False) -> Call[AttestAnswer]:
    """Ask for a signed statement over a session. Asked twice there are two, and both are true: no receipt is added."""

    def check(answer: AttestAnswer, _keyring: Keyring | None) -> None:
        _must(answer.claims.session_id == session_id, "is another session", "$.claims.session_id")
        _must(not end or answer.claims.state != "active", "was to end", "$.claims.state")

    _must(_SESSION_ID.fullmatch(session_id), "is not the id of a session", "$.session_id")
    path = f"/sessions/{quote(session_id, safe=':')}/attest"
    return Call("POST", path, AttestAnswer, check, _body(AttestRequest(end=end)))


def delegate(
    session_id: str, mission: Mission, *, request_id: str, cnf: Confirmation | None = None
) -> Call[DelegateAnswer]:
    """Ask for a delegate's passport. The same request under the same id gets the same passport."""

    def check(answer: DelegateAnswer, keyring: Keyring | None) -> None:
        _check_decision(answer, _check_receipt(answer, session_id, keyring))
        given = answer.token is not UNSET
        _must(given == (answer.decision == "PERMIT"), "comes with a PERMIT, and only then", "$.token")

    request = DelegateRequest(
        session_id=session_id, request_id=request_id, mission=mission, cnf=UNSET if cnf is None else cnf
    )
    return Call("POST", "/delegate", DelegateAnswer, check, _body(request))


def revoke(
    *, passport_id: str | None = None, session_id: str | None = None, lineage: bool = False, reason: str = ""
) -> Call[RevokeAnswer]:
    """Revoke a passport, or a session with its lineage or without. What is revoked stays so, however often."""
    revoked = passport_id if session_id is None else session_id

    def check(answer: RevokeAnswer, _keyring: Keyring | None) -> None:
        _must(answer.revoked == revoked, "is something else", "$.revoked")
        _must(answer.session is not None or session_id is None, "is missing", "$.session")
        if answer.session is not None:
            _check_over(answer.session, answer.revoked, "$.session")

    request = RevokeRequest(
        passport_id=UNSET if passport_id is None else passport_id,
        session_id=UNSET if session_id is None else session_id,
        lineage=lineage,
        reason=reason,
    )
    return Call("POST", "/revoke", RevokeAnswer, check, _body(request), is_admin=True)


def kill_switch(*, on: bool) -> Call[KillSwitchAnswer]:
    """Stop everything, or let sessions start again.

    Only the stop is repeated: a release that arrives a second time could undo a stop that somebody has made in between.
    """

    def check(answer: KillSwitchAnswer, _keyring: Keyring | None) -> None:
        _must(answer.on is on, "is not as it was asked for", "$.on")

    return Call(
        "POST", "/kill-switch", KillSwitchAnswer, check, _body(KillSwitchRequest(on=on)), is_admin=True, may_repeat=on
    )


def health() -> Call[HealthAnswer]:
    """Ask whether the service is there, and which one it is."""
    return Call("GET", "/health", HealthAnswer, _take)


def keys() -> Call[KeysAnswer]:
    """Ask for the public keys that have signed here. They prove nothing of who holds them."""
    return Call("GET", "/.well-known/jwks.json", KeysAnswer, _take)


class _WithReceipt(Protocol):
    """The answers that bring a receipt."""

    @property
    def session_id(self) -> str: ...
    @property
    def receipt(self) -> str: ...
    @property
    def receipt_id(self) -> str: ...
    @property
    def receipt_hash(self) -> str: ...


def _check_receipt(answer: _WithReceipt, session_id: str, keyring: Keyring | None) -> Receipt | None:
    """Return what the receipt of an answer says, if there are keys to verify it with; raise if that is not the same."""
    _must(answer.session_id == session_id, "is another session", "$.session_id")
    _must(answer.receipt_hash == sha256_hex(answer.receipt.encode()), "is of another receipt", "$.receipt_hash")
    if keyring is None:
        return None
    receipt = verify_receipt(answer.receipt, keyring).claims
    _must(receipt.grant_id == session_id, "is of another session", "$.receipt")
    _must(receipt.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    return receipt


def _check_decision(answer: EvaluateAnswer | DelegateAnswer, receipt: Receipt | None) -> None:
    """Raise for a PERMIT that is not one in every part. A DENY may bring the receipt of a PERMIT that holds no more."""
    permits = answer.decision == "PERMIT"
    whole = answer.verdict == "compliant" and answer.public_denial_reason is UNSET
    _must(whole or not permits, "permits, and gives a denial", "$.decision")
    if receipt is not None:
        outdated = receipt.verdict == "compliant" and not permits
        _must(receipt.verdict == answer.verdict or outdated, "is not what the receipt says", "$.verdict")


def _check_over(session: SessionAnswer, session_id: str, place: str) -> None:
    _must(session.session_id == session_id, "is another session", f"{place}.session_id")
    _must(session.state != "active", "is still active", f"{place}.state")


def _names(written: str, tool: str) -> bool:
    """Tell whether a receipt's name of a tool is that of `tool`."""
    if len(tool) <= _MAX_TOOL:
        return written == tool
    return written == f"{tool[:_TOOL_START]}…{sha256_hex(tool.encode())[:_TOOL_DIGEST]}"
