"""Recording the outcome of a call in the chain of its decision, with the digest of the decision.

A decision has one outcome. The outcome of a call that was denied is recorded as a violation: it was made nevertheless.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from remit.claims.canonical import canonicalize
from remit.claims.receipt import Digest, PolicyDecision, SignedReceipt, Step
from remit.errors import ReceiptNotFound, RequestConflict
from remit.governor.clock import Moment
from remit.governor.context import Context
from remit.governor.lifecycle import refresh
from remit.governor.receipts import GOVERNOR, append, budget_remaining, load_receipt, step_timestamp
from remit.governor.sessions import get_session
from remit.ledger.records import Session, StoredReceipt, UnsignedReceipt
from remit.ledger.store import Transaction
from remit.policy.engines import DENIALS

_RUN_DESPITE_DENIAL: Final = "denied_but_run"
_REASONS: Final = {
    True: "the outcome of a call that was permitted",
    False: "the call was denied, and made all the same",
}


class RecordedResult(NamedTuple):
    """The receipt of an outcome, and whether it was recorded before."""

    receipt: SignedReceipt
    repeated: bool


@dataclass(frozen=True)
class RecordResult:
    """Record the digest of the outcome of a call that was decided on."""

    session_id: str
    receipt_id: str
    result: Digest

    async def run(self, context: Context) -> RecordedResult:
        """Append the outcome, or return the one recorded before."""
        outcome, repeated = await context.transact(lambda transaction: self.append(context, transaction))
        return RecordedResult(self.check_receipt(load_receipt(context, outcome)), repeated)

    def check_receipt(self, receipt: SignedReceipt) -> SignedReceipt:
        """Return the receipt, or raise `RequestConflict` if it is for another outcome."""
        if receipt.claims.result_hash != self.result:
            raise RequestConflict("another outcome was recorded for this call")
        return receipt

    def append(
        self, context: Context, transaction: Transaction, decision: SignedReceipt | None = None
    ) -> tuple[StoredReceipt | UnsignedReceipt, bool]:
        """Append the outcome or find it; return it and whether it existed. `decision` is given if it is loaded."""
        session = get_session(transaction, self.session_id)
        token = "" if decision is not None else self._stored_decision(transaction).token
        known = transaction.result_of(self.receipt_id)
        if known is not None:
            return known, True
        now = context.now
        decision = decision or context.receipt(token)
        if any(said.backend == GOVERNOR for said in decision.claims.policy_decisions):
            raise ReceiptNotFound("the receipt of this id is not a decision on a call")
        session = refresh(context, transaction, session, now)
        step = self._step(session, decision, now)
        arguments = {"receipt_id": self.receipt_id, "result": self.result.value}
        _, unsigned = append(
            context, transaction, session, step, now, form=canonicalize(arguments), result_of=self.receipt_id
        )
        return unsigned, False

    def _stored_decision(self, transaction: Transaction) -> StoredReceipt:
        """Return the stored decision, which must be in the session."""
        stored = transaction.receipt(self.receipt_id)
        if not isinstance(stored, StoredReceipt) or stored.session_id != self.session_id:
            raise ReceiptNotFound("no receipt of the session has this id")
        return stored

    def _step(self, session: Session, decision: SignedReceipt, now: Moment) -> Step:
        claims = decision.claims
        permitted = claims.verdict == "compliant"
        verdict = "compliant" if permitted else DENIALS[_RUN_DESPITE_DENIAL][1]
        reason = _REASONS[permitted]
        denial: dict[str, Any] = (
            {}
            if permitted
            else {
                "public_denial_reason": DENIALS[_RUN_DESPITE_DENIAL][0],
                "internal_denial_code": _RUN_DESPITE_DENIAL,
            }
        )
        return Step(
            tool="remit.result",
            action_class="observe",
            target=claims.target,
            resource_family=claims.resource_family,
            side_effect_class="none" if permitted else claims.side_effect_class,
            verdict=verdict,
            reason=reason,
            policy_decisions=(
                PolicyDecision(backend=GOVERNOR, decision="permit" if permitted else "deny", reason=reason),
            ),
            budget_remaining=budget_remaining(session),
            timestamp=step_timestamp(session, now),
            result_hash=self.result,
            evidence_proof_ref={
                "type": "remit.decision",
                "receipt_id": claims.receipt_id,
                "receipt_hash": decision.hash,
            },
            **denial,
        )
