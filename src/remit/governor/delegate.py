"""Delegation: issues a narrower passport to a delegate, with calls reserved from the parent session.

The calls are reserved when the passport is issued, so that parent and delegates together never make more calls than the
parent was allowed. If the parent has too few calls left, the request is denied with a receipt. A repeated request gets
the same answer.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from msgspec import UNSET, UnsetType, structs, to_builtins

from remit.claims.canonical import canonicalize, sha256_hex
from remit.claims.mission import Mission, narrow
from remit.claims.passport import Confirmation, Passport, issue_passport
from remit.claims.receipt import LineageBudgetDelta, PolicyDecision, SignedReceipt, Step, Verdict
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, RequestConflict, TokenTooLarge
from remit.governor.audiences import check_delegable
from remit.governor.clock import Moment
from remit.governor.closing import close_delegates_of_ended
from remit.governor.context import Context
from remit.governor.lifecycle import (
    CALL_UNIT,
    TOOL_CALLS,
    TRANSITIONS,
    SettleResult,
    get_account,
    load_status,
    refresh,
    settle_overdue,
)
from remit.governor.rate import admit
from remit.governor.receipts import GOVERNOR, append, budget_remaining, clip, load_receipt, step_timestamp
from remit.governor.sessions import GetSession, get_session
from remit.ledger.records import Delegation, Session, StoredReceipt, UnsignedReceipt
from remit.ledger.store import Transaction
from remit.policy.budget import reserve
from remit.policy.engines import DENIALS
from remit.policy.evidence import origin_measurement

MAX_REQUEST_ID: Final = 256
# The maximum number of open delegations of a session: each has to be closed with it.
MAX_OPEN_DELEGATIONS: Final = 100
_REASONS: Final = {
    "": "the delegate's mission is within the parent's, and its calls are set aside",
    "lineage_budget_exhausted": "the parent has fewer calls left than the delegate asks for, or too many delegates",
}
_PERMITTED: Final[tuple[UnsetType, Verdict]] = UNSET, "compliant"


class DelegateResult(NamedTuple):
    """The passport of a delegate, or None if the request was denied, and the receipt of the decision."""

    passport: str | None
    child_id: str | None
    receipt: SignedReceipt
    repeated: bool
    # The denial code if the request was granted before and the delegate may no longer act.
    refusal: str = ""

    @property
    def permits(self) -> bool:
        """Return whether there is a delegate that may act."""
        return self.passport is not None and not self.refusal


_Outcome: TypeAlias = tuple[str | None, str | None, StoredReceipt | UnsignedReceipt, bool, str]


@dataclass(frozen=True)
class Delegate:
    """Issue a passport for a delegate of a session; `request_id` makes the request idempotent."""

    session_id: str
    mission: Mission
    request_id: str
    bound_to: Confirmation | None = None
    # The call that caused the delegation, if any.
    envelope: str = ""

    async def run(self, context: Context) -> DelegateResult:
        """Check that the mission is narrower, then reserve the calls and sign the passport."""
        if not 1 <= len(self.request_id) <= MAX_REQUEST_ID:
            raise FieldInvalid(f"has 1 to {MAX_REQUEST_ID} characters", place="$.delegation_request_id")
        if self.mission.max_tool_calls < 1:
            raise FieldInvalid("a delegate needs at least one call", place="$.mission.max_tool_calls")
        await admit(context, self.session_id)
        parent = await GetSession(self.session_id).run(context)
        await context.to_thread(lambda: check_delegable(context.reader, parent.session, parent.passport))
        narrow(parent.passport.mission, self.mission)
        outcome: _Outcome | SettleResult = await context.transact(
            lambda it: self._work(context, it, parent.passport, wait=True)
        )
        if isinstance(outcome, SettleResult):
            await close_delegates_of_ended(context, outcome.unfinished)
            outcome = await context.transact(lambda it: self._work(context, it, parent.passport, wait=False))
        passport, child_id, receipt, repeated, refusal = cast("_Outcome", outcome)
        if parent.session.state != "active":
            context.refused.note(self.session_id, parent.session.state, context.now, refused=True)
        return DelegateResult(passport, child_id, load_receipt(context, receipt), repeated, refusal)

    def _work(
        self, context: Context, transaction: Transaction, parent: Passport, *, wait: bool
    ) -> _Outcome | SettleResult:
        """Return the outcome; with `wait`, `SettleResult` if finished delegates must be closed first to free calls."""
        now = context.now
        session = refresh(context, transaction, get_session(transaction, self.session_id), now)
        digest = sha256_hex(canonicalize({"mission": to_builtins(self.mission), "cnf": to_builtins(self.bound_to)}))
        known = transaction.delegation(self.session_id, self.request_id)
        if known is not None:
            return _answer_repeated(transaction, session, known, digest)
        if session.reserved and get_account(session).remaining < self.mission.max_tool_calls:
            settled = settle_overdue(context, transaction, session, now)
            session = settled.session
            if wait and settled.unfinished and get_account(session).remaining < self.mission.max_tool_calls:
                return settled
        refusal = load_status(transaction, session).refusal
        account = reserve(get_account(session), self.mission.max_tool_calls)
        if len(transaction.open_delegations(session.id)) >= MAX_OPEN_DELEGATIONS:
            account = None
        if refusal or account is None:
            step = self._step(session, now, "reject", self.session_id, refusal or "lineage_budget_exhausted")
            _, pending = append(context, transaction, session, step, now, form=canonicalize(self._arguments()))
            return None, None, pending, False, ""
        child = self._issue(context, transaction, parent, now, session.iat)
        session = structs.replace(session, reserved=account.reserved)
        step = self._step(session, now, "reserve", child.jti, "")
        _, pending = append(context, transaction, session, step, now, form=canonicalize(self._arguments()))
        transaction.put_delegation(
            Delegation(
                parent=self.session_id,
                request=self.request_id,
                digest=digest,
                child=child.jti,
                passport=child.token,
                amount=self.mission.max_tool_calls,
                receipt_id=pending.draft.claims.receipt_id,
                expires_ms=child.expires_at * 1000,
            )
        )
        return child.token, child.jti, pending, False, ""

    def _issue(self, context: Context, transaction: Transaction, parent: Passport, now: Moment, iat: int) -> Passport:
        signing = context.keys.signing(transaction.ledger_state.kid)
        try:
            return issue_passport(
                self.mission,
                signing,
                issuer=f"remit:{signing.kid}",
                jti=context.new_id("pass"),
                # If the clock was set back, continue from the time of the last receipt.
                now=max(now.wall_s, iat, parent.not_before),
                parent=parent,
                bound_to=self.bound_to,
            )
        except TokenTooLarge as error:
            raise FieldInvalid(f"the mission is too large for a passport: {error}", place="$.mission") from None

    def _arguments(self) -> dict[str, JSON]:
        return {"request": self.request_id, "mission": to_builtins(self.mission)}

    def _step(
        self, session: Session, now: Moment, operation: Literal["reserve", "reject"], target: str, code: str
    ) -> Step:
        remaining = budget_remaining(session)
        reason = _REASONS.get(code, f"the session does not delegate any more ({code.replace('_', ' ')})")
        public, verdict = DENIALS[code] if code else _PERMITTED
        return Step(
            tool="remit.delegate",
            action_class="delegate",
            target=target,
            resource_family="passport",
            side_effect_class="none",
            verdict=verdict,
            reason=clip(f"{reason}: {self.mission.agent_id}", 4096),
            policy_decisions=(PolicyDecision(backend=GOVERNOR, decision="deny" if code else "permit"),),
            budget_remaining=remaining,
            timestamp=step_timestamp(session, now),
            public_denial_reason=public,
            internal_denial_code=code or UNSET,
            # Only a denial refers to the call: a grant does not decide it yet.
            measurements=(origin_measurement(self.envelope) if code and self.envelope else {}) or UNSET,
            budget_delta=LineageBudgetDelta(
                operation=operation,
                resource=TOOL_CALLS,
                amount=self.mission.max_tool_calls,
                unit=CALL_UNIT,
                remaining_for_parent=remaining[TOOL_CALLS],
                used_total=session.used,
                reserved_total=session.reserved,
                delegation_request_id=self.request_id,
            ),
        )


def _answer_repeated(transaction: Transaction, session: Session, known: Delegation, digest: str) -> _Outcome:
    """Return the answer to a repeated request, or raise `RequestConflict` if it differs from the first one."""
    receipt = transaction.receipt(known.receipt_id)
    if known.digest != digest or receipt is None:
        raise RequestConflict("the delegation request id was used before, for another mission")
    refusal = load_status(transaction, session).refusal or _child_refusal(transaction, known)
    return known.passport, known.child, receipt, True, refusal


def _child_refusal(transaction: Transaction, known: Delegation) -> str:
    """Return the denial code if a delegate may no longer act, else an empty string."""
    child = transaction.session(known.child)
    if child is not None and child.state == "revoked":
        return child.cause
    if transaction.revoked(known.child):
        return TRANSITIONS["revoke_passport"].code
    ended = TRANSITIONS["end"].code if known.settled else ""
    return (child.cause if child else "") or ended
