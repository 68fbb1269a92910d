"""Taking authority back: a passport, a session, a whole lineage, or everything at once.

Keeps this invariant: what was delegated from something that is revoked is refused from the same commit on, and closed
after it, a bounded number of sessions in each transaction. A passport that is revoked
before it was ever used cannot start a session any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from remit.errors import FieldInvalid, SessionNotFound
from remit.governor.closing import close_killed, finish
from remit.governor.lifecycle import MAX_CLOSED, close, looked_at, settle
from remit.governor.means import Commit, Means, Steps
from remit.governor.sessions import durable, found
from remit.governor.states import MOVES
from remit.ledger.port import Transaction
from remit.ledger.records import Session

__all__ = ["MAX_REASON", "CloseRevoked", "KillSwitch", "RevokePassport", "RevokeSession"]

MAX_REASON: Final = 1024


@dataclass(frozen=True)
class RevokePassport:
    """Revoke a passport by its id, used or not; returns its session as it then stands, if it has one."""

    passport_id: str
    reason: str = ""

    def steps(self, means: Means) -> Steps[Session | None]:
        """Keep the revocation, which denies every call from then on, and then close what runs under the passport."""
        _check_reason(self.reason)

        def keep(transaction: Transaction) -> None:
            transaction.put_revocation(self.passport_id, at_ms=means.clock.now().wall_ms, reason=self.reason)

        yield Commit(keep)

        def work(transaction: Transaction) -> Session | None:
            now = means.clock.now()
            session = transaction.session(self.passport_id)
            if session is None:
                # Nobody will use what was set aside for it.
                given = transaction.delegation_to(self.passport_id)
                if given is not None and not given.settled:
                    settle(means, transaction, given, now)
                return None
            return close(means, transaction, session, MOVES["revoke_passport"], now)

        session: Session | None = yield Commit(work, alone=True)
        if session is None:
            return None
        yield from finish(means, session)
        return (yield from durable(means, session))


@dataclass(frozen=True)
class CloseRevoked:
    """Close the sessions of passports that are revoked already, some at a time; returns how many were closed."""

    passport_ids: Sequence[str]

    def steps(self, means: Means) -> Steps[int]:
        """Close them. Their calls are denied already: whoever is stopped in between changes nothing."""
        count = 0
        for start in range(0, len(self.passport_ids), MAX_CLOSED):
            some = self.passport_ids[start : start + MAX_CLOSED]
            closed: list[Session] = yield Commit(partial(_close_these, means, some), alone=True)
            for session in closed:
                yield from finish(means, session)
            count += len(closed)
        return count


def _close_these(means: Means, passport_ids: Sequence[str], transaction: Transaction) -> list[Session]:
    now, closed = means.clock.now(), list[Session]()
    for passport_id in passport_ids:
        session, given = transaction.session(passport_id), transaction.delegation_to(passport_id)
        if session is not None and session.state == "active":
            closed.append(close(means, transaction, session, MOVES["revoke_passport"], now))
        elif session is None and given is not None and not given.settled:
            settle(means, transaction, given, now)
    return closed


@dataclass(frozen=True)
class RevokeSession:
    """Revoke a session and what it has delegated; with `lineage`, from the first passport of its lineage on."""

    session_id: str
    lineage: bool = False

    def steps(self, means: Means) -> Steps[Session]:
        """Close the session, or the one that its lineage began with."""

        def work(transaction: Transaction) -> tuple[Session, Session]:
            now = means.clock.now()
            session = found(transaction, self.session_id)
            first = _first_of(transaction, session) if self.lineage else session
            first = close(means, transaction, looked_at(means, transaction, first, now), MOVES["revoke_session"], now)
            return first, session

        first, session = yield Commit(work)
        yield from finish(means, first)
        return (yield from durable(means, session))


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

    def steps(self, means: Means) -> Steps[int]:
        """Turn the switch, which denies every call from then on, and then close the sessions, some at a time."""

        def turn(transaction: Transaction) -> int:
            active = list(transaction.active_sessions()) if self.on else []
            switches = transaction.switches._replace(kill_switch=self.on)
            if active:
                switches = switches._replace(killed_up_to=found(transaction, active[-1]).number)
            transaction.put_switches(switches)
            return len(active)

        revoked: int = yield Commit(turn, alone=True)
        if revoked:
            yield from close_killed(means)
        return revoked


def _check_reason(reason: str) -> None:
    if len(reason) > MAX_REASON:
        raise FieldInvalid(f"has at most {MAX_REASON} characters", place="$.reason")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise FieldInvalid("holds half a character", place="$.reason") from None
