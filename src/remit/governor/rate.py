"""A rate limit for sessions that deny every call: up to 10 calls a second of a session are evaluated, with a receipt.

Further calls are not evaluated: they raise `RateLimited` and are counted. A receipt in the chain of the session records
the count: at the first skipped call, then at most once a minute while calls come in. The rest is recorded by the next
call or read of the session after that minute, when it is attested, and when the process stops. Rates and counts are
kept in memory by each process: a process that is killed loses the counts since the last such receipt.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from remit.claims.attestation import SessionState
from remit.claims.canonical import canonicalize
from remit.claims.receipt import Measurement, PolicyDecision, Step
from remit.errors import RateLimited, RemitError
from remit.governor.clock import Moment, format_timestamp
from remit.governor.context import Context
from remit.governor.lifecycle import refresh
from remit.governor.receipts import GOVERNOR, append, budget_remaining, step_timestamp
from remit.governor.refused import MAX_PER_S, SkippedCalls
from remit.ledger.records import RESTORED, Session
from remit.ledger.store import Transaction
from remit.policy.engines import DENIALS

# The name of the step and of its measurement.
RATE_LIMIT: Final = "remit.rate_limit"
_CODE: Final = "rate_limited"
_BATCH: Final = 64


async def admit(context: Context, session_id: str, skip_states: Collection[SessionState] = ()) -> None:
    """Raise `RateLimited` if a session that denies every call gets too many calls."""
    now = context.now
    admitted = context.refused.admits(session_id, now, skip_states)
    await _report(context, session_id, context.refused.take(session_id, now))
    if not admitted:
        raise RateLimited(
            f"the session denies every call; calls beyond {MAX_PER_S} a second are counted, but not evaluated"
        )


async def report_skipped(context: Context, session_id: str, *, at_once: bool = False) -> None:
    """Record the number of skipped calls, if that is due; with `at_once`, if there were any."""
    if session_id in context.refused.sessions:
        await _report(context, session_id, context.refused.take(session_id, context.now, at_once=at_once))


async def _report(context: Context, session_id: str, skipped: SkippedCalls | None) -> None:
    if skipped is None:
        return
    try:
        await context.transact(lambda transaction: _append(context, transaction, session_id, skipped))
    except BaseException:
        context.refused.put_back(session_id, skipped)
        raise


def _append(context: Context, transaction: Transaction, session_id: str, skipped: SkippedCalls) -> None:
    session, now = transaction.session(session_id), context.now
    if session is None or session.cause == RESTORED:
        return  # nothing can be appended
    session = refresh(context, transaction, session, now)
    form = canonicalize({"calls": skipped.calls, "since": format_timestamp(skipped.since_ms)})
    append(context, transaction, session, _step(session, skipped, now), now, form=form)


def _step(session: Session, skipped: SkippedCalls, now: Moment) -> Step:
    public, verdict = DENIALS[_CODE]
    calls = "1 call was" if skipped.calls == 1 else f"{skipped.calls} calls were"
    counted = f"{calls} not evaluated since {format_timestamp(skipped.since_ms)}"
    reason = f"{counted}: a session that permits nothing any more gets {MAX_PER_S} decisions a second"
    return Step(
        tool=RATE_LIMIT,
        action_class="observe",
        target=session.id,
        resource_family="evidence",
        side_effect_class="none",
        verdict=verdict,
        reason=reason,
        policy_decisions=(PolicyDecision(backend=GOVERNOR, decision="deny", reason=reason),),
        budget_remaining=budget_remaining(session),
        timestamp=step_timestamp(session, now),
        public_denial_reason=public,
        internal_denial_code=_CODE,
        measurements={RATE_LIMIT: Measurement(kind="telemetry", status="not-run", description=counted)},
    )


@dataclass(frozen=True)
class ReportSkipped:
    """Record the number of skipped calls of all sessions, before the process stops."""

    async def run(self, context: Context) -> None:
        """Append the receipts, a limited number in each transaction."""
        now, names = context.now, context.refused.unreported()
        for start in range(0, len(names), _BATCH):
            taken = {name: context.refused.take(name, now, at_once=True) for name in names[start : start + _BATCH]}
            some = {name: skipped for name, skipped in taken.items() if skipped is not None}
            try:
                await context.transact(lambda transaction, some=some: _append_all(context, transaction, some))  # type: ignore[misc]
            except RemitError:
                for name, skipped in some.items():
                    context.refused.put_back(name, skipped)
                raise


def _append_all(context: Context, transaction: Transaction, some: dict[str, SkippedCalls]) -> None:
    for name, skipped in some.items():
        _append(context, transaction, name, skipped)
