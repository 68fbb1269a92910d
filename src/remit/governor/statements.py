"""Signed statements of Remit's own checks, in a session of their own.

A statement contains the digest of a report; the report itself is not stored. Invariants: the verdict of a check that
has found a problem is not `compliant`, and the passport of these sessions permits no calls.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from remit.claims.canonical import canonicalize, sha256_base64url
from remit.claims.mission import Mission
from remit.claims.receipt import Digest, Measurement, PolicyDecision, SignedReceipt, Step
from remit.claims.strictjson import JSON
from remit.claims.succession import KeyLimit
from remit.errors import FieldInvalid, quote
from remit.governor.clock import Moment
from remit.governor.context import Context
from remit.governor.lifecycle import refresh
from remit.governor.receipts import GOVERNOR, append, budget_remaining, clip, step_timestamp
from remit.governor.sessions import get_session
from remit.governor.sources import Reporter, StartSourceSession
from remit.ledger.findings import LIMIT_STATED
from remit.ledger.records import Session, UnsignedReceipt
from remit.ledger.store import Transaction
from remit.policy.engines import DENIALS

# The name of the measurement with a summary of the report.
CHECK: Final = "remit.check"
# The agent id and app name of the session of these statements.
OWN_APP: Final = "remit"
_MAX_TARGET: Final = 2048
_MAX_TEXT: Final = 4096
_DAY_S: Final = 24 * 3600
_OWN: Final = Reporter(
    "remit:checks",
    '{"title":"Remit\'s own checks","type":"cli","app":"remit"}',
    Mission(agent_id=OWN_APP, mission="Remit's own checks", max_tool_calls=0, max_duration_s=30 * _DAY_S),
)


def limit_statement(limit: KeyLimit) -> "RecordStatement":
    """Return the statement that a key's period ended, so that a later removal of the record is detected."""
    what = "ended" if limit.distrusted_from is None else "was cut short, because the key is distrusted:"
    reason = f"the period of key {limit.kid} {what} after receipt {limit.position.receipts} of the ledger"
    report: dict[str, JSON] = {"id": limit.jti, "key": limit.kid, **limit.position._asdict()}
    return RecordStatement(LIMIT_STATED, limit.jti, report, "", reason)


class RecordedStatement(NamedTuple):
    """The receipt of a statement, and its session."""

    session_id: str
    receipt: SignedReceipt


@dataclass(frozen=True)
class RecordStatement:
    """Record the result of a check: `code` is empty if there is no problem, else one of `DENIALS`.

    `tool` is the name of the check, `target` what was checked, `report` the whole result, `counted` a summary in words.
    """

    tool: str
    target: str
    report: JSON
    code: str
    reason: str
    counted: str = ""

    async def run(self, context: Context) -> RecordedStatement:
        """Append the statement to the session of Remit's own checks, starting one if there is none."""
        self._check()
        form = canonicalize({"report": self.report})
        name = (await StartSourceSession(_OWN).run(context)).session.id
        pending: UnsignedReceipt = await context.transact(
            lambda transaction: self._work(context, transaction, name, form)
        )
        return RecordedStatement(name, pending.receipt)

    def _check(self) -> None:
        for member in ("tool", "target", "reason"):
            if not getattr(self, member):
                raise FieldInvalid("must not be empty", place=f"$.{member}")
        if self.code and self.code not in DENIALS:
            raise FieldInvalid(f"{quote(self.code)} is not a denial code", place="$.code")

    def _work(self, context: Context, transaction: Transaction, name: str, form: bytes) -> UnsignedReceipt:
        now = context.now
        session = refresh(context, transaction, get_session(transaction, name), now)
        _, pending = append(context, transaction, session, self._step(session, now), now, form=form)
        return pending

    def _step(self, session: Session, now: Moment) -> Step:
        digest = sha256_base64url(canonicalize(self.report))
        reason = clip(self.reason, _MAX_TEXT)
        said = PolicyDecision(backend=GOVERNOR, decision="deny" if self.code else "permit", reason=reason)
        return Step(
            tool=self.tool,
            action_class="observe",
            target=clip(self.target, _MAX_TARGET),
            resource_family="evidence",
            side_effect_class="none",
            reason=reason,
            policy_decisions=(said,),
            budget_remaining=budget_remaining(session),
            timestamp=step_timestamp(session, now),
            result_hash=Digest(alg="sha-256", value=digest, canonicalization="jcs-rfc8785", scope="result"),
            measurements={CHECK: self._measured()} if self.counted else UNSET,
            **self._verdict(),
        )

    def _measured(self) -> Measurement:
        return Measurement(
            kind="custom", status="fail" if self.code else "success", description=clip(self.counted, _MAX_TEXT)
        )

    def _verdict(self) -> dict[str, Any]:
        if not self.code:
            return {"verdict": "compliant"}
        public, verdict = DENIALS[self.code]
        return {"verdict": verdict, "public_denial_reason": public, "internal_denial_code": self.code}
