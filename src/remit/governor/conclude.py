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
from remit.governor.assistants import Actor, child_of
from remit.governor.evaluate import Evaluate, judged
from remit.governor.leads import last_lead, lead_of
from remit.governor.lifecycle import looked_at, standing_in
from remit.governor.means import Means
from remit.governor.rate import admit
from remit.governor.receipts import GOVERNOR, append, budget_remaining, clip, moment_of, receipt_of
from remit.governor.results import RecordResult
from remit.governor.sessions import Look, found
from remit.ledger.port import Transaction
from remit.ledger.records import Kept, Pending
from remit.policy.call import MAX_TARGET, ToolCall
from remit.policy.decide import Decision
from remit.policy.engines import DENIALS
from remit.policy.evidence import measurements, redacted

__all__ = ["Conclude", "Concluded"]

_UNASKED: Final = "run_unasked"
_REASONS: Final = {
    False: "the call was run, and nobody had asked whether it may be: hooks were skipped, or came too late",
    True: "what was run is not what had been decided on under this name: something has changed the call in between",
}
# Where an assistant does not name its calls, the one that a result belongs to is looked for among so many.
_MAX_OPEN_CALLS: Final = 100


class Concluded(NamedTuple):
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
    outcome: Kept | Pending | None = None


@dataclass(frozen=True)
class Conclude:
    """Bind the outcome of a call to its decision; a call without one was run without being asked for."""

    actor: Actor
    call: ToolCall
    call_id: str
    envelope: str
    result: Digest

    async def run(self, means: Means) -> Concluded:
        """Find the decision, and record the outcome, or the finding."""
        if self.call_id:
            place = await means.transact(lambda transaction: self._bound_by_name(means, transaction))
        else:
            place = await self._bound_by_order(means)
        if place.decision and not place.changed:
            return await self._concluded(means, place)
        name = place.session_id or (await lead_of(means, self.actor.reporter))
        return await self._found(means, name, changed=place.changed)

    async def _concluded(self, means: Means, place: _Place) -> Concluded:
        """Return the outcome that was appended; one whose decision was not durable yet is appended now."""
        if place.outcome is not None:
            receipt = self._result(place).checked(receipt_of(means, place.outcome))
            return Concluded(place.session_id, receipt, receipt.claims.verdict != "compliant")
        try:
            receipt = (await self._result(place).run(means)).receipt
        except ReceiptNotFound:  # the finding itself: it was told twice
            kept = await means.aside(partial(means.reader.receipt, place.decision))
            if kept is None:
                raise
            return Concluded(place.session_id, means.receipt(kept.token), is_finding=True)
        return Concluded(place.session_id, receipt, receipt.claims.verdict != "compliant")

    def _result(self, place: _Place) -> RecordResult:
        return RecordResult(place.session_id, place.decision, self.result)

    def _bound_by_name(self, means: Means, transaction: Transaction) -> _Place:
        """Find the decision by the name of the call, and append the outcome to its chain."""
        sessions = self._sessions(transaction)
        for name in sessions:
            before = transaction.repeated(name, self.call_id)
            if before is None:
                continue
            if isinstance(before.found, Pending):
                return self._appended(means, transaction, name, before.found.draft.claims, None)
            decision = means.receipt(before.found.token)
            return self._appended(means, transaction, name, decision.claims, decision)
        return _Place(sessions[0] if sessions else "")

    async def _bound_by_order(self, means: Means) -> _Place:
        """Find the first decision on the same call that has no outcome yet, and append the outcome to its chain."""
        sessions = await means.transact(self._sessions)
        hashed = sha256_hex(canonicalize_arguments(self.call.arguments))
        for name in sessions:
            decision = await means.aside(partial(_open_decision, means, name, self.call.tool_name, hashed))
            if decision is not None:
                return await means.transact(partial(self._append_to, means, name, decision))
        return _Place(sessions[0] if sessions else "")

    def _append_to(self, means: Means, name: str, decision: SignedReceipt, transaction: Transaction) -> _Place:
        return self._appended(means, transaction, name, decision.claims, decision)

    def _sessions(self, transaction: Transaction) -> list[str]:
        """Return the sessions in which the call may have been decided on: that of its subagent first."""
        lead = last_lead(transaction, self.actor.reporter)
        child = child_of(transaction, lead, self.actor.agent) if lead and self.actor.agent else ""
        return [name for name in (child, lead) if name]

    def _appended(
        self,
        means: Means,
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
            place = place._replace(outcome=self._result(place).append(means, transaction, decision)[0])
        return place

    async def _found(self, means: Means, name: str, *, changed: bool) -> Concluded:
        """Sign that the call was run without being asked for."""
        await admit(means, name)
        looked = await Look(name).run(means)
        if looked.session.state != "active":
            means.refused.note(name, looked.session.state, means.now, refused=True)
        # The name itself stands for what was decided on, if something was.
        asked = Evaluate(name, self.call, f"{self.call_id} run" if changed else self.call_id)
        standing = await means.transact(lambda transaction: standing_in(transaction, found(transaction, name)))
        judging = partial(judged, means, asked, looked.passport.mission, standing)
        decision = await means.aside(judging, fair_to=name)
        form = canonicalize_arguments(self.call.arguments)
        pending: Pending | Kept = await means.transact(
            lambda transaction: self._append(means, transaction, asked, decision, form, reason=_REASONS[changed])
        )
        return Concluded(name, receipt_of(means, pending), is_finding=True)

    def _append(
        self,
        means: Means,
        transaction: Transaction,
        asked: Evaluate,
        decision: Decision,
        form: bytes,
        *,
        reason: str,
    ) -> Pending | Kept:
        once = asked.once(form)
        before = transaction.repeated(asked.session_id, once.key) if once else None
        if before is not None:
            return before.found
        now = means.now
        session = looked_at(means, transaction, found(transaction, asked.session_id), now)
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
            timestamp=moment_of(session, now),
            public_denial_reason=public,
            internal_denial_code=_UNASKED,
            measurements=measurements(action, None, self.envelope),
            result_hash=self.result,
        )
        return append(means, transaction, session, step, now, form=form, once=once)[1]


def _open_decision(means: Means, name: str, tool: str, hashed: str) -> SignedReceipt | None:
    """Return the first of the last decisions that is on this call and has no outcome yet; permitted ones first."""
    session = means.reader.session(name)
    if session is None:
        return None
    alike: dict[bool, SignedReceipt] = {}
    for kept in means.reader.receipts(name, after=max(0, session.length - _MAX_OPEN_CALLS), limit=_MAX_OPEN_CALLS):
        receipt = means.receipt(kept.token)
        claims = receipt.claims
        decides = all(said.backend != GOVERNOR for said in claims.policy_decisions)
        is_alike = decides and (claims.tool, claims.arguments_hash) == (named_tool(tool), hashed)
        if is_alike and means.reader.result_of(kept.receipt_id) is None:
            alike.setdefault(claims.verdict == "compliant", receipt)
    return alike.get(True) or alike.get(False)
