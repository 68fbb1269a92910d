"""Recording the outcome of a call that an assistant has made, bound to its decision.

A call that was run without a decision, or with other arguments than the decision was for, is recorded as a finding in
the same chain. The decision is looked up by the id of the call; if the assistant does not give ids to calls, by tool
and arguments, oldest first.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from remit.claims.canonical import canonicalize_arguments, sha256_hex
from remit.claims.receipt import Digest, PolicyDecision, Receipt, SignedReceipt, Step, receipt_tool_name
from remit.errors import ReceiptNotFound
from remit.governor.assistant_sessions import get_main_session, last_main_session
from remit.governor.assistants import Actor, last_child_session
from remit.governor.context import Context
from remit.governor.evaluate import Evaluate, judge_request
from remit.governor.lifecycle import load_status, refresh
from remit.governor.rate import admit
from remit.governor.receipts import GOVERNOR, append, budget_remaining, clip, load_receipt, step_timestamp
from remit.governor.results import RecordResult
from remit.governor.sessions import GetSession, get_session
from remit.ledger.records import StoredReceipt, UnsignedReceipt
from remit.ledger.store import Transaction
from remit.policy.call import MAX_TARGET, ToolCall
from remit.policy.decide import Decision
from remit.policy.engines import DENIALS
from remit.policy.evidence import measurements, redact

_UNASKED: Final = "run_unasked"
_REASONS: Final = {
    False: "the call was run without a decision: hooks were skipped, or came too late",
    True: "the call that was run differs from the one that was decided on: something has changed it in between",
}
# Without a call id, the decision is searched for among this many last receipts.
_MAX_OPEN_CALLS: Final = 100


class AssistantResult(NamedTuple):
    """The receipt of an outcome, or of the finding that a call was run without or despite its decision."""

    session_id: str
    receipt: SignedReceipt
    is_finding: bool


class _DecisionRef(NamedTuple):
    """The session and the decision of a call; without a decision, the session to record the finding in."""

    session_id: str
    decision: str = ""
    # The decision with this id is on another call.
    changed: bool = False
    # The receipt of the outcome, if it was appended.
    outcome: StoredReceipt | UnsignedReceipt | None = None


@dataclass(frozen=True)
class RecordAssistantResult:
    """Record the outcome of a call with a reference to its decision, or a finding if there is none."""

    actor: Actor
    call: ToolCall
    call_id: str
    envelope: str
    result: Digest

    async def run(self, context: Context) -> AssistantResult:
        """Find the decision, and record the outcome or the finding."""
        if self.call_id:
            ref = await context.transact(lambda transaction: self._find_by_id(context, transaction))
        else:
            ref = await self._find_by_arguments(context)
        if ref.decision and not ref.changed:
            return await self._record_outcome(context, ref)
        name = ref.session_id or (await get_main_session(context, self.actor.reporter))
        return await self._record_finding(context, name, changed=ref.changed)

    async def _record_outcome(self, context: Context, ref: _DecisionRef) -> AssistantResult:
        """Return the outcome, appending it now if the decision was not durable before."""
        if ref.outcome is not None:
            receipt = self._record_result(ref).check_receipt(load_receipt(context, ref.outcome))
            return AssistantResult(ref.session_id, receipt, receipt.claims.verdict != "compliant")
        try:
            receipt = (await self._record_result(ref).run(context)).receipt
        except ReceiptNotFound:  # the id belongs to the finding: the outcome was reported twice
            stored = await context.to_thread(partial(context.reader.receipt, ref.decision))
            if stored is None:
                raise
            return AssistantResult(ref.session_id, context.receipt(stored.token), is_finding=True)
        return AssistantResult(ref.session_id, receipt, receipt.claims.verdict != "compliant")

    def _record_result(self, ref: _DecisionRef) -> RecordResult:
        return RecordResult(ref.session_id, ref.decision, self.result)

    def _find_by_id(self, context: Context, transaction: Transaction) -> _DecisionRef:
        """Find the decision by the id of the call, and append the outcome to its chain."""
        sessions = self._sessions(transaction)
        for name in sessions:
            before = transaction.repeated(name, self.call_id)
            if before is None:
                continue
            if isinstance(before.found, UnsignedReceipt):
                return self._append_outcome(context, transaction, name, before.found.draft.claims, None)
            decision = context.receipt(before.found.token)
            return self._append_outcome(context, transaction, name, decision.claims, decision)
        return _DecisionRef(sessions[0] if sessions else "")

    async def _find_by_arguments(self, context: Context) -> _DecisionRef:
        """Find the first decision on the same call that has no outcome yet, and append the outcome to its chain."""
        sessions = await context.transact(self._sessions)
        arguments_hash = sha256_hex(canonicalize_arguments(self.call.arguments))
        for name in sessions:
            decision = await context.to_thread(
                partial(_find_open_decision, context, name, self.call.tool_name, arguments_hash)
            )
            if decision is not None:
                return await context.transact(partial(self._append_to, context, name, decision))
        return _DecisionRef(sessions[0] if sessions else "")

    def _append_to(
        self, context: Context, name: str, decision: SignedReceipt, transaction: Transaction
    ) -> _DecisionRef:
        return self._append_outcome(context, transaction, name, decision.claims, decision)

    def _sessions(self, transaction: Transaction) -> list[str]:
        """Return the sessions that may contain the decision: that of the subagent first."""
        main = last_main_session(transaction, self.actor.reporter)
        child = last_child_session(transaction, main, self.actor.agent) if main and self.actor.agent else ""
        return [name for name in (child, main) if name]

    def _append_outcome(
        self,
        context: Context,
        transaction: Transaction,
        name: str,
        claims: Receipt,
        decision: SignedReceipt | None,
    ) -> _DecisionRef:
        """Append the outcome of a decision, unless the decision is on another call than the one that was run."""
        arguments_hash = sha256_hex(canonicalize_arguments(self.call.arguments))
        ref = _DecisionRef(name, claims.receipt_id)
        if (claims.tool, claims.arguments_hash) != (receipt_tool_name(self.call.tool_name), arguments_hash):
            return ref._replace(changed=True)
        with suppress(ReceiptNotFound):  # the decision is not durable yet, or is a finding
            ref = ref._replace(outcome=self._record_result(ref).append(context, transaction, decision)[0])
        return ref

    async def _record_finding(self, context: Context, name: str, *, changed: bool) -> AssistantResult:
        """Record the finding that the call was run without a decision, or changed after it."""
        await admit(context, name)
        current = await GetSession(name).run(context)
        if current.session.state != "active":
            context.refused.note(name, current.session.state, context.now, refused=True)
        # If there is a decision with this id, the finding needs another idempotency key.
        asked = Evaluate(name, self.call, f"{self.call_id} run" if changed else self.call_id)
        status = await context.transact(lambda transaction: load_status(transaction, get_session(transaction, name)))
        judging = partial(judge_request, context, asked, current.passport.mission, status)
        decision = await context.to_thread(judging, limit_key=name)
        form = canonicalize_arguments(self.call.arguments)
        pending: UnsignedReceipt | StoredReceipt = await context.transact(
            lambda transaction: self._append(context, transaction, asked, decision, form, reason=_REASONS[changed])
        )
        return AssistantResult(name, load_receipt(context, pending), is_finding=True)

    def _append(
        self,
        context: Context,
        transaction: Transaction,
        asked: Evaluate,
        decision: Decision,
        form: bytes,
        *,
        reason: str,
    ) -> UnsignedReceipt | StoredReceipt:
        once = asked.once(form)
        before = transaction.repeated(asked.session_id, once.key) if once else None
        if before is not None:
            return before.found
        now = context.now
        session = refresh(context, transaction, get_session(transaction, asked.session_id), now)
        action, (public, verdict) = decision.action, DENIALS[_UNASKED]
        step = Step(
            tool=receipt_tool_name(action.tool),
            action_class=action.action_class,
            target=clip(redact(action.target), MAX_TARGET),
            resource_family=action.resource_family,
            side_effect_class=action.side_effect_class,
            verdict=verdict,
            reason=reason,
            policy_decisions=(PolicyDecision(backend=GOVERNOR, decision="deny", reason=reason),),
            budget_remaining=budget_remaining(session),
            timestamp=step_timestamp(session, now),
            public_denial_reason=public,
            internal_denial_code=_UNASKED,
            measurements=measurements(action, None, self.envelope),
            result_hash=self.result,
        )
        return append(context, transaction, session, step, now, form=form, once=once)[1]


def _find_open_decision(context: Context, name: str, tool: str, arguments_hash: str) -> SignedReceipt | None:
    """Return the oldest recent decision on this call without an outcome, preferring permitted ones."""
    session = context.reader.session(name)
    if session is None:
        return None
    alike: dict[bool, SignedReceipt] = {}
    for stored in context.reader.receipts(name, after=max(0, session.length - _MAX_OPEN_CALLS), limit=_MAX_OPEN_CALLS):
        receipt = context.receipt(stored.token)
        claims = receipt.claims
        decides = all(said.backend != GOVERNOR for said in claims.policy_decisions)
        is_alike = decides and (claims.tool, claims.arguments_hash) == (receipt_tool_name(tool), arguments_hash)
        if is_alike and context.reader.result_of(stored.receipt_id) is None:
            alike.setdefault(claims.verdict == "compliant", receipt)
    return alike.get(True) or alike.get(False)
