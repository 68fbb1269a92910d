"""Builds the answers of the Hub's API from results of the governor."""

from msgspec import convert, to_builtins

from remit.claims.public import public_view
from remit.claims.receipt import SignedReceipt
from remit.errors import StateCorrupt, TokenError
from remit.governor.clock import format_timestamp
from remit.governor.context import Context
from remit.governor.evaluate import Evaluation, describe_outcome
from remit.governor.observe import ObserveEvent
from remit.governor.sessions import StartResult
from remit.hub.reviews import Review, review_answer, source_members
from remit.policy.decide import Decision
from remit.schemas.hub import (
    HubStartAnswer,
    ObserveAnswer,
    PolicyAnswer,
    PublicReceiptAnswer,
    ReceiptAnswer,
    SignedReceiptAnswer,
)


def start_answer(start: StartResult, review: Review) -> HubStartAnswer:
    """Return the answer to the start of a session."""
    session, mission = start.session, start.passport.mission
    return HubStartAnswer(
        session_id=review.key,
        ardur_session_id=session.id,
        agent_id=mission.agent_id,
        mission=mission.mission,
        source=source_members(review.details),
        title=review.details.get("title", ""),
        started_at=format_timestamp(session.started_ms),
        token=start.passport.token,
        existing=start.existing,
    )


def observe_answer(answer: Evaluation, observe: ObserveEvent, review: Review) -> ObserveAnswer:
    """Return the answer to an event."""
    receipt = answer.receipt
    outcome = describe_outcome(receipt.claims, answer.refusal)
    latest_hash = receipt.hash if receipt.claims.receipt_id == answer.session.receipt_id else None
    return ObserveAnswer(
        session_id=review.key,
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
        session_review=review_answer(answer.session, review, latest_hash),
    )


def policy_answer(decision: Decision, observe: ObserveEvent) -> PolicyAnswer:
    """Return a decision that was not recorded."""
    return PolicyAnswer(
        decision=decision.verdict,
        reason=decision.reason,
        tool_name=decision.action.tool,
        arguments=dict(observe.event),
    )


def receipt_answer(receipt: SignedReceipt) -> ReceiptAnswer:
    """Return a receipt: its token, and the claims that are used most."""
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


def signed_receipt_answer(receipt: SignedReceipt, session_id: str) -> SignedReceiptAnswer:
    """Return a receipt with all its claims."""
    claims = to_builtins(receipt.claims)
    return SignedReceiptAnswer(ardur_session_id=session_id, receipt=receipt_answer(receipt), claims=claims)


def public_receipt_answer(receipt: SignedReceipt) -> PublicReceiptAnswer:
    """Return the public view of a receipt."""
    return convert(public_view(receipt), PublicReceiptAnswer)


def verify_stored_receipt(context: Context, token: str) -> SignedReceipt:
    """Verify a receipt from the ledger. Raise `StateCorrupt` if it fails: the client has sent no token."""
    try:
        return context.receipt(token)
    except TokenError:
        raise StateCorrupt("a receipt in ledger.db does not verify; run `remit ledger check`") from None
