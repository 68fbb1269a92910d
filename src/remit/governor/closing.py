"""Closing the delegates of sessions that are over: a bounded number in each transaction, with other work in between.

A crash in between loses nothing: what is left is closed when the session is looked at again, or when a service starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from remit.governor.lifecycle import MAX_CLOSED, MOVES, close, close_delegates, has_open_delegates
from remit.governor.means import Means
from remit.ledger.port import Transaction
from remit.ledger.records import Session

__all__ = ["FinishClosing", "close_killed", "finish", "finish_all", "finish_some"]

_PAGE: Final = 100


async def finish(means: Means, session: Session) -> None:
    """Close all delegates of a session, if it is over."""
    more = has_open_delegates(session)
    while more:
        more = await finish_some(means, session.id)


async def finish_all(means: Means, names: Sequence[str]) -> None:
    """Close all delegates of these sessions, which are over."""
    for name in names:
        while await finish_some(means, name):
            pass


async def finish_some(means: Means, session_id: str) -> bool:
    """Close some delegates of a session that is over; tell whether there are more."""

    def work(transaction: Transaction) -> bool:
        session = transaction.session(session_id)
        if session is None or not close_delegates(means, transaction, session, means.now):
            return False
        after = transaction.session(session_id)
        return after is not None and has_open_delegates(after)

    # Alone, so that one transaction never holds the work of several such requests.
    more: bool = await means.transact(work, alone=True)
    return more


async def close_killed(means: Means) -> None:
    """Close the sessions that the kill switch has stopped. Their calls are refused already."""
    more = True
    while more:
        last, more = await means.transact(lambda transaction: _close_some(means, transaction), alone=True)
        if last is not None:
            await finish(means, last)


def _close_some(means: Means, transaction: Transaction) -> tuple[Session | None, bool]:
    """Close some of the sessions that were killed; return the last, and whether there may be more."""
    now, switches, left = means.now, transaction.switches, MAX_CLOSED
    session: Session | None = None
    for session_id in transaction.active_sessions():
        session = transaction.session(session_id)
        if session is None or session.number > switches.killed_up_to:
            return None, False
        session = close(means, transaction, session, MOVES["kill"], now)
        left -= 1 + close_delegates(means, transaction, session, now, limit=left - 1)
        if left <= 0:
            return transaction.session(session_id), True
    return None, False


@dataclass(frozen=True)
class FinishClosing:
    """Finish what was begun before a crash; returns how many sessions were found whose delegates were still open."""

    async def run(self, means: Means) -> int:
        """Find such sessions, and close their delegates."""
        found, after = 0, 0
        while page := (await means.aside(partial(means.reader.unsettled_sessions, after=after, limit=_PAGE))):
            for session in page:
                await finish(means, session)
            found, after = found + len(page), page[-1].number
        # Where there is nothing to do, nothing but a reader is used.
        if (await means.aside(means.reader.switches)).killed_up_to:
            await close_killed(means)
        return found
