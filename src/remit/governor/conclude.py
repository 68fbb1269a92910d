"""What became of a call that an assistant has made: its outcome, bound to its decision.

A call that was run without being asked for, or otherwise than it was decided on, is a finding of its own, signed into
the same chain. Which decision an outcome belongs to is told by the name of the call; where an assistant has none, by
what was called, in order.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from remit.claims.canonical import canonicalize_arguments, sha256_hex
from remit.claims.receipt import Digest, PolicyDecision, SignedReceipt, Step, named_tool
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
from remit.policy.evidence import measurements
from remit.policy.redaction import redacted

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
    decision: str
    # Another call was decided on under this name.
    changed: bool = False


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
        place = await self._placed(means)
        if place.decision and not place.changed:
            try:
                recorded = await RecordResult(place.session_id, place.decision, self.result).run(means)
            except ReceiptNotFound:  # the finding itself: it was told twice
                kept = await means.aside(partial(means.reader.receipt, place.decision))
                if kept is None:
                    raise
                return Concluded(place.session_id, means.receipt(kept.token), is_finding=True)
            return Concluded(place.session_id, recorded.receipt, recorded.receipt.claims.verdict != "compliant")
        name = place.session_id or (await lead_of(means, self.actor.reporter))
        return await self._found(means, name, changed=place.changed)

    async def _placed(self, means: Means) -> _Place:
        lead: str = await means.transact(lambda transaction: last_lead(transaction, self.actor.reporter))
        if not lead:
            return _Place("", "")
        places = [lead]
        if self.actor.agent:
            child: str = await means.transact(lambda transaction: child_of(transaction, lead, self.actor.agent))
            places = [child, lead] if child else [lead]
        for name in places:
            decision: str = await self._decision_in(means, name)
            if decision:
                kept = await means.aside(partial(means.reader.receipt, decision))
                return _Place(name, decision, changed=kept is not None and self._differs(means, kept))
        return _Place(places[0], "")

    async def _decision_in(self, means: Means, name: str) -> str:
        if self.call_id:
            work = partial(_decision_by_key, name=name, key=self.call_id)
            decision: str = await means.transact(work)
            return decision
        hashed = sha256_hex(canonicalize_arguments(self.call.arguments))
        found_there: str = await means.aside(partial(_open_decision, means, name, self.call.tool_name, hashed))
        return found_there

    def _differs(self, means: Means, kept: Kept) -> bool:
        """Tell whether a decision is on another call than the one that was run."""
        claims = means.receipt(kept.token).claims
        return (claims.tool, claims.arguments_hash) != (
            named_tool(self.call.tool_name),
            sha256_hex(canonicalize_arguments(self.call.arguments)),
        )

    async def _found(self, means: Means, name: str, *, changed: bool) -> Concluded:
        """Sign that the call was run without being asked for."""
        await admit(means, name)
        looked = await Look(name).run(means)
        if looked.session.state != "active":
            means.refused.note(name, looked.session.state, means.clock.now(), refused=True)
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
        now = means.clock.now()
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


def _decision_by_key(transaction: Transaction, *, name: str, key: str) -> str:
    before = transaction.repeated(name, key)
    if before is None:
        return ""
    known = before.found
    return known.draft.claims.receipt_id if isinstance(known, Pending) else known.receipt_id


def _open_decision(means: Means, name: str, tool: str, hashed: str) -> str:
    """Return the first of the last decisions that is on this call and has no outcome yet; permitted ones first."""
    session = means.reader.session(name)
    if session is None:
        return ""
    alike: dict[bool, str] = {}
    for kept in means.reader.receipts(name, after=max(0, session.length - _MAX_OPEN_CALLS), limit=_MAX_OPEN_CALLS):
        claims = means.receipt(kept.token).claims
        decides = all(said.backend != GOVERNOR for said in claims.policy_decisions)
        is_alike = decides and (claims.tool, claims.arguments_hash) == (named_tool(tool), hashed)
        if is_alike and means.reader.result_of(kept.receipt_id) is None:
            alike.setdefault(claims.verdict == "compliant", kept.receipt_id)
    return alike.get(True) or alike.get(False) or ""
