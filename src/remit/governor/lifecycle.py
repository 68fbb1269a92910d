"""Session states: status, transitions, and settling the calls reserved for delegates.

A session starts as `active`; the other states are final. Invariants: once a session is in a final state, every call in
it and in its delegates is denied. Its delegates are closed afterwards, a bounded number in each transaction, so that a
large lineage does not block other writers (`closing.py`). Calls used by a delegate count as used by its parent; the
unused rest is returned once the delegate and its own delegates are closed, with a receipt in the parent's chain.

The sessions of an assistant under one source key continue each other (`leads.py`). If one of them is revoked or its
chain is broken, that applies to all of them: no further session is started, and the last one is closed
(`revoke_source`).
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
from remit.governor.context import Context
from remit.governor.receipts import GOVERNOR, append, budget_remaining, step_timestamp
from remit.ledger.findings import period_fault
from remit.ledger.keys import KeyPeriods
from remit.ledger.records import RESTORED, Delegation, LedgerState, Session, UnsignedReceipt
from remit.ledger.store import Transaction
from remit.policy.budget import Account, Budget, release
from remit.policy.engines import SessionStatus

# The maximum number of sessions closed in one transaction.
MAX_CLOSED: Final = 64
TOOL_CALLS: Final = "tool_calls"
CALL_UNIT: Final = "invocations"


class Transition(NamedTuple):
    """A transition out of the active state: the final state, and the denial code of later calls."""

    state: SessionState
    code: str


TRANSITIONS: Final[Mapping[str, Transition]] = {
    "end": Transition("ended", "session_ended"),
    "expire": Transition("expired", "duration_exceeded"),
    "revoke_passport": Transition("revoked", "passport_revoked"),
    "revoke_session": Transition("revoked", "session_revoked"),
    "kill": Transition("revoked", "kill_switch"),
    "tamper": Transition("revoked", "protection_tampered"),
}


# A cause without a transition: the session stays active, and all its calls are denied.
QUARANTINED: Final = "chain_broken"


def final_transition(session: Session) -> Transition:
    """Return the transition that closed a session, to apply to its delegates.

    A quarantined session counts as ended or expired here: its broken chain is not passed on to its delegates.
    """
    if session.cause != QUARANTINED:
        return Transition(session.state, session.cause)
    return TRANSITIONS["end" if session.state == "ended" else "expire"]


def count_elapsed(session: Session, now: Moment) -> Session:
    """Return the session with its elapsed time counted up to `now`. It does not expire the session.

    Requests may be committed out of order: time that a later request has counted is not counted again.
    """
    if session.state != "active" or (session.seen_boot == now.boot and now.mono_ms < session.seen_mono_ms):
        return session
    passed = elapsed_between(session.seen_boot, session.seen_mono_ms, session.seen_wall_ms, now)
    return structs.replace(
        session,
        elapsed_ms=session.elapsed_ms + passed,
        seen_boot=now.boot,
        seen_mono_ms=now.mono_ms,
        # Never decreases: no receipt may be dated before an earlier one.
        seen_wall_ms=max(session.seen_wall_ms, now.wall_ms),
    )


def get_account(session: Session) -> Account:
    """Return the tool call account of a session: limit, used and reserved."""
    return Account(session.limit, session.used, session.reserved)


def session_status(session: Session, ledger_state: LedgerState, *, above: str = "") -> SessionStatus:
    """Return the status of a session whose time is counted up to now.

    `above` is the denial code if the passport was revoked or a session above it in the lineage has ended.
    """
    calls, left = session.calls_left, session.duration_left_s
    refusal = session.cause
    if not refusal:
        if above:
            refusal = above
        elif ledger_state.kill_switch or 0 < session.number <= ledger_state.killed_up_to:
            refusal = TRANSITIONS["kill"].code
        elif left <= 0:
            refusal = TRANSITIONS["expire"].code
    return SessionStatus(session.id, Budget(calls, left, own_calls=session.used >= session.limit), refusal)


def same_decision(before: SessionStatus, actual: SessionStatus, *, exactly: bool) -> bool:
    """Return whether a call judged under one status would get the same decision under another.

    The passport's rules only check whether any calls are left. With `exactly`, the number of calls left must be equal,
    for engines that see it. The remaining time is not compared, because judging itself takes time.
    """
    if exactly and before.budget.tool_calls != actual.budget.tool_calls:
        return False
    return (
        before.refusal == actual.refusal
        and (before.budget.tool_calls > 0) == (actual.budget.tool_calls > 0)
        and (actual.budget.tool_calls > 0 or before.budget.own_calls == actual.budget.own_calls)
    )


def load_status(transaction: Transaction, session: Session) -> SessionStatus:
    """Return the status of a session whose time is counted up to now, including the state of its lineage."""
    transition = _lineage_transition(transaction, session)
    return session_status(session, transaction.ledger_state, above=transition.code if transition else "")


def _lineage_transition(transaction: Transaction, session: Session) -> Transition | None:
    """Return the transition that a revoked passport or a closed parent implies, or None.

    Delegates are closed some time after their parent, so an active session may have a closed parent.
    """
    while not transaction.revoked(session.id):
        if session.parent is None:
            return None
        parent = transaction.session(session.parent)
        if parent is None or parent.cause == RESTORED:
            break
        if parent.state != "active":
            return final_transition(parent)
        session = parent
    return TRANSITIONS["revoke_passport"]


def refresh(context: Context, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session with its time counted up to `now`; close it if its time or its lineage has ended.

    When this process sees a session for the first time, it verifies the last receipt and quarantines the session if
    that is not genuine. Otherwise appending another receipt would hide the manipulation.
    """
    return refresh_with_status(context, transaction, session, now)[0]


def refresh_with_status(
    context: Context, transaction: Transaction, session: Session, now: Moment
) -> tuple[Session, SessionStatus]:
    """Return a session as `refresh` does, and its status."""
    session = count_elapsed(session, now)
    if not session.cause and session.id not in context.heads:
        session = _quarantine_unless_genuine(context, transaction, session, now)
    if session.state != "active":
        return session, load_status(transaction, session)
    ledger_state, left = transaction.ledger_state, session.duration_left_s
    transition = _lineage_transition(transaction, session)
    if transition is None and 0 < session.number <= ledger_state.killed_up_to:
        transition = TRANSITIONS["kill"]
    if transition is None and left <= 0:
        transition = TRANSITIONS["expire"]
    if transition is not None:
        session = close(context, transaction, session, transition, now)
        return session, load_status(transaction, session)
    refusal = session.cause or (TRANSITIONS["kill"].code if ledger_state.kill_switch else "")
    return session, SessionStatus(
        session.id, Budget(session.calls_left, left, own_calls=session.used >= session.limit), refusal
    )


def preview(context: Context, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session as `refresh` would, without closing it or writing anything."""
    return _check_head(context, transaction, count_elapsed(session, now))


def _quarantine_unless_genuine(context: Context, transaction: Transaction, session: Session, now: Moment) -> Session:
    checked = _check_head(context, transaction, session)
    return session if checked is session else quarantine(context, transaction, session, now)


def _check_head(context: Context, transaction: Transaction, session: Session) -> Session:
    """Return a session, marked as quarantined if its last receipt is not genuine. Nothing is written."""
    if session.cause or session.id in context.heads:
        return session
    # Another process may have rotated the key. This loads the current keys, so that its receipts verify.
    context.keys.signing(transaction.ledger_state.kid)
    if head_is_genuine(context, transaction, session):
        context.trust_head(session)
        return session
    return _quarantine(session)


def head_is_genuine(context: Context, transaction: Transaction, session: Session) -> bool:
    """Return whether the last receipt exists, verifies, and matches the session row.

    A receipt that its key signed after the end of the key's period does not verify. The calls left must equal those in
    the receipt, and the time left must not exceed it.
    """
    if session.receipt_id is None:
        return session.length == session.used == session.reserved == 0
    stored = transaction.receipt(session.receipt_id)
    if isinstance(stored, UnsignedReceipt):
        return True  # appended by this process in the current group
    if stored is None or (stored.session_id, stored.seq) != (session.id, session.length):
        return False
    try:
        receipt = context.receipt(stored.token)
    except TokenError:
        return False
    late = period_fault(KeyPeriods(context.reader).limits(), receipt.kid, stored.number)
    return (
        late is None
        and receipt.hash == session.receipt_hash
        and _matches_budget(session, receipt.claims.budget_remaining)
    )


def _matches_budget(session: Session, signed: Mapping[str, int]) -> bool:
    """Compare the remaining budget of a session with its last receipt, which has a duration only while it is active."""
    duration_s = signed.get("duration_s", 0)
    is_within = not duration_s or session.duration_left_s <= duration_s
    return is_within and budget_remaining(session)[TOOL_CALLS] == signed.get(TOOL_CALLS)


def _quarantine(session: Session) -> Session:
    return structs.replace(session, cause=session.cause or QUARANTINED, broken=1)


def quarantine(context: Context, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Deny every further call of a session whose chain is broken, and revoke its source (see `revoke_source`).

    Its delegates continue: they have chains and passports of their own.
    """
    session = _quarantine(session)
    transaction.put_session(session)
    last = revoke_source(transaction, session.id, now, QUARANTINED)
    if last is not None:
        close(context, transaction, last, TRANSITIONS["revoke_session"], now)
    return session


def revoke_source(transaction: Transaction, session_id: str, now: Moment, reason: str) -> Session | None:
    """Revoke the source key of an assistant's session, so that none of its sessions is continued.

    Return the last session of the source, which the caller must close, if it is another one. Return None for a session
    that does not belong to an assistant.
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
    is_killed = 0 < session.number <= transaction.ledger_state.killed_up_to
    return bool(session.broken) or is_killed or transaction.revoked(session.id)


def close(context: Context, transaction: Transaction, session: Session, transition: Transition, now: Moment) -> Session:
    """Move a session into a final state; one that is in a final state is returned unchanged.

    A quarantined session keeps its cause unless it is revoked. From this commit on, calls of its delegates are denied;
    `close_delegates` closes them later.
    """
    if session.state != "active":
        return session
    session = count_elapsed(session, now)
    ended_ms = max(now.wall_ms, session.started_ms)
    cause = QUARANTINED if session.cause == QUARANTINED and transition.state != "revoked" else transition.code
    session = structs.replace(session, state=transition.state, cause=cause, ended_ms=ended_ms)
    transaction.put_session(session)
    if not session.reserved:
        _settle_own_delegation(context, transaction, session, now)
    return session


def has_open_delegates(session: Session) -> bool:
    """Return whether a session is in a final state and has delegates that are still to be closed."""
    return session.state != "active" and session.reserved > 0 and session.cause != RESTORED


def close_delegates(
    context: Context, transaction: Transaction, session: Session, now: Moment, *, limit: int = MAX_CLOSED
) -> int:
    """Close up to `limit` delegates of a session in a final state, at any depth; return how many were closed."""
    done = 0
    if not has_open_delegates(session):
        return done
    transition = final_transition(session)
    for delegation in transaction.open_delegations(session.id):
        if done >= limit:
            break
        child = transaction.session(delegation.child)
        if child is None:
            settle(context, transaction, delegation, now)
            done += 1
            continue
        if child.state == "active":
            child = close(context, transaction, child, transition, now)
            done += 1
        if has_open_delegates(child):
            done += close_delegates(context, transaction, child, now, limit=limit - done)
    return done


class SettleResult(NamedTuple):
    """A session after `settle_overdue`, and the ids of delegates that have open delegates of their own."""

    session: Session
    unfinished: tuple[str, ...]


def settle_overdue(context: Context, transaction: Transaction, session: Session, now: Moment) -> SettleResult:
    """Return the unused calls of expired delegates to the session, whether they were started or not."""
    unfinished = []
    for delegation in transaction.open_delegations(session.id):
        child = transaction.session(delegation.child)
        if child is not None:
            if has_open_delegates(refresh(context, transaction, child, now)):
                unfinished.append(child.id)
        elif now.wall_ms >= delegation.expires_ms:
            settle(context, transaction, delegation, now)
    return SettleResult(count_elapsed(transaction.session(session.id) or session, now), tuple(unfinished))


def settle(context: Context, transaction: Transaction, delegation: Delegation, now: Moment) -> None:
    """Return to the parent the calls that its delegate has not used, with a receipt in the parent's chain."""
    parent, child = transaction.session(delegation.parent), transaction.session(delegation.child)
    if parent is None or parent.cause == RESTORED:
        return  # a session restored from a backup is sealed: no receipt is appended to its chain
    parent = _quarantine_unless_genuine(context, transaction, parent, now)
    used = child.used if child else 0
    account = release(get_account(parent), delegation.amount, used)
    parent = structs.replace(count_elapsed(parent, now), used=account.used, reserved=account.reserved)
    transaction.put_delegation(delegation._replace(settled=True))
    step = _release_step(parent, delegation, used, now)
    form = canonicalize({"request": delegation.request, "used": used})
    parent, _ = append(context, transaction, parent, step, now, form=form)
    if parent.state != "active" and not parent.reserved:
        _settle_own_delegation(context, transaction, parent, now)


def _settle_own_delegation(context: Context, transaction: Transaction, session: Session, now: Moment) -> None:
    """Settle the delegation that made a session, once it is in a final state and has no open delegates."""
    delegation = transaction.delegation_to(session.id)
    if delegation is not None and not delegation.settled:
        settle(context, transaction, delegation, now)


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
        timestamp=step_timestamp(parent, now),
        budget_delta=LineageBudgetDelta(
            operation="release",
            resource=TOOL_CALLS,
            amount=returned,
            unit=CALL_UNIT,
            remaining_for_parent=remaining[TOOL_CALLS],
            used_total=parent.used,
            reserved_total=parent.reserved,
            delegation_request_id=delegation.request,
        ),
    )
