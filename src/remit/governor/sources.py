"""Starting the session of a source, such as an adapter or an assistant's hooks, or finding the active one.

Invariant: a source key has at most one active session. A session in a final state is followed by a new one with a new
passport; it never becomes active again.
"""

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from remit.claims.mission import Mission
from remit.claims.passport import AUDIENCE, issue_passport
from remit.errors import FieldInvalid, TokenTooLarge
from remit.governor.audiences import HOOK_KEY
from remit.governor.clock import Moment
from remit.governor.context import Context
from remit.governor.folders import MissionTemplate
from remit.governor.sessions import StartResult, new_session, refresh_and_save
from remit.ledger.records import RESTORED, Session, Source, source_trace_id
from remit.ledger.store import Transaction


class Reporter(NamedTuple):
    """The source of an event: its key, its description as JSON (`told`), and the mission of a new session.

    `audience` is the audience of a new passport: whether calls are decided on, or events only recorded. The members
    after it are for assistants, whose sessions are continued (`leads.py`).
    """

    key: str
    told: str
    mission: Mission
    audience: str = AUDIENCE
    # How often `remit protect` was run for the assistant.
    generation: int = 0
    # SHA-256 of the secret in the event, in hexadecimal; empty without one.
    secret: str = ""
    # The template for the mission in the folder of an earlier session; None if the mission is for a fixed folder.
    placing: MissionTemplate | None = None

    @property
    def binding(self) -> str:
        """Return the cache key of the session, which includes the generation and the secret."""
        return f"{self.key}@{self.generation}:{self.secret}"


@dataclass(frozen=True)
class StartSourceSession:
    """Start the session of a reporter, or return the active one.

    A session is started even if the kill switch is on, so that events in an incident are recorded; they are denied.
    """

    reporter: Reporter

    def learn(self, context: Context, started: StartResult) -> None:
        """Cache the session of the reporter."""
        context.note_source(self.reporter.key, started.session.id)

    async def run(self, context: Context) -> StartResult:
        """Find the active session, or start one, in one transaction."""
        # Alone, because two processes must not both start a session.
        started: StartResult = await context.transact(lambda transaction: self._work(context, transaction), alone=True)
        self.learn(context, started)
        return started

    def _work(self, context: Context, transaction: Transaction) -> StartResult:
        now = context.now
        session = current_session(transaction, self.reporter.key)
        if session is not None:
            session = refresh_and_save(context, transaction, session, now)
            if session.state == "active":
                return StartResult(session, context.passport_of(session), existing=True)
        return self.begin(context, transaction, now)

    def begin(self, context: Context, transaction: Transaction, now: Moment) -> StartResult:
        """Issue a passport for the mission, and start its session."""
        signing = context.keys.signing(transaction.ledger_state.kid)
        issuer, jti = f"remit:{signing.kid}", context.new_id("pass")
        try:
            passport = issue_passport(
                self.reporter.mission,
                signing,
                issuer=issuer,
                jti=jti,
                now=now.wall_s,
                audience=self.reporter.audience,
            )
        except TokenTooLarge as error:
            raise FieldInvalid(f"the mission is too large for a passport: {error}", place="$.mission") from None
        session = new_session(context, transaction, passport, now)
        if self.reporter.key.startswith(HOOK_KEY):
            session = structs.replace(session, trace_id=source_trace_id(self.reporter.key))
        transaction.put_session(session)
        transaction.put_source(Source(session.id, self.reporter.key, self.reporter.told))
        return StartResult(session, passport, existing=False)


def current_session(transaction: Transaction, key: str) -> Session | None:
    """Return the last session of a source key; None if there is none or it was restored from an older copy."""
    source = transaction.source(key)
    session = None if source is None else transaction.session(source.session_id)
    return None if session is None or session.cause == RESTORED else session


def last_session_id(transaction: Transaction, key: str) -> str:
    """Return the id of the last session of a source key, or an empty string."""
    session = current_session(transaction, key)
    return session.id if session else ""
