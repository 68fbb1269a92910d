"""From what the governor says to what the Hub answers: pure functions, one for each kind of answer."""

from msgspec import convert, to_builtins

from remit.claims.public import public_view
from remit.claims.receipt import SignedReceipt
from remit.governor.clock import timestamp
from remit.governor.evaluate import Answer, outcome_of
from remit.governor.observe import Observe
from remit.governor.sessions import Started
from remit.hub.reviews import Known, review_of, source_members
from remit.policy.decide import Decision
from remit.schemas.hub import (
    ObserveAnswer,
    PolicyAnswer,
    PublicReceiptAnswer,
    ReceiptAnswer,
    SignedReceiptAnswer,
    StartAnswer,
)

__all__ = ["considered", "observed", "public_receipt", "receipt_answer", "signed_receipt", "started"]


def started(start: Started, known: Known) -> StartAnswer:
    """Return the answer to a start."""
    session, mission = start.session, start.passport.mission
    return StartAnswer(
        session_id=known.key,
        ardur_session_id=session.id,
        agent_id=mission.agent_id,
        mission=mission.mission,
        source=source_members(known.told),
        title=known.told.get("title", ""),
        started_at=timestamp(session.started_ms),
        token=start.passport.token,
        existing=start.existing,
    )


def observed(answer: Answer, observe: Observe, known: Known) -> ObserveAnswer:
    """Return the answer to an event."""
    receipt = answer.receipt
    outcome = outcome_of(receipt.claims, answer.refusal)
    newest = receipt.hash if receipt.claims.receipt_id == answer.session.receipt_id else None
    return ObserveAnswer(
        session_id=known.key,
        ardur_session_id=answer.session.id,
        decision="PERMIT" if answer.permits else "DENY",
        policy=PolicyAnswer(
            decision=outcome.verdict,
            reason=outcome.reason,
            tool_name=receipt.claims.tool,
            arguments=dict(observe.event),
        ),
        receipt_id=receipt.claims.receipt_id,
        receipt=receipt_answer(receipt),
        session_review=review_of(answer.session, known, newest),
    )


def considered(decision: Decision, observe: Observe) -> PolicyAnswer:
    """Return the answer to what would be decided."""
    return PolicyAnswer(
        decision=decision.verdict,
        reason=decision.reason,
        tool_name=decision.action.tool,
        arguments=dict(observe.event),
    )


def receipt_answer(receipt: SignedReceipt) -> ReceiptAnswer:
    """Return a receipt with the members that people look for first."""
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


def signed_receipt(receipt: SignedReceipt, session_id: str) -> SignedReceiptAnswer:
    """Return a receipt in full."""
    claims = to_builtins(receipt.claims)
    return SignedReceiptAnswer(ardur_session_id=session_id, receipt=receipt_answer(receipt), claims=claims)


def public_receipt(receipt: SignedReceipt) -> PublicReceiptAnswer:
    """Return the public view of a receipt."""
    return convert(public_view(receipt), PublicReceiptAnswer)
