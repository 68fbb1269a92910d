"""A small Hub for tests: it answers as the real one does, and does on request what a real one must not.

It keeps one receipt for each idempotency key, and gives an export in parts.
"""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from remit.claims.receipt import SignedReceipt
from remit.claims.strictjson import parse_object
from remit.schemas.hub import (
    SCHEMA_VERSION,
    AdapterDetail,
    AdapterDetails,
    Adapters,
    CheckAnswer,
    HubStartAnswer,
    ObserveAnswer,
    PolicyAnswer,
    ReceiptAnswer,
    ReviewAnswer,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer
from remit.schemas.shared import HealthAnswer
from tests.client.service import PASSPORT, SESSION, Canned, Desk, Seen, canned_error, statement
from tests.world import MISSION, denied, permitted

__all__ = ["EXPORT", "FORBIDDEN", "HubDesk", "packed"]

FORBIDDEN = "https://secret.example/"
EXPORT = b'{"ok":true,"receipts":[' + b",".join(b'"token-%d"' % number for number in range(50_000)) + b"]}"
_MOMENT = "2026-01-01T00:00:00Z"
_KEY = "browser|example"

_UNSEEN = AdapterDetail(available=False, by="nobody")


def packed(*parts: bytes) -> Canned:
    """Return an export in chunks, packed as they are."""
    return Canned(body=iter(parts), headers={"Content-Encoding": "gzip"})


@dataclass
class HubDesk(Desk):
    """What the Hub knows. `mistaken` is a request that it takes every event for."""

    mistaken: Mapping[str, Any] | None = None

    def answer(self, request: Seen) -> Canned:
        """Return the answer to a request; requests come one after the other."""
        with self._lock:
            self.seen.append(request)
            if self.script:
                return self.script.pop(0)
            if request.path == "/v1/export":
                return _export(request)
            answering = _ANSWERS.get((request.method, request.path))
            if answering is None:
                return canned_error(404, "not_found")
            body = parse_object(msgspec.json.encode(answering(self, request.body))) | self.change
            return Canned(body=msgspec.json.encode(body))

    def observe(self, body: Mapping[str, Any]) -> ObserveAnswer:
        """Decide on an event, once for each key."""
        key, forbidden = body["idempotency_key"], body["event"]["target"] == FORBIDDEN
        judged = self.mistaken or body
        if key not in self._known:
            tool = {"tool": _tool(judged)}
            step = denied(**tool) if forbidden else permitted(**tool)
            self._known[key] = self.session.append(step, _arguments(judged))
            self.decided[key] += 1
        receipt = self._known[key]
        return ObserveAnswer(
            session_id=_KEY,
            ardur_session_id=SESSION,
            decision="DENY" if forbidden else "PERMIT",
            policy=_policy(receipt.claims.verdict, _arguments(judged)),
            receipt_id=receipt.claims.receipt_id,
            receipt=_receipt(receipt),
            session_review=_review(receipt, body["source"]["type"]),
        )


def _export(request: Seen) -> Canned:
    if request.headers.get("Accept-Encoding") != "gzip":
        return Canned(body=EXPORT)
    whole = gzip.compress(EXPORT)
    return packed(*(whole[at : at + 1000] for at in range(0, len(whole), 1000)))


def _tool(body: Mapping[str, Any]) -> str:
    source = body["source"]["type"]
    return "cli_command" if source == "cli" and body["event"]["command"] else f"{source}_observe"


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body["event"].items() if value is not None}


def _policy(verdict: Any, arguments: dict[str, Any]) -> PolicyAnswer:
    return PolicyAnswer(decision=verdict, reason="so it is", tool_name="browser_observe", arguments=arguments)


def _receipt(receipt: SignedReceipt) -> ReceiptAnswer:
    claims = receipt.claims
    return ReceiptAnswer(
        receipt_id=claims.receipt_id,
        receipt_hash=receipt.hash,
        jwt=receipt.token,
        verdict=claims.verdict,
        timestamp=claims.timestamp,
        tool=claims.tool,
        target=claims.target,
    )


def _review(receipt: SignedReceipt, source: str) -> ReviewAnswer:
    return ReviewAnswer(
        session_id=_KEY,
        ardur_session_id=SESSION,
        source={"type": source},
        provider="example",
        title="example",
        status="active",
        started_at=_MOMENT,
        updated_at=_MOMENT,
        observations=1,
        verdicts={},
        labels=(),
        latest_receipt_id=receipt.claims.receipt_id,
        latest_receipt_hash=receipt.hash,
        summary="one page",
        actions=msgspec.Raw(b'[{"kind":"page"}]'),
    )


def _start(body: Mapping[str, Any]) -> HubStartAnswer:
    return HubStartAnswer(
        session_id=_KEY,
        ardur_session_id=SESSION,
        agent_id=MISSION.agent_id,
        mission=MISSION.mission,
        source=dict(body["source"]),
        title="example",
        started_at=_MOMENT,
        token=PASSPORT.token,
        existing=False,
    )


def _status() -> StatusAnswer:
    return StatusAnswer(
        version="0",
        home="/home/someone/.remit",
        verifier_id="remit:someone",
        hub_url="http://127.0.0.1:8765",
        sessions=1,
        session_reviews=1,
        latest_receipt=None,
        public_key_pem="",
        adapters=Adapters(),
        adapter_details=AdapterDetails(browser=_UNSEEN, desktop=_UNSEEN, cli=_UNSEEN),
    )


_ANSWERS: Mapping[tuple[str, str], Callable[[HubDesk, Mapping[str, Any]], Any]] = {
    ("GET", "/health"): lambda _desk, _body: HealthAnswer(schema_version=SCHEMA_VERSION, version="0"),
    ("GET", "/v1/status"): lambda _desk, _body: _status(),
    ("POST", "/v1/sessions/start"): lambda _desk, body: _start(body),
    ("POST", "/v1/policy/check"): lambda _desk, _body: CheckAnswer(policy=_policy("compliant", {})),
    ("POST", "/v1/events/observe"): HubDesk.observe,
    ("POST", f"/v1/sessions/{SESSION}/attest"): lambda _desk, body: AttestAnswer(
        **statement(ended=body["end"])._asdict()
    ),
}
