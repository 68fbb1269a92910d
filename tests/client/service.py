"""A small proxy for tests: it answers as the real one does, and does on request what a real one must not.

It keeps a chain of receipts, one for each idempotency key, and counts what it was asked.
"""

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from remit.claims.attestation import SessionSummary, SignedAttestation, Tally, sign_attestation
from remit.claims.keys import SigningKey
from remit.claims.mission import parse_mission
from remit.claims.passport import Confirmation, Passport, issue_passport
from remit.claims.receipt import LineageBudgetDelta, SignedReceipt, Step, receipt_tool_name
from remit.claims.strictjson import parse_object
from remit.schemas.proxy import (
    SCHEMA_VERSION,
    AttestAnswer,
    DelegateAnswer,
    EvaluateAnswer,
    KillSwitchAnswer,
    ResultAnswer,
    RevokeAnswer,
    SessionAnswer,
    StartAnswer,
)
from remit.schemas.shared import ErrorAnswer, HealthAnswer, KeysAnswer
from tests.client.certs import Pair
from tests.world import ISSUER, MISSION, OURS, Session, denied, lineage_named, permitted

__all__ = [
    "DELEGATE",
    "FORBIDDEN",
    "PASSPORT",
    "SESSION",
    "Canned",
    "Desk",
    "Seen",
    "canned_error",
    "delegation",
    "outcome",
    "serve",
    "session_now",
    "statement",
]

SESSION = lineage_named().grant_id


def passport() -> Passport:
    """Return the passport of the session, issued now: one of the start of all tests may have expired by now."""
    return issue_passport(MISSION, OURS, issuer=ISSUER, jti=SESSION, now=int(time.time()))


PASSPORT = passport()
DELEGATE = "pass:delegate:0001"
FORBIDDEN = "send_email"
_MOMENT = "2026-01-01T00:00:00Z"
_LEFT = {"tool_calls": 3, "duration_s": 60}


def session_now(name: str = "first") -> Session:
    """Return a session whose receipts are of now."""
    return Session(name, now=int(time.time()))


class Canned(NamedTuple):
    """An answer that is given as it is; a body in parts is sent in chunks."""

    status: int = 200
    body: bytes | Iterator[bytes] = b"{}"
    headers: Mapping[str, str] = {}


def canned_error(status: int, code: str, text: str = "no", **headers: str) -> Canned:
    """Return an error as Remit gives it."""
    body = msgspec.json.encode(ErrorAnswer(error=text, error_code=code))
    return Canned(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class Seen(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    connection: object


@dataclass
class Desk:
    """What the service knows. `script` is given first, one for each request; `change` alters members of answers."""

    session: Session = field(default_factory=session_now)
    script: list[Canned] = field(default_factory=list)
    change: dict[str, Any] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    decided: Counter[str] = field(default_factory=Counter)
    _known: dict[str, SignedReceipt] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Seen) -> Canned:
        """Return the answer to a request; requests come one after the other."""
        with self._lock:
            self.seen.append(request)
            if self.script:
                return self.script.pop(0)
            answering = _ANSWERS.get((request.method, request.path))
            if answering is None:
                return canned_error(404, "not_found")
            members = msgspec.to_builtins(answering(self, request.body))
            return Canned(body=json.dumps(members | self.change).encode())

    def count_decided(self) -> int:
        """Return how many calls were decided, each with one receipt; a request that is being answered comes first."""
        with self._lock:
            assert len(self.session.receipts) == len(self.decided) == self.decided.total()
            return len(self.decided)

    def decide(self, body: Mapping[str, Any]) -> EvaluateAnswer:
        """Decide on a call, once for each key."""
        key, forbidden = body["idempotency_key"], body["tool_name"] == FORBIDDEN
        if key not in self._known:
            step = denied(tool=FORBIDDEN) if forbidden else permitted(tool=receipt_tool_name(body["tool_name"]))
            self._known[key] = self.session.append(step, body["arguments"])
            self.decided[key] += 1
        return EvaluateAnswer(
            decision="DENY" if forbidden else "PERMIT",
            public_denial_reason="policy_denied" if forbidden else msgspec.UNSET,
            budget_remaining=_LEFT,
            reason="so it is",
            **_receipt(self._known[key]),
        )


def _receipt(receipt: SignedReceipt) -> dict[str, Any]:
    claims = receipt.claims
    return {
        "session_id": claims.grant_id,
        "verdict": claims.verdict,
        "receipt": receipt.token,
        "receipt_id": claims.receipt_id,
        "receipt_hash": receipt.hash,
    }


def _start(_desk: Desk, _body: Mapping[str, Any]) -> StartAnswer:
    return StartAnswer(
        session_id=SESSION,
        agent_id=MISSION.agent_id,
        mission=MISSION.mission,
        allowed_tools=MISSION.allowed_tools,
        forbidden_tools=MISSION.forbidden_tools,
        resource_scope=MISSION.resource_scope,
        max_tool_calls=MISSION.max_tool_calls,
        max_duration_s=MISSION.max_duration_s,
        allowed_side_effect_classes=MISSION.allowed_side_effect_classes,
        started_at=_MOMENT,
        expires_at=_MOMENT,
        existing=False,
        state="active",
        budget_remaining=_LEFT,
    )


def outcome(receipt_id: str, result_hash: object, **changes: object) -> Step:
    """Return the step that keeps the outcome of a call."""
    decision = {"type": "remit.decision", "receipt_id": receipt_id}
    members = {"tool": "remit.result", "result_hash": result_hash, "evidence_proof_ref": decision}
    return permitted(**(members | changes))


def _result(desk: Desk, body: Mapping[str, Any]) -> ResultAnswer:
    receipt = desk.session.append(outcome(body["receipt_id"], body["result_hash"]))
    return ResultAnswer(reason="kept", repeated=False, **_receipt(receipt))


def _session(desk: Desk, body: Mapping[str, Any]) -> SessionAnswer:
    return SessionAnswer(
        session_id=body.get("session_id") or body["passport_id"],
        state="ended",
        started_at=_MOMENT,
        ended_at=_MOMENT,
        receipts=len(desk.session.receipts),
        verdicts={},
        budget_remaining={},
    )


def statement(
    session_id: str = SESSION, *, ended: bool, key: SigningKey = OURS, now: int | None = None
) -> SignedAttestation:
    """Return a statement over a session without receipts, of now unless said otherwise."""
    state, ended_at = ("ended", _MOMENT) if ended else ("active", None)
    summary = SessionSummary(session_id, MISSION.agent_id, MISSION.mission, state, _MOMENT, ended_at, {})  # type: ignore[arg-type]
    now = int(time.time()) if now is None else now
    return sign_attestation(summary, Tally(), key, issuer=ISSUER, jti="att:00000001", now=now, chain_verified=True)


def _attest(_desk: Desk, body: Mapping[str, Any]) -> AttestAnswer:
    return AttestAnswer(**statement(ended=body["end"])._asdict())


def delegation(request_id: str, **changes: object) -> Step:
    """Return the step that makes a delegate."""
    delta = LineageBudgetDelta(
        operation="reserve", resource="tool_calls", amount=1, unit="invocations", delegation_request_id=request_id
    )
    return permitted(**({"tool": "remit.delegate", "target": DELEGATE, "budget_delta": delta} | changes))


def _delegate(desk: Desk, body: Mapping[str, Any]) -> DelegateAnswer:
    mission, bound_to = parse_mission(body["mission"]), body.get("cnf")
    issued = issue_passport(
        mission,
        OURS,
        issuer=ISSUER,
        jti=DELEGATE,
        now=int(time.time()),
        parent=passport(),
        bound_to=msgspec.convert(bound_to, Confirmation | None),
    )
    return DelegateAnswer(
        decision="PERMIT",
        reason="narrower",
        repeated=False,
        token=issued.token,
        delegate_id=issued.jti,
        **_receipt(desk.session.append(delegation(body["request_id"]))),
    )


def _revoke(desk: Desk, body: Mapping[str, Any]) -> RevokeAnswer:
    return RevokeAnswer(revoked=body.get("session_id") or body["passport_id"], session=_session(desk, body))


def _keys(_desk: Desk, _body: Mapping[str, Any]) -> KeysAnswer:
    return KeysAnswer(keys=[dict(OURS.public.to_jwk())])


_ANSWERS: Mapping[tuple[str, str], Callable[[Desk, Mapping[str, Any]], Any]] = {
    ("POST", "/session/start"): _start,
    ("POST", "/evaluate"): Desk.decide,
    ("POST", "/result"): _result,
    ("POST", "/session/end"): _session,
    ("POST", f"/sessions/{SESSION}/attest"): _attest,
    ("POST", "/delegate"): _delegate,
    ("POST", "/revoke"): _revoke,
    ("POST", "/kill-switch"): lambda _desk, body: KillSwitchAnswer(on=body["on"], revoked=0),
    ("GET", "/health"): lambda _desk, _body: HealthAnswer(schema_version=SCHEMA_VERSION, version="0"),
    ("GET", "/.well-known/jwks.json"): _keys,
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    desk: Desk

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = parse_object(content) if content else {}
        self._send(self.desk.answer(Seen(self.command, self.path, dict(self.headers), body, self.connection)))

    do_GET = do_POST  # noqa: N815 - the name is the library's

    def _send(self, given: Canned) -> None:
        whole = isinstance(given.body, bytes)
        self.send_response(given.status)
        framing = {"Content-Length": str(len(given.body))} if isinstance(given.body, bytes) else _CHUNKED
        for name, value in (_KIND | framing | dict(given.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        for part in [given.body] if isinstance(given.body, bytes) else given.body:
            self.wfile.write(part if whole else b"%x\r\n%b\r\n" % (len(part), part))
        if not whole:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing."""


_KIND = {"Content-Type": "application/json"}
_CHUNKED = {"Transfer-Encoding": "chunked"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: connections are cut in these tests."""


@contextmanager
def serve(desk: Desk, *, pair: Pair | None = None, client_ca: str | None = None) -> Iterator[int]:
    """Serve on a port of this machine, with TLS where there is a certificate."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"desk": desk}))
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
