"""Starting, reading and ending sessions, and checking the client certificate that a session is bound to.

Invariants: a session that was started with a client certificate can only be used with that certificate, even by a
client that knows its id. A passport that is bound to a certificate only starts a session for its holder. The server
takes the certificate from the verified TLS connection.
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
from remit.governor.closing import close_all_delegates
from remit.governor.context import Context, UseCase
from remit.governor.lifecycle import TRANSITIONS, close, load_status, refresh
from remit.governor.rate import report_skipped
from remit.ledger.records import RESTORED, Session
from remit.ledger.store import Transaction

_T_co = TypeVar("_T_co", covariant=True)


def check_passport_holder(passport: Passport, holder: str) -> None:
    """Raise `HolderMismatch` if the passport is bound to another certificate, or to a key."""
    bound = passport.bound_to
    if bound is None:
        return
    if bound.certificate is UNSET:
        raise HolderMismatch("the passport is bound to a key; only certificates are supported")
    if bound.certificate != holder:
        raise HolderMismatch("the passport is bound to a certificate that the client has not presented")


def check_session_holder(bound_to: str, holder: str) -> None:
    """Raise `HolderMismatch` if a session is bound to another certificate."""
    if bound_to and bound_to != holder:
        raise HolderMismatch("the session is bound to the certificate that started it")


@dataclass(frozen=True)
class RequireHolder(Generic[_T_co]):
    """Runs a use case on a session if the client presents the certificate that the session is bound to.

    `holder` is the thumbprint of the client's certificate, empty without one.
    """

    case: UseCase[_T_co]
    session_id: str
    holder: str

    def run(self, context: Context) -> Coroutine[Any, Any, _T_co]:
        """Check the certificate, then run the use case."""
        bound_to = context.holders.get(self.session_id)
        if bound_to is None:
            return self._find_and_run(context)
        check_session_holder(bound_to, self.holder)
        return context.run(self.case)

    async def _find_and_run(self, context: Context) -> _T_co:
        check_session_holder(
            context.holder_of(await context.to_thread(lambda: self._load_session(context))), self.holder
        )
        return await context.run(self.case)

    def _load_session(self, context: Context) -> Session:
        """Load the session, if clients may use it. Neither that nor its holder ever changes, so it can be cached."""
        session = context.reader.session(self.session_id)
        if session is None:
            raise SessionNotFound("no session has this id")
        check_client(context.reader, session)
        return session


class StartResult(NamedTuple):
    """A session with its passport, and whether it existed before."""

    session: Session
    passport: Passport
    existing: bool


class SessionAndPassport(NamedTuple):
    """A session with its passport."""

    session: Session
    passport: Passport


def get_session(transaction: Transaction, session_id: str) -> Session:
    """Return a session, or raise `SessionNotFound`, or `SessionSealed` if it was restored from a backup."""
    session = transaction.session(session_id)
    if session is None:
        raise SessionNotFound("no session has this id")
    if session.cause == RESTORED:
        raise SessionSealed("the session was restored from an older copy of the ledger; start one with a new passport")
    return session


async def reload_session(context: Context, session: Session) -> Session:
    """Return a session as stored: a session returned by a transaction may lack the hash of its last receipt."""
    stored: Session | None = await context.to_thread(lambda: context.reader.session(session.id))
    return stored or session


@dataclass(frozen=True)
class StartSession:
    """Start a session from a passport token, or return the session that it has started before.

    A passport that has expired or was revoked is refused, even if it has a session. `holder` is the thumbprint of the
    client's certificate: the session is bound to it. `by_source` is set if the request comes from a source, such as the
    hooks of an assistant for its subagents, and not from a client of the proxy.
    """

    token: str
    holder: str = ""
    by_source: bool = False

    async def run(self, context: Context) -> StartResult:
        """Verify the passport, then create the session if there is none."""
        passport = await self._verify(context)
        check_passport_holder(passport, self.holder)
        if not self.by_source:
            await context.to_thread(lambda: check_client(context.reader, _session_or_parent(context, passport)))
        started, refusal = await context.transact(
            lambda transaction: _start(context, transaction, passport, self.holder)
        )
        await close_all_delegates(context, started.session)
        if refusal is not None:
            raise refusal
        if started.existing:
            started = started._replace(session=(await reload_session(context, started.session)))
        return started

    async def _verify(self, context: Context) -> Passport:
        """Verify the passport. Reloads the keys once, as another process may have added one."""
        now_s = context.now.wall_s
        try:
            return verify_passport(self.token, context.keys.keyring(), now=now_s)
        except KeyUnknown:
            await context.to_thread(context.keys.refresh)
        return verify_passport(self.token, context.keys.keyring(), now=now_s)


def _session_or_parent(context: Context, passport: Passport) -> Session | None:
    """Return the session of a passport, or else the session it was delegated from, or None."""
    session = context.reader.session(passport.jti)
    return session or (context.reader.session(passport.parent_jti) if passport.parent_jti else None)


def _start(
    context: Context, transaction: Transaction, passport: Passport, holder: str
) -> tuple[StartResult, PassportError | None]:
    """Return the session, and the error if its passport is no longer accepted.

    The error is returned and not raised, so that changes to the session are committed.
    """
    now = context.now
    if transaction.session(passport.jti) is not None:
        session = get_session(transaction, passport.jti)
        check_session_holder(session.holder, holder)
        started = StartResult(
            refresh_and_save(context, transaction, session, now),
            _check_same_passport(context, session, passport),
            existing=True,
        )
        return started, _refusal(transaction, started.session)
    if transaction.ledger_state.kill_switch:
        raise KillSwitchOn("no session starts until the kill switch is released")
    if transaction.revoked(passport.jti):
        raise PassportRevoked("the passport was revoked")
    _check_registered(context, transaction, passport)
    session = structs.replace(new_session(context, transaction, passport, now), holder=holder)
    if not session.lifetime_ms:
        raise PassportExpired(f"good until {passport.expires_at}, it is {now.wall_s}")
    if passport.parent_jti is not None:
        parent = _parent_session(context, transaction, passport, now)
        session = structs.replace(session, lifetime_ms=min(session.lifetime_ms, parent.left_ms))
    transaction.put_session(session)
    return StartResult(session, passport, existing=False), None


def _refusal(transaction: Transaction, session: Session) -> PassportError | None:
    """Return the error if the passport of an existing session was revoked or has expired, else None."""
    if session.state == "revoked" or transaction.revoked(session.id):
        return PassportRevoked(f"the passport was revoked ({(session.cause or 'passport_revoked').replace('_', ' ')})")
    if session.state == "expired":
        return PassportExpired("the session of the passport has expired")
    return None


def _check_registered(context: Context, transaction: Transaction, passport: Passport) -> None:
    """Raise `PassportUnregistered` if a passport names an issuer of this home and was not registered by it.

    A valid signature is not enough: the key may have been stolen, or replaced since. Passports of delegates are
    checked against their delegation instead.
    """
    if passport.parent_jti is not None or not _is_issued_here(context, passport):
        return
    registered = transaction.registered(passport.jti)
    if registered is None or registered.hash != sha256_hex(passport.token.encode()):
        raise PassportUnregistered(
            "the passport is not registered in this home: issue it again with `remit issue` (it may have been issued "
            "before passports were registered)"
        )


def _is_issued_here(context: Context, passport: Passport) -> bool:
    """Return whether a passport names a key of this home as its issuer."""
    return any(trusted.issuer == passport.issuer and not trusted.foreign for trusted in context.keys.keyring())


def _check_same_passport(context: Context, session: Session, passport: Passport) -> Passport:
    """Return the stored passport of a session, or raise `RequestConflict` if another one of its id is presented."""
    stored = context.passport_of(session)
    if stored.token != passport.token and (
        _is_issued_here(context, passport) or _identity(stored) != _identity(passport)
    ):
        raise RequestConflict("another passport with this id already has a session")
    return stored


def _identity(passport: Passport) -> tuple[object, ...]:
    return passport.issuer, passport.mission, passport.parent_jti, passport.bound_to, passport.expires_at


def refresh_and_save(context: Context, transaction: Transaction, session: Session, now: Moment) -> Session:
    """Return a session as `refresh` does, and write it if its state has changed."""
    refreshed = refresh(context, transaction, session, now)
    if refreshed.state != session.state:
        transaction.put_session(refreshed)
    return refreshed


def _parent_session(context: Context, transaction: Transaction, passport: Passport, now: Moment) -> Session:
    """Return the parent session of a delegate's passport, or raise if the passport cannot start a session."""
    delegation = transaction.delegation_to(passport.jti)
    if delegation is None or (delegation.parent, delegation.passport) != (passport.parent_jti, passport.token):
        raise LineageUnknown("the passport was delegated, but this ledger has no such delegation")
    if delegation.settled:
        raise PassportRevoked("the session that the passport was delegated from has ended")
    parent = refresh(context, transaction, get_session(transaction, delegation.parent), now)
    if load_status(transaction, parent).refusal:
        raise PassportRevoked("the session that the passport was delegated from no longer permits calls")
    # Write the parent's row, so that a concurrent transaction that ends the parent conflicts with this one.
    transaction.put_session(parent)
    return parent


def new_session(context: Context, transaction: Transaction, passport: Passport, now: Moment) -> Session:
    """Return a new session for a passport, without storing it."""
    mission = passport.mission
    return Session(
        id=passport.jti,
        passport=passport.token,
        actor=mission.agent_id,
        parent=passport.parent_jti,
        trace_id=context.new_id("trace"),
        run_nonce=encode_base64url(context.entropy(24)),
        started_ms=now.wall_ms,
        lifetime_ms=max(0, min(mission.max_duration_s * 1000, passport.expires_at * 1000 - now.wall_ms)),
        expires_ms=passport.expires_at * 1000,
        limit=mission.max_tool_calls,
        verifier=f"remit:{transaction.ledger_state.kid}",
        seen_boot=now.boot,
        seen_mono_ms=now.mono_ms,
        seen_wall_ms=now.wall_ms,
    )


@dataclass(frozen=True)
class GetSession:
    """Return a session with its time counted, and its passport; close it and its delegates if it has expired."""

    session_id: str

    async def run(self, context: Context) -> SessionAndPassport:
        """Refresh the session, and verify its passport if that is not cached."""
        await report_skipped(context, self.session_id)

        def work(transaction: Transaction) -> Session:
            return refresh_and_save(context, transaction, get_session(transaction, self.session_id), context.now)

        session: Session = await context.transact(work)
        await close_all_delegates(context, session)
        return SessionAndPassport(session, context.passport_of(session))


@dataclass(frozen=True)
class EndSession:
    """End a session and its delegates; a session in a final state stays unchanged."""

    session_id: str

    async def run(self, context: Context) -> Session:
        """Close the session, which denies every call in its delegates from then on, and then close these."""

        def work(transaction: Transaction) -> Session:
            now = context.now
            session = refresh(context, transaction, get_session(transaction, self.session_id), now)
            return close(context, transaction, session, TRANSITIONS["end"], now)

        session: Session = await context.transact(work)
        await close_all_delegates(context, session)
        return await reload_session(context, session)
