"""Judges calls the short way: one mission, a session in good standing, and the passport's own rules."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import structs

from remit import Mission
from remit.claims.strictjson import JSON
from remit.policy.budget import Budget
from remit.policy.call import Action, Annotations, ToolCall
from remit.policy.decide import Decision, judge
from remit.policy.engines import Case, Change, Engine, SessionStatus
from remit.policy.files import Files, TextFiles
from remit.policy.native import NativeEngine
from remit.policy.projection import project

__all__ = [
    "ANNOTATED",
    "BASE",
    "STANDING",
    "action",
    "applied",
    "case",
    "command",
    "doubted",
    "judged",
    "mission",
    "still",
    "touched",
]

BASE = "/work/app"
STANDING = SessionStatus("grant:00000001", Budget(tool_calls=10, duration_s=600))
ANNOTATED = Annotations()
_TEXT = TextFiles()
_NATIVE = (NativeEngine(),)


def mission(**members: object) -> Mission:
    """Return a mission that may use every tool within one directory, with changes."""
    usual = {"agent_id": "agent:one", "mission": "Tidy up.", "allowed_tools": ("*",), "resource_scope": (BASE,)}
    return Mission(**{**usual, "cwd": BASE, **members})  # type: ignore[arg-type]


def still() -> float:
    """Return the time on a clock that stands still."""
    return 0.0


def action(
    tool: str,
    arguments: Mapping[str, JSON],
    *,
    cwd: str | None = None,
    base: str | None = BASE,
    files: Files = _TEXT,
    annotations: Annotations = ANNOTATED,
    shell: Literal["bash", "zsh"] = "bash",
) -> Action:
    """Return what a call comes to."""
    return project(ToolCall(tool, arguments, cwd, annotations, shell=shell), base, files)


def judged(
    tool: str,
    arguments: Mapping[str, JSON],
    *,
    under: Mission | None = None,
    standing: SessionStatus = STANDING,
    engines: Sequence[Engine] = _NATIVE,
    files: Files = _TEXT,
    cwd: str | None = None,
) -> Decision:
    """Return the decision on one call."""
    call = ToolCall(tool, arguments, cwd)
    return judge(call, under or mission(), standing, engines=engines, files=files, clock=still)


def command(text: str, *, files: Files = _TEXT, scope: Sequence[str] = (BASE,), cwd: str | None = None) -> Decision:
    """Return the decision on a command line for bash, started in the first directory of the scope unless told."""
    start = cwd or (scope[0] if scope else BASE)
    return judged("Bash", {"command": text}, under=mission(resource_scope=tuple(scope), cwd=start), files=files)


def case(given: Action | None = None, *, under: Mission | None = None, standing: SessionStatus = STANDING) -> Case:
    """Return what an engine is asked about an action; by default one that touches nothing."""
    asked = given or action("TodoWrite", {})
    return Case(under or mission(), ToolCall(asked.tool, {}), asked, standing)


def touched(decision: Decision | Action) -> set[str]:
    """Return the effects as words: `read /a`, and `read /a/…` where anything beneath is meant."""
    effects = decision.action.effects if isinstance(decision, Decision) else decision.effects
    return {f"{effect.verb} {effect.resource}" + ("/…" if effect.beneath else "") for effect in effects}


def doubted(decision: Decision | Action) -> set[str]:
    """Return the words that caused doubts."""
    doubts = decision.action.doubts if isinstance(decision, Decision) else decision.doubts
    return {doubt.word for doubt in doubts}


def applied(under: Mission, changes: tuple[Change, ...], standing: SessionStatus) -> tuple[Mission, SessionStatus]:
    """Return the mission with changes made, and the budget that a session under it would have."""
    calls, seconds = standing.budget.tool_calls, standing.budget.duration_s
    for change in changes:
        held = getattr(under, change.member)
        if change.operation == "add":
            under = structs.replace(under, **{change.member: (*held, *change.values)})
        elif change.operation == "remove":
            left = tuple(entry for entry in held if entry not in change.values)
            under = structs.replace(under, **{change.member: left})
        else:
            (limit,) = change.values
            assert isinstance(limit, int)
            calls += limit - held if change.member == "max_tool_calls" else 0
            seconds += limit - held if change.member == "max_duration_s" else 0
            under = structs.replace(under, **{change.member: limit})
    return under, SessionStatus(standing.session_id, Budget(calls, seconds))
