"""The rules of the passport, in the order in which they decide.

Session, budgets, forbidden tools, allowed tools, resource scope, side effects. The first refusal is the answer. The
remedy covers all of them, because a change that fixes only one would not have permitted the call.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from remit.claims.mission import Mission
from remit.policy.call import SIDE_EFFECT_ORDER, Action, Doubt, Effect, SpawnedProgram
from remit.policy.engines import Case, Change, Finding, Remedy
from remit.policy.evidence import quote_word, redact
from remit.policy.scope import (
    Scope,
    allows_tool,
    build_scope,
    covers,
    escape_entry,
    find_forbidden,
    find_not_allowed,
    match_tool,
    program_entries,
    program_entry,
    program_label,
    tool_entry,
)

__all__ = ["NativeEngine"]

_NAME: Final = "native"
_PERMITTED: Final = Finding(_NAME, "", "the passport allows it")
_VERBS: Final = {
    "read": "read", "write": "write", "delete": "delete", "contact": "contact", "send": "send to", "escalate": "act as",
    "run": "run", "setenv": "set", "export": "export credentials with",
    "manage": "manage",
}  # fmt: skip
_SHOWN: Final = 300
_MAX_ADDED: Final = 32
# The characters and the length that `claims/mission.py` allows.
_NAMEABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{1,4096}")
_SESSION_REASONS: Final = {
    "passport_revoked": "the passport has been revoked",
    "session_revoked": "the session has been revoked",
    "session_ended": "the session has ended",
    "kill_switch": "the kill switch is on",
    "protection_tampered": "the settings that put this assistant under Remit were tampered with",
    "chain_broken": "the receipt chain of this session is broken",
    "duration_exceeded": "the session has lasted as long as the passport allows",
    "denied_but_run": "an outcome was reported for a call that had been denied",
    "run_unasked": "an outcome was reported for a call that was never submitted",
    "coverage_gap": "calls were made that no receipt shows",
    "coverage_unproven": "only the transcript shows that calls without a receipt did not run",
    "enforcement_gap": "the settings that send calls to Remit are not in effect",
    "rate_limited": "too many calls came after the end of the session, and were not evaluated",
}
_NEW_SESSION: Final = "Start a new session with a new passport."
_SESSION_ADVICE: Final = {
    "protection_tampered": "Find out what changed the settings, then run `remit protect` for the assistant again.",
    "denied_but_run": "A new passport does not help: find out how the call could run although it was denied.",
    "run_unasked": "A new passport does not help: find out how the call could run without being submitted.",
    "coverage_gap": "A new passport does not help: find out how the calls could run without a receipt.",
    "coverage_unproven": "A new passport does not help: look at the calls that the report names.",
    "enforcement_gap": "A new passport does not help: put the assistant under protection again.",
}


class _Refusal(NamedTuple):
    """One rule that refuses: its code, the reason, and the change that would permit it (None if no change would)."""

    code: str
    reason: str
    change: Change | None
    advice: str = ""


class NativeEngine:
    """Judges calls by the passport alone."""

    name = _NAME

    def judge(self, case: Case) -> Finding:
        """Return a permit, or the first refusal with the remedy for all refusals."""
        mission, action, standing = case.mission, case.action, case.standing
        refusals: list[_Refusal] = []
        if standing.refusal or standing.budget.tool_calls <= 0 or standing.budget.duration_s <= 0:
            refusals += _check_session(case)
        if mission.forbidden_tools or allows_tool(mission.allowed_tools, action.tool) is None:
            refusals += _check_tool(mission, action)
        scope = build_scope(mission.resource_scope, mission.cwd)
        exports: list[Effect] = []
        others: list[Effect] = []
        for effect in action.effects:
            if not covers(scope, effect):
                (exports if effect.verb == "export" else others).append(effect)
        if exports or action.doubts or others:
            refusals += _check_scope(scope, exports, action.doubts, others)
        if action.doubts or not action.side_effects.issubset(mission.allowed_side_effect_classes):
            refusals += _check_side_effects(mission, action)
        if not refusals:
            return _PERMITTED
        first = refusals[0]
        return Finding(_NAME, first.code, first.reason, _remedy(refusals))


def _check_session(case: Case) -> Iterator[_Refusal]:
    standing, mission = case.standing, case.mission
    if standing.refusal:
        reason = _SESSION_REASONS.get(standing.refusal, standing.refusal.replace("_", " "))
        yield _Refusal(standing.refusal, reason, None, _SESSION_ADVICE.get(standing.refusal, _NEW_SESSION))
        return
    budget = standing.budget
    if budget.tool_calls <= 0:
        code = "tool_calls_exhausted" if budget.own_calls else "lineage_budget_exhausted"
        change = Change("max_tool_calls", "raise", (mission.max_tool_calls + 1,))
        yield _Refusal(code, f"all {mission.max_tool_calls} tool calls of the passport are used or set aside", change)
    if budget.duration_s <= 0:
        yield _Refusal(
            "duration_exceeded",
            f"the session has lasted the {mission.max_duration_s} seconds that the passport allows",
            Change("max_duration_s", "raise", (mission.max_duration_s + 1 - budget.duration_s,)),
        )


def _check_tool(mission: Mission, action: Action) -> Iterator[_Refusal]:
    tool = action.tool
    if mission.forbidden_tools and match_tool(mission.forbidden_tools, tool) is not None:
        naming = tuple(dict.fromkeys(entry for entry in mission.forbidden_tools if match_tool((entry,), tool)))
        removed = Change("forbidden_tools", "remove", naming)
        yield _Refusal("tool_forbidden", f"the passport forbids the tool {tool[:_SHOWN]!r}", removed)
    if mission.forbidden_tools and action.commands is not None:
        yield from _check_forbidden_programs(mission, action, action.commands)
    if allows_tool(mission.allowed_tools, tool) is not None:
        return
    # A relative path may start only at a directory that was signed.
    base = mission.cwd if mission.cwd is not None and mission.cwd.startswith("/") else None
    allowed = program_entries(mission.allowed_tools, tool, base) if action.commands is not None else ()
    if allowed:
        yield from _check_allowed_programs(tool, tuple(find_not_allowed(allowed, action.commands or ())), base)
    else:
        entry = tool_entry(tool)
        added = Change("allowed_tools", "add", (entry,)) if entry is not None else None
        advice = "Use a tool name that a passport can express."
        yield _Refusal("tool_not_allowed", f"the passport does not allow the tool {tool[:_SHOWN]!r}", added, advice)


def _check_forbidden_programs(
    mission: Mission, action: Action, commands: Iterable[SpawnedProgram]
) -> Iterator[_Refusal]:
    forbidden = program_entries(mission.forbidden_tools, action.tool, None)
    found = tuple(find_forbidden(forbidden, commands)) if forbidden else ()
    if found:
        removed = Change("forbidden_tools", "remove", tuple(dict.fromkeys(named.entry for named, _ in found)))
        first, launched = next((pair for pair in found if pair[1].words), found[0])
        runs = "runs" if launched.words and not launched.more else "may run"
        said = " ".join(first.words)
        reason = f"it {runs} {said[:_SHOWN]!r}, which the passport forbids"
        # If the program is not known, the doubt is the better explanation.
        doubt = None if launched.words else next((doubt for doubt in action.doubts if doubt.unbounded), None)
        yield _Refusal("tool_forbidden", f"{_refuse_doubt(doubt).reason}; so {reason}" if doubt else reason, removed)


def _check_allowed_programs(tool: str, others: Sequence[SpawnedProgram], base: str | None) -> Iterator[_Refusal]:
    """Refuse the programs of a command line that no entry allows."""
    if not others:
        return
    first = next((launched for launched in others if not launched.words), others[0])
    what = repr(program_label(first)[:_SHOWN]) if first.words else "a program that is not known"
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    entries = tuple(dict.fromkeys(program_entry(tool, launched, base) for launched in others))
    added = tuple(entry for entry in entries if entry is not None)
    change = Change("allowed_tools", "add", added) if len(added) == len(entries) <= _MAX_ADDED else None
    advice = "Write out the names of the programs, and run them one by one."
    reason = f"the passport does not allow the tool {tool[:_SHOWN]!r} to run {what}{more}"
    yield _Refusal("tool_not_allowed", reason, change, advice)


def _check_scope(
    scope: Scope, exports: Sequence[Effect], doubts: Sequence[Doubt], others: Sequence[Effect]
) -> Iterator[_Refusal]:
    """Refuse effects outside of the scope, and doubts."""
    if exports:
        # Before doubts: most of these programs have no table, and the export is the better explanation.
        yield _refuse_outside(exports)
    for doubt in doubts:
        if doubt.code == "shell_unparsed" or not scope.everything:
            yield _refuse_doubt(doubt)
    if others:
        yield _refuse_outside(others)


def _refuse_doubt(doubt: Doubt) -> _Refusal:
    what = "the command cannot be read" if doubt.code == "shell_unparsed" else "what it would touch is not known"
    at = f" at {quote_word(doubt.word)}" if doubt.word else ""
    return _Refusal(doubt.code, f"{what}{at}: {doubt.reason}", None, _advice(doubt))


def _advice(doubt: Doubt) -> str:
    if doubt.code == "shell_unparsed":
        return "Write the command in a simpler form."
    if doubt.unbounded:
        return f"Do it without {quote_word(doubt.word)}, or in separate calls whose files and hosts are written out."
    return f"Write out the file or host in place of {quote_word(doubt.word)}."


def _refuse_outside(outside: Sequence[Effect]) -> _Refusal:
    first = outside[0]
    more = len({effect.resource for effect in outside}) - 1
    others = f" (and {more} more)" if more else ""
    resource = redact(first.resource)[:_SHOWN] + ("/…" if first.beneath else "")
    why = "has other names, which may lie outside" if first.shared else "is outside"
    if first.steers:
        what = f"holds {first.steers}: that makes" if first.beneath else "makes"
        why = f"{what} programs run code, and is not named in"
    reason = f"it would {_VERBS[first.verb]} {resource}, which {why} the passport's resource scope{others}"
    entries = _scope_entries(outside)
    if not entries or any(not covers(build_scope(entries, None), effect) for effect in outside):
        return _Refusal("out_of_scope", reason, None, "Only the resource scope `**` allows this.")
    return _Refusal("out_of_scope", reason, Change("resource_scope", "add", entries))


def _scope_entries(outside: Sequence[Effect]) -> tuple[str, ...]:
    """Return the fewest entries that cover these effects; empty if a passport cannot express one of them."""
    entries: list[str] = []
    # A directory comes before its content, which then needs no entry of its own.
    for effect in sorted(outside, key=lambda effect: (effect.shared, len(effect.resource))):
        if len(entries) > _MAX_ADDED:
            return ()
        if not covers(build_scope(tuple(entries), None), effect):
            entries.append(escape_entry(effect.resource))
            entries.extend([escape_entry(effect.steers)] if effect.steers and effect.beneath else [])
    fit = len(entries) <= _MAX_ADDED and all(_NAMEABLE.fullmatch(entry) for entry in entries)
    return tuple(entries) if fit else ()


def _check_side_effects(mission: Mission, action: Action) -> Iterator[_Refusal]:
    sides = set(action.side_effects)
    if action.doubts and any(doubt.unbounded for doubt in action.doubts):
        # The operation is not known, so it may have any side effect.
        sides.update(SIDE_EFFECT_ORDER[1:])
    sides.difference_update(mission.allowed_side_effect_classes)
    if sides:
        missing = tuple(side for side in SIDE_EFFECT_ORDER if side in sides)
        shown = " and ".join(missing)
        change = Change("allowed_side_effect_classes", "add", missing)
        yield _Refusal(
            "side_effect_not_allowed", f"it has the side effect {shown}, which the passport does not allow", change
        )


_CHANGE_TEXT: Final = {
    "add": "add {values} to {member}",
    "remove": "remove {values} from {member}",
    "raise": "raise {member} to {values}",
}


def _remedy(refusals: Sequence[_Refusal]) -> Remedy:
    unfixable = next((refusal for refusal in refusals if refusal.change is None), None)
    if unfixable is not None:
        return Remedy((), unfixable.advice)
    changes = tuple(refusal.change for refusal in refusals if refusal.change is not None)
    return Remedy(changes, f"To permit it, {' and '.join(_describe_change(change) for change in changes)}.")


def _describe_change(change: Change) -> str:
    values = ", ".join(repr(value) if isinstance(value, str) else str(value) for value in change.values)
    values = values if len(values) <= _SHOWN * 3 else redact(values)[: _SHOWN * 3] + "…"
    return _CHANGE_TEXT[change.operation].format(values=values, member=change.member)
