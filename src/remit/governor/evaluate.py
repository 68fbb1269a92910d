"""The one path of a tool call: session, project, judge, reserve, receipt, sign, append, answer.

Keeps this invariant: the answer is what the receipt says, and the receipt is durable before the answer is given. A call
is judged before it comes to the ledger, by what was last known of its session; if that has changed in a way that could
change the answer, it is judged again. So nothing slow happens while the ledger is held, and no limit is overrun.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from msgspec import UNSET, structs

from remit.claims.canonical import canonicalize, sha256_hex
from remit.claims.receipt import (
    ContentProvenance,
    Digest,
    LineageBudgetDelta,
    Sensitivity,
    SignedReceipt,
    Step,
)
from remit.errors import FieldInvalid, LedgerUnavailable, RequestConflict
from remit.governor.clock import Moment
from remit.governor.lifecycle import CALLS, UNIT, looked_at, settle_overdue
from remit.governor.means import Commit, Live, Means, Steps
from remit.governor.receipts import append, budget_remaining, clip, moment_of, named_tool, receipt_of
from remit.governor.sessions import Look, found
from remit.governor.states import same_answer, standing_of, touched
from remit.ledger.port import Kept, Pending, Session, Switches, Transaction
from remit.policy.call import MAX_TARGET, ToolCall
from remit.policy.decide import Decision, judge, policy_decisions
from remit.policy.engines import Remedy, Standing
from remit.policy.evidence import measurements

__all__ = ["MAX_KEY", "Answer", "Evaluate", "Evidence", "judged"]

MAX_KEY: Final = 256
_MAX_REASON: Final = 4096
# A session that changes faster than a call can be judged, so often in a row, is not a session but an attack.
_MAX_TURNS: Final = 50


class Evidence(NamedTuple):
    """What an observer brings beside a call: digests and marks, never the content itself."""

    content: Digest | None = None
    content_class: str | None = None
    provenance: ContentProvenance | None = None
    sensitivity: Sensitivity | None = None
    instruction_bearing: bool | None = None


class Answer(NamedTuple):
    """The decision on a call, with its receipt. A repeated call gets the receipt of the first one."""

    receipt: SignedReceipt
    remedy: Remedy | None
    repeated: bool

    @property
    def permits(self) -> bool:
        """Tell whether the call may go on."""
        return self.receipt.claims.verdict == "compliant"


class _Appended(NamedTuple):
    session: Session
    pending: Pending


class _Changed(NamedTuple):
    """The session does not stand as it did when the call was judged."""

    session: Session
    switches: Switches


@dataclass(frozen=True)
class Evaluate:
    """Decide on a tool call, or on one that was observed where there is evidence."""

    session_id: str
    call: ToolCall
    idempotency_key: str = ""
    evidence: Evidence | None = None

    def steps(self, means: Means) -> Steps[Answer]:
        """Judge, append, and judge again while the session changes under way."""
        self._check()
        live = means.live.get(self.session_id) or (yield from Look(self.session_id).steps(means))
        for _ in range(_MAX_TURNS):
            session = touched(live.session, means.clock.now())
            standing = standing_of(session, live.switches)
            decision = judged(means, self, live, standing)
            outcome = yield Commit(partial(self._work, means, standing, decision))
            if isinstance(outcome, Kept | Pending):
                return self._repeated(receipt_of(means, outcome))
            session = outcome.session
            live = means.remember(session, live.passport, getattr(outcome, "switches", live.switches))
            if isinstance(outcome, _Appended):
                return Answer(outcome.pending.receipt, decision.remedy, repeated=False)
        raise LedgerUnavailable("the session changes faster than the call can be judged")

    def _check(self) -> None:
        if not self.call.tool_name:
            raise FieldInvalid("must not be empty", place="$.tool_name")
        if len(self.idempotency_key) > MAX_KEY:
            raise FieldInvalid(f"has at most {MAX_KEY} characters", place="$.idempotency_key")

    def _work(
        self, means: Means, judged_by: Standing, decision: Decision, transaction: Transaction
    ) -> "_Appended | _Changed | Kept | Pending":
        session = found(transaction, self.session_id)
        if self.idempotency_key:
            kept = transaction.repeated(self.session_id, self.idempotency_key)
            if kept is not None:
                return kept
        now = means.clock.now()
        session = looked_at(means, transaction, session, now)
        if session.reserved and session.used + session.reserved >= session.limit:
            session = touched(settle_overdue(means, transaction, session, now), now)
        if not same_answer(judged_by, standing_of(session, transaction.switches)):
            return _Changed(session, transaction.switches)
        return self._append(means, transaction, session, decision, now)

    def _append(
        self, means: Means, transaction: Transaction, session: Session, decision: Decision, now: Moment
    ) -> _Appended:
        if decision.permits:
            session = structs.replace(session, used=session.used + 1)
        step = _step(session, decision, self.evidence, now)
        arguments = self.call.arguments
        return _Appended(*append(means, transaction, session, step, now, arguments=arguments, key=self.idempotency_key))

    def _repeated(self, receipt: SignedReceipt) -> Answer:
        """Return the receipt of the first call under this key, if it was the same call."""
        same = receipt.claims.arguments_hash == sha256_hex(canonicalize(self.call.arguments))
        if not same or receipt.claims.tool != named_tool(self.call.tool_name):
            raise RequestConflict("the idempotency key was used for another call")
        return Answer(receipt, None, repeated=True)


def judged(means: Means, request: Evaluate, live: Live, standing: Standing) -> Decision:
    """Return the decision on a call under a standing. Nothing is kept of it."""
    engines = means.engines if request.evidence is None else means.observers
    return judge(
        request.call,
        live.passport.mission,
        standing,
        engines=engines,
        files=means.files,
        clock=means.stopwatch,
    )


def _step(session: Session, decision: Decision, evidence: Evidence | None, now: Moment) -> Step:
    """Return what the receipt says about a decision."""
    action = decision.action
    remaining = budget_remaining(session)
    given = evidence or _NONE
    return Step(
        tool=named_tool(action.tool),
        action_class=action.action_class,
        target=clip(action.target, MAX_TARGET),
        resource_family=action.resource_family,
        side_effect_class=action.side_effect_class,
        verdict=decision.verdict,
        reason=clip(decision.reason, _MAX_REASON),
        policy_decisions=policy_decisions(decision),
        budget_remaining=remaining,
        timestamp=moment_of(session, now),
        public_denial_reason=decision.public_reason or UNSET,
        internal_denial_code=decision.code or UNSET,
        measurements=measurements(action) or UNSET,
        budget_delta=_consumed(session, remaining) if decision.permits else UNSET,
        result_hash=given.content or UNSET,
        content_class=given.content_class or UNSET,
        content_provenance=given.provenance or UNSET,
        sensitivity=given.sensitivity or UNSET,
        instruction_bearing=UNSET if given.instruction_bearing is None else given.instruction_bearing,
    )


_NONE: Final = Evidence()


def _consumed(session: Session, remaining: Mapping[str, int]) -> LineageBudgetDelta:
    return LineageBudgetDelta(
        operation="consume",
        resource=CALLS,
        amount=1,
        unit=UNIT,
        remaining_after=remaining[CALLS],
        used_total=session.used,
        reserved_total=session.reserved,
    )
