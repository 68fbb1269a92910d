"""Recording observed events: an event that an adapter reports is judged and recorded like a call.

Invariant: the receipt of an event contains facts and digests only. Text that an adapter was allowed to send is not read
here and is not part of the receipt, which contains the hash of the event.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from remit.claims.canonical import encode_base64url
from remit.claims.mission import Mission
from remit.claims.receipt import Digest, Measurement
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, LedgerUnavailable
from remit.governor.context import Context
from remit.governor.evaluate import (
    Evaluate,
    Evaluation,
    EventSummary,
    Evidence,
    Prejudged,
    evaluate,
    judge_request,
    prejudge,
)
from remit.governor.lifecycle import TRANSITIONS, load_status, preview
from remit.governor.sessions import GetSession, get_session
from remit.governor.sources import Reporter, StartSourceSession, current_session, last_session_id
from remit.ledger.records import FINAL_STATES
from remit.ledger.store import Transaction
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import Decision
from remit.policy.engines import SessionStatus

SourceType: TypeAlias = Literal["browser", "desktop", "cli"]

_TOOLS: Final[Mapping[str, str]] = {"browser": "browser_observe", "desktop": "desktop_observe", "cli": "cli_observe"}
_COMMAND_TOOL: Final = "cli_command"
_MAX_ATTEMPTS: Final = 5
_EMPTY_SUMMARY: Final = EventSummary()
# The session id used to judge a report that has no session yet.
_NEW_SESSION: Final = "new"
_DIGEST: Final = re.compile(r"sha-256:([A-Fa-f0-9]{64})")


def parse_digest(text: JSON, place: str = "$.event.content_digest") -> Digest:
    """Parse the digest of content, in the form `sha-256:<hex>`."""
    match = _DIGEST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise FieldInvalid("must be sha-256: and 64 hex digits", place=place)
    value = encode_base64url(bytes.fromhex(match[1]))
    return Digest(alg="sha-256", value=value, canonicalization="none", scope="result")


class ObserveEvent(Struct, frozen=True, gc=False):
    """Record an event in the chain of a session. `event` has the members as reported, without text."""

    session_id: str
    source: SourceType
    event: Mapping[str, JSON]
    idempotency_key: str = ""
    seen: EventSummary = _EMPTY_SUMMARY
    # The measurements to put into the receipt, and when the event was observed.
    measured: Mapping[str, Measurement] = {}
    observed_ms: int | None = None
    prejudged: Prejudged | None = None

    async def prejudge(self, context: Context) -> "ObserveEvent":
        """Return the request with the findings of this process; see `prejudge`."""
        return structs.replace(self, prejudged=(await prejudge(context, self.as_call())).prejudged)

    async def run(self, context: Context) -> Evaluation:
        """Evaluate the event as a call, with the content digest as evidence."""
        return await self.as_call().run(context)

    def as_call(self, session_id: str | None = None) -> Evaluate:
        """Return the event as a call with evidence, in the given session or else its own."""
        if self.source not in _TOOLS:
            raise FieldInvalid(f"must be one of {', '.join(_TOOLS)}", place="$.source.type")
        digest = self.event.get("content_digest")
        evidence = Evidence(None if digest is None else parse_digest(digest), seen=self.seen)
        call = _call(self.source, self.event)
        return Evaluate(
            session_id or self.session_id,
            call,
            self.idempotency_key,
            evidence,
            measured=self.measured,
            observed_ms=self.observed_ms,
            prejudged=self.prejudged,
        )


def _call(source: SourceType, event: Mapping[str, JSON]) -> ToolCall:
    """Return the event as a call of the tool that represents its source."""
    tool = _COMMAND_TOOL if source == "cli" and event.get("command") else _TOOLS[source]
    return ToolCall(tool, event)


class ReportResult(NamedTuple):
    """The answer to a report, and the session it was recorded in."""

    session_id: str
    answer: Evaluation


class ReportEvent(Struct, frozen=True, gc=False):
    """Record an event in the session of its reporter, starting one if none is active."""

    reporter: Reporter
    observe: ObserveEvent

    async def prejudge(self, context: Context) -> "ReportEvent":
        """Return the request with the findings of this process, if the reporter's session is cached; see `prejudge`."""
        name = context.sources.get(self.reporter.key, "")
        if not name:
            return self
        observe = structs.replace(self.observe, session_id=name)
        return structs.replace(self, observe=await observe.prejudge(context))

    def learn(self, context: Context, reported: ReportResult) -> None:
        """Cache the session of the reporter."""
        context.note_source(self.reporter.key, reported.session_id)

    async def run(self, context: Context) -> ReportResult:
        """Record the event in the last session of the reporter, or in a new one if that is in a final state.

        An idempotency key that was used in the last session is found there, whatever its state. While the kill switch
        is on, the event is denied in the last session; one is started only if there is none.
        """
        key = self.reporter.key
        name = context.sources.get(key, "") or await context.transact(
            lambda transaction: last_session_id(transaction, key)
        )
        for _ in range(_MAX_ATTEMPTS):
            if name:
                answer = await evaluate(context, self.observe.as_call(name), skip_states=FINAL_STATES)
                if answer is not None:
                    context.note_source(key, name)
                    return ReportResult(name, answer)
                if await context.transact(lambda transaction: transaction.ledger_state.kill_switch):
                    return ReportResult(name, (await self.observe.as_call(name).run(context)))
            name = (await StartSourceSession(self.reporter).run(context)).session.id
        raise LedgerUnavailable("the sessions of this source end faster than they can be started")


@dataclass(frozen=True)
class PreviewDecision:
    """Return the decision on an event or a call without recording it or using any budget."""

    asked: Evaluate | ObserveEvent | ReportEvent

    async def run(self, context: Context) -> Decision:
        """Judge by the status of the session, or for a report without a session, by that of a new one."""
        asked = self.asked
        if isinstance(asked, ReportEvent):
            state = await context.run(GetJudgingState(reporter=asked.reporter))
            asked = structs.replace(asked.observe, session_id=state.status.session_id)
            request = asked.as_call()
        else:
            request = asked if isinstance(asked, Evaluate) else asked.as_call()
            state = await context.run(GetJudgingState(request.session_id))
        compute = partial(judge_request, context, request, state.mission, state.status)
        decision: Decision = await context.to_thread(compute, limit_key=request.session_id)
        return decision


class JudgingState(NamedTuple):
    """The mission and the session status that a request is judged by."""

    mission: Mission
    status: SessionStatus


@dataclass(frozen=True)
class GetJudgingState:
    """Return the mission and status of a session, or of a reporter's session, which may be a new one."""

    session_id: str = ""
    reporter: Reporter | None = None

    async def run(self, context: Context) -> JudgingState:
        """Read the mission and the status."""
        reporter = self.reporter
        if reporter is None:
            return await _session_state(context, self.session_id)
        state: JudgingState = await context.transact(
            lambda transaction: _reporter_state(context, transaction, reporter)
        )
        return state


async def _session_state(context: Context, name: str) -> JudgingState:
    passport = context.passports.get(name) or (await GetSession(name).run(context)).passport

    def work(transaction: Transaction) -> SessionStatus:
        return load_status(transaction, preview(context, transaction, get_session(transaction, name), context.now))

    status: SessionStatus = await context.transact(work)
    return JudgingState(passport.mission, status)


def _reporter_state(context: Context, transaction: Transaction, reporter: Reporter) -> JudgingState:
    """Return the state of the reporter's session while that is active, else that of a new one."""
    session = current_session(transaction, reporter.key)
    if session is not None:
        session = preview(context, transaction, session, context.now)
        if session.state == "active" and session.left_ms > 0:
            return JudgingState(context.passport_of(session).mission, load_status(transaction, session))
    mission = reporter.mission
    budget = Budget(mission.max_tool_calls, mission.max_duration_s, own_calls=mission.max_tool_calls <= 0)
    refusal = TRANSITIONS["kill"].code if transaction.ledger_state.kill_switch else ""
    return JudgingState(mission, SessionStatus(_NEW_SESSION, budget, refusal))
