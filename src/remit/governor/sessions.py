"""Starting a session from a passport, ending one, and who may use it: the holder of the certificate that started it.

Keeps this invariant: a session that was started with a certificate cannot be used with another one, even by a client
that knows its id; and a passport that is bound to a certificate starts a session for no other. The server takes the
certificate from the verified connection.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import UNSET, structs

from remit.claims.canonical import encode_base64url, sha256_hex
from remit.claims.passport import Passport, verify_passport
from remit.errors import (
    HolderMismatch,
    KeyUnknown,
    KillSwitchOn,
    LineageUnknown,
    PassportError,
    PassportExpired,
    PassportRevoked,
    PassportUnregistered,
    RequestConflict,
    SessionNotFound,
    SessionSealed,
)
from remit.governor.audiences import check_client
from remit.governor.clock import Moment
from remit.governor.closing import finish
from remit.governor.lifecycle import MOVES, close, looked_at, standing_in
from remit.governor.means import Means, UseCase
from remit.governor.rate import report_skipped
from remit.ledger.port import Transaction
from remit.ledger.records import RESTORED, Session

__all__ = [
    "End",
    "Held",
    "Look",
    "Looked",
    "Start",
    "Started",
    "check_bound",
    "check_holder",
    "durable",
    "found",
    "kept",
    "new_session",
]

_T_co = TypeVar("_T_co", covariant=True)


def check_bound(passport: Passport, holder: str) -> None:
    """Raise unless the passport is bound to no one, or to this holder."""
    bound = passport.bound_to
    if bound is None:
        return
    if bound.certificate is UNSET:
        raise HolderMismatch("the passport is bound to a key, and only certificates are checked here")
    if bound.certificate != holder:
        raise HolderMismatch("the passport is bound to a certificate that this client has not shown")


def check_holder(bound_to: str, holder: str) -> None:
    """Raise unless a session is bound to no one, or to this holder."""
    if bound_to and bound_to != holder:
        raise HolderMismatch("the session is bound to the certificate that started it")


@dataclass(frozen=True)
class Held(Generic[_T_co]):
    """A use case on a session, for a client that has shown a certificate or none."""

    case: UseCase[_T_co]
    session_id: str
    holder: str

    def run(self, means: Means) -> Coroutine[Any, Any, _T_co]:
        """See whose session it is, then go on as the case does."""
        bound_to = means.holders.get(self.session_id)
        if bound_to is None:
            return self._find_and_run(means)
        check_holder(bound_to, self.holder)
        return means.run(self.case)

    async def _find_and_run(self, means: Means) -> _T_co:
        check_holder(means.holder_of(await means.aside(lambda: self._session(means))), self.holder)
        return await means.run(self.case)

    def _session(self, means: Means) -> Session:
        """Return the session, if a client may use it at all; neither that nor its holder ever changes."""
        session = means.reader.session(self.session_id)
        if session is None:
            raise SessionNotFound("no session has this id")
        check_client(means.reader, session)
        return session


class Started(NamedTuple):
    """A session with its passport, and whether it had been started before."""

    session: Session
    passport: Passport
    existing: bool


class Looked(NamedTuple):
    """A session as it stands, with its passport."""

    session: Session
    passport: Passport


def found(transaction: Transaction, session_id: str) -> Session:
    """Return the session of this id, or raise `SessionNotFound`."""
    session = transaction.session(session_id)
    if session is None:
        raise SessionNotFound("no session has this id")
    if session.cause == RESTORED:
        raise SessionSealed("the session comes from an older copy of the ledger; start one with a new passport")
    return session


async def durable(means: Means, session: Session) -> Session:
    """Return a session as it is kept: work that has appended to it did not know the hash of its head yet."""
    kept: Session | None = await means.aside(lambda: means.reader.session(session.id))
    return kept or session


@dataclass(frozen=True)
class Start:
    """Start a session from the token of a passport; the same passport again is the same session.

    A passport that has expired or was revoked is refused, also if it has a session. `holder` is the thumbprint of the
    certificate that the client has shown: the session is bound to it. `by_source` says that whatever reports to the
    session asks, such as the hooks of an assistant for its subagents.
    """

    token: str
    holder: str = ""
    by_source: bool = False

    async def run(self, means: Means) -> Started:
        """Verify the passport, then keep the session if there is none."""
        passport = await self._verified(means)
        check_bound(passport, self.holder)
        if not self.by_source:
            await means.aside(lambda: check_client(means.reader, _root(means, passport)))
        started, refusal = await means.transact(lambda transaction: _start(means, transaction, passport, self.holder))
        await finish(means, started.session)
        if refusal is not None:
            raise refusal
        if started.existing:
            started = started._replace(session=(await durable(means, started.session)))
        return started

    async def _verified(self, means: Means) -> Passport:
        """Verify the passport; a key that is not known may have come in by another process."""
        now_s = means.now.wall_s
        try:
            return verify_passport(self.token, means.keys.keyring(), now=now_s)
        except KeyUnknown:
            await means.aside(means.keys.refresh)
        return verify_passport(self.token, means.keys.keyring(), now=now_s)


def _root(means: Means, passport: Passport) -> Session | None:
    """Return the session of a passport, or the one that it was delegated from, where there is one already."""
    session = means.reader.session(passport.jti)
    return session or (means.reader.session(passport.parent_jti) if passport.parent_jti else None)


def _start(
    means: Means, transaction: Transaction, passport: Passport, holder: str
) -> tuple[Started, PassportError | None]:
    """Return the session, and why its passport is not accepted any more: what was found out is kept all the same."""
    now = means.now
    if transaction.session(passport.jti) is not None:
        session = found(transaction, passport.jti)
        check_holder(session.holder, holder)
        started = Started(kept(means, transaction, session, now), _same(means, session, passport), existing=True)
        return started, _refusal(transaction, started.session)
    if transaction.switches.kill_switch:
        raise KillSwitchOn("no session starts until the kill switch is released")
    if transaction.revoked(passport.jti):
        raise PassportRevoked("the passport was revoked")
    _check_registered(means, transaction, passport)
    session = structs.replace(new_session(means, transaction, passport, now), holder=holder)
    if not session.lifetime_ms:
        raise PassportExpired(f"good until {passport.expires_at}, it is {now.wall_s}")
    if passport.parent_jti is not None:
        parent = _delegating(means, transaction, passport, now)
        session = structs.replace(session, lifetime_ms=min(session.lifetime_ms, parent.left_ms))
    transaction.put_session(session)
    return Started(session, passport, existing=False), None


def _refusal(transaction: Transaction, session: Session) -> PassportError | None:
    """Return the error for the passport of a session that is there; None while it is active, and once it has ended."""
    if session.state == "revoked" or transaction.revoked(session.id):
        return PassportRevoked(f"the passport was revoked ({(session.cause or 'passport_revoked').replace('_', ' ')})")
    if session.state == "expired":
        return PassportExpired("the time of the session that the passport has started is over")
    return None


def _check_registered(means: Means, transaction: Transaction, passport: Passport) -> None:
    """Raise unless a passport of this home was registered when it was issued; that of a delegate was kept as a whole.

    A signature alone proves nothing here: the key may have been stolen, or may have handed over since.
    """
    if passport.parent_jti is not None or not _is_own(means, passport):
        return
    registered = transaction.registered(passport.jti)
    if registered is None or registered.hash != sha256_hex(passport.token.encode()):
        raise PassportUnregistered(
            "the passport is not registered in this home: issue it again with `remit issue` (it may have been issued "
            "before passports were registered)"
        )


def _is_own(means: Means, passport: Passport) -> bool:
    """Tell whether a passport names a key of this home as its issuer."""
    return any(trusted.issuer == passport.issuer and not trusted.foreign for trusted in means.keys.keyring())


def _same(means: Means, session: Session, passport: Passport) -> Passport:
    """Return the passport of a session, if it is the one that is presented: an id alone proves nothing."""
    known = means.passport_of(session)
    if known.token != passport.token and (_is_own(means, passport) or _identity(known) != _identity(passport)):
        raise RequestConflict("another passport of this id has a session already")
    return known


def _identity(passport: Passport) -> tuple[object, ...]:
    return passport.issuer, passport.mission, passport.parent_jti, passport.bound_to, passport.expires_at


def kept(means: Means, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session that was looked at, and keep what was found."""
    looked = looked_at(means, transaction, session, now)
    if looked.state != session.state:
        transaction.put_session(looked)
    return looked


def _delegating(means: Means, transaction: Transaction, passport: Passport, now: Moment) -> Session:
    """Return the session that has set calls aside for this delegate, if it is not refused any call itself."""
    delegation = transaction.delegation_to(passport.jti)
    if delegation is None or (delegation.parent, delegation.passport) != (passport.parent_jti, passport.token):
        raise LineageUnknown("the passport is a delegate's, and nothing here was delegated to it")
    if delegation.settled:
        raise PassportRevoked("the session that the passport was delegated from has ended")
    parent = looked_at(means, transaction, found(transaction, delegation.parent), now)
    if standing_in(transaction, parent).refusal:
        raise PassportRevoked("the session that the passport was delegated from does not permit anything any more")
    # Where another process ends the parent at the same moment, one of the two must see the other: both write its row.
    transaction.put_session(parent)
    return parent


def new_session(means: Means, transaction: Transaction, passport: Passport, now: Moment) -> Session:
    """Return the session that a passport starts now. It is not kept yet."""
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
        expires_ms=passport.expires_at * 1000,
        limit=mission.max_tool_calls,
        verifier=f"remit:{transaction.switches.kid}",
        seen_boot=now.boot,
        seen_mono_ms=now.mono_ms,
        seen_wall_ms=now.wall_ms,
    )


@dataclass(frozen=True)
class Look:
    """Find a session and count its time; one whose time is over is closed, with its delegates."""

    session_id: str

    async def run(self, means: Means) -> Looked:
        """Read the session, and its passport where this process sees it for the first time."""
        await report_skipped(means, self.session_id)

        def work(transaction: Transaction) -> Session:
            return kept(means, transaction, found(transaction, self.session_id), means.now)

        session: Session = await means.transact(work)
        await finish(means, session)
        return Looked(session, means.passport_of(session))


@dataclass(frozen=True)
class End:
    """End a session, and with it its delegates; one that has ended already stays as it is."""

    session_id: str

    async def run(self, means: Means) -> Session:
        """Close the session, which refuses every call in its lineage from then on, and then its delegates."""

        def work(transaction: Transaction) -> Session:
            now = means.now
            session = looked_at(means, transaction, found(transaction, self.session_id), now)
            return close(means, transaction, session, MOVES["end"], now)

        session: Session = await means.transact(work)
        await finish(means, session)
        return await durable(means, session)
