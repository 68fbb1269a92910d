"""The main sessions of an assistant under one source key: a session that has ended is continued with what it had left.

Hooks report starts and ends, and anyone who has their token can report more of them. So a start or an end never extends
what the assistant may do. The session that continues an ended one gets the calls and the time that were left, and works
in the same folder. A session that is used up, expired or revoked is not continued. To get new limits, a person runs
`remit protect` again, which increments the generation of the protection. That also releases a session that was revoked
because its settings were tampered with, but no other revoked session.

A session that was revoked, was stopped by the kill switch, or has a broken chain is never continued, whatever its
state. This applies to all sessions under the key at once.

A session is bound to the secret in its first event, if there is one. Events with another secret, or without one, raise
`HookSecretWrong` and change nothing.
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
from remit.governor.context import Context
from remit.governor.lifecycle import TRANSITIONS, close, get_account, head_is_genuine, is_stopped, quarantine
from remit.governor.sessions import StartResult, refresh_and_save
from remit.governor.sources import Reporter, StartSourceSession
from remit.ledger.records import RESTORED, Session
from remit.ledger.store import Transaction

# Members of the JSON description of a source.
GENERATION: Final = "generation"
SECRET: Final = "secret"  # noqa: S105 - the name of a member
_CONTINUED_STATE: Final = "ended"
# Causes of revoked sessions that a person can release with `remit protect`.
_RELEASABLE: Final = (TRANSITIONS["tamper"].code, RESTORED)


class _LastSession(NamedTuple):
    """The last session under a key, with the description of its source."""

    session: Session
    generation: int
    secret: str
    # This or another session under the key is revoked, killed or broken. Tampering counts within its generation only.
    stopped: bool

    def is_outdated(self, reporter: Reporter) -> bool:
        """Return whether a person has run `remit protect` again since, or has restored an older ledger."""
        renewed = self.generation < reporter.generation or self.session.cause == RESTORED
        return renewed and not self.stopped

    def check_secret(self, reporter: Reporter) -> None:
        """Raise `HookSecretWrong` if the session is bound to another secret."""
        if self.secret and not hmac.compare_digest(self.secret.encode(), reporter.secret.encode()):
            raise HookSecretWrong("the event does not contain the secret of its session")


async def get_main_session(context: Context, reporter: Reporter) -> str:
    """Return the id of the last main session of an assistant, starting one if there is none."""
    name = context.sources.get(reporter.binding, "")
    if not name:
        name = await context.transact(lambda transaction: _usable_main_session(transaction, reporter))
    return name or (await ContinueAssistantSession(reporter).run(context)).session.id


def last_main_session(transaction: Transaction, reporter: Reporter) -> str:
    """Return the id of the last main session in any state, or an empty string if there is none."""
    last = _load_last(transaction, reporter)
    if last is None or last.session.cause == RESTORED:
        return ""
    last.check_secret(reporter)
    return last.session.id


def _usable_main_session(transaction: Transaction, reporter: Reporter) -> str:
    last = _load_last(transaction, reporter)
    return "" if last is None or last.is_outdated(reporter) else last_main_session(transaction, reporter)


@dataclass(frozen=True)
class ContinueAssistantSession:
    """Start the first main session of an assistant, or one that continues the last with what it had left."""

    reporter: Reporter

    async def run(self, context: Context) -> StartResult:
        """Start a session if there is none, the last has ended, or `remit protect` was run again; else return the last.

        The transaction runs alone, because two processes must not both start a session.
        """
        started: StartResult = await context.transact(lambda transaction: self._work(context, transaction), alone=True)
        context.note_source(self.reporter.binding, started.session.id)
        return started

    def _work(self, context: Context, transaction: Transaction) -> StartResult:
        now = context.now
        last = _load_last(transaction, self.reporter)
        if last is None:
            return StartSourceSession(self.reporter).begin(context, transaction, now)
        # Running `remit protect` again renews the limits, but does not release the secret.
        last.check_secret(self.reporter)
        is_outdated = last.is_outdated(self.reporter)
        session = last.session
        if not is_outdated:
            session = refresh_and_save(context, transaction, session, now)
            if session.state != _CONTINUED_STATE or last.stopped:
                return StartResult(session, context.passport_of(session), existing=True)
            if not head_is_genuine(context, transaction, session):
                session = quarantine(context, transaction, session, now)
                return StartResult(session, context.passport_of(session), existing=True)
        # Write the row, so that a concurrent revocation conflicts with this transaction and sees the next session.
        transaction.put_session(session)
        mission = self._mission(context, session)
        if not is_outdated:
            return self._continue_with_rest(context, transaction, mission, session, now)
        if session.state == "active" and session.cause != RESTORED:
            close(context, transaction, session, TRANSITIONS["end"], now)
        return StartSourceSession(self.reporter._replace(mission=mission)).begin(context, transaction, now)

    def _mission(self, context: Context, last: Session) -> Mission:
        """Return the mission in the folder of the last session."""
        placing = self.reporter.placing
        return self.reporter.mission if placing is None else placing.in_folder(context.passport_of(last).mission.cwd)

    def _continue_with_rest(
        self, context: Context, transaction: Transaction, mission: Mission, last: Session, now: Moment
    ) -> StartResult:
        # The remaining budget was checked against the last receipt; the passport limits a session without receipts.
        given = context.passport_of(last).mission
        calls = min(mission.max_tool_calls, given.max_tool_calls, get_account(last).remaining)
        left = min(mission.max_duration_s * 1000, given.max_duration_s * 1000, last.left_ms)
        mission = structs.replace(mission, max_tool_calls=calls, max_duration_s=max(1, -(-left // 1000)))
        started = StartSourceSession(self.reporter._replace(mission=mission)).begin(context, transaction, now)
        session = structs.replace(started.session, lifetime_ms=min(started.session.lifetime_ms, left))
        transaction.put_session(session)
        return started._replace(session=session)


def read_generation(told: Mapping[str, object]) -> int:
    """Return the generation of the protection in a source description; 0 for sources of the first release."""
    text = str(told.get(GENERATION, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


def tampering_key(key: str, generation: int) -> str:
    """Return the revocation key that records tampering with the settings of a source in a generation."""
    return f"{key}@{generation}"


def _load_last(transaction: Transaction, reporter: Reporter) -> _LastSession | None:
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
    return _LastSession(
        session,
        read_generation(members),
        secret if isinstance(secret, str) else "",
        stopped=is_stopped(transaction, session)
        or transaction.revoked(reporter.key)
        or transaction.revoked(tampering_key(reporter.key, reporter.generation))
        or (session.state == "revoked" and session.cause not in _RELEASABLE),
    )
