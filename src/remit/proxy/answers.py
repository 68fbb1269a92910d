"""From what the governor says to what the proxy answers: pure functions, one for each kind of answer."""

from msgspec import UNSET

from remit.claims.mission import Mission
from remit.claims.passport import Passport
from remit.governor.clock import timestamp
from remit.governor.delegate import Delegated
from remit.governor.evaluate import Answer, outcome_of
from remit.governor.receipts import budget_remaining
from remit.governor.results import Recorded
from remit.governor.sessions import Started
from remit.ledger.records import Session
from remit.messages.proxy import DelegateAnswer, EvaluateAnswer, ResultAnswer, SessionAnswer, StartAnswer

__all__ = ["delegated", "evaluated", "recorded", "session_of", "started"]


def started(start: Started) -> StartAnswer:
    """Return the answer to a start."""
    session, mission = start.session, start.passport.mission
    return StartAnswer(
        session_id=session.id,
        agent_id=mission.agent_id,
        mission=mission.mission,
        allowed_tools=mission.allowed_tools,
        forbidden_tools=mission.forbidden_tools,
        resource_scope=mission.resource_scope,
        max_tool_calls=mission.max_tool_calls,
        max_duration_s=mission.max_duration_s,
        allowed_side_effect_classes=mission.allowed_side_effect_classes,
        started_at=timestamp(session.started_ms),
        expires_at=timestamp(_ends_ms(session, start.passport, mission)),
        existing=start.existing,
        state=session.state,
        budget_remaining=budget_remaining(session),
    )


def _ends_ms(session: Session, passport: Passport, mission: Mission) -> int:
    """Return when the session ends at the latest, if nobody sets a clock."""
    lifetime_ms = min(session.lifetime_ms, mission.max_duration_s * 1000)
    return min(session.started_ms + lifetime_ms, passport.expires_at * 1000)


def evaluated(session_id: str, answer: Answer) -> EvaluateAnswer:
    """Return the answer to a call. What was permitted before and does not hold any more is a DENY, and says why."""
    claims = answer.receipt.claims
    outcome = outcome_of(claims, answer.refusal)
    return EvaluateAnswer(
        session_id=session_id,
        decision="PERMIT" if answer.permits else "DENY",
        verdict=outcome.verdict,
        reason=outcome.reason,
        receipt=answer.receipt.token,
        receipt_id=claims.receipt_id,
        receipt_hash=answer.receipt.hash,
        budget_remaining=claims.budget_remaining,
        public_denial_reason=outcome.public_reason,
        remedy=answer.remedy.sentence if answer.remedy else UNSET,
    )


def recorded(session_id: str, record: Recorded) -> ResultAnswer:
    """Return the answer to an outcome."""
    claims = record.receipt.claims
    return ResultAnswer(
        session_id=session_id,
        verdict=claims.verdict,
        reason=claims.reason,
        receipt=record.receipt.token,
        receipt_id=claims.receipt_id,
        receipt_hash=record.receipt.hash,
        repeated=record.repeated,
    )


def session_of(session: Session) -> SessionAnswer:
    """Return how a session stands."""
    return SessionAnswer(
        session_id=session.id,
        state=session.state,
        started_at=timestamp(session.started_ms),
        ended_at=None if session.ended_ms is None else timestamp(session.ended_ms),
        receipts=session.length,
        verdicts={
            "compliant": session.compliant,
            "violation": session.violation,
            "insufficient_evidence": session.insufficient_evidence,
        },
        budget_remaining=budget_remaining(session),
    )


def delegated(session_id: str, given: Delegated) -> DelegateAnswer:
    """Return the answer to a delegation. One that was granted before is shown, but does not hold if it says DENY."""
    claims = given.receipt.claims
    outcome = outcome_of(claims, given.refusal)
    return DelegateAnswer(
        session_id=session_id,
        decision="PERMIT" if given.permits else "DENY",
        verdict=outcome.verdict,
        reason=outcome.reason,
        receipt=given.receipt.token,
        receipt_id=claims.receipt_id,
        receipt_hash=given.receipt.hash,
        repeated=given.repeated,
        token=given.passport if given.passport and given.permits else UNSET,
        delegate_id=given.child_id if given.child_id and given.permits else UNSET,
        public_denial_reason=outcome.public_reason,
    )
