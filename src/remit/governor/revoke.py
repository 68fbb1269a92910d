"""Revocation of a passport, a session, a whole lineage, or everything (the kill switch).

Invariants: calls of the delegates of a revoked session are denied from the same commit on; the delegates are closed
afterwards, a bounded number in each transaction. A passport that is revoked before its first use cannot start a
session. A revocation is stored even if the session is in a final state: sessions of an assistant continue each other,
and none is continued once one of them was revoked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from remit.errors import FieldInvalid, SessionNotFound
from remit.governor.clock import Moment
from remit.governor.closing import close_all_delegates, close_killed
from remit.governor.context import Context
from remit.governor.lifecycle import MAX_CLOSED, TRANSITIONS, Transition, close, refresh, revoke_source, settle
from remit.governor.sessions import reload_session
from remit.ledger.records import Session
from remit.ledger.store import Transaction

MAX_REASON: Final = 1024


@dataclass(frozen=True)
class RevokePassport:
    """Revoke a passport by its id, used or not; return its session after that, or None if it has none."""

    passport_id: str
    reason: str = ""

    async def run(self, context: Context) -> Session | None:
        """Store the revocation, which denies every call from then on, and then close the session and its delegates."""
        _check_reason(self.reason)

        def store(transaction: Transaction) -> None:
            _store_revocation(transaction, self.passport_id, context.now, self.reason)

        await context.transact(store)

        def work(transaction: Transaction) -> tuple[Session, Session | None] | None:
            now = context.now
            session = transaction.session(self.passport_id)
            if session is None:
                # Return the calls reserved for it.
                delegation = transaction.delegation_to(self.passport_id)
                if delegation is not None and not delegation.settled:
                    settle(context, transaction, delegation, now)
                return None
            return _close_and_revoke(context, transaction, session, TRANSITIONS["revoke_passport"], self.reason)

        closed: tuple[Session, Session | None] | None = await context.transact(work, alone=True)
        if closed is None:
            return None
        await _close_delegates(context, *closed)
        return await reload_session(context, closed[0])


def _store_revocation(transaction: Transaction, session_id: str, now: Moment, reason: str) -> Session | None:
    """Store the revocation of a session and of its source; return the last session of the source.

    Return None if that is the session itself, or if it does not belong to an assistant. See `revoke_source`.
    """
    transaction.put_revocation(session_id, at_ms=now.wall_ms, reason=reason)
    return revoke_source(transaction, session_id, now, reason)


def _close_and_revoke(
    context: Context, transaction: Transaction, session: Session, transition: Transition, reason: str = ""
) -> tuple[Session, Session | None]:
    """Close and revoke a session, and the last session of its source if that is another one."""
    now = context.now
    session = close(context, transaction, session, transition, now)
    last = _store_revocation(transaction, session.id, now, reason)
    return session, None if last is None else close(context, transaction, last, transition, now)


async def _close_delegates(context: Context, session: Session, last: Session | None) -> None:
    """Close the delegates of the sessions that `_close_and_revoke` has returned."""
    await close_all_delegates(context, session)
    if last is not None:
        await close_all_delegates(context, last)


@dataclass(frozen=True)
class CloseRevoked:
    """Close the sessions of revoked passports, in batches; return how many were closed."""

    passport_ids: Sequence[str]

    async def run(self, context: Context) -> int:
        """Close the sessions. Their calls are already denied, so an interruption does no harm."""
        count = 0
        for start in range(0, len(self.passport_ids), MAX_CLOSED):
            batch = self.passport_ids[start : start + MAX_CLOSED]
            closed = await context.transact(partial(_close_batch, context, batch), alone=True)
            for session, last in closed:
                await _close_delegates(context, session, last)
            count += len(closed)
        return count


def _close_batch(
    context: Context, passport_ids: Sequence[str], transaction: Transaction
) -> list[tuple[Session, Session | None]]:
    now, closed = context.now, list[tuple[Session, Session | None]]()
    for passport_id in passport_ids:
        session, delegation = transaction.session(passport_id), transaction.delegation_to(passport_id)
        if session is not None:
            was_active = session.state == "active"
            session, last = _close_and_revoke(context, transaction, session, TRANSITIONS["revoke_passport"])
            if was_active or last is not None:
                closed.append((session, last))
        elif delegation is not None and not delegation.settled:
            settle(context, transaction, delegation, now)
    return closed


@dataclass(frozen=True)
class RevokeSession:
    """Revoke a session and its delegates; with `lineage`, the root session of its lineage and all its delegates.

    A session in a final state keeps its state, but its passport is revoked.
    """

    session_id: str
    lineage: bool = False

    async def run(self, context: Context) -> Session:
        """Revoke the session, or the root of its lineage, and close the delegates."""

        def work(transaction: Transaction) -> tuple[Session, Session, Session | None]:
            session = transaction.session(self.session_id)
            if session is None:
                raise SessionNotFound("no session has this id")
            first = _lineage_root(transaction, session) if self.lineage else session
            first = refresh(context, transaction, first, context.now)
            return session, *_close_and_revoke(context, transaction, first, TRANSITIONS["revoke_session"])

        session, first, last = await context.transact(work)
        await _close_delegates(context, first, last)
        return await reload_session(context, session)


def _lineage_root(transaction: Transaction, session: Session) -> Session:
    while session.parent is not None:
        parent = transaction.session(session.parent)
        if parent is None:
            raise SessionNotFound("the session that this one was delegated from does not exist")
        session = parent
    return session


@dataclass(frozen=True)
class KillSwitch:
    """Turn the kill switch on or off. Turning it on revokes every session; return how many."""

    on: bool

    async def run(self, context: Context) -> int:
        """Set the switch, which denies every call from then on if it is on, and then close the sessions in batches."""

        def set_switch(transaction: Transaction) -> int:
            ledger_state = transaction.ledger_state._replace(kill_switch=self.on)
            if self.on:
                # Including sessions in a final state: an assistant could continue them once the switch is off.
                ledger_state = ledger_state._replace(killed_up_to=transaction.position().sessions)
            transaction.put_ledger_state(ledger_state)
            return sum(1 for _ in transaction.active_sessions()) if self.on else 0

        revoked: int = await context.transact(set_switch, alone=True)
        if revoked:
            await close_killed(context)
        return revoked


def _check_reason(reason: str) -> None:
    if len(reason) > MAX_REASON:
        raise FieldInvalid(f"has at most {MAX_REASON} characters", place="$.reason")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise FieldInvalid("contains an unpaired surrogate", place="$.reason") from None
