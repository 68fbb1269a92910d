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
from remit.governor.sessions import Started, kept, new_session
from remit.ledger.port import Transaction
from remit.ledger.records import RESTORED, Session, Source, trace_of

__all__ = ["Reporter", "StartFor", "current", "last_of"]


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

    def learn(self, means: Means, started: Started) -> None:
        """Remember the session of the reporter."""
        means.note_source(self.reporter.key, started.session.id)

    async def run(self, means: Means) -> Started:
        """Look for the session, and start one where there is none, in one piece."""
        # Alone, because two processes must not both find none.
        started: Started = await means.transact(lambda transaction: self._work(means, transaction), alone=True)
        self.learn(means, started)
        return started

    def _work(self, means: Means, transaction: Transaction) -> Started:
        now = means.now
        session = current(transaction, self.reporter.key)
        if session is not None:
            session = kept(means, transaction, session, now)
            if session.state == "active":
                return Started(session, means.passport_of(session), existing=True)
        return self.begin(means, transaction, now)

    def begin(self, means: Means, transaction: Transaction, now: Moment) -> Started:
        """Issue a passport for the mission, and start its session."""
        signing = means.keys.signing(transaction.switches.kid)
        issuer, jti = f"remit:{signing.kid}", means.new_id("pass")
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
        session = new_session(means, transaction, passport, now)
        if self.reporter.key.startswith(HOOK_KEY):
            session = structs.replace(session, trace_id=trace_of(self.reporter.key))
        transaction.put_session(session)
        transaction.put_source(Source(session.id, self.reporter.key, self.reporter.told))
        return Started(session, passport, existing=False)


def current(transaction: Transaction, key: str) -> Session | None:
    """Return the session that was started last for a key, unless it is from an older copy of the ledger."""
    source = transaction.source(key)
    session = None if source is None else transaction.session(source.session_id)
    return None if session is None or session.cause == RESTORED else session


def last_of(transaction: Transaction, key: str) -> str:
    """Return the id of the session that was started last for a key; none if there is none."""
    session = current(transaction, key)
    return session.id if session else ""
