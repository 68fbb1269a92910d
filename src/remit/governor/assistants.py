"""The calls of a coding assistant: its own under the passport of its session, its subagents' under narrower ones.

Keeps these invariants: starts and ends never give a session more calls or time than it had left (`leads.py`); and a
subagent never acts under the passport of its lead. What became of a call is for `conclude.py`.
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
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Answer, Evaluate, Prejudged, evaluate, prejudge
from remit.governor.leads import ContinueAssistantSession, get_main_session, last_main_session
from remit.governor.lifecycle import account_of, is_stopped
from remit.governor.means import Means
from remit.governor.receipts import clip
from remit.governor.sessions import End, Look, Start
from remit.governor.sources import Reporter
from remit.ledger.port import Transaction
from remit.ledger.records import Delegation, Session
from remit.policy.call import ToolCall

__all__ = ["Actor", "AssistantEvaluation", "Begin", "Finish", "Govern", "last_child_session"]

_ENDED: Final[tuple[SessionState, ...]] = ("ended",)
# How often a subagent can come back after it has ended.
_MAX_TURNS: Final = 50
# Of the calls of its lead, a subagent gets this part.
_SHARE: Final = 4
_MAX_AGENT: Final = 256
# Names by which the first release could take one subagent for another.
_NUMBERED: Final = re.compile(r"(.*)#[0-9]+", re.DOTALL)
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class Actor(NamedTuple):
    """Who acts in a session of an assistant: the assistant itself, or the subagent of this name."""

    reporter: Reporter
    agent: str = ""
    # What kind of subagent it is, in the assistant's words.
    kind: str = ""
    # Tools that no subagent gets: those that start more of them.
    withheld: tuple[str, ...] = ()


class AssistantEvaluation(NamedTuple):
    """The answer to a call, and the session it was made in."""

    session_id: str
    answer: Answer


@dataclass(frozen=True)
class Govern:
    """Decide on a call that an assistant or its subagent is about to make."""

    actor: Actor
    call: ToolCall
    call_id: str
    envelope: str
    prejudged: Prejudged | None = None

    async def prejudge(self, context: Means) -> "Govern":
        """Return the case with how it is judged here, if the session of whoever acts is known; see `prejudge`."""
        name = lead = context.sources.get(self.actor.reporter.binding, "")
        if lead and self.actor.agent:
            name = context.sources.get(_key_of(lead, self.actor.agent), "")
        return replace(self, prejudged=(await prejudge(context, self._in(name))).prejudged) if name else self

    def learn(self, context: Means, governed: AssistantEvaluation) -> None:
        """Remember the session of whoever acts."""
        binding = self.actor.reporter.binding
        if not self.actor.agent:
            context.note_source(binding, governed.session_id)
        elif lead := context.sources.get(binding, ""):
            context.note_source(_key_of(lead, self.actor.agent), governed.session_id)

    async def run(self, context: Means) -> AssistantEvaluation:
        """Judge it in the session of whoever acts, which is started where there is none."""
        lead = await get_main_session(context, self.actor.reporter)
        if self.actor.agent:
            return await self._by_agent(context, lead)
        skip_states = _ENDED
        for _ in range(_MAX_TURNS):
            answer = await evaluate(context, self._in(lead), skip_states=skip_states)
            if answer is not None:
                context.note_source(self.actor.reporter.binding, lead)
                return AssistantEvaluation(lead, answer)
            started = await ContinueAssistantSession(self.actor.reporter).run(context)
            lead = started.session.id
            # One that was ended and is not continued was revoked, and answers for itself.
            skip_states = () if started.session.state in _ENDED else _ENDED
        raise LedgerUnavailable("the sessions of this assistant end faster than they can be started")

    async def _by_agent(self, context: Means, lead: str) -> AssistantEvaluation:
        key = _key_of(lead, self.actor.agent)
        child = context.sources.get(key, "")
        for turn in range(_MAX_TURNS):
            if not child:
                delegated = await _delegated(context, self.actor, lead, turn, self.envelope)
                if delegated is None:
                    # The lead was continued with no call left, so there is none to set aside: its own rules refuse.
                    refused = await ContinueAssistantSession(self.actor.reporter).run(context)
                    answer = await evaluate(context, self._in(refused.session.id))
                    return AssistantEvaluation(refused.session.id, answer)  # type: ignore[arg-type]  # nothing counts as over
                if isinstance(delegated, SignedReceipt):
                    session = await context.aside(partial(context.reader.session, lead))
                    if session is None:
                        raise SessionNotFound("no session has this id")
                    return AssistantEvaluation(lead, Answer(delegated, None, repeated=False, session=session))
                child = delegated
            answer = (await evaluate(context, self._in(child), skip_states=_ENDED)) if child else None
            if child and answer is None and (await context.transact(partial(_is_stopped, child=child))):
                # One that was revoked after its end is not followed by another.
                answer = await evaluate(context, self._in(child))
            if answer is not None:
                context.note_source(key, child)
                return AssistantEvaluation(child, answer)
            child = ""
        raise LedgerUnavailable("the subagent has come back more often than can be followed")

    def _in(self, session_id: str) -> Evaluate:
        return Evaluate(session_id, self.call, self.call_id, envelope=self.envelope, prejudged=self.prejudged)


def _is_stopped(transaction: Transaction, child: str) -> bool:
    session = transaction.session(child)
    return session is not None and is_stopped(transaction, session)


def _key_of(lead: str, agent: str) -> str:
    return f"{lead}/{agent}"


def _request_of(agent: str, turn: int) -> str:
    """Return the name of a delegation: a subagent that comes back after its end needs another one.

    No two subagents or turns have the same, whatever assistants call their subagents.
    """
    form = "hash" if len(agent) > _MAX_AGENT // 2 else "name"
    return f"subagent:{turn + 1}:{form}:{_short_name(agent)}"


def _short_name(agent: str) -> str:
    return sha256_hex(agent.encode("utf-8", "surrogatepass")) if len(agent) > _MAX_AGENT // 2 else agent


def _delegation_of(transaction: Transaction, lead: str, agent: str, turn: int) -> Delegation | None:
    """Return the delegation to a subagent, under its name now or the one that the first release gave it."""
    known = transaction.delegation(lead, _request_of(agent, turn))
    return known or _recorded_before(transaction, lead, agent, turn)


def _recorded_before(transaction: Transaction, lead: str, agent: str, turn: int) -> Delegation | None:
    """Return the delegation under the name that the first release gave it, unless another subagent may have had it.

    Those names were `agent:x`, and `agent:x#2` when the subagent came back, which an agent `x#2` had too. There is no
    second turn without a first one.
    """
    name = _short_name(agent)
    first = transaction.delegation(lead, f"agent:{name}")
    if turn:
        return first and transaction.delegation(lead, f"agent:{name}#{turn + 1}")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is not None and transaction.delegation(lead, f"agent:{numbered[1]}") is not None:
        return None
    return None if _HASH.fullmatch(agent) else first


async def _delegated(context: Means, actor: Actor, lead: str, turn: int, envelope: str) -> str | SignedReceipt | None:
    """Return the session of a subagent; an empty text if that is over; or the receipt that says why there is none.

    None says that the lead has no call at all.
    """
    request = _request_of(actor.agent, turn)
    known = await context.transact(lambda transaction: _delegation_of(transaction, lead, actor.agent, turn))
    if known is not None:
        # A session that has expired or was revoked is not followed by a fresh one: its calls are denied in it.
        there = await context.transact(lambda transaction: transaction.session(known.child) is not None)
        return known.child if there else (await _started(context, known.passport))
    looked = await Look(lead).run(context)
    if looked.session.state in _ENDED:
        lead = (await ContinueAssistantSession(actor.reporter).run(context)).session.id
        looked = await Look(lead).run(context)
    if not looked.passport.mission.max_tool_calls:
        return None
    mission = _narrowed(looked.passport.mission, looked.session, actor)
    try:
        delegated = await Delegate(lead, mission, request, envelope=envelope).run(context)
    except RequestConflict:  # another call of the same subagent was first
        return ""
    if delegated.passport is None:
        return delegated.receipt
    return await _started(context, delegated.passport)


async def _started(context: Means, passport: str) -> str:
    try:
        return (await Start(passport, by_source=True).run(context)).session.id
    except (KillSwitchOn, PassportError):
        return ""


def _narrowed(mission: Mission, session: Session, actor: Actor) -> Mission:
    """Return what a subagent may: what its lead may, with a part of the calls, and no subagents of its own."""
    share = min(mission.max_tool_calls // _SHARE, account_of(session).remaining // 2)
    return structs.replace(
        mission,
        agent_id=clip(f"{mission.agent_id}/{actor.kind or 'subagent'}", _MAX_AGENT),
        forbidden_tools=tuple(dict.fromkeys((*mission.forbidden_tools, *actor.withheld))),
        max_tool_calls=max(1, share),
    )


def last_child_session(transaction: Transaction, lead: str, agent: str) -> str:
    """Return the session that a subagent had last."""
    child = ""
    for turn in range(_MAX_TURNS):
        known = _delegation_of(transaction, lead, agent, turn)
        if known is None:
            break
        child = known.child if transaction.session(known.child) else child
    return child


def _is_killed(transaction: Transaction, lead: str) -> bool:
    session = transaction.session(lead)
    return session is not None and session.state == "active" and session.number <= transaction.switches.killed_up_to


@dataclass(frozen=True)
class Begin:
    """Start the session of an assistant where there is none, or continue the last one if it was ended."""

    reporter: Reporter

    def learn(self, context: Means, name: str) -> None:
        """Remember the session of the assistant."""
        context.note_source(self.reporter.binding, name)

    async def run(self, context: Means) -> str:
        """Return the session. One that is used up, expired or revoked stays so, however often it is begun."""
        name = await get_main_session(context, self.reporter)
        if (await Look(name).run(context)).session.state in _ENDED:
            name = (await ContinueAssistantSession(self.reporter).run(context)).session.id
        return name


@dataclass(frozen=True)
class Finish:
    """End the session of whoever acts, if there is one; None if there is not."""

    actor: Actor

    async def run(self, context: Means) -> Session | None:
        """Find it, and close it."""
        reporter, agent = self.actor.reporter, self.actor.agent

        def work(transaction: Transaction) -> str:
            lead = last_main_session(transaction, reporter)
            if lead and _is_killed(transaction, lead):
                return ""  # the kill switch closes it: an end must not make it one that can be continued
            return last_child_session(transaction, lead, agent) if lead and agent else lead

        name: str = await context.transact(work)
        return (await End(name).run(context)) if name else None
