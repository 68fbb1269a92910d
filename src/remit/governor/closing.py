"""Closing the delegates of closed sessions: a bounded number in each transaction, with other work in between.

After a crash, the rest is closed when the session is used again, or when a service starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from remit.governor.context import Context
from remit.governor.lifecycle import MAX_CLOSED, TRANSITIONS, close, close_delegates, has_open_delegates
from remit.ledger.records import Session
from remit.ledger.store import Transaction

_PAGE: Final = 100


async def close_all_delegates(context: Context, session: Session) -> None:
    """Close all delegates of a session, if it is in a final state."""
    more = has_open_delegates(session)
    while more:
        more = await close_some_delegates(context, session.id)


async def close_delegates_of_ended(context: Context, names: Sequence[str]) -> None:
    """Close all delegates of these sessions, which are in a final state."""
    for name in names:
        while await close_some_delegates(context, name):
            pass


async def close_some_delegates(context: Context, session_id: str) -> bool:
    """Close some delegates of a session in a final state; return whether there are more."""

    def work(transaction: Transaction) -> bool:
        session = transaction.session(session_id)
        if session is None or not close_delegates(context, transaction, session, context.now):
            return False
        after = transaction.session(session_id)
        return after is not None and has_open_delegates(after)

    # Alone, so that a commit never contains several such batches.
    more: bool = await context.transact(work, alone=True)
    return more


async def close_killed(context: Context) -> None:
    """Close the sessions that the kill switch has stopped. Their calls are already denied."""
    more = True
    while more:
        last, more = await context.transact(lambda transaction: _close_some(context, transaction), alone=True)
        if last is not None:
            await close_all_delegates(context, last)


def _close_some(context: Context, transaction: Transaction) -> tuple[Session | None, bool]:
    """Close some of the stopped sessions; return the last one if there may be more, and whether there may be."""
    now, ledger_state, left = context.now, transaction.ledger_state, MAX_CLOSED
    session: Session | None = None
    for session_id in transaction.active_sessions():
        session = transaction.session(session_id)
        if session is None or session.number > ledger_state.killed_up_to:
            return None, False
        session = close(context, transaction, session, TRANSITIONS["kill"], now)
        left -= 1 + close_delegates(context, transaction, session, now, limit=left - 1)
        if left <= 0:
            return transaction.session(session_id), True
    return None, False


@dataclass(frozen=True)
class CloseOpenDelegates:
    """Close the delegates left open by a crash; return the number of sessions that had any."""

    async def run(self, context: Context) -> int:
        """Find sessions in a final state with open delegates, and close these."""
        found, after = 0, 0
        while page := (await context.to_thread(partial(context.reader.unsettled_sessions, after=after, limit=_PAGE))):
            for session in page:
                await close_all_delegates(context, session)
            found, after = found + len(page), page[-1].number
        # Only read if there is nothing to do.
        if (await context.to_thread(context.reader.ledger_state)).killed_up_to:
            await close_killed(context)
        return found
