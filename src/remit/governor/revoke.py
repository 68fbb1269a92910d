"""Taking authority back: a passport, a session, a whole lineage, or everything at once.

Keeps this invariant: what was delegated from something that is revoked is revoked with it. A passport that is revoked
before it was ever used cannot start a session any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from remit.errors import FieldInvalid, SessionNotFound
from remit.governor.lifecycle import close, looked_at, settle
from remit.governor.means import Commit, Means, Steps
from remit.governor.sessions import durable, found
from remit.governor.states import MOVES
from remit.ledger.port import Transaction
from remit.ledger.records import Session

__all__ = ["MAX_REASON", "CloseRevoked", "KillSwitch", "RevokePassport", "RevokeSession"]

MAX_REASON: Final = 1024
_AT_ONCE: Final = 200


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
        return None if session is None else (yield from durable(means, session))


@dataclass(frozen=True)
class CloseRevoked:
    """Close the sessions of passports that are revoked already, some at a time; returns how many were closed."""

    passport_ids: Sequence[str]

    def steps(self, means: Means) -> Steps[int]:
        """Close them. Their calls are denied already: whoever is stopped in between changes nothing."""
        closed = 0
        for start in range(0, len(self.passport_ids), _AT_ONCE):
            some = self.passport_ids[start : start + _AT_ONCE]
            closed += yield Commit(partial(_close_these, means, some), alone=True)
        return closed


def _close_these(means: Means, passport_ids: Sequence[str], transaction: Transaction) -> int:
    now, closed = means.clock.now(), 0
    for passport_id in passport_ids:
        session, given = transaction.session(passport_id), transaction.delegation_to(passport_id)
        if session is not None and session.state == "active":
            close(means, transaction, session, MOVES["revoke_passport"], now)
            closed += 1
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

        def work(transaction: Transaction) -> Session:
            now = means.clock.now()
            session = found(transaction, self.session_id)
            first = _first_of(transaction, session) if self.lineage else session
            close(means, transaction, looked_at(means, transaction, first, now), MOVES["revoke_session"], now)
            return found(transaction, self.session_id)

        session: Session = yield Commit(work, alone=True)
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
        more = revoked > 0
        while more:
            more = yield Commit(lambda transaction: _close_some(means, transaction), alone=True)
        return revoked


def _close_some(means: Means, transaction: Transaction) -> bool:
    """Close some of the sessions that were killed, with their delegates; tell whether there may be more.

    They are refused already: this only tidies up, and whoever is stopped in between changes nothing.
    """
    now, last = means.clock.now(), transaction.switches.killed_up_to
    some = [found(transaction, session_id) for session_id in islice(transaction.active_sessions(), _AT_ONCE)]
    killed = [session for session in some if session.number <= last]
    for session in killed:
        # A delegate may be closed by now, with its parent.
        close(means, transaction, found(transaction, session.id), MOVES["kill"], now)
    return len(killed) == _AT_ONCE


def _check_reason(reason: str) -> None:
    if len(reason) > MAX_REASON:
        raise FieldInvalid(f"has at most {MAX_REASON} characters", place="$.reason")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise FieldInvalid("holds half a character", place="$.reason") from None
