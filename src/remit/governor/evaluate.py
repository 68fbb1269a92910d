"""The one path of a tool call: session, project, judge, reserve, receipt, sign, append, answer.

Keeps this invariant: the answer is what the receipt says, and the receipt is durable before the answer is given. The
calls of a group are judged first, by how their sessions stand before it; those that take longer are judged aside,
before they come to the ledger. A call whose session stands otherwise when its turn comes is judged again. So nothing
slow happens while the ledger is held, and no limit is overrun.
"""

from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

from msgspec import UNSET, UnsetType, to_builtins

from remit.claims.attestation import SessionState
from remit.claims.canonical import ExactForm, canonicalize, canonicalize_arguments, sha256_hex
from remit.claims.mission import Mission
from remit.claims.passport import Passport
from remit.claims.receipt import (
    ContentProvenance,
    Digest,
    LineageBudgetDelta,
    Measurement,
    PublicDenialReason,
    Receipt,
    Sensitivity,
    SignedReceipt,
    Step,
    Verdict,
    named_tool,
)
from remit.claims.shapes import encode
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, LedgerUnavailable, NotCanonicalizable, RequestConflict
from remit.governor.clock import timestamp
from remit.governor.closing import finish_all, finish_some
from remit.governor.lifecycle import (
    CALLS,
    UNIT,
    Settled,
    has_open_delegates,
    same_answer,
    settle_overdue,
    standing_in,
    standing_of,
    status_in,
    touched,
)
from remit.governor.means import Means
from remit.governor.rate import admit
from remit.governor.receipts import append, clip, new_receipt_id, receipt_of, reported_ms
from remit.governor.sessions import Look, found
from remit.ledger.port import Transaction
from remit.ledger.records import Kept, Note, Once, Pending, Repeated, Session, Switches
from remit.policy.budget import Budget
from remit.policy.call import GRAVEST, MAX_TARGET, Action, ToolCall
from remit.policy.decide import Decision, decide, judge, judge_again, policy_decisions
from remit.policy.engines import DENIALS, Engine, Finding, Remedy, Standing
from remit.policy.evidence import measurements, redacted
from remit.policy.projection import is_light

__all__ = [
    "MAX_KEY",
    "Answer",
    "Evaluate",
    "Evidence",
    "Outcome",
    "Prejudged",
    "Seen",
    "decided",
    "judged",
    "outcome_of",
    "prejudge",
]

MAX_KEY: Final = 256
_MAX_REASON: Final = 4096
_MAX_CLASS: Final = 256
_MAX_REFS: Final = 100
_MAX_TURNS: Final = 10


class Seen(NamedTuple):
    """What people are shown of an event beside its receipt: words for what was in it, and what was done in it."""

    marks: tuple[str, ...] = ()
    actions: tuple[Mapping[str, JSON], ...] = ()


class Evidence(NamedTuple):
    """What an observer brings beside a call: digests and marks, never the content itself."""

    content: Digest | None = None
    content_class: str | None = None
    provenance: ContentProvenance | None = None
    sensitivity: Sensitivity | None = None
    instruction_bearing: bool | None = None
    seen: Seen = Seen()


class Answer(NamedTuple):
    """The decision on a call, with its receipt. A repeated call gets the receipt of the first one.

    `refusal` is why a call that was permitted before may not go on any more, where that is so: its receipt stays what
    it is, but a session that has ended since permits nothing.
    """

    receipt: SignedReceipt
    remedy: Remedy | None
    repeated: bool
    # As it stands then; the hash of its head is that of the receipt.
    session: Session
    refusal: str = ""
    # What was noted of an event that is new.
    note: Note | None = None

    @property
    def permits(self) -> bool:
        """Tell whether the call may go on."""
        return self.receipt.claims.verdict == "compliant" and not self.refusal


class Outcome(NamedTuple):
    """What a client is told about a decision."""

    verdict: Verdict
    reason: str
    public_reason: PublicDenialReason | UnsetType = UNSET


def outcome_of(claims: Receipt, refusal: str) -> Outcome:
    """Return what a receipt says; or, where that was a permission that `refusal` has ended, why it does not hold."""
    if not refusal or claims.verdict != "compliant":
        return Outcome(claims.verdict, claims.reason, claims.public_denial_reason)
    public_reason, verdict = DENIALS[refusal]
    return Outcome(verdict, f"permitted before, and not any more: {refusal.replace('_', ' ')}", public_reason)


class Prejudged(NamedTuple):
    """How a front has judged a call, before it comes to the ledger process.

    The ledger process makes the decision from the findings. They count only while the session still stands as in
    `standing`.
    """

    # The canonical form of the arguments, and whether it is an `ExactForm`.
    form: bytes
    exact: bool
    once: Once | None
    standing: Standing
    findings: tuple[Finding, ...]
    action: Action


@dataclass(frozen=True)
class Evaluate:
    """Decide on a tool call, or on one that was observed where there is evidence."""

    session_id: str
    call: ToolCall
    idempotency_key: str = ""
    evidence: Evidence | None = None
    # Where the call comes from, in words, and its name there: an auditor joins it with what others have kept of it.
    envelope: str = ""
    # Of an event that was observed: digests of what was sent with it, for the receipt, and when it was observed.
    measured: Mapping[str, Measurement] = field(default_factory=dict)
    observed_ms: int | None = None
    prejudged: Prejudged | None = None

    async def prejudge(self, means: Means) -> "Evaluate":
        """Return the request with how it is judged here; see `prejudge`."""
        return await prejudge(means, self)

    def run(self, means: Means) -> Coroutine[Any, Any, Answer]:
        """Judge, append, answer."""
        return cast("Coroutine[Any, Any, Answer]", decided(means, self))

    def check(self) -> None:
        """Raise if it asks for what cannot be."""
        if not self.call.tool_name:
            raise FieldInvalid("must not be empty", place="$.tool_name")
        if len(self.idempotency_key) > MAX_KEY:
            raise FieldInvalid(f"has at most {MAX_KEY} characters", place="$.idempotency_key")
        provenance = self.evidence and self.evidence.provenance
        if provenance and len(provenance.evidence_refs or ()) > _MAX_REFS:
            raise FieldInvalid(f"has at most {_MAX_REFS} entries", place="$.content_provenance.evidence_refs")

    def once(self, form: bytes) -> Once | None:
        """Return what makes the request repeatable, if it comes with a key; `form` is that of its arguments.

        The digest is over all that was asked: the same call from another folder is another call.
        """
        if not self.idempotency_key:
            return None
        call = self.call._replace(arguments={"form": sha256_hex(form)})
        asked = to_builtins({"call": call, "evidence": self.evidence})
        return Once(self.idempotency_key, sha256_hex(canonicalize(asked)))


# How a session stands that is active and has calls left; whether it is, the ledger tells.
_OPEN: Final = Budget(1, 1)


async def prejudge(means: Means, request: Evaluate) -> Evaluate:
    """Return the request with how it is judged here, for the process that appends its receipt.

    A call that is quick to judge is judged at once, others aside. Nothing is judged in a session that is not found.
    """
    request.check()
    session_id = request.session_id
    passport = means.passports.get(session_id)
    if passport is None:
        session = await means.aside(lambda: means.reader.session(session_id))
        if session is None:
            return request
        passport = await means.aside(lambda: means.passport_of(session))
    case = _Case(means, request, passport, ())
    if case.is_light and not means.sees_budgets:
        await means.quickly(case.judge_open)
    else:
        await means.aside(case.judge_aside, fair_to=session_id)
    return case.prejudged()


async def decided(means: Means, request: Evaluate, *, over: Collection[SessionState] = ()) -> Answer | None:
    """Judge, append, answer; give none where the session is in one of the states that count as `over`.

    What takes long is done aside, where it keeps nobody else waiting.
    """
    request.check()
    session_id = request.session_id
    if session_id in means.refused.sessions:
        await admit(means, session_id, over)
    passport = means.passports.get(session_id) or (await Look(session_id).run(means)).passport
    case = _Case(means, request, passport, over)
    outcome: _Outcome | Settled | None = None
    for turn in range(_MAX_TURNS):
        if request.prejudged is not None and not turn and case.take_prejudged():
            outcome = await means.transact(case.append)
        elif case.is_light:
            case.read()
            outcome = await means.transact(case.append, prepare=case.judge)
        else:
            await means.aside(case.judge_aside, fair_to=session_id)
            outcome = await means.transact(case.append)
        if isinstance(outcome, Settled):
            await finish_all(means, outcome.unfinished)
        elif outcome is not None:
            if has_open_delegates(outcome.session):
                await finish_some(means, outcome.session.id)
            if outcome.refused or session_id in means.refused.sessions:
                means.refused.note(session_id, outcome.session.state, means.now, refused=outcome.refused)
            return outcome.answer(means)
    raise LedgerUnavailable("the session changes faster than the call can be judged")


class _Outcome(NamedTuple):
    """What came out of the ledger; nothing is found where nothing was to be appended."""

    found: Kept | Pending | None
    session: Session
    remedy: Remedy | None = None
    repeated: bool = False
    refusal: str = ""
    note: Note | None = None
    # Whether the session permits nothing any more.
    refused: bool = False

    def answer(self, means: Means) -> Answer | None:
        if self.found is None:
            return None
        receipt = receipt_of(means, self.found)
        return Answer(receipt, self.remedy, self.repeated, self.session, self.refusal, self.note)


class _Case:
    """One call on its way through the ledger: judged with others first, or aside, then appended."""

    __slots__ = (
        "_decision",
        "_form",
        "_means",
        "_once",
        "_over",
        "_passport",
        "_request",
        "_standing",
        "is_light",
    )

    def __init__(self, means: Means, request: Evaluate, passport: Passport, over: Collection[SessionState]) -> None:
        self._means = means
        self._request = request
        self._passport = passport
        self._over = over
        self.is_light = is_light(request.call)
        self._form = b""
        self._once: Once | None = None
        self._standing: Standing | None = None
        self._decision: Decision | None = None

    def read(self) -> None:
        """Bring the arguments into their canonical form, or find that they have none."""
        try:
            self._form = canonicalize_arguments(self._request.call.arguments)
            self._once = self._request.once(self._form) if self._request.idempotency_key else None
        except (RecursionError, OverflowError, TypeError):
            raise NotCanonicalizable("has no canonical form") from None

    def judge_aside(self) -> None:
        """Read and judge the call where that may take its time, by how its session was kept last."""
        self.read()
        self._decision = None
        session = self._means.reader.session(self._request.session_id)
        if session is not None:
            self._judge_whole(standing_of(touched(session, self._means.now), _NO_SWITCHES))

    def judge_open(self) -> None:
        """Read and judge the call as that of a session which is active and has calls left."""
        self.read()
        self._judge_whole(Standing(self._request.session_id, _OPEN))

    def prejudged(self) -> Evaluate:
        """Return the request with how it was judged."""
        standing, decision = self._standing, self._decision
        if standing is None or decision is None:
            return self._request
        action = decision.action
        if action.commands is not None:
            action = action._replace(commands=tuple(action.commands))
        exact = isinstance(self._form, ExactForm)
        judged_here = Prejudged(bytes(self._form), exact, self._once, standing, decision.findings, action)
        return replace(self._request, prejudged=judged_here)

    def take_prejudged(self) -> bool:
        """Take over how another process has judged the call; tell whether it has."""
        request, given = self._request, self._request.prejudged
        engines = self._means.engines if request.evidence is None else self._means.observers
        if given is None or not _fits(given, request, engines):
            return False
        self._form = ExactForm(given.form) if given.exact else given.form
        self._once = given.once
        self._standing = given.standing
        self._decision = decide(given.findings, given.action)
        return True

    def judge(self, transaction: Transaction) -> None:
        """Judge the call by how its session stands before the group it is in."""
        session = touched(found(transaction, self._request.session_id), self._means.now)
        self._judge_whole(standing_in(transaction, session))

    def _judge_whole(self, standing: Standing) -> Decision:
        means, request = self._means, self._request
        engines = means.engines if request.evidence is None else means.observers
        self._standing = standing
        self._decision = judge(
            request.call, self._passport.mission, standing, engines=engines, files=means.files, clock=means.stopwatch
        )
        return self._decision

    def _judge(self, standing: Standing) -> Decision | None:
        """Return the decision under a standing: the one there is, if it would be the same; None if it takes long."""
        means, before, known = self._means, self._standing, self._decision
        if known is None or before is None:
            return self._judge_whole(standing) if self.is_light else None
        if same_answer(before, standing, exactly=means.sees_budgets):
            return known
        if standing.refusal:
            return self._judge_whole(standing)  # which does not look into it
        if before.refusal:  # then it was not looked into
            return self._judge_whole(standing) if self.is_light else None
        engines = means.engines if self._request.evidence is None else means.observers
        mission, call = self._passport.mission, self._request.call
        return judge_again(known, call, mission, standing, engines=engines, clock=means.stopwatch)

    def append(self, transaction: Transaction) -> _Outcome | Settled | None:
        """Append the receipt of the decision, or find the one that the same call has got before.

        None if the call has to be judged anew, and that may take long. `Settled` if delegates that are over hold the
        calls that are missing, and have delegates of their own that must be closed first.
        """
        request, means, once = self._request, self._means, self._once
        now = means.now
        session, standing = status_in(means, transaction, found(transaction, request.session_id), now)
        if once is not None:
            before = transaction.repeated(session.id, once.key)
            if before is not None:
                refusal = standing.refusal
                return _Outcome(_same(before, once), session, repeated=True, refusal=refusal, refused=bool(refusal))
        if session.state in self._over:
            return _Outcome(None, session)
        if session.reserved and session.used + session.reserved >= session.limit:
            # Delegates hold what is missing; some may be over, and have to give it back.
            settled = settle_overdue(means, transaction, session, now)
            session = settled.session
            if settled.unfinished and session.used + session.reserved >= session.limit:
                return settled
            standing = standing_in(transaction, session)
        decision = self._judge(standing)
        if decision is None:
            return None
        used = session.used if decision.code else session.used + 1
        evidence, at_ms = request.evidence, max(now.wall_ms, session.seen_wall_ms, session.iat * 1000)
        if request.observed_ms is not None:
            at_ms = reported_ms(means, transaction, session, now, request.observed_ms)
        left_s = standing.budget.duration_s if session.state == "active" else 0
        step = _step(session, decision, request, used=used, left_s=left_s, moment=timestamp(at_ms))
        new_id = new_receipt_id(means, now)
        if evidence is None:
            after, pending = append(
                means, transaction, session, step, now, form=self._form, new_id=new_id, once=once, used=used
            )
            note = None
        else:
            noted = _noted(evidence.seen, step, new_id)
            marks, observed = _marks(session, evidence.seen, decision.code), session.observed + 1
            after, pending = append(
                means, transaction, session, step, now, form=self._form, new_id=new_id, once=once, note=noted,
                used=used, observed=observed, marks=marks,
            )  # fmt: skip
            note = Note(observed, noted) if noted else None
            means.note_timestamp(session.id, new_id, at_ms)
        return _Outcome(pending, after, decision.remedy, note=note, refused=bool(standing.refusal))


def _fits(given: Prejudged, request: Evaluate, engines: Sequence[Engine]) -> bool:
    """Tell whether what another process has found is for this call, and is what the engines here could have found."""
    findings, names = given.findings, [engine.name for engine in engines]
    if not findings or [finding.backend for finding in findings] != names[: len(findings)]:
        return False
    if not all(finding.permits for finding in findings[:-1]) or findings[-1].code not in ("", *DENIALS):
        return False
    if findings[-1].permits and len(findings) < len(names):  # the others were not asked
        return False
    return (
        given.standing.session_id == request.session_id
        and (given.once.key if given.once else "") == request.idempotency_key
        and given.action.tool == request.call.tool_name
        and bool(given.action.side_effects)
    )


def _marks(session: Session, seen: Seen, code: str | None) -> str:
    """Return the marks of a session, with those of an event added."""
    there = set(session.marks.split())
    if there.issuperset(seen.marks) and (not code or code in there):
        return session.marks
    return " ".join(sorted(there | set(seen.marks) | ({code} if code else set())))


def _noted(seen: Seen, step: Step, receipt_id: str) -> str:
    """Return the note of an event: what was done in it, each with its receipt."""
    said = {"verdict": step.verdict, "receipt_id": receipt_id}
    return encode([{"observed_at": step.timestamp, **action, **said} for action in seen.actions]).decode()


_NO_SWITCHES: Final = Switches("")


def _same(before: Repeated, asked: Once) -> Kept | Pending:
    """Return the receipt that a key has got before, if it was for the same."""
    if before.digest != asked.digest:
        raise RequestConflict("the idempotency key was used for another call")
    return before.found


def judged(means: Means, request: Evaluate, mission: Mission, standing: Standing) -> Decision:
    """Return the decision on a call under a standing. Nothing is kept of it."""
    engines = means.engines if request.evidence is None else means.observers
    return judge(request.call, mission, standing, engines=engines, files=means.files, clock=means.stopwatch)


def _step(session: Session, decision: Decision, request: Evaluate, *, used: int, left_s: int, moment: str) -> Step:
    """Return what the receipt says about a decision; `used` are the calls of the session, this one included."""
    action = decision.action
    calls = max(0, session.limit - used - session.reserved)
    consumed: LineageBudgetDelta | UnsetType = UNSET
    if not decision.code:
        consumed = LineageBudgetDelta(
            operation="consume",
            resource=CALLS,
            amount=1,
            unit=UNIT,
            remaining_after=calls,
            used_total=used,
            reserved_total=session.reserved,
        )
    told = measurements(action, decision.remedy, request.envelope)
    given = request.evidence or _NONE
    return Step(
        tool=named_tool(action.tool),
        action_class=action.action_class,
        target=clip(redacted(action.target), MAX_TARGET),
        resource_family=action.resource_family,
        side_effect_class=GRAVEST[action.side_effects],
        verdict=decision.verdict,
        reason=clip(decision.reason, _MAX_REASON),
        policy_decisions=policy_decisions(decision),
        budget_remaining={CALLS: calls, "duration_s": left_s},
        timestamp=moment,
        public_denial_reason=decision.public_reason or UNSET,
        internal_denial_code=decision.code or UNSET,
        measurements={**told, **request.measured} or UNSET,
        budget_delta=consumed,
        result_hash=given.content or UNSET,
        content_class=clip(given.content_class, _MAX_CLASS) if given.content_class else UNSET,
        content_provenance=given.provenance or UNSET,
        sensitivity=given.sensitivity or UNSET,
        instruction_bearing=UNSET if given.instruction_bearing is None else given.instruction_bearing,
    )


_NONE: Final = Evidence()
