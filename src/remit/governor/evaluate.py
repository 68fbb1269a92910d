"""The one path of a tool call: session, project, judge, reserve, receipt, sign, append, answer.

Keeps this invariant: the answer is what the receipt says, and the receipt is durable before the answer is given. The
calls of a group are judged first, by how their sessions stand before it; a call whose session stands otherwise when its
turn comes is judged again. So nothing slow happens while the ledger is held, and no limit is overrun.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import UNSET, structs, to_builtins

from remit.claims.canonical import canonicalize, sha256_hex
from remit.claims.mission import Mission
from remit.claims.passport import Passport
from remit.claims.receipt import (
    ContentProvenance,
    Digest,
    LineageBudgetDelta,
    Sensitivity,
    SignedReceipt,
    Step,
)
from remit.errors import FieldInvalid, NotCanonicalizable, RequestConflict
from remit.governor.clock import Moment
from remit.governor.lifecycle import CALLS, UNIT, looked_at, settle_overdue
from remit.governor.means import Commit, Means, Steps
from remit.governor.receipts import append, budget_remaining, clip, moment_of, named_tool, receipt_of
from remit.governor.sessions import Look, found
from remit.governor.states import same_answer, standing_of, touched
from remit.ledger.port import Kept, Once, Pending, Repeated, Session, Transaction
from remit.policy.call import MAX_TARGET, ToolCall
from remit.policy.decide import Decision, judge, policy_decisions
from remit.policy.engines import Remedy, Standing
from remit.policy.evidence import measurements

__all__ = ["MAX_KEY", "Answer", "Evaluate", "Evidence", "judged"]

MAX_KEY: Final = 256
_MAX_REASON: Final = 4096
_MAX_CLASS: Final = 256
_MAX_REFS: Final = 100


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


@dataclass(frozen=True)
class Evaluate:
    """Decide on a tool call, or on one that was observed where there is evidence."""

    session_id: str
    call: ToolCall
    idempotency_key: str = ""
    evidence: Evidence | None = None

    def steps(self, means: Means) -> Steps[Answer]:
        """Judge, append, answer."""
        self._check()
        passport = means.passports.get(self.session_id) or (yield from Look(self.session_id).steps(means)).passport
        case = _Case(means, self, passport)
        outcome: Kept | Pending = yield Commit(case.append, prepare=case.judge)
        repeated = outcome is not case.pending
        return Answer(receipt_of(means, outcome), None if repeated else case.remedy, repeated)

    def _check(self) -> None:
        if not self.call.tool_name:
            raise FieldInvalid("must not be empty", place="$.tool_name")
        if len(self.idempotency_key) > MAX_KEY:
            raise FieldInvalid(f"has at most {MAX_KEY} characters", place="$.idempotency_key")
        provenance = self.evidence and self.evidence.provenance
        if provenance and len(provenance.evidence_refs or ()) > _MAX_REFS:
            raise FieldInvalid(f"has at most {_MAX_REFS} entries", place="$.content_provenance.evidence_refs")

    def once(self) -> Once | None:
        """Return what makes the request repeatable, if it comes with a key.

        The digest is over all that was asked: the same call from another folder is another call.
        """
        if not self.idempotency_key:
            return None
        asked = to_builtins({"call": self.call, "evidence": self.evidence}, enc_hook=_read_only)
        return Once(self.idempotency_key, sha256_hex(canonicalize(asked)))


def _read_only(value: object) -> object:
    """Return arguments as a plain object, whatever kind of mapping they are."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotCanonicalizable("has no canonical form")


class _Case:
    """One call on its way through the ledger: judged with others first, then appended."""

    __slots__ = ("_means", "_once", "_passport", "_request", "_standing", "decision", "pending")

    def __init__(self, means: Means, request: Evaluate, passport: Passport) -> None:
        self._means = means
        self._request = request
        self._passport = passport
        self._once = request.once()
        self._standing: Standing | None = None
        self.decision: Decision | None = None
        self.pending: Pending | None = None

    @property
    def remedy(self) -> Remedy | None:
        """Return what would have permitted the call."""
        return self.decision.remedy if self.decision else None

    def judge(self, transaction: Transaction) -> None:
        """Judge the call by how its session stands before the group it is in."""
        session = touched(found(transaction, self._request.session_id), self._means.clock.now())
        self._judge(standing_of(session, transaction.switches))

    def _judge(self, standing: Standing) -> Decision:
        """Return the decision under a standing: the one there is, if it would be the same."""
        if self.decision is None or self._standing is None or not same_answer(self._standing, standing):
            self.decision = judged(self._means, self._request, self._passport.mission, standing)
            self._standing = standing
        return self.decision

    def append(self, transaction: Transaction) -> Kept | Pending:
        """Append the receipt of the decision, or find the one that the same call has got before."""
        request, means = self._request, self._means
        session = found(transaction, request.session_id)
        if self._once is not None:
            before = transaction.repeated(session.id, self._once.key)
            if before is not None:
                return _same(before, self._once)
        now = means.clock.now()
        session = looked_at(means, transaction, session, now)
        if session.reserved and session.used + session.reserved >= session.limit:
            # Delegates hold what is missing; some may be over, and have to give it back.
            session = touched(settle_overdue(means, transaction, session, now), now)
        decision = self._judge(standing_of(session, transaction.switches))
        if decision.permits:
            session = structs.replace(session, used=session.used + 1)
        step = _step(session, decision, request.evidence, now)
        arguments = request.call.arguments
        _, self.pending = append(means, transaction, session, step, now, arguments=arguments, once=self._once)
        return self.pending


def _same(before: Repeated, asked: Once) -> Kept | Pending:
    """Return the receipt that a key has got before, if it was for the same."""
    if before.digest != asked.digest:
        raise RequestConflict("the idempotency key was used for another call")
    return before.found


def judged(means: Means, request: Evaluate, mission: Mission, standing: Standing) -> Decision:
    """Return the decision on a call under a standing. Nothing is kept of it."""
    engines = means.engines if request.evidence is None else means.observers
    return judge(request.call, mission, standing, engines=engines, files=means.files, clock=means.stopwatch)


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
        content_class=clip(given.content_class, _MAX_CLASS) if given.content_class else UNSET,
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
