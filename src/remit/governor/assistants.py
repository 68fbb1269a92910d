"""Evaluation of the calls of a coding assistant and its subagents.

The assistant acts in its main session, and each subagent in a session of its own, which is delegated from the main one
with a narrower passport. Invariants: starting and ending sessions never yields more calls or time than were left
(`leads.py`), and a subagent never acts under the passport of the main session. `conclude.py` records the outcomes.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from remit.claims.attestation import SessionState
from remit.claims.canonical import sha256_hex
from remit.claims.mission import Mission
from remit.claims.receipt import SignedReceipt
from remit.errors import KillSwitchOn, LedgerUnavailable, PassportError, RequestConflict, SessionNotFound
from remit.governor.assistant_sessions import ContinueAssistantSession, get_main_session, last_main_session
from remit.governor.context import Context
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate, Evaluation, Prejudged, evaluate, prejudge
from remit.governor.lifecycle import get_account, is_stopped
from remit.governor.receipts import clip
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.governor.sources import Reporter
from remit.ledger.records import Delegation, Session
from remit.ledger.store import Transaction
from remit.policy.call import ToolCall

_ENDED: Final[tuple[SessionState, ...]] = ("ended",)
# How often a subagent can be started again after it has ended.
_MAX_TURNS: Final = 50
# A subagent gets at most one part in so many of the calls of the main session.
_SHARE: Final = 4
_MAX_AGENT: Final = 256
# Names that the first release could confuse with those of other subagents; see `_first_release_delegation`.
_NUMBERED: Final = re.compile(r"(.*)#[0-9]+", re.DOTALL)
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class Actor(NamedTuple):
    """The actor in a session of an assistant: the assistant itself, or the subagent named `agent`."""

    reporter: Reporter
    agent: str = ""
    # The type of the subagent, as named by the assistant.
    kind: str = ""
    # Tools that are forbidden to subagents: those that start more of them.
    withheld: tuple[str, ...] = ()


class AssistantEvaluation(NamedTuple):
    """The answer to a call, and the session it was made in."""

    session_id: str
    answer: Evaluation


@dataclass(frozen=True)
class EvaluateAssistantCall:
    """Decide on a call that an assistant or a subagent is about to make."""

    actor: Actor
    call: ToolCall
    call_id: str
    envelope: str
    prejudged: Prejudged | None = None

    async def prejudge(self, context: Context) -> "EvaluateAssistantCall":
        """Return the request with the findings of this process, if the actor's session is cached; see `prejudge`."""
        name = main = context.sources.get(self.actor.reporter.binding, "")
        if main and self.actor.agent:
            name = context.sources.get(_cache_key(main, self.actor.agent), "")
        return replace(self, prejudged=(await prejudge(context, self._request(name))).prejudged) if name else self

    def learn(self, context: Context, governed: AssistantEvaluation) -> None:
        """Cache the session of the actor."""
        binding = self.actor.reporter.binding
        if not self.actor.agent:
            context.note_source(binding, governed.session_id)
        elif main := context.sources.get(binding, ""):
            context.note_source(_cache_key(main, self.actor.agent), governed.session_id)

    async def run(self, context: Context) -> AssistantEvaluation:
        """Evaluate the call in the session of the actor, which is started if there is none."""
        main = await get_main_session(context, self.actor.reporter)
        if self.actor.agent:
            return await self._run_for_agent(context, main)
        skip_states = _ENDED
        for _ in range(_MAX_TURNS):
            answer = await evaluate(context, self._request(main), skip_states=skip_states)
            if answer is not None:
                context.note_source(self.actor.reporter.binding, main)
                return AssistantEvaluation(main, answer)
            started = await ContinueAssistantSession(self.actor.reporter).run(context)
            main = started.session.id
            # A session that has ended and is not continued was revoked: it denies the call itself.
            skip_states = () if started.session.state in _ENDED else _ENDED
        raise LedgerUnavailable("the sessions of this assistant end faster than they can be started")

    async def _run_for_agent(self, context: Context, main: str) -> AssistantEvaluation:
        key = _cache_key(main, self.actor.agent)
        child = context.sources.get(key, "")
        for turn in range(_MAX_TURNS):
            if not child:
                delegated = await _get_child_session(context, self.actor, main, turn, self.envelope)
                if delegated is None:
                    # The main session has no calls left to reserve for the subagent: it denies the call itself.
                    refused = await ContinueAssistantSession(self.actor.reporter).run(context)
                    answer = await evaluate(context, self._request(refused.session.id))
                    return AssistantEvaluation(refused.session.id, answer)  # type: ignore[arg-type]  # never None without `skip_states`
                if isinstance(delegated, SignedReceipt):
                    session = await context.to_thread(partial(context.reader.session, main))
                    if session is None:
                        raise SessionNotFound("no session has this id")
                    return AssistantEvaluation(main, Evaluation(delegated, None, repeated=False, session=session))
                child = delegated
            answer = (await evaluate(context, self._request(child), skip_states=_ENDED)) if child else None
            if child and answer is None and (await context.transact(partial(_is_child_stopped, child=child))):
                # A session that was revoked after its end is not replaced by another one.
                answer = await evaluate(context, self._request(child))
            if answer is not None:
                context.note_source(key, child)
                return AssistantEvaluation(child, answer)
            child = ""
        raise LedgerUnavailable(f"the subagent was started more than {_MAX_TURNS} times")

    def _request(self, session_id: str) -> Evaluate:
        return Evaluate(session_id, self.call, self.call_id, envelope=self.envelope, prejudged=self.prejudged)


def _is_child_stopped(transaction: Transaction, child: str) -> bool:
    session = transaction.session(child)
    return session is not None and is_stopped(transaction, session)


def _cache_key(main: str, agent: str) -> str:
    return f"{main}/{agent}"


def _request_id(agent: str, turn: int) -> str:
    """Return the request id of a delegation, unique for each subagent and each time it is started.

    It is unique whatever names assistants give to their subagents.
    """
    form = "hash" if len(agent) > _MAX_AGENT // 2 else "name"
    return f"subagent:{turn + 1}:{form}:{_short_name(agent)}"


def _short_name(agent: str) -> str:
    return sha256_hex(agent.encode("utf-8", "surrogatepass")) if len(agent) > _MAX_AGENT // 2 else agent


def _find_delegation(transaction: Transaction, main: str, agent: str, turn: int) -> Delegation | None:
    """Return the delegation to a subagent, found by its request id or by the id that the first release used."""
    known = transaction.delegation(main, _request_id(agent, turn))
    return known or _first_release_delegation(transaction, main, agent, turn)


def _first_release_delegation(transaction: Transaction, main: str, agent: str, turn: int) -> Delegation | None:
    """Return the delegation by the request id of the first release, unless that may belong to another subagent.

    These ids were `agent:x`, and `agent:x#2` for the second start, which was also the id of an agent named `x#2`. There
    is no second start without a first one.
    """
    name = _short_name(agent)
    first = transaction.delegation(main, f"agent:{name}")
    if turn:
        return first and transaction.delegation(main, f"agent:{name}#{turn + 1}")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is not None and transaction.delegation(main, f"agent:{numbered[1]}") is not None:
        return None
    return None if _HASH.fullmatch(agent) else first


async def _get_child_session(
    context: Context, actor: Actor, main: str, turn: int, envelope: str
) -> str | SignedReceipt | None:
    """Return the session of a subagent, starting it if necessary.

    Return an empty string if another start has to be tried, the receipt of the denial if the delegation was denied, and
    None if the mission of the main session allows no calls at all.
    """
    request = _request_id(actor.agent, turn)
    known = await context.transact(lambda transaction: _find_delegation(transaction, main, actor.agent, turn))
    if known is not None:
        # A session that has expired or was revoked is not replaced by a new one: it denies the call itself.
        there = await context.transact(lambda transaction: transaction.session(known.child) is not None)
        return known.child if there else (await _start_child(context, known.passport))
    looked = await GetSession(main).run(context)
    if looked.session.state in _ENDED:
        main = (await ContinueAssistantSession(actor.reporter).run(context)).session.id
        looked = await GetSession(main).run(context)
    if not looked.passport.mission.max_tool_calls:
        return None
    mission = _narrow(looked.passport.mission, looked.session, actor)
    try:
        delegated = await Delegate(main, mission, request, envelope=envelope).run(context)
    except RequestConflict:  # a concurrent call of the same subagent was first
        return ""
    if delegated.passport is None:
        return delegated.receipt
    return await _start_child(context, delegated.passport)


async def _start_child(context: Context, passport: str) -> str:
    try:
        return (await StartSession(passport, by_source=True).run(context)).session.id
    except (KillSwitchOn, PassportError):
        return ""


def _narrow(mission: Mission, session: Session, actor: Actor) -> Mission:
    """Return the mission of a subagent: the main session's, with a part of its calls and without subagents."""
    share = min(mission.max_tool_calls // _SHARE, get_account(session).remaining // 2)
    return structs.replace(
        mission,
        agent_id=clip(f"{mission.agent_id}/{actor.kind or 'subagent'}", _MAX_AGENT),
        forbidden_tools=tuple(dict.fromkeys((*mission.forbidden_tools, *actor.withheld))),
        max_tool_calls=max(1, share),
    )


def last_child_session(transaction: Transaction, main: str, agent: str) -> str:
    """Return the id of the last session of a subagent, or an empty string."""
    child = ""
    for turn in range(_MAX_TURNS):
        known = _find_delegation(transaction, main, agent, turn)
        if known is None:
            break
        child = known.child if transaction.session(known.child) else child
    return child


def _is_killed(transaction: Transaction, main: str) -> bool:
    session = transaction.session(main)
    return session is not None and session.state == "active" and session.number <= transaction.ledger_state.killed_up_to


@dataclass(frozen=True)
class BeginAssistantSession:
    """Start the main session of an assistant if there is none, or continue the last one if it has ended."""

    reporter: Reporter

    def learn(self, context: Context, name: str) -> None:
        """Cache the session of the assistant."""
        context.note_source(self.reporter.binding, name)

    async def run(self, context: Context) -> str:
        """Return the session id. A session that is used up, expired or revoked is not replaced."""
        name = await get_main_session(context, self.reporter)
        if (await GetSession(name).run(context)).session.state in _ENDED:
            name = (await ContinueAssistantSession(self.reporter).run(context)).session.id
        return name


@dataclass(frozen=True)
class EndAssistantSession:
    """End the session of the actor and return it; None if there is none."""

    actor: Actor

    async def run(self, context: Context) -> Session | None:
        """Find the session and end it."""
        reporter, agent = self.actor.reporter, self.actor.agent

        def work(transaction: Transaction) -> str:
            main = last_main_session(transaction, reporter)
            if main and _is_killed(transaction, main):
                return ""  # the kill switch will revoke it; ending it here would allow it to be continued
            return last_child_session(transaction, main, agent) if main and agent else main

        name: str = await context.transact(work)
        return (await EndSession(name).run(context)) if name else None
