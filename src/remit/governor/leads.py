"""The sessions of an assistant under one key: one that was ended is continued, never started afresh.

Hooks report starts and ends, and anyone who has their token can report more of them. So these only ever narrow what the
assistant may do. A session that follows one that was ended has the calls and the time that were left to it, and works
in the same folder. One that is used up, expired or revoked stays so. Fresh limits need a person, who runs `remit
protect` again, which raises the generation of the protection. That also releases a session that was ended because its
settings were tampered with, and nothing else.

No session follows one that was revoked, or that the kill switch has stopped, or whose chain is broken, whatever its
state is and whatever has become of it before or since. Each of these holds for all sessions under the key at once.

A session is bound to the secret that its first event has shown, if it has shown one. Events that show another, or none,
raise `HookSecretWrong` and change nothing.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from remit.claims.mission import Mission
from remit.errors import HookSecretWrong
from remit.governor.clock import Moment
from remit.governor.lifecycle import TRANSITIONS, account_of, close, head_is_genuine, is_stopped, quarantine
from remit.governor.means import Means
from remit.governor.sessions import Started, refresh_and_save
from remit.governor.sources import Reporter, StartFor
from remit.ledger.port import Transaction
from remit.ledger.records import RESTORED, Session

__all__ = [
    "GENERATION",
    "SECRET",
    "ContinueAssistantSession",
    "generation_of",
    "get_main_session",
    "last_main_session",
    "tampering_key",
]

# Members of what is told of a source.
GENERATION: Final = "generation"
SECRET: Final = "secret"  # noqa: S105 - the name of a member
_FOLLOWED: Final = "ended"
# Causes of revoked sessions that a person can release.
_RELEASED: Final = (TRANSITIONS["tamper"].code, RESTORED)


class _Last(NamedTuple):
    """The session that was started last under a key, with what was told of it."""

    session: Session
    generation: int
    secret: str
    # It is revoked, killed or broken, or another one under the key is; tampering counts in its own generation.
    stopped: bool

    def is_outdated(self, reporter: Reporter) -> bool:
        """Tell whether a person has protected the assistant again since, or has restored an older ledger."""
        renewed = self.generation < reporter.generation or self.session.cause == RESTORED
        return renewed and not self.stopped

    def check_secret(self, reporter: Reporter) -> None:
        """Raise unless the session is bound to no secret, or to the one that is shown."""
        if self.secret and not hmac.compare_digest(self.secret.encode(), reporter.secret.encode()):
            raise HookSecretWrong("this event does not show the secret of its session")


async def get_main_session(context: Means, reporter: Reporter) -> str:
    """Return the session of an assistant that was started last, or a new one where there was none."""
    name = context.sources.get(reporter.binding, "")
    if not name:
        name = await context.transact(lambda transaction: _usable_lead(transaction, reporter))
    return name or (await ContinueAssistantSession(reporter).run(context)).session.id


def last_main_session(transaction: Transaction, reporter: Reporter) -> str:
    """Return the id of the session that was started last, whatever has become of it; nothing where there is none."""
    last = _last(transaction, reporter)
    if last is None or last.session.cause == RESTORED:
        return ""
    last.check_secret(reporter)
    return last.session.id


def _usable_lead(transaction: Transaction, reporter: Reporter) -> str:
    last = _last(transaction, reporter)
    return "" if last is None or last.is_outdated(reporter) else last_main_session(transaction, reporter)


@dataclass(frozen=True)
class ContinueAssistantSession:
    """Start the session of an assistant: its first one, or one that continues the last with what was left to it."""

    reporter: Reporter

    async def run(self, context: Means) -> Started:
        """Return the last session, unless there is none, it was ended, or a person has protected the assistant again.

        It runs alone, because two processes must not both start one.
        """
        started: Started = await context.transact(lambda transaction: self._work(context, transaction), alone=True)
        context.note_source(self.reporter.binding, started.session.id)
        return started

    def _work(self, context: Means, transaction: Transaction) -> Started:
        now = context.now
        last = _last(transaction, self.reporter)
        if last is None:
            return StartFor(self.reporter).begin(context, transaction, now)
        # A person who protects the assistant again renews its limits, not the binding of its sessions.
        last.check_secret(self.reporter)
        is_outdated = last.is_outdated(self.reporter)
        session = last.session
        if not is_outdated:
            session = refresh_and_save(context, transaction, session, now)
            if session.state != _FOLLOWED or last.stopped:
                return Started(session, context.passport_of(session), existing=True)
            if not head_is_genuine(context, transaction, session):
                session = quarantine(context, transaction, session, now)
                return Started(session, context.passport_of(session), existing=True)
        # Written so that a revocation that runs at the same time conflicts with this, and sees the next session.
        transaction.put_session(session)
        mission = self._mission(context, session)
        if not is_outdated:
            return self._with_what_is_left(context, transaction, mission, session, now)
        if session.state == "active" and session.cause != RESTORED:
            close(context, transaction, session, TRANSITIONS["end"], now)
        return StartFor(self.reporter._replace(mission=mission)).begin(context, transaction, now)

    def _mission(self, context: Means, last: Session) -> Mission:
        """Return the mission in the folder of the earlier sessions."""
        placing = self.reporter.placing
        return self.reporter.mission if placing is None else placing.in_folder(context.passport_of(last).mission.cwd)

    def _with_what_is_left(
        self, context: Means, transaction: Transaction, mission: Mission, last: Session, now: Moment
    ) -> Started:
        # What the last one says is left is what its last receipt says; without a receipt, what its passport gives.
        given = context.passport_of(last).mission
        calls = min(mission.max_tool_calls, given.max_tool_calls, account_of(last).remaining)
        left = min(mission.max_duration_s * 1000, given.max_duration_s * 1000, last.left_ms)
        mission = structs.replace(mission, max_tool_calls=calls, max_duration_s=max(1, -(-left // 1000)))
        started = StartFor(self.reporter._replace(mission=mission)).begin(context, transaction, now)
        session = structs.replace(started.session, lifetime_ms=min(started.session.lifetime_ms, left))
        transaction.put_session(session)
        return started._replace(session=session)


def generation_of(told: Mapping[str, object]) -> int:
    """Return the generation of the protection that a source was told of; 0 for one of the first release."""
    text = str(told.get(GENERATION, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


def tampering_key(key: str, generation: int) -> str:
    """Return the name under which it is kept that the sessions of a key were tampered with in this generation."""
    return f"{key}@{generation}"


def _last(transaction: Transaction, reporter: Reporter) -> _Last | None:
    source = transaction.source(reporter.key)
    session = None if source is None else transaction.session(source.session_id)
    if source is None or session is None:
        return None
    try:
        told = msgspec.json.decode(source.told)
    except msgspec.DecodeError:
        told = None
    members = told if isinstance(told, dict) else {}
    secret = members.get(SECRET, "")
    return _Last(
        session,
        generation_of(members),
        secret if isinstance(secret, str) else "",
        stopped=is_stopped(transaction, session)
        or transaction.revoked(reporter.key)
        or transaction.revoked(tampering_key(reporter.key, reporter.generation))
        or (session.state == "revoked" and session.cause not in _RELEASED),
    )
