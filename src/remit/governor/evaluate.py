"""Evaluation of a tool call: session, project, judge, reserve, receipt, sign, append, answer.

Invariant: the answer states what the receipt states, and the receipt is durable before the answer is returned.

Calls that are quick to judge are judged on the writer thread, before any call of the same group commit is appended.
Other calls are judged in a worker thread first. If the status of the session has changed by the time the receipt is
appended, the call is judged again. So nothing slow runs while the ledger is locked, and no limit is exceeded.
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
    receipt_tool_name,
)
from remit.claims.strictjson import JSON
from remit.claims.types import encode
from remit.errors import FieldInvalid, LedgerUnavailable, NotCanonicalizable, RequestConflict
from remit.governor.clock import format_timestamp
from remit.governor.closing import close_delegates_of_ended, close_some_delegates
from remit.governor.context import Context
from remit.governor.lifecycle import (
    CALL_UNIT,
    TOOL_CALLS,
    SettleResult,
    count_elapsed,
    has_open_delegates,
    load_status,
    refresh_with_status,
    same_decision,
    session_status,
    settle_overdue,
)
from remit.governor.rate import admit
from remit.governor.receipts import append, clip, load_receipt, new_receipt_id, observed_timestamp_ms
from remit.governor.sessions import GetSession, get_session
from remit.ledger.records import (
    EarlierRequest,
    EventNote,
    IdempotencyKey,
    LedgerState,
    Session,
    StoredReceipt,
    UnsignedReceipt,
)
from remit.ledger.store import Transaction
from remit.policy.budget import Budget
from remit.policy.call import MAX_TARGET, MOST_SEVERE, Action, ToolCall
from remit.policy.decide import Decision, decide, judge, judge_again, policy_decisions
from remit.policy.engines import DENIALS, Engine, Finding, Remedy, SessionStatus
from remit.policy.evidence import measurements, redact
from remit.policy.projection import is_cheap

MAX_IDEMPOTENCY_KEY: Final = 256
_MAX_REASON: Final = 4096
_MAX_CLASS: Final = 256
_MAX_REFS: Final = 100
_MAX_ATTEMPTS: Final = 10


class EventSummary(NamedTuple):
    """What the Hub displays of an event in addition to its receipt: labels (`marks`) and the actions it contained."""

    marks: tuple[str, ...] = ()
    actions: tuple[Mapping[str, JSON], ...] = ()


class Evidence(NamedTuple):
    """What an observer reports in addition to a call: digests and labels, never the content itself."""

    content: Digest | None = None
    content_class: str | None = None
    provenance: ContentProvenance | None = None
    sensitivity: Sensitivity | None = None
    instruction_bearing: bool | None = None
    seen: EventSummary = EventSummary()


class Evaluation(NamedTuple):
    """The decision on a call, with its receipt. A repeated request gets the receipt of the first one.

    `refusal` is set if the call was permitted before but the session has since ended: a denial code that overrides the
    receipt, which stays unchanged.
    """

    receipt: SignedReceipt
    remedy: Remedy | None
    repeated: bool
    # The session after the receipt was appended. Its `receipt_hash` may not be set yet: use the hash of `receipt`.
    session: Session
    refusal: str = ""
    # The note of an observed event, if this request recorded it.
    note: EventNote | None = None

    @property
    def permits(self) -> bool:
        """Return whether the call may proceed."""
        return self.receipt.claims.verdict == "compliant" and not self.refusal


class ClientOutcome(NamedTuple):
    """The answer to a client about a decision."""

    verdict: Verdict
    reason: str
    public_reason: PublicDenialReason | UnsetType = UNSET


def describe_outcome(claims: Receipt, refusal: str) -> ClientOutcome:
    """Return the outcome in a receipt, or a denial if the receipt permits the call and `refusal` overrides it."""
    if not refusal or claims.verdict != "compliant":
        return ClientOutcome(claims.verdict, claims.reason, claims.public_denial_reason)
    public_reason, verdict = DENIALS[refusal]
    return ClientOutcome(verdict, f"permitted before, and not any more: {refusal.replace('_', ' ')}", public_reason)


class Prejudged(NamedTuple):
    """The findings of a front process (proxy or Hub) on a call, sent to the ledger process with the request.

    The ledger process derives the decision from the findings. They are valid only while the status of the session is
    equivalent to `status`.
    """

    # The canonical form of the arguments, and whether it is an `ExactForm`.
    form: bytes
    exact: bool
    once: IdempotencyKey | None
    status: SessionStatus
    findings: tuple[Finding, ...]
    action: Action


@dataclass(frozen=True)
class Evaluate:
    """Decide on a tool call, or on an observed event if there is `evidence`."""

    session_id: str
    call: ToolCall
    idempotency_key: str = ""
    evidence: Evidence | None = None
    # The origin of the call and its id there. Auditors use it to join the receipt with other logs.
    envelope: str = ""
    # For an observed event: measurements to put into the receipt, and when it was observed.
    measured: Mapping[str, Measurement] = field(default_factory=dict)
    observed_ms: int | None = None
    prejudged: Prejudged | None = None

    async def prejudge(self, context: Context) -> "Evaluate":
        """Return the request with the findings of this process; see `prejudge`."""
        return await prejudge(context, self)

    def run(self, context: Context) -> Coroutine[Any, Any, Evaluation]:
        """Judge the call, append its receipt and return the answer."""
        return cast("Coroutine[Any, Any, Evaluation]", evaluate(context, self))

    def check(self) -> None:
        """Validate the request."""
        if not self.call.tool_name:
            raise FieldInvalid("must not be empty", place="$.tool_name")
        if len(self.idempotency_key) > MAX_IDEMPOTENCY_KEY:
            raise FieldInvalid(f"has at most {MAX_IDEMPOTENCY_KEY} characters", place="$.idempotency_key")
        provenance = self.evidence and self.evidence.provenance
        if provenance and len(provenance.evidence_refs or ()) > _MAX_REFS:
            raise FieldInvalid(f"has at most {_MAX_REFS} entries", place="$.content_provenance.evidence_refs")

    def once(self, form: bytes) -> IdempotencyKey | None:
        """Return the idempotency key with a digest of the request, or None if the request has no key.

        `form` is the canonical form of the arguments. The digest covers the whole request: the same call from another
        folder is a different request.
        """
        if not self.idempotency_key:
            return None
        call = self.call._replace(arguments={"form": sha256_hex(form)})
        asked = to_builtins({"call": call, "evidence": self.evidence})
        return IdempotencyKey(self.idempotency_key, sha256_hex(canonicalize(asked)))


# The budget assumed for a session that is active and has calls left. The ledger process checks the actual budget.
_CALLS_LEFT: Final = Budget(1, 1)


async def prejudge(context: Context, request: Evaluate) -> Evaluate:
    """Judge a request in this process and return it with the findings, for the process that appends its receipt.

    A call that is quick to judge goes to the shared quick thread, others to the pool of worker threads. If the session
    does not exist, the request is returned unchanged.
    """
    request.check()
    session_id = request.session_id
    passport = context.passports.get(session_id)
    if passport is None:
        session = await context.to_thread(lambda: context.reader.session(session_id))
        if session is None:
            return request
        passport = await context.to_thread(lambda: context.passport_of(session))
    pending_call = _PendingCall(context, request, passport, ())
    if pending_call.is_light and not context.sees_budgets:
        await context.to_quick_thread(pending_call.judge_as_active)
    else:
        await context.to_thread(pending_call.judge_in_thread, limit_key=session_id)
    return pending_call.prejudged()


async def evaluate(
    context: Context, request: Evaluate, *, skip_states: Collection[SessionState] = ()
) -> Evaluation | None:
    """Judge the call, append its receipt and return the answer; None if the session is in one of `skip_states`.

    Slow judging runs in a worker thread.
    """
    request.check()
    session_id = request.session_id
    if session_id in context.refused.sessions:
        await admit(context, session_id, skip_states)
    passport = context.passports.get(session_id) or (await GetSession(session_id).run(context)).passport
    pending_call = _PendingCall(context, request, passport, skip_states)
    outcome: _Outcome | SettleResult | None = None
    for turn in range(_MAX_ATTEMPTS):
        if request.prejudged is not None and not turn and pending_call.use_prejudged():
            outcome = await context.transact(pending_call.append)
        elif pending_call.is_light:
            pending_call.read()
            outcome = await context.transact(pending_call.append, prepare=pending_call.judge)
        else:
            await context.to_thread(pending_call.judge_in_thread, limit_key=session_id)
            outcome = await context.transact(pending_call.append)
        if isinstance(outcome, SettleResult):
            await close_delegates_of_ended(context, outcome.unfinished)
        elif outcome is not None:
            if has_open_delegates(outcome.session):
                await close_some_delegates(context, outcome.session.id)
            if outcome.refused or session_id in context.refused.sessions:
                context.refused.note(session_id, outcome.session.state, context.now, refused=outcome.refused)
            return outcome.answer(context)
    raise LedgerUnavailable("the session changes faster than the call can be judged")


class _Outcome(NamedTuple):
    """The result of the transaction. `found` is None if nothing was appended."""

    found: StoredReceipt | UnsignedReceipt | None
    session: Session
    remedy: Remedy | None = None
    repeated: bool = False
    refusal: str = ""
    note: EventNote | None = None
    # Whether the session denies every call.
    refused: bool = False

    def answer(self, context: Context) -> Evaluation | None:
        if self.found is None:
            return None
        receipt = load_receipt(context, self.found)
        return Evaluation(receipt, self.remedy, self.repeated, self.session, self.refusal, self.note)


class _PendingCall:
    """A call that is being evaluated: judged on the writer thread or in a worker thread, then appended."""

    __slots__ = (
        "_context",
        "_decision",
        "_form",
        "_once",
        "_passport",
        "_request",
        "_skip_states",
        "_status",
        "is_light",
    )

    def __init__(
        self, context: Context, request: Evaluate, passport: Passport, skip_states: Collection[SessionState]
    ) -> None:
        self._context = context
        self._request = request
        self._passport = passport
        self._skip_states = skip_states
        self.is_light = is_cheap(request.call)
        self._form = b""
        self._once: IdempotencyKey | None = None
        self._status: SessionStatus | None = None
        self._decision: Decision | None = None

    def read(self) -> None:
        """Canonicalize the arguments, or raise `NotCanonicalizable`."""
        try:
            self._form = canonicalize_arguments(self._request.call.arguments)
            self._once = self._request.once(self._form) if self._request.idempotency_key else None
        except (RecursionError, OverflowError, TypeError):
            raise NotCanonicalizable("has no canonical form") from None

    def judge_in_thread(self) -> None:
        """Canonicalize and judge the call in a worker thread, by the session as last committed."""
        self.read()
        self._decision = None
        session = self._context.reader.session(self._request.session_id)
        if session is not None:
            self._judge_fully(session_status(count_elapsed(session, self._context.now), _NO_SWITCHES))

    def judge_as_active(self) -> None:
        """Canonicalize and judge the call, assuming that the session is active and has calls left."""
        self.read()
        self._judge_fully(SessionStatus(self._request.session_id, _CALLS_LEFT))

    def prejudged(self) -> Evaluate:
        """Return the request with its findings, if it was judged."""
        status, decision = self._status, self._decision
        if status is None or decision is None:
            return self._request
        action = decision.action
        if action.commands is not None:
            action = action._replace(commands=tuple(action.commands))
        exact = isinstance(self._form, ExactForm)
        judged_here = Prejudged(bytes(self._form), exact, self._once, status, decision.findings, action)
        return replace(self._request, prejudged=judged_here)

    def use_prejudged(self) -> bool:
        """Use the findings of another process; return False if there are none or they are not plausible."""
        request, given = self._request, self._request.prejudged
        engines = self._context.engines if request.evidence is None else self._context.observers
        if given is None or not _is_plausible(given, request, engines):
            return False
        self._form = ExactForm(given.form) if given.exact else given.form
        self._once = given.once
        self._status = given.status
        self._decision = decide(given.findings, given.action)
        return True

    def judge(self, transaction: Transaction) -> None:
        """Judge the call by the status of its session before the current group is written."""
        session = count_elapsed(get_session(transaction, self._request.session_id), self._context.now)
        self._judge_fully(load_status(transaction, session))

    def _judge_fully(self, status: SessionStatus) -> Decision:
        context, request = self._context, self._request
        engines = context.engines if request.evidence is None else context.observers
        self._status = status
        self._decision = judge(
            request.call,
            self._passport.mission,
            status,
            engines=engines,
            files=context.files,
            clock=context.stopwatch,
        )
        return self._decision

    def _judge_if_needed(self, status: SessionStatus) -> Decision | None:
        """Return the decision for `status`, reusing the earlier one if possible; None if judging again may be slow."""
        context, before, known = self._context, self._status, self._decision
        if known is None or before is None:
            return self._judge_fully(status) if self.is_light else None
        if same_decision(before, status, exactly=context.sees_budgets):
            return known
        if status.refusal:
            return self._judge_fully(status)  # quick: a refusal is decided before the call is analysed
        if before.refusal:  # the call was not analysed then
            return self._judge_fully(status) if self.is_light else None
        engines = context.engines if self._request.evidence is None else context.observers
        mission, call = self._passport.mission, self._request.call
        return judge_again(known, call, mission, status, engines=engines, clock=context.stopwatch)

    def append(self, transaction: Transaction) -> _Outcome | SettleResult | None:
        """Append the receipt of the decision, or find the receipt of an earlier request with the same key.

        Return None if the call has to be judged again and that may be slow. Return `SettleResult` if finished delegates
        hold the missing calls, and have delegates of their own that must be closed first.
        """
        request, context, once = self._request, self._context, self._once
        now = context.now
        session, status = refresh_with_status(context, transaction, get_session(transaction, request.session_id), now)
        if once is not None:
            before = transaction.repeated(session.id, once.key)
            if before is not None:
                refusal = status.refusal
                return _Outcome(
                    _check_same_request(before, once), session, repeated=True, refusal=refusal, refused=bool(refusal)
                )
        if session.state in self._skip_states:
            return _Outcome(None, session)
        if session.reserved and session.used + session.reserved >= session.limit:
            # No calls left, but some are reserved for delegates. Finished delegates return theirs.
            settled = settle_overdue(context, transaction, session, now)
            session = settled.session
            if settled.unfinished and session.used + session.reserved >= session.limit:
                return settled
            status = load_status(transaction, session)
        decision = self._judge_if_needed(status)
        if decision is None:
            return None
        used = session.used if decision.code else session.used + 1
        evidence, at_ms = request.evidence, max(now.wall_ms, session.seen_wall_ms, session.iat * 1000)
        if request.observed_ms is not None:
            at_ms = observed_timestamp_ms(context, transaction, session, now, request.observed_ms)
        left_s = status.budget.duration_s if session.state == "active" else 0
        step = _step(session, decision, request, used=used, left_s=left_s, moment=format_timestamp(at_ms))
        new_id = new_receipt_id(context, now)
        if evidence is None:
            after, unsigned = append(
                context, transaction, session, step, now, form=self._form, new_id=new_id, once=once, used=used
            )
            note = None
        else:
            note_text = _note_text(evidence.seen, step, new_id)
            marks, observed = _marks(session, evidence.seen, decision.code), session.observed + 1
            after, unsigned = append(
                context, transaction, session, step, now, form=self._form, new_id=new_id, once=once, note=note_text,
                used=used, observed=observed, marks=marks,
            )  # fmt: skip
            note = EventNote(observed, note_text) if note_text else None
            context.note_timestamp(session.id, new_id, at_ms)
        return _Outcome(unsigned, after, decision.remedy, note=note, refused=bool(status.refusal))


def _is_plausible(given: Prejudged, request: Evaluate, engines: Sequence[Engine]) -> bool:
    """Return whether findings of another process are for this call and could have come from these engines."""
    findings, names = given.findings, [engine.name for engine in engines]
    if not findings or [finding.backend for finding in findings] != names[: len(findings)]:
        return False
    if not all(finding.permits for finding in findings[:-1]) or findings[-1].code not in ("", *DENIALS):
        return False
    if findings[-1].permits and len(findings) < len(names):  # some engines have not run
        return False
    return (
        given.status.session_id == request.session_id
        and (given.once.key if given.once else "") == request.idempotency_key
        and given.action.tool == request.call.tool_name
        and bool(given.action.side_effects)
    )


def _marks(session: Session, seen: EventSummary, code: str | None) -> str:
    """Return the marks of a session with those of an event added, sorted and separated by spaces."""
    existing = set(session.marks.split())
    if existing.issuperset(seen.marks) and (not code or code in existing):
        return session.marks
    return " ".join(sorted(existing | set(seen.marks) | ({code} if code else set())))


def _note_text(seen: EventSummary, step: Step, receipt_id: str) -> str:
    """Return the note of an event as JSON: its actions, each with the verdict and the receipt id."""
    said = {"verdict": step.verdict, "receipt_id": receipt_id}
    return encode([{"observed_at": step.timestamp, **action, **said} for action in seen.actions]).decode()


_NO_SWITCHES: Final = LedgerState("")


def _check_same_request(before: EarlierRequest, asked: IdempotencyKey) -> StoredReceipt | UnsignedReceipt:
    """Return the receipt of the earlier request, or raise `RequestConflict` if the requests differ."""
    if before.digest != asked.digest:
        raise RequestConflict("the idempotency key was used for another call")
    return before.found


def judge_request(context: Context, request: Evaluate, mission: Mission, status: SessionStatus) -> Decision:
    """Return the decision on a call for a session status, without recording anything."""
    engines = context.engines if request.evidence is None else context.observers
    return judge(request.call, mission, status, engines=engines, files=context.files, clock=context.stopwatch)


def _step(session: Session, decision: Decision, request: Evaluate, *, used: int, left_s: int, moment: str) -> Step:
    """Return the receipt's claims about a decision; `used` counts the calls of the session, including this one."""
    action = decision.action
    calls = max(0, session.limit - used - session.reserved)
    budget_delta: LineageBudgetDelta | UnsetType = UNSET
    if not decision.code:
        budget_delta = LineageBudgetDelta(
            operation="consume",
            resource=TOOL_CALLS,
            amount=1,
            unit=CALL_UNIT,
            remaining_after=calls,
            used_total=used,
            reserved_total=session.reserved,
        )
    measured = measurements(action, decision.remedy, request.envelope)
    given = request.evidence or _NO_EVIDENCE
    return Step(
        tool=receipt_tool_name(action.tool),
        action_class=action.action_class,
        target=clip(redact(action.target), MAX_TARGET),
        resource_family=action.resource_family,
        side_effect_class=MOST_SEVERE[action.side_effects],
        verdict=decision.verdict,
        reason=clip(decision.reason, _MAX_REASON),
        policy_decisions=policy_decisions(decision),
        budget_remaining={TOOL_CALLS: calls, "duration_s": left_s},
        timestamp=moment,
        public_denial_reason=decision.public_reason or UNSET,
        internal_denial_code=decision.code or UNSET,
        measurements={**measured, **request.measured} or UNSET,
        budget_delta=budget_delta,
        result_hash=given.content or UNSET,
        content_class=clip(given.content_class, _MAX_CLASS) if given.content_class else UNSET,
        content_provenance=given.provenance or UNSET,
        sensitivity=given.sensitivity or UNSET,
        instruction_bearing=UNSET if given.instruction_bearing is None else given.instruction_bearing,
    )


_NO_EVIDENCE: Final = Evidence()
