"""The desk of the Hub: takes what adapters report to the governor, and answers.

Keeps this invariant: there is no other way to a receipt than the governor's. An answer costs the same however much was
reported before; an export is written piece by piece.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from remit.claims.receipt import SignedReceipt
from remit.errors import ReceiptNotFound, StateCorrupt, TokenError
from remit.governor.attest import Attest
from remit.governor.means import Means, UseCaseRunner
from remit.governor.observe import Consider, Report
from remit.governor.sources import StartFor
from remit.hub.answers import considered, observed, public_receipt, signed_receipt, started
from remit.hub.evidence import report_of, reporter_of
from remit.hub.reviews import Known, LoadKnown, Shelf
from remit.hub.standing import Place, Sightings, evidence, status
from remit.ledger.records import Kept
from remit.schemas.hub import (
    SCHEMA_VERSION,
    CheckAnswer,
    ObserveAnswer,
    PublicReceiptAnswer,
    SignedReceiptAnswer,
    StartAnswer,
    StatusAnswer,
)
from remit.schemas.proxy import AttestAnswer, AttestRequest
from remit.schemas.shared import HealthAnswer
from remit.server.routes import Choice, Decision, Request, Streamed
from remit.version import __version__

__all__ = ["RECEIPT_VIEW", "Desk"]

RECEIPT_VIEW: Final = Choice(
    "view", ("full", "public"), "`public` leaves out the internal code and audit-only members."
)


class Desk:
    """What the routes of the Hub lead to, but for its pages."""

    def __init__(self, governor: UseCaseRunner, place: Place) -> None:
        self._governor = governor
        self._place = place
        self._shelf = Shelf()
        self._sightings = Sightings()

    async def health(self, ask: Request) -> HealthAnswer:  # noqa: ARG002 - nobody has to say anything to be told this
        """Tell that the Hub is there."""
        return HealthAnswer(schema_version=SCHEMA_VERSION, version=__version__)

    async def status(self, ask: Request) -> StatusAnswer:  # noqa: ARG002
        """Tell how the Hub stands."""
        return await self._governor.arun(_Status(self._place, self._sightings))

    async def export(self, ask: Request) -> Streamed:  # noqa: ARG002
        """Give everything that the Hub holds; what can be wrong at once is said at once."""
        await self._governor.arun(_Status(self._place, self._sightings))
        return Streamed(evidence(self._governor.means, self._place, self._sightings), "application/json")

    async def start(self, ask: Request) -> StartAnswer:
        """Start a session, or find the one that there is."""
        start = await self._governor.arun(StartFor(reporter_of(ask.body)))
        return started(start, self._shelf.get(start.session.id) or await self._load(start.session.id))

    async def observe(self, ask: Request) -> ObserveAnswer:
        """Take an event into the chain of its session."""
        report = self._report(ask)
        try:
            reported = await self._governor.arun(report)
        except TokenError as error:
            # Nobody has sent a token: one that is kept does not verify, and the adapter can do nothing about it.
            raise _damaged() from error
        session_id, answer = reported
        self._sightings.note(ask.body.source.type, answer.receipt.claims.iat, ask.body.source.version)
        ask.decision = Decision(session_id, answer)
        known = self._shelf.get(session_id)
        if known is not None and answer.note is not None:
            known.follow(answer.note)
        if known is None or known.lacks(answer.session.observed):
            known = await self._load(session_id)
        return observed(answer, report.observe, known)

    async def check(self, ask: Request) -> CheckAnswer:
        """Say what would be decided on an event."""
        report = self._report(ask)
        decision = await self._governor.arun(Consider(report))
        return CheckAnswer(policy=considered(decision, report.observe))

    async def receipt(self, ask: Request) -> SignedReceiptAnswer | PublicReceiptAnswer:
        """Return a receipt, in full or as its public view."""
        view = RECEIPT_VIEW.chosen(ask.query)
        kept, receipt = await self._governor.arun(_GetReceipt(ask.parameters["receipt_id"]))
        return public_receipt(receipt) if view == "public" else signed_receipt(receipt, kept.session_id)

    async def attest(self, ask: Request) -> AttestAnswer:
        """Attest a session."""
        request: AttestRequest = ask.body
        try:
            attested = await self._governor.arun(Attest(ask.parameters["ardur_session_id"], end=request.end))
        except TokenError as error:
            raise _damaged() from error
        ask.chain_is_broken = attested.fault is not None
        claims = attested.attestation.claims
        return AttestAnswer(
            token=attested.attestation.token,
            claims=claims,
            broken_at=claims.broken_at or UNSET,
            fault=attested.fault.fault if attested.fault else UNSET,
        )

    def _report(self, ask: Request) -> Report:
        return report_of(ask.body, self._governor.means.clock.now().wall_ms)

    async def _load(self, session_id: str) -> Known:
        """Return what is kept of a session that reports, and keep it at hand."""
        known = await self._governor.arun(LoadKnown(session_id))
        if known is None:
            raise StateCorrupt("ledger.db has lost who reports to the session: remit ledger check says more")
        return self._shelf.put(session_id, known)


def _damaged() -> StateCorrupt:
    return StateCorrupt("what ledger.db keeps of the session does not verify: remit ledger check says more")


@dataclass(frozen=True)
class _GetReceipt:
    """Read one receipt, and verify it."""

    receipt_id: str

    async def run(self, means: Means) -> tuple[Kept, SignedReceipt]:
        """Read it in a thread."""
        found: tuple[Kept, SignedReceipt] = await means.aside(lambda: self._read(means))
        return found

    def _read(self, means: Means) -> tuple[Kept, SignedReceipt]:
        kept = means.reader.receipt(self.receipt_id)
        if kept is None:
            raise ReceiptNotFound("no receipt has this id")
        try:
            return kept, means.receipt(kept.token)
        except TokenError as error:
            raise _damaged() from error


@dataclass(frozen=True)
class _Status:
    """Read how the Hub stands."""

    place: Place
    sightings: Sightings

    async def run(self, means: Means) -> StatusAnswer:
        """Read it where that may take its time."""
        answer: StatusAnswer = await means.aside(lambda: status(means, self.place, self.sightings))
        return answer
