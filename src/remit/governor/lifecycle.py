"""How a session comes to its end, and what then becomes of calls that it had set aside or was given.

Keeps this invariant: a session in a final state has no delegate that is active, and holds nothing of its parent's
budget. What it had used is used by the parent too; the rest goes back, with a receipt in the parent's chain.
"""

from typing import Final

from msgspec import structs

from remit.claims.canonical import canonicalize
from remit.claims.receipt import LineageBudgetDelta, PolicyDecision, Step
from remit.errors import TokenError
from remit.governor.clock import Moment
from remit.governor.means import Means
from remit.governor.receipts import GOVERNOR, append, budget_remaining, moment_of
from remit.governor.states import MOVES, QUARANTINED, Move, account_of, duration_left_s, standing_of, touched
from remit.ledger.port import Transaction
from remit.ledger.records import RESTORED, Delegation, Pending, Session
from remit.policy.budget import release
from remit.policy.engines import Standing

__all__ = ["CALLS", "UNIT", "close", "looked_at", "seen_at", "settle", "settle_overdue", "standing_in"]

CALLS: Final = "tool_calls"
UNIT: Final = "invocations"


def standing_in(transaction: Transaction, session: Session) -> Standing:
    """Return how a session stands that was touched just now; what was revoked above it in its lineage counts too."""
    revoked, above = transaction.revoked(session.id), session
    while not revoked and above.parent is not None:
        parent = transaction.session(above.parent)
        revoked = parent is None or parent.state == "revoked" or transaction.revoked(parent.id)
        above = parent or structs.replace(above, parent=None)
    return standing_of(session, transaction.switches, revoked=revoked)


def looked_at(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session with its time counted; one whose time is over is closed.

    One that this process sees for the first time is quarantined if its last receipt is not genuine: whatever is
    appended would cover that up.
    """
    session = _with_genuine_head(means, transaction, touched(session, now))
    if session.state == "active" and duration_left_s(session) <= 0:
        transaction.put_session(session)
        return close(means, transaction, session, MOVES["expire"], now)
    return session


def seen_at(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session as `looked_at` would, but for its end: nothing of this is kept."""
    return _examined(means, transaction, touched(session, now))


def _with_genuine_head(means: Means, transaction: Transaction, session: Session) -> Session:
    examined = _examined(means, transaction, session)
    if examined.cause != session.cause:
        transaction.put_session(examined)
    return examined


def _examined(means: Means, transaction: Transaction, session: Session) -> Session:
    """Return a session, as quarantined if its last receipt is not genuine."""
    if session.cause or session.id in means.heads:
        return session
    # Another process may have changed the key; its receipts are no breach, once the keys are read again.
    means.keys.signing(transaction.switches.kid)
    if _head_is_genuine(means, transaction, session):
        means.trust_head(session)
        return session
    return structs.replace(session, cause=QUARANTINED, broken=1)


def _head_is_genuine(means: Means, transaction: Transaction, session: Session) -> bool:
    """Tell whether the last receipt is there, is ours, and is the one that the session says."""
    if session.receipt_id is None:
        return session.length == 0
    kept = transaction.receipt(session.receipt_id)
    if isinstance(kept, Pending):
        return True  # made a moment ago, and not yet durable
    if kept is None or (kept.session_id, kept.seq) != (session.id, session.length):
        return False
    try:
        return means.receipt(kept.token).hash == session.receipt_hash
    except TokenError:
        return False


def close(means: Means, transaction: Transaction, session: Session, move: Move, now: Moment) -> Session:
    """Take a session out of its active state, its delegates first; a final one stays as it is."""
    if session.state != "active":
        return session
    for delegation in transaction.open_delegations(session.id):
        child = transaction.session(delegation.child)
        if child is not None and child.state == "active":
            close(means, transaction, touched(child, now), move, now)
        else:
            settle(means, transaction, delegation, now)
    session = touched(transaction.session(session.id) or session, now)
    ended_ms = max(now.wall_ms, session.started_ms)
    session = structs.replace(session, state=move.state, cause=move.code, ended_ms=ended_ms)
    transaction.put_session(session)
    given = transaction.delegation_to(session.id)
    if given is not None and not given.settled:
        settle(means, transaction, given, now)
    return session


def settle_overdue(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Take back what delegates hold whose time is over, started or not."""
    for delegation in transaction.open_delegations(session.id):
        child = transaction.session(delegation.child)
        if child is not None:
            looked_at(means, transaction, child, now)
        elif now.wall_ms >= delegation.expires_ms:
            settle(means, transaction, delegation, now)
    return transaction.session(session.id) or session


def settle(means: Means, transaction: Transaction, delegation: Delegation, now: Moment) -> None:
    """Give back to a parent what its delegate has not used."""
    parent, child = transaction.session(delegation.parent), transaction.session(delegation.child)
    if parent is None or parent.cause == RESTORED:
        return  # the chain of a session from an older copy takes no receipt any more
    parent = _with_genuine_head(means, transaction, parent)
    used = child.used if child else 0
    account = release(account_of(parent), delegation.amount, used)
    parent = structs.replace(touched(parent, now), used=account.used, reserved=account.reserved)
    transaction.put_delegation(delegation._replace(settled=True))
    step = _release_step(parent, delegation, used, now)
    append(means, transaction, parent, step, now, form=canonicalize({"request": delegation.request, "used": used}))


def _release_step(parent: Session, delegation: Delegation, used: int, now: Moment) -> Step:
    returned = delegation.amount - used
    remaining = budget_remaining(parent)
    reason = f"a delegate has ended; of {delegation.amount} calls set aside for it, {used} were used"
    return Step(
        tool="remit.release",
        action_class="delegate",
        target=delegation.child,
        resource_family="passport",
        side_effect_class="none",
        verdict="compliant",
        reason=reason,
        policy_decisions=(PolicyDecision(backend=GOVERNOR, decision="permit", reason=reason),),
        budget_remaining=remaining,
        timestamp=moment_of(parent, now),
        budget_delta=LineageBudgetDelta(
            operation="release",
            resource=CALLS,
            amount=returned,
            unit=UNIT,
            remaining_for_parent=remaining[CALLS],
            used_total=parent.used,
            reserved_total=parent.reserved,
            delegation_request_id=delegation.request,
        ),
    )
