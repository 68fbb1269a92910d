"""Claude Code: the payloads of its hooks, and the answers it understands.

It takes nothing but 200 with one of these answers for a decision: everything else lets a call run, unless its settings
say that a failure blocks.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind
from remit.assistants.members import member, opt_text, said, text
from remit.claims.strictjson import JSON

__all__ = ["ClaudeCode"]

_ASKING: Final = "PreToolUse"
_KINDS: Final[Mapping[str, HookEventKind]] = {
    _ASKING: "call",
    "PostToolUse": "outcome",
    "PostToolUseFailure": "failure",
    "SubagentStart": "agent_started",
    "SubagentStop": "agent_ended",
    "SessionStart": "session_started",
    "SessionEnd": "session_ended",
}
_WITH_A_CALL: Final = ("call", "outcome", "failure")
# Events whose answer the model reads.
_HEARD: Final = ("SessionStart", "SubagentStart")


class ClaudeCode:
    """The dialect of Claude Code."""

    name = "claude-code"
    title = "Claude Code"

    def event_of(self, payload: Mapping[str, JSON]) -> str:
        """Return the event that a payload names."""
        return said(payload, "hook_event_name")

    def read(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Return what a payload says."""
        event = text(payload, "hook_event_name")
        kind = _KINDS.get(event, "other")
        notice = HookEvent(
            kind,
            event,
            text(payload, "session_id"),
            cwd=opt_text(payload, "cwd") or None,
            agent=opt_text(payload, "agent_id"),
            agent_type=opt_text(payload, "agent_type"),
            permission_mode=opt_text(payload, "permission_mode"),
            transcript=opt_text(payload, "transcript_path"),
        )
        if kind not in _WITH_A_CALL:
            return notice
        return notice._replace(
            tool=text(payload, "tool_name"),
            arguments=member(payload, "tool_input"),
            call_id=text(payload, "tool_use_id"),
            result=_result(payload, kind),
        )

    def permitted(self, notice: HookEvent, *, allow: bool, told: str) -> Mapping[str, JSON]:
        """Return no opinion, so that Claude Code goes on as it would; or that the call is allowed."""
        if notice.event == _ASKING and allow:
            return _specific(_ASKING, permissionDecision="allow", permissionDecisionReason="permitted by Remit")
        if notice.event in _HEARD and told:
            return _specific(notice.event, additionalContext=told)
        return {}

    def denied(self, event: str, reason: str) -> Mapping[str, JSON]:
        """Return the denial of a call; of anything else, a word for the user, as nothing can be stopped there."""
        if event in ("", _ASKING):
            return _specific(_ASKING, permissionDecision="deny", permissionDecisionReason=reason)
        return {"systemMessage": reason}


def _result(payload: Mapping[str, JSON], kind: HookEventKind) -> JSON:
    if kind == "failure":
        return {"error": payload.get("error"), "is_interrupt": payload.get("is_interrupt")}
    return payload.get("tool_response")


def _specific(event: str, **members: str) -> dict[str, JSON]:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}
