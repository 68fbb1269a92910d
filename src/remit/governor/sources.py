"""Starting the session of a source: the same source and session again is the same one, while it is active.

Keeps this invariant: a key has at most one session that is active. One that has come to its end is followed by a new
one, under a passport of its own: nothing that was used up or revoked comes back to life in the old one.
"""

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from remit.claims.mission import Mission
from remit.claims.passport import AUDIENCE, issue_passport
from remit.errors import FieldInvalid, TokenTooLarge
from remit.governor.audiences import HOOK_KEY
from remit.governor.clock import Moment
from remit.governor.means import Means
from remit.governor.placing import Placing
from remit.governor.sessions import Started, new_session, refresh_and_save
from remit.ledger.port import Transaction
from remit.ledger.records import RESTORED, Session, Source, source_trace_id

__all__ = ["Reporter", "StartFor", "current_session", "last_session_id"]


class Reporter(NamedTuple):
    """Who reports, and to which session: its key, what was told of it as JSON, and the mission of one that is new.

    `audience` is that of the passport of a new one: whether calls are decided on under it, or only recorded.
    The members after it are for assistants, whose sessions are continued (`leads.py`).
    """

    key: str
    told: str
    mission: Mission
    audience: str = AUDIENCE
    # Counts how often a person has protected the assistant.
    generation: int = 0
    # SHA-256 of the secret that the event has shown, in hexadecimal; empty where it has shown none.
    secret: str = ""
    # For the mission in the folder of an earlier session; None where the mission is for one folder anyway.
    placing: Placing | None = None

    @property
    def binding(self) -> str:
        """Return the name by which a process remembers the session: only for this generation and this secret."""
        return f"{self.key}@{self.generation}:{self.secret}"


@dataclass(frozen=True)
class StartFor:
    """Start the session of a reporter, or find the one that is active.

    The kill switch does not keep one from starting: what is reported in an incident is evidence. Its calls are denied.
    """

    reporter: Reporter

    def learn(self, context: Means, started: Started) -> None:
        """Remember the session of the reporter."""
        context.note_source(self.reporter.key, started.session.id)

    async def run(self, context: Means) -> Started:
        """Look for the session, and start one where there is none, in one piece."""
        # Alone, because two processes must not both find none.
        started: Started = await context.transact(lambda transaction: self._work(context, transaction), alone=True)
        self.learn(context, started)
        return started

    def _work(self, context: Means, transaction: Transaction) -> Started:
        now = context.now
        session = current_session(transaction, self.reporter.key)
        if session is not None:
            session = refresh_and_save(context, transaction, session, now)
            if session.state == "active":
                return Started(session, context.passport_of(session), existing=True)
        return self.begin(context, transaction, now)

    def begin(self, context: Means, transaction: Transaction, now: Moment) -> Started:
        """Issue a passport for the mission, and start its session."""
        signing = context.keys.signing(transaction.switches.kid)
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
            raise FieldInvalid(f"a passport cannot say so much: {error}", place="$.mission") from None
        session = new_session(context, transaction, passport, now)
        if self.reporter.key.startswith(HOOK_KEY):
            session = structs.replace(session, trace_id=source_trace_id(self.reporter.key))
        transaction.put_session(session)
        transaction.put_source(Source(session.id, self.reporter.key, self.reporter.told))
        return Started(session, passport, existing=False)


def current_session(transaction: Transaction, key: str) -> Session | None:
    """Return the session that was started last for a key, unless it is from an older copy of the ledger."""
    source = transaction.source(key)
    session = None if source is None else transaction.session(source.session_id)
    return None if session is None or session.cause == RESTORED else session


def last_session_id(transaction: Transaction, key: str) -> str:
    """Return the id of the session that was started last for a key; none if there is none."""
    session = current_session(transaction, key)
    return session.id if session else ""
