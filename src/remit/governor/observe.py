"""Taking evidence in: what an adapter has seen is judged and receipted like a call, on the same path.

Keeps this invariant: what goes into a receipt of an event is facts and digests. Text that an adapter was allowed to
bring is not looked at here, and no receipt holds it: a receipt holds the hash of the event.
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
from remit.governor.evaluate import Answer, Evaluate, Evidence, Prejudged, Seen, evaluate, judge_request, prejudge
from remit.governor.lifecycle import TRANSITIONS, load_status, preview
from remit.governor.means import Means
from remit.governor.sessions import Look, get_session
from remit.governor.sources import Reporter, StartFor, current_session, last_session_id
from remit.ledger.port import Transaction
from remit.ledger.records import FINAL_STATES
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import Decision
from remit.policy.engines import Standing

__all__ = [
    "Consider",
    "GetJudgingState",
    "JudgingState",
    "Observe",
    "Report",
    "ReportResult",
    "SourceType",
    "parse_digest",
]

SourceType: TypeAlias = Literal["browser", "desktop", "cli"]

_TOOLS: Final[Mapping[str, str]] = {"browser": "browser_observe", "desktop": "desktop_observe", "cli": "cli_observe"}
_COMMAND_TOOL: Final = "cli_command"
_MAX_TURNS: Final = 5
_NOTHING_SEEN: Final = Seen()
# The session of a report that has none yet.
_NEW: Final = "new"
_DIGEST: Final = re.compile(r"sha-256:([A-Fa-f0-9]{64})")


def parse_digest(text: JSON, place: str = "$.event.content_digest") -> Digest:
    """Return the digest of content that stays where it is, from `sha-256:<hex>`."""
    match = _DIGEST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise FieldInvalid("must be sha-256: and 64 hex digits", place=place)
    value = encode_base64url(bytes.fromhex(match[1]))
    return Digest(alg="sha-256", value=value, canonicalization="none", scope="result")


class Observe(Struct, frozen=True, gc=False):
    """Take an event into the chain of a session. `event` holds its members as they were reported, without text."""

    session_id: str
    source: SourceType
    event: Mapping[str, JSON]
    idempotency_key: str = ""
    seen: Seen = _NOTHING_SEEN
    # What the receipt says of texts and times that were sent, and when the event was observed.
    measured: Mapping[str, Measurement] = {}
    observed_ms: int | None = None
    prejudged: Prejudged | None = None

    async def prejudge(self, context: Means) -> "Observe":
        """Return the case with how it is judged here; see `prejudge`."""
        return structs.replace(self, prejudged=(await prejudge(context, self.as_call())).prejudged)

    async def run(self, context: Means) -> Answer:
        """Evaluate, with the digest of what was seen as evidence."""
        return await self.as_call().run(context)

    def as_call(self, session_id: str | None = None) -> Evaluate:
        """Return the event as a call with evidence, in the session of this id if that is not yet its own."""
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
    """Return the event as a call of the tool that stands for its source."""
    tool = _COMMAND_TOOL if source == "cli" and event.get("command") else _TOOLS[source]
    return ToolCall(tool, event)


class ReportResult(NamedTuple):
    """The answer to a report, and the session it was taken into."""

    session_id: str
    answer: Answer


class Report(Struct, frozen=True, gc=False):
    """Take an event into the session of its reporter, which is started where none is active."""

    reporter: Reporter
    observe: Observe

    async def prejudge(self, context: Means) -> "Report":
        """Return the case with how it is judged here, if the session of the reporter is known; see `prejudge`."""
        name = context.sources.get(self.reporter.key, "")
        if not name:
            return self
        observe = structs.replace(self.observe, session_id=name)
        return structs.replace(self, observe=await observe.prejudge(context))

    def learn(self, context: Means, reported: ReportResult) -> None:
        """Remember the session of the reporter."""
        context.note_source(self.reporter.key, reported.session_id)

    async def run(self, context: Means) -> ReportResult:
        """Observe in the session that was started last; if that is over, in one that follows it.

        A key that was used in the last session is found there, whatever has become of it. While the kill switch is on,
        no session follows: what is observed then is denied in the one that there was. Where there was none, one is
        started, and what is observed is denied in it.
        """
        key = self.reporter.key
        name = context.sources.get(key, "") or await context.transact(
            lambda transaction: last_session_id(transaction, key)
        )
        for _ in range(_MAX_TURNS):
            if name:
                answer = await evaluate(context, self.observe.as_call(name), skip_states=FINAL_STATES)
                if answer is not None:
                    context.note_source(key, name)
                    return ReportResult(name, answer)
                if await context.transact(lambda transaction: transaction.switches.kill_switch):
                    return ReportResult(name, (await self.observe.as_call(name).run(context)))
            name = (await StartFor(self.reporter).run(context)).session.id
        raise LedgerUnavailable("the sessions of this source end faster than they can be started")


@dataclass(frozen=True)
class Consider:
    """Say what would be decided on an event, or on a call. Nothing is kept of it, and nothing is used up."""

    asked: Evaluate | Observe | Report

    async def run(self, context: Means) -> Decision:
        """Judge by how the session stands; a report without one, by how a new one would stand."""
        asked = self.asked
        if isinstance(asked, Report):
            place = await context.run(GetJudgingState(reporter=asked.reporter))
            asked = structs.replace(asked.observe, session_id=place.status.session_id)
            request = asked.as_call()
        else:
            request = asked if isinstance(asked, Evaluate) else asked.as_call()
            place = await context.run(GetJudgingState(request.session_id))
        compute = partial(judge_request, context, request, place.mission, place.status)
        decision: Decision = await context.aside(compute, limit_key=request.session_id)
        return decision


class JudgingState(NamedTuple):
    """Where something is judged: under which mission, and how its session stands."""

    mission: Mission
    status: Standing


@dataclass(frozen=True)
class GetJudgingState:
    """Find where something would be judged: in a session, or in that of a reporter, which may be a new one."""

    session_id: str = ""
    reporter: Reporter | None = None

    async def run(self, context: Means) -> JudgingState:
        """Read how the session stands."""
        reporter = self.reporter
        if reporter is None:
            return await _place_in(context, self.session_id)
        place: JudgingState = await context.transact(lambda transaction: _place_of(context, transaction, reporter))
        return place


async def _place_in(context: Means, name: str) -> JudgingState:
    passport = context.passports.get(name) or (await Look(name).run(context)).passport

    def work(transaction: Transaction) -> Standing:
        return load_status(transaction, preview(context, transaction, get_session(transaction, name), context.now))

    status: Standing = await context.transact(work)
    return JudgingState(passport.mission, status)


def _place_of(context: Means, transaction: Transaction, reporter: Reporter) -> JudgingState:
    """Return the place of a reporter: its session while that is active, else one that would be new."""
    session = current_session(transaction, reporter.key)
    if session is not None:
        session = preview(context, transaction, session, context.now)
        if session.state == "active" and session.left_ms > 0:
            return JudgingState(context.passport_of(session).mission, load_status(transaction, session))
    mission = reporter.mission
    budget = Budget(mission.max_tool_calls, mission.max_duration_s, own_calls=mission.max_tool_calls <= 0)
    refusal = TRANSITIONS["kill"].code if transaction.switches.kill_switch else ""
    return JudgingState(mission, Standing(_NEW, budget, refusal))
