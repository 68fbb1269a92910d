"""Decides one tool call: projects it to an action, runs every engine on it and combines their findings.

Any denial overrides all permits, and a call without findings is denied. An engine that raises, answers late or answers
something invalid denies with `engine_failed`: a missing answer must not count as permission.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from remit.claims.mission import Mission
from remit.claims.receipt import PolicyDecision, PublicDenialReason, Verdict
from remit.claims.types import SideEffectClass
from remit.policy.call import MAX_TARGET, SIDE_EFFECT_ORDER, Action, Doubt, ToolCall
from remit.policy.engines import DENIALS, Case, Clock, Engine, Finding, Remedy, SessionStatus, engine_failed
from remit.policy.evidence import redact
from remit.policy.files import Files
from remit.policy.projection import project
from remit.policy.scope import build_scope

__all__ = ["DEADLINE_S", "Decision", "decide", "judge", "judge_again", "judge_all", "policy_decisions"]

DEADLINE_S: Final = 1.0
_CODES: Final = frozenset(("", *DENIALS))
_UNKNOWN: Final[frozenset[SideEffectClass]] = frozenset(("none",))
_ANYTHING: Final = frozenset(SIDE_EFFECT_ORDER[1:])
_NO_ENGINE: Final = Finding(
    "none",
    "engine_failed",
    "no policy engine is configured, so the call is denied",
    Remedy((), "No passport permits this: ask the operator of Remit to configure a policy engine."),
)


class Decision(NamedTuple):
    """The combined answer of all engines, with the data that a receipt and a person need."""

    decision: Literal["PERMIT", "DENY"]
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...]
    action: Action
    public_reason: PublicDenialReason | None = None
    code: str | None = None
    remedy: Remedy | None = None

    @property
    def permits(self) -> bool:
        """Return whether the call is permitted. It may run only after its receipt is durable."""
        return self.decision == "PERMIT"


def judge(
    call: ToolCall,
    mission: Mission,
    standing: SessionStatus,
    *,
    engines: Sequence[Engine],
    files: Files,
    clock: Clock,
) -> Decision:
    """Return the decision on one call. If the session refuses every call, the arguments are not read."""
    if standing.refusal:
        action = Action(call.tool_name, "query", "tool", call.tool_name[:MAX_TARGET], _UNKNOWN)
    else:
        try:
            action = project(call, build_scope(mission.resource_scope, mission.cwd).base, files)
        except Exception as error:  # noqa: BLE001 - a call that cannot be projected is a doubt, never a permission
            reason = f"it cannot be read ({type(error).__name__})"
            doubt = Doubt("target_unknown", call.tool_name[:120], reason, unbounded=True)
            target = call.tool_name[:MAX_TARGET]
            action = Action(call.tool_name, "write", "tool", target, _ANYTHING, doubts=(doubt,))
    return decide(judge_all(engines, Case(mission, call, action, standing), clock, DEADLINE_S), action)


def judge_again(
    before: Decision,
    call: ToolCall,
    mission: Mission,
    standing: SessionStatus,
    *,
    engines: Sequence[Engine],
    clock: Clock,
) -> Decision:
    """Return a new decision on a call that was projected before, after its session has changed.

    The action of the earlier decision is used again, because projection is the slow part.
    """
    return decide(judge_all(engines, Case(mission, call, before.action, standing), clock, DEADLINE_S), before.action)


def judge_all(engines: Sequence[Engine], case: Case, clock: Clock, deadline_s: float) -> tuple[Finding, ...]:
    """Run the engines in order until one denies; return the findings with the time each one took."""
    findings: list[Finding] = []
    for engine in engines:
        started, name = clock(), str(getattr(engine, "name", "unnamed"))
        try:
            # An engine is foreign code: its answer may not have the declared type.
            answer: Any = engine.judge(case)
            code, reason = getattr(answer, "code", None), getattr(answer, "reason", None)
            if not (isinstance(code, str) and isinstance(reason, str) and isinstance(answer, Finding)):
                finding = engine_failed(name, "gave an invalid answer")
            else:
                finding = answer if code in _CODES else engine_failed(name, "gave an unknown denial code")
        except BaseException as error:  # noqa: BLE001 - any exception in an engine is a denial
            finding = engine_failed(name, f"failed ({type(error).__name__})")
        elapsed = clock() - started
        if elapsed > deadline_s and not finding.code:
            finding = engine_failed(name, "answered too late")
        findings.append(Finding(name, finding.code, finding.reason, finding.remedy, round(elapsed * 1000, 3)))
        if finding.code:
            break
    return tuple(findings)


def decide(findings: Sequence[Finding], action: Action) -> Decision:
    """Combine findings into a decision. The first denial, in the order of the engines, is the reason."""
    shown: list[Finding] = []
    refusal: Finding | None = None
    for finding in findings or (_NO_ENGINE,):
        if finding.code:
            finding = _redact_finding(finding)  # noqa: PLW2901 - the original finding must not be used any more
            refusal = refusal or finding
        shown.append(finding)
    if refusal is None:
        reason = _permit_reason(shown, action) if action.runs_code or action.by_text else shown[0].reason
        return Decision("PERMIT", "compliant", reason, tuple(shown), action)
    public, verdict = DENIALS[refusal.code]
    return Decision("DENY", verdict, refusal.reason, tuple(shown), action, public, refusal.code, refusal.remedy)


def _redact_finding(finding: Finding) -> Finding:
    """Return a denial with secrets removed from its text, which goes into a receipt."""
    remedy = finding.remedy and finding.remedy._replace(sentence=redact(finding.remedy.sentence))
    return finding._replace(reason=redact(finding.reason), remedy=remedy)


def _permit_reason(findings: Sequence[Finding], action: Action) -> str:
    reason = findings[0].reason
    if action.runs_code:
        reason += "; static scope only: it runs code of the project, which only a sandbox can bound"
    if action.by_text:
        reason += "; paths were compared by text: symbolic links were not resolved"
    return reason


def policy_decisions(decision: Decision) -> tuple[PolicyDecision, ...]:
    """Return the findings in the form that a receipt stores."""
    records: list[PolicyDecision] = []
    for backend, code, reason, _remedy, eval_ms in decision.findings:
        decision_text = "deny" if code else "permit"
        records.append(PolicyDecision(backend=backend, decision=decision_text, reason=reason[:1024], eval_ms=eval_ms))
    return tuple(records)
