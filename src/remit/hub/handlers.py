"""The handlers of the Hub's API: each passes a request to the governor, and returns the response.

Invariants: only the governor writes receipts. The cost of a response does not grow with the number of events before it,
and an export is streamed.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from remit.claims.receipt import SignedReceipt
from remit.errors import ReceiptNotFound, StateCorrupt, TokenError
from remit.governor.attest import Attest
from remit.governor.context import Context, UseCaseRunner
from remit.governor.observe import PreviewDecision, ReportEvent
from remit.governor.sources import StartSourceSession
from remit.hub.answers import (
    observe_answer,
    policy_answer,
    public_receipt_answer,
    signed_receipt_answer,
    start_answer,
    verify_stored_receipt,
)
from remit.hub.evidence import build_report, build_reporter
from remit.hub.export import export_hub
from remit.hub.reviews import LoadReview, Review, ReviewCache
from remit.hub.status import HubInfo, SourceActivity, build_status
from remit.ledger.records import StoredReceipt
from remit.schemas.hub import (
    SCHEMA_VERSION,
    CheckAnswer,
    HubStartAnswer,
    ObserveAnswer,
    PublicReceiptAnswer,
    SignedReceiptAnswer,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer, AttestRequest
from remit.schemas.shared import HealthAnswer
from remit.server.routes import Choice, Request, SessionDecision, StreamedResponse
from remit.version import __version__

RECEIPT_VIEW: Final = Choice(
    "view", ("full", "public"), "`public` leaves out the internal code and audit-only members."
)


class HubHandlers:
    """The handlers of the Hub's routes, except those of the dashboard."""

    def __init__(self, governor: UseCaseRunner, info: HubInfo) -> None:
        self._governor = governor
        self._info = info
        self._reviews = ReviewCache()
        self._activity = SourceActivity()

    async def health(self, request: Request) -> HealthAnswer:  # noqa: ARG002 - needs nothing of the request
        """Return the versions of the API and of the Hub."""
        return HealthAnswer(schema_version=SCHEMA_VERSION, version=__version__)

    async def status(self, request: Request) -> StatusAnswer:  # noqa: ARG002
        """Return the status of the Hub."""
        return await self._governor.arun(_GetStatus(self._info, self._activity))

    async def export(self, request: Request) -> StreamedResponse:  # noqa: ARG002
        """Stream all sessions and receipts as JSON."""
        # A failure here still has an error status; one while the export is streamed can only cut the connection off.
        await self._governor.arun(_GetStatus(self._info, self._activity))
        return StreamedResponse(export_hub(self._governor.context, self._info, self._activity), "application/json")

    async def start(self, request: Request) -> HubStartAnswer:
        """Start a session, or return the one that the source already has."""
        start = await self._governor.arun(StartSourceSession(build_reporter(request.body)))
        return start_answer(start, self._reviews.get(start.session.id) or await self._load_review(start.session.id))

    async def observe(self, request: Request) -> ObserveAnswer:
        """Judge an event, and append its receipt to the chain of its session."""
        report = self._report(request)
        try:
            session_id, answer = await self._governor.arun(report)
        except TokenError as error:
            # The client has sent no token: a stored one does not verify.
            raise _corrupt_session() from error
        self._activity.record(request.body.source.type, answer.receipt.claims.iat, request.body.source.version)
        request.decision = SessionDecision(session_id, answer)
        review = self._reviews.get(session_id)
        if review is not None and answer.note is not None:
            review.add_if_next(answer.note)
        if review is None or review.lacks(answer.session.observed):
            review = await self._load_review(session_id)
        return observe_answer(answer, report.observe, review)

    async def check(self, request: Request) -> CheckAnswer:
        """Judge an event without recording it."""
        report = self._report(request)
        decision = await self._governor.arun(PreviewDecision(report))
        return CheckAnswer(policy=policy_answer(decision, report.observe))

    async def receipt(self, request: Request) -> SignedReceiptAnswer | PublicReceiptAnswer:
        """Return a receipt, in full or as its public view."""
        view = RECEIPT_VIEW.parse(request.query)
        kept, receipt = await self._governor.arun(_GetReceipt(request.parameters["receipt_id"]))
        return public_receipt_answer(receipt) if view == "public" else signed_receipt_answer(receipt, kept.session_id)

    async def attest(self, request: Request) -> AttestAnswer:
        """Attest a session."""
        body: AttestRequest = request.body
        try:
            attested = await self._governor.arun(Attest(request.parameters["ardur_session_id"], end=body.end))
        except TokenError as error:
            raise _corrupt_session() from error
        request.chain_is_broken = attested.fault is not None
        claims = attested.attestation.claims
        return AttestAnswer(
            token=attested.attestation.token,
            claims=claims,
            broken_at=claims.broken_at or UNSET,
            fault=attested.fault.fault if attested.fault else UNSET,
        )

    def _report(self, request: Request) -> ReportEvent:
        return build_report(request.body, self._governor.context.clock.now().wall_ms)

    async def _load_review(self, session_id: str) -> Review:
        """Load the review of a session from the ledger, and cache it."""
        review = await self._governor.arun(LoadReview(session_id))
        if review is None:
            raise StateCorrupt("ledger.db has no source for the session; run `remit ledger check`")
        return self._reviews.put(session_id, review)


def _corrupt_session() -> StateCorrupt:
    return StateCorrupt("a token that ledger.db stores for the session does not verify; run `remit ledger check`")


@dataclass(frozen=True)
class _GetReceipt:
    """Read one receipt, and verify it."""

    receipt_id: str

    async def run(self, context: Context) -> tuple[StoredReceipt, SignedReceipt]:
        """Read it in a thread."""
        found: tuple[StoredReceipt, SignedReceipt] = await context.to_thread(lambda: self._read(context))
        return found

    def _read(self, context: Context) -> tuple[StoredReceipt, SignedReceipt]:
        kept = context.reader.receipt(self.receipt_id)
        if kept is None:
            raise ReceiptNotFound("no receipt has this id")
        return kept, verify_stored_receipt(context, kept.token)


@dataclass(frozen=True)
class _GetStatus:
    """Read the status of the Hub."""

    info: HubInfo
    activity: SourceActivity

    async def run(self, context: Context) -> StatusAnswer:
        """Read it in a thread."""
        answer: StatusAnswer = await context.to_thread(lambda: build_status(context, self.info, self.activity))
        return answer
