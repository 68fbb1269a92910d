"""The states of a session: how it stands, how it ends, and what becomes of calls that it had set aside or was given.

`active` is the only state that can be left; the others are final. Keeps these invariants: once a session is in a final
state, nothing in its lineage below it is permitted any more. Its delegates are closed after it, a bounded number in
each transaction, so that a large lineage does not keep others from the ledger (`closing.py` does so). What a delegate
had used is used by its parent too; the rest goes back once the delegate and all below it are closed, with a receipt in
the parent's chain.

The sessions of an assistant under one key continue each other (`leads.py`). What is revoked or found broken in one of
them holds for all of them: no later one is started, and the last one is closed (`revoke_line`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import structs

from remit.claims.attestation import SessionState
from remit.claims.canonical import canonicalize
from remit.claims.receipt import LineageBudgetDelta, PolicyDecision, Step
from remit.errors import TokenError
from remit.governor.audiences import HOOK_KEY
from remit.governor.clock import Moment, elapsed_between
from remit.governor.means import Means
from remit.governor.receipts import GOVERNOR, append, budget_remaining, moment_of
from remit.ledger.findings import fault_of_period
from remit.ledger.keys import Periods
from remit.ledger.port import Transaction
from remit.ledger.records import RESTORED, Delegation, Pending, Session, Switches
from remit.policy.budget import Account, Budget, release
from remit.policy.engines import Standing

__all__ = [
    "CALLS",
    "MAX_CLOSED",
    "MOVES",
    "QUARANTINED",
    "UNIT",
    "Move",
    "Settled",
    "account_of",
    "close",
    "close_delegates",
    "has_open_delegates",
    "head_is_genuine",
    "is_stopped",
    "looked_at",
    "move_of",
    "quarantine",
    "revoke_line",
    "same_answer",
    "seen_at",
    "settle",
    "settle_overdue",
    "standing_in",
    "standing_of",
    "status_in",
    "touched",
]

# How many sessions one transaction closes.
MAX_CLOSED: Final = 64
CALLS: Final = "tool_calls"
UNIT: Final = "invocations"


class Move(NamedTuple):
    """What takes a session out of its active state: the state it leads to, and the code that calls then get."""

    state: SessionState
    code: str


MOVES: Final[Mapping[str, Move]] = {
    "end": Move("ended", "session_ended"),
    "expire": Move("expired", "duration_exceeded"),
    "revoke_passport": Move("revoked", "passport_revoked"),
    "revoke_session": Move("revoked", "session_revoked"),
    "kill": Move("revoked", "kill_switch"),
    "tamper": Move("revoked", "protection_tampered"),
}


# Not a move: the session stays active, and all its calls are denied.
QUARANTINED: Final = "chain_broken"


def move_of(session: Session) -> Move:
    """Return what has ended a session that is over. A broken chain is its cause alone, not that of its delegates."""
    if session.cause != QUARANTINED:
        return Move(session.state, session.cause)
    return MOVES["end" if session.state == "ended" else "expire"]


def touched(session: Session, now: Moment) -> Session:
    """Return the session with its time counted up to `now`. Whether that is too long, `duration_left_s` tells.

    Requests are not committed in the order in which they came: time that a later one has counted is not counted twice.
    """
    if session.state != "active" or (session.seen_boot == now.boot and now.mono_ms < session.seen_mono_ms):
        return session
    passed = elapsed_between(session.seen_boot, session.seen_mono_ms, session.seen_wall_ms, now)
    return structs.replace(
        session,
        elapsed_ms=session.elapsed_ms + passed,
        seen_boot=now.boot,
        seen_mono_ms=now.mono_ms,
        # Never backwards: no receipt may be dated before the one that was made at this moment.
        seen_wall_ms=max(session.seen_wall_ms, now.wall_ms),
    )


def account_of(session: Session) -> Account:
    """Return the account of tool calls."""
    return Account(session.limit, session.used, session.reserved)


def standing_of(session: Session, switches: Switches, *, above: str = "") -> Standing:
    """Return how a session stands that was touched just now; `above` is the code by which its lineage has ended it."""
    calls, left = session.calls_left, session.duration_left_s
    refusal = session.cause
    if not refusal:
        if above:
            refusal = above
        elif switches.kill_switch or 0 < session.number <= switches.killed_up_to:
            refusal = MOVES["kill"].code
        elif left <= 0:
            refusal = MOVES["expire"].code
    return Standing(session.id, Budget(calls, left, own_calls=session.used >= session.limit), refusal)


def same_answer(judged: Standing, actual: Standing, *, exactly: bool) -> bool:
    """Tell whether a call judged under one standing would be answered alike under the other.

    The passport's own rules only ask whether anything is left; engines that are shown how many calls are left need to
    see them `exactly`. A second more or less is no other answer: judging takes time.
    """
    if exactly and judged.budget.tool_calls != actual.budget.tool_calls:
        return False
    return (
        judged.refusal == actual.refusal
        and (judged.budget.tool_calls > 0) == (actual.budget.tool_calls > 0)
        and (actual.budget.tool_calls > 0 or judged.budget.own_calls == actual.budget.own_calls)
    )


def standing_in(transaction: Transaction, session: Session) -> Standing:
    """Return how a session stands that was touched just now; the end of any session above it in its lineage counts."""
    move = _move_above(transaction, session)
    return standing_of(session, transaction.switches, above=move.code if move else "")


def _move_above(transaction: Transaction, session: Session) -> Move | None:
    """Return what has ended a session by its passport or by its lineage: delegates are closed some time later."""
    while not transaction.revoked(session.id):
        if session.parent is None:
            return None
        parent = transaction.session(session.parent)
        if parent is None or parent.cause == RESTORED:
            break
        if parent.state != "active":
            return move_of(parent)
        session = parent
    return MOVES["revoke_passport"]


def looked_at(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session with its time counted; one that is over, by its time or by its lineage, is closed.

    One that this process sees for the first time is quarantined if its last receipt is not genuine: whatever is
    appended would cover that up.
    """
    return status_in(means, transaction, session, now)[0]


def status_in(means: Means, transaction: Transaction, session: Session, now: Moment) -> tuple[Session, Standing]:
    """Return a session as `looked_at` does, and how it stands then."""
    session = touched(session, now)
    if not session.cause and session.id not in means.heads:
        session = _with_genuine_head(means, transaction, session, now)
    if session.state != "active":
        return session, standing_in(transaction, session)
    switches, left = transaction.switches, session.duration_left_s
    move = _move_above(transaction, session)
    if move is None and 0 < session.number <= switches.killed_up_to:
        move = MOVES["kill"]
    if move is None and left <= 0:
        move = MOVES["expire"]
    if move is not None:
        session = close(means, transaction, session, move, now)
        return session, standing_in(transaction, session)
    refusal = session.cause or (MOVES["kill"].code if switches.kill_switch else "")
    return session, Standing(
        session.id, Budget(session.calls_left, left, own_calls=session.used >= session.limit), refusal
    )


def seen_at(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session as `looked_at` would, but for its end: nothing of this is kept."""
    return _examined(means, transaction, touched(session, now))


def _with_genuine_head(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    examined = _examined(means, transaction, session)
    return session if examined is session else quarantine(means, transaction, session, now)


def _examined(means: Means, transaction: Transaction, session: Session) -> Session:
    """Return a session, as quarantined if its last receipt is not genuine."""
    if session.cause or session.id in means.heads:
        return session
    # Another process may have changed the key; its receipts are no breach, once the keys are read again.
    means.keys.signing(transaction.switches.kid)
    if head_is_genuine(means, transaction, session):
        means.trust_head(session)
        return session
    return _quarantined(session)


def head_is_genuine(means: Means, transaction: Transaction, session: Session) -> bool:
    """Tell whether the last receipt is there, is ours, and is the one that the session says.

    One that its key has signed after its period is not ours. What the session says is left of its calls must be what
    that receipt says, and no more may be left of its time.
    """
    if session.receipt_id is None:
        return session.length == session.used == session.reserved == 0
    kept = transaction.receipt(session.receipt_id)
    if isinstance(kept, Pending):
        return True  # made a moment ago, and not yet durable
    if kept is None or (kept.session_id, kept.seq) != (session.id, session.length):
        return False
    try:
        receipt = means.receipt(kept.token)
    except TokenError:
        return False
    late = fault_of_period(Periods(means.reader).limits(), receipt.kid, kept.number)
    return late is None and receipt.hash == session.receipt_hash and _is_left(session, receipt.claims.budget_remaining)


def _is_left(session: Session, signed: Mapping[str, int]) -> bool:
    """Compare what a session says is left with its last receipt, which says of time only while it is active."""
    duration_s = signed.get("duration_s", 0)
    is_within = not duration_s or session.duration_left_s <= duration_s
    return is_within and budget_remaining(session)[CALLS] == signed.get(CALLS)


def _quarantined(session: Session) -> Session:
    return structs.replace(session, cause=session.cause or QUARANTINED, broken=1)


def quarantine(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Deny every further call of a session whose chain is broken; those of its line are closed and not continued.

    Sessions that were delegated from it go on: their chains and passports are their own.
    """
    session = _quarantined(session)
    transaction.put_session(session)
    last = revoke_line(transaction, session.id, now, QUARANTINED)
    if last is not None:
        close(means, transaction, last, MOVES["revoke_session"], now)
    return session


def revoke_line(transaction: Transaction, session_id: str, now: Moment, reason: str) -> Session | None:
    """Revoke all sessions of an assistant that one belongs to: none of them is continued, whatever its hooks report.

    Return the last of them, which is to be closed, if it is another one.
    """
    source = transaction.source_of(session_id)
    if source is None or not source.key.startswith(HOOK_KEY):
        return None
    transaction.put_revocation(source.key, at_ms=now.wall_ms, reason=reason)
    last = transaction.source(source.key)
    session = transaction.session(last.session_id) if last and last.session_id != session_id else None
    if session is not None:
        transaction.put_revocation(session.id, at_ms=now.wall_ms, reason=reason)
    return session


def is_stopped(transaction: Transaction, session: Session) -> bool:
    """Return whether a session is revoked, killed or broken, even after its end. Such a session is not continued."""
    is_killed = 0 < session.number <= transaction.switches.killed_up_to
    return bool(session.broken) or is_killed or transaction.revoked(session.id)


def close(means: Means, transaction: Transaction, session: Session, move: Move, now: Moment) -> Session:
    """Take a session out of its active state; a final one stays as it is.

    That its chain is broken stays its cause, unless it is revoked.
    From then on nothing below it is permitted. Its delegates are closed by `close_delegates`, some at a time.
    """
    if session.state != "active":
        return session
    session = touched(session, now)
    ended_ms = max(now.wall_ms, session.started_ms)
    cause = QUARANTINED if session.cause == QUARANTINED and move.state != "revoked" else move.code
    session = structs.replace(session, state=move.state, cause=cause, ended_ms=ended_ms)
    transaction.put_session(session)
    if not session.reserved:
        _settle_given(means, transaction, session, now)
    return session


def has_open_delegates(session: Session) -> bool:
    """Tell whether a session is over and has delegates that are still to be closed."""
    return session.state != "active" and session.reserved > 0 and session.cause != RESTORED


def close_delegates(
    means: Means, transaction: Transaction, session: Session, now: Moment, *, limit: int = MAX_CLOSED
) -> int:
    """Close up to `limit` delegates of a session that is over, theirs included, and return how many were closed."""
    done = 0
    if not has_open_delegates(session):
        return done
    move = move_of(session)
    for delegation in transaction.open_delegations(session.id):
        if done >= limit:
            break
        child = transaction.session(delegation.child)
        if child is None:
            settle(means, transaction, delegation, now)
            done += 1
            continue
        if child.state == "active":
            child = close(means, transaction, child, move, now)
            done += 1
        if has_open_delegates(child):
            done += close_delegates(means, transaction, child, now, limit=limit - done)
    return done


class Settled(NamedTuple):
    """A session after its overdue delegates were settled; those of `unfinished` have delegates to be closed first."""

    session: Session
    unfinished: tuple[str, ...]


def settle_overdue(means: Means, transaction: Transaction, session: Session, now: Moment) -> Settled:
    """Take back what delegates hold whose time is over, started or not."""
    unfinished = []
    for delegation in transaction.open_delegations(session.id):
        child = transaction.session(delegation.child)
        if child is not None:
            if has_open_delegates(looked_at(means, transaction, child, now)):
                unfinished.append(child.id)
        elif now.wall_ms >= delegation.expires_ms:
            settle(means, transaction, delegation, now)
    return Settled(touched(transaction.session(session.id) or session, now), tuple(unfinished))


def settle(means: Means, transaction: Transaction, delegation: Delegation, now: Moment) -> None:
    """Give back to a parent what its delegate has not used."""
    parent, child = transaction.session(delegation.parent), transaction.session(delegation.child)
    if parent is None or parent.cause == RESTORED:
        return  # the chain of a session from an older copy takes no receipt any more
    parent = _with_genuine_head(means, transaction, parent, now)
    used = child.used if child else 0
    account = release(account_of(parent), delegation.amount, used)
    parent = structs.replace(touched(parent, now), used=account.used, reserved=account.reserved)
    transaction.put_delegation(delegation._replace(settled=True))
    step = _release_step(parent, delegation, used, now)
    form = canonicalize({"request": delegation.request, "used": used})
    parent, _ = append(means, transaction, parent, step, now, form=form)
    if parent.state != "active" and not parent.reserved:
        _settle_given(means, transaction, parent, now)


def _settle_given(means: Means, transaction: Transaction, session: Session, now: Moment) -> None:
    """Settle what a session was given, which is over and has no open delegates: what it has used is known then."""
    given = transaction.delegation_to(session.id)
    if given is not None and not given.settled:
        settle(means, transaction, given, now)


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
