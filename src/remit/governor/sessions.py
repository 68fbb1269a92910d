"""Starting a session from a passport, and ending one."""

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from remit.claims.canonical import encode_base64url
from remit.claims.passport import Passport, verify_passport
from remit.claims.receipt import verify_receipt
from remit.errors import (
    KillSwitchOn,
    LedgerRolledBack,
    LineageUnknown,
    PassportRevoked,
    SessionNotFound,
    TokenError,
)
from remit.governor.clock import Moment
from remit.governor.lifecycle import close, looked_at
from remit.governor.means import Commit, Live, Means, Steps
from remit.governor.states import MOVES, QUARANTINED
from remit.ledger.port import RESTORED, Kept, Session, Switches, Transaction

__all__ = ["End", "Look", "Start", "Started", "found"]


class Started(NamedTuple):
    """A session with its passport, and whether it had been started before."""

    session: Session
    passport: Passport
    existing: bool


def found(transaction: Transaction, session_id: str) -> Session:
    """Return the session of this id, or raise `SessionNotFound`."""
    session = transaction.session(session_id)
    if session is None:
        raise SessionNotFound("no session has this id")
    if session.cause == RESTORED:
        raise LedgerRolledBack("the session comes from an older copy of the ledger; start one with a new passport")
    return session


@dataclass(frozen=True)
class Start:
    """Start a session from the token of a passport; the same passport again is the same session."""

    token: str

    def steps(self, means: Means) -> Steps[Started]:
        """Verify the passport, then keep the session if there is none."""
        passport = verify_passport(self.token, means.keys.keyring(), now=means.clock.now().wall_s)
        started: Started = yield Commit(lambda transaction: _start(means, transaction, passport))
        return started


def _start(means: Means, transaction: Transaction, passport: Passport) -> Started:
    now = means.clock.now()
    session = transaction.session(passport.jti)
    if session is not None:
        return Started(_kept(means, transaction, session, now), passport, existing=True)
    if transaction.switches.kill_switch:
        raise KillSwitchOn("no session starts until the kill switch is released")
    if transaction.revoked(passport.jti):
        raise PassportRevoked("the passport was revoked")
    if passport.parent_jti is not None:
        _check_delegated(transaction, passport)
    session = _new_session(means, transaction, passport, now)
    transaction.put_session(session)
    return Started(session, passport, existing=False)


def _kept(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session that was looked at, and keep what was found."""
    looked = looked_at(means, transaction, session, now)
    if looked.state != session.state:
        transaction.put_session(looked)
    return looked


def _check_delegated(transaction: Transaction, passport: Passport) -> None:
    """Raise unless calls are set aside for this delegate."""
    delegation = transaction.delegation_to(passport.jti)
    if delegation is None or delegation.parent != passport.parent_jti:
        raise LineageUnknown("the passport is a delegate's, and nothing here was delegated to it")
    if delegation.settled:
        raise PassportRevoked("the session that the passport was delegated from has ended")


def _new_session(means: Means, transaction: Transaction, passport: Passport, now: Moment) -> Session:
    mission = passport.mission
    return Session(
        id=passport.jti,
        passport=passport.token,
        actor=mission.agent_id,
        parent=passport.parent_jti,
        trace_id=means.new_id("trace"),
        run_nonce=encode_base64url(means.entropy(24)),
        started_ms=now.wall_ms,
        lifetime_ms=max(0, min(mission.max_duration_s * 1000, passport.expires_at * 1000 - now.wall_ms)),
        limit=mission.max_tool_calls,
        verifier=f"remit:{transaction.switches.kid}",
        seen_boot=now.boot,
        seen_mono_ms=now.mono_ms,
        seen_wall_ms=now.wall_ms,
    )


@dataclass(frozen=True)
class Look:
    """Find a session and count its time; one whose time is over is closed."""

    session_id: str

    def steps(self, means: Means) -> Steps[Live]:
        """Read the session; where this process sees it for the first time, its passport and its last receipt too."""
        first = self.session_id not in means.live

        def work(transaction: Transaction) -> tuple[Session, Switches]:
            session = _kept(means, transaction, found(transaction, self.session_id), means.clock.now())
            if first and not session.cause and not _head_is_genuine(means, transaction, session):
                session = structs.replace(session, cause=QUARANTINED)
                transaction.put_session(session)
            return session, transaction.switches

        session, switches = yield Commit(work)
        return means.remember(session, means.passport_of(session), switches)


def _head_is_genuine(means: Means, transaction: Transaction, session: Session) -> bool:
    """Tell whether the last receipt is there, is ours, and is the one that the session says."""
    if session.receipt_id is None:
        return session.length == 0
    kept = transaction.receipt(session.receipt_id)
    if not isinstance(kept, Kept) or (kept.session_id, kept.seq) != (session.id, session.length):
        return False
    try:
        return verify_receipt(kept.token, means.keys.keyring()).hash == session.receipt_hash
    except TokenError:
        return False


@dataclass(frozen=True)
class End:
    """End a session, and with it its delegates; one that has ended already stays as it is."""

    session_id: str

    def steps(self, means: Means) -> Steps[Session]:
        """Close the session."""

        def work(transaction: Transaction) -> Session:
            now = means.clock.now()
            session = looked_at(means, transaction, found(transaction, self.session_id), now)
            return close(means, transaction, session, MOVES["end"], now)

        session: Session = yield Commit(work)
        return session
