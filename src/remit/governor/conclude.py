"""What became of a call that an assistant has made: its outcome, bound to its decision.

A call that was run without being asked for, or otherwise than it was decided on, is a finding of its own, signed into
the same chain. Which decision an outcome belongs to is told by the name of the call; where an assistant has none, by
what was called, in order.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from remit.claims.canonical import canonicalize_arguments, sha256_hex
from remit.claims.receipt import Digest, PolicyDecision, Receipt, SignedReceipt, Step, named_tool
from remit.errors import ReceiptNotFound
from remit.governor.assistants import Actor, last_child_session
from remit.governor.evaluate import Evaluate, judge_request
from remit.governor.leads import get_main_session, last_main_session
from remit.governor.lifecycle import load_status, refresh
from remit.governor.means import Means
from remit.governor.rate import admit
from remit.governor.receipts import GOVERNOR, append, budget_remaining, clip, load_receipt, step_timestamp
from remit.governor.results import RecordResult
from remit.governor.sessions import Look, get_session
from remit.ledger.port import Transaction
from remit.ledger.records import Kept, UnsignedReceipt
from remit.policy.call import MAX_TARGET, ToolCall
from remit.policy.decide import Decision
from remit.policy.engines import DENIALS
from remit.policy.evidence import measurements, redacted

__all__ = ["AssistantResult", "Conclude"]

_UNASKED: Final = "run_unasked"
_REASONS: Final = {
    False: "the call was run, and nobody had asked whether it may be: hooks were skipped, or came too late",
    True: "what was run is not what had been decided on under this name: something has changed the call in between",
}
# Where an assistant does not name its calls, the one that a result belongs to is looked for among so many.
_MAX_OPEN_CALLS: Final = 100


class AssistantResult(NamedTuple):
    """The receipt of an outcome; a finding is that of a call which nobody had asked for."""

    session_id: str
    receipt: SignedReceipt
    is_finding: bool


class _Place(NamedTuple):
    """Where a call was decided on, if it was; else where its finding belongs."""

    session_id: str
    decision: str = ""
    # Another call was decided on under this name.
    changed: bool = False
    # What the outcome was appended as, where it was.
    outcome: Kept | UnsignedReceipt | None = None


@dataclass(frozen=True)
class Conclude:
    """Bind the outcome of a call to its decision; a call without one was run without being asked for."""

    actor: Actor
    call: ToolCall
    call_id: str
    envelope: str
    result: Digest

    async def run(self, context: Means) -> AssistantResult:
        """Find the decision, and record the outcome, or the finding."""
        if self.call_id:
            place = await context.transact(lambda transaction: self._bound_by_name(context, transaction))
        else:
            place = await self._bound_by_order(context)
        if place.decision and not place.changed:
            return await self._concluded(context, place)
        name = place.session_id or (await get_main_session(context, self.actor.reporter))
        return await self._found(context, name, changed=place.changed)

    async def _concluded(self, context: Means, place: _Place) -> AssistantResult:
        """Return the outcome that was appended; one whose decision was not durable yet is appended now."""
        if place.outcome is not None:
            receipt = self._result(place).checked(load_receipt(context, place.outcome))
            return AssistantResult(place.session_id, receipt, receipt.claims.verdict != "compliant")
        try:
            receipt = (await self._result(place).run(context)).receipt
        except ReceiptNotFound:  # the finding itself: it was told twice
            kept = await context.aside(partial(context.reader.receipt, place.decision))
            if kept is None:
                raise
            return AssistantResult(place.session_id, context.receipt(kept.token), is_finding=True)
        return AssistantResult(place.session_id, receipt, receipt.claims.verdict != "compliant")

    def _result(self, place: _Place) -> RecordResult:
        return RecordResult(place.session_id, place.decision, self.result)

    def _bound_by_name(self, context: Means, transaction: Transaction) -> _Place:
        """Find the decision by the name of the call, and append the outcome to its chain."""
        sessions = self._sessions(transaction)
        for name in sessions:
            before = transaction.repeated(name, self.call_id)
            if before is None:
                continue
            if isinstance(before.found, UnsignedReceipt):
                return self._appended(context, transaction, name, before.found.draft.claims, None)
            decision = context.receipt(before.found.token)
            return self._appended(context, transaction, name, decision.claims, decision)
        return _Place(sessions[0] if sessions else "")

    async def _bound_by_order(self, context: Means) -> _Place:
        """Find the first decision on the same call that has no outcome yet, and append the outcome to its chain."""
        sessions = await context.transact(self._sessions)
        hashed = sha256_hex(canonicalize_arguments(self.call.arguments))
        for name in sessions:
            decision = await context.aside(partial(_open_decision, context, name, self.call.tool_name, hashed))
            if decision is not None:
                return await context.transact(partial(self._append_to, context, name, decision))
        return _Place(sessions[0] if sessions else "")

    def _append_to(self, context: Means, name: str, decision: SignedReceipt, transaction: Transaction) -> _Place:
        return self._appended(context, transaction, name, decision.claims, decision)

    def _sessions(self, transaction: Transaction) -> list[str]:
        """Return the sessions in which the call may have been decided on: that of its subagent first."""
        lead = last_main_session(transaction, self.actor.reporter)
        child = last_child_session(transaction, lead, self.actor.agent) if lead and self.actor.agent else ""
        return [name for name in (child, lead) if name]

    def _appended(
        self,
        context: Means,
        transaction: Transaction,
        name: str,
        claims: Receipt,
        decision: SignedReceipt | None,
    ) -> _Place:
        """Append the outcome of a decision, unless that is on another call than the one that was run."""
        hashed = sha256_hex(canonicalize_arguments(self.call.arguments))
        place = _Place(name, claims.receipt_id)
        if (claims.tool, claims.arguments_hash) != (named_tool(self.call.tool_name), hashed):
            return place._replace(changed=True)
        with suppress(ReceiptNotFound):  # it is not durable yet, or is the finding itself
            place = place._replace(outcome=self._result(place).append(context, transaction, decision)[0])
        return place

    async def _found(self, context: Means, name: str, *, changed: bool) -> AssistantResult:
        """Sign that the call was run without being asked for."""
        await admit(context, name)
        looked = await Look(name).run(context)
        if looked.session.state != "active":
            context.refused.note(name, looked.session.state, context.now, refused=True)
        # The name itself stands for what was decided on, if something was.
        asked = Evaluate(name, self.call, f"{self.call_id} run" if changed else self.call_id)
        status = await context.transact(lambda transaction: load_status(transaction, get_session(transaction, name)))
        judging = partial(judge_request, context, asked, looked.passport.mission, status)
        decision = await context.aside(judging, limit_key=name)
        form = canonicalize_arguments(self.call.arguments)
        pending: UnsignedReceipt | Kept = await context.transact(
            lambda transaction: self._append(context, transaction, asked, decision, form, reason=_REASONS[changed])
        )
        return AssistantResult(name, load_receipt(context, pending), is_finding=True)

    def _append(
        self,
        context: Means,
        transaction: Transaction,
        asked: Evaluate,
        decision: Decision,
        form: bytes,
        *,
        reason: str,
    ) -> UnsignedReceipt | Kept:
        once = asked.once(form)
        before = transaction.repeated(asked.session_id, once.key) if once else None
        if before is not None:
            return before.found
        now = context.now
        session = refresh(context, transaction, get_session(transaction, asked.session_id), now)
        action, (public, verdict) = decision.action, DENIALS[_UNASKED]
        step = Step(
            tool=named_tool(action.tool),
            action_class=action.action_class,
            target=clip(redacted(action.target), MAX_TARGET),
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


def _open_decision(context: Means, name: str, tool: str, hashed: str) -> SignedReceipt | None:
    """Return the first of the last decisions that is on this call and has no outcome yet; permitted ones first."""
    session = context.reader.session(name)
    if session is None:
        return None
    alike: dict[bool, SignedReceipt] = {}
    for kept in context.reader.receipts(name, after=max(0, session.length - _MAX_OPEN_CALLS), limit=_MAX_OPEN_CALLS):
        receipt = context.receipt(kept.token)
        claims = receipt.claims
        decides = all(said.backend != GOVERNOR for said in claims.policy_decisions)
        is_alike = decides and (claims.tool, claims.arguments_hash) == (named_tool(tool), hashed)
        if is_alike and context.reader.result_of(kept.receipt_id) is None:
            alike.setdefault(claims.verdict == "compliant", receipt)
    return alike.get(True) or alike.get(False)
