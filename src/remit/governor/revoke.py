"""Taking authority back: a passport, a session, a whole lineage, or everything at once.

Keeps this invariant: what was delegated from something that is revoked is refused from the same commit on, and closed
after it, a bounded number of sessions in each transaction. A passport that is revoked
before it was ever used cannot start a session any more. Every revocation is kept, also that of a session that is over:
sessions of an assistant continue each other, and none of them goes on once one of them was revoked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from remit.errors import FieldInvalid, SessionNotFound
from remit.governor.clock import Moment
from remit.governor.closing import close_all_delegates, close_killed
from remit.governor.lifecycle import MAX_CLOSED, TRANSITIONS, Transition, close, refresh, revoke_source, settle
from remit.governor.means import Means
from remit.governor.sessions import reload_session
from remit.ledger.port import Transaction
from remit.ledger.records import Session

__all__ = ["MAX_REASON", "CloseRevoked", "KillSwitch", "RevokePassport", "RevokeSession"]

MAX_REASON: Final = 1024


@dataclass(frozen=True)
class RevokePassport:
    """Revoke a passport by its id, used or not; returns its session as it then stands, if it has one."""

    passport_id: str
    reason: str = ""

    async def run(self, context: Means) -> Session | None:
        """Keep the revocation, which denies every call from then on, and then close what runs under the passport."""
        _check_reason(self.reason)

        def keep(transaction: Transaction) -> None:
            _keep(transaction, self.passport_id, context.now, self.reason)

        await context.transact(keep)

        def work(transaction: Transaction) -> tuple[Session, Session | None] | None:
            now = context.now
            session = transaction.session(self.passport_id)
            if session is None:
                # Nobody will use what was set aside for it.
                given = transaction.delegation_to(self.passport_id)
                if given is not None and not given.settled:
                    settle(context, transaction, given, now)
                return None
            return _close_line(context, transaction, session, TRANSITIONS["revoke_passport"], self.reason)

        closed: tuple[Session, Session | None] | None = await context.transact(work, alone=True)
        if closed is None:
            return None
        await _finish_line(context, *closed)
        return await reload_session(context, closed[0])


def _keep(transaction: Transaction, session_id: str, now: Moment, reason: str) -> Session | None:
    """Keep that a session was revoked, and with it all that it continues and is continued by; return the last of them.

    None if it is the last one itself, or belongs to no assistant.
    """
    transaction.put_revocation(session_id, at_ms=now.wall_ms, reason=reason)
    return revoke_source(transaction, session_id, now, reason)


def _close_line(
    context: Means, transaction: Transaction, session: Session, transition: Transition, reason: str = ""
) -> tuple[Session, Session | None]:
    """Close a session and the last one that continues it, if there is one; keep that they were revoked."""
    now = context.now
    session = close(context, transaction, session, transition, now)
    last = _keep(transaction, session.id, now, reason)
    return session, None if last is None else close(context, transaction, last, transition, now)


async def _finish_line(context: Means, session: Session, last: Session | None) -> None:
    """Close the delegates of both."""
    await close_all_delegates(context, session)
    if last is not None:
        await close_all_delegates(context, last)


@dataclass(frozen=True)
class CloseRevoked:
    """Close the sessions of passports that are revoked already, some at a time; returns how many were closed."""

    passport_ids: Sequence[str]

    async def run(self, context: Means) -> int:
        """Close them. Their calls are denied already: whoever is stopped in between changes nothing."""
        count = 0
        for start in range(0, len(self.passport_ids), MAX_CLOSED):
            some = self.passport_ids[start : start + MAX_CLOSED]
            closed = await context.transact(partial(_close_these, context, some), alone=True)
            for session, last in closed:
                await _finish_line(context, session, last)
            count += len(closed)
        return count


def _close_these(
    context: Means, passport_ids: Sequence[str], transaction: Transaction
) -> list[tuple[Session, Session | None]]:
    now, closed = context.now, list[tuple[Session, Session | None]]()
    for passport_id in passport_ids:
        session, given = transaction.session(passport_id), transaction.delegation_to(passport_id)
        if session is not None:
            was_active = session.state == "active"
            session, last = _close_line(context, transaction, session, TRANSITIONS["revoke_passport"])
            if was_active or last is not None:
                closed.append((session, last))
        elif given is not None and not given.settled:
            settle(context, transaction, given, now)
    return closed


@dataclass(frozen=True)
class RevokeSession:
    """Revoke a session and what it has delegated; with `lineage`, from the first passport of its lineage on.

    One that is over keeps its state, and its passport is revoked all the same.
    """

    session_id: str
    lineage: bool = False

    async def run(self, context: Means) -> Session:
        """Close the session, or the one that its lineage began with."""

        def work(transaction: Transaction) -> tuple[Session, Session, Session | None]:
            session = transaction.session(self.session_id)
            if session is None:
                raise SessionNotFound("no session has this id")
            first = _first_of(transaction, session) if self.lineage else session
            first = refresh(context, transaction, first, context.now)
            return session, *_close_line(context, transaction, first, TRANSITIONS["revoke_session"])

        session, first, last = await context.transact(work)
        await _finish_line(context, first, last)
        return await reload_session(context, session)


def _first_of(transaction: Transaction, session: Session) -> Session:
    while session.parent is not None:
        parent = transaction.session(session.parent)
        if parent is None:
            raise SessionNotFound("the session that this one was delegated from is not there")
        session = parent
    return session


@dataclass(frozen=True)
class KillSwitch:
    """Revoke every session, and let none start until the switch is released; returns how many were revoked."""

    on: bool

    async def run(self, context: Means) -> int:
        """Turn the switch, which denies every call from then on, and then close the sessions, some at a time."""

        def turn(transaction: Transaction) -> int:
            switches = transaction.switches._replace(kill_switch=self.on)
            if self.on:
                # Sessions that are over count too: an assistant would continue them once the switch is released.
                switches = switches._replace(killed_up_to=transaction.position().sessions)
            transaction.put_switches(switches)
            return sum(1 for _ in transaction.active_sessions()) if self.on else 0

        revoked: int = await context.transact(turn, alone=True)
        if revoked:
            await close_killed(context)
        return revoked


def _check_reason(reason: str) -> None:
    if len(reason) > MAX_REASON:
        raise FieldInvalid(f"has at most {MAX_REASON} characters", place="$.reason")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise FieldInvalid("holds half a character", place="$.reason") from None
