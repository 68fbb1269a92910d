"""Hook adapter for Claude Code.

Claude Code accepts only status 200 with one of these responses as a decision. After anything else it runs the call,
unless its settings say that a failed hook blocks.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind, optional_text, require_object, require_text, text_or_empty
from remit.claims.strictjson import JSON

_BEFORE_CALL: Final = "PreToolUse"
_KINDS: Final[Mapping[str, HookEventKind]] = {
    _BEFORE_CALL: "call",
    "PostToolUse": "outcome",
    "PostToolUseFailure": "failure",
    "SubagentStart": "agent_started",
    "SubagentStop": "agent_ended",
    "SessionStart": "session_started",
    "SessionEnd": "session_ended",
}
_CALL_KINDS: Final = ("call", "outcome", "failure")
# Events whose response can carry text for the model.
_WITH_CONTEXT: Final = ("SessionStart", "SubagentStart")


class ClaudeCodeHooks:
    """Hook adapter for Claude Code."""

    name = "claude-code"
    title = "Claude Code"

    def event_name(self, payload: Mapping[str, JSON]) -> str:
        """Return the `hook_event_name` member of a payload."""
        return text_or_empty(payload, "hook_event_name")

    def parse_event(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Parse a payload."""
        event_name = require_text(payload, "hook_event_name")
        kind = _KINDS.get(event_name, "other")
        event = HookEvent(
            kind,
            event_name,
            require_text(payload, "session_id"),
            cwd=optional_text(payload, "cwd") or None,
            agent=optional_text(payload, "agent_id"),
            agent_type=optional_text(payload, "agent_type"),
            permission_mode=optional_text(payload, "permission_mode"),
            transcript=optional_text(payload, "transcript_path"),
        )
        if kind not in _CALL_KINDS:
            return event
        return event._replace(
            tool=require_text(payload, "tool_name"),
            arguments=require_object(payload, "tool_input"),
            call_id=require_text(payload, "tool_use_id"),
            result=_result(payload, kind),
        )

    def permit_response(self, event: HookEvent, *, allow: bool, context: str) -> Mapping[str, JSON]:
        """Build the response that allows the call, or an empty one, which leaves it to the rules of Claude Code."""
        if event.event == _BEFORE_CALL and allow:
            return _specific(_BEFORE_CALL, permissionDecision="allow", permissionDecisionReason="permitted by Remit")
        if event.event in _WITH_CONTEXT and context:
            return _specific(event.event, additionalContext=context)
        return {}

    def deny_response(self, event_name: str, reason: str) -> Mapping[str, JSON]:
        """Build a denial of the call. Other events cannot be blocked: their response is a message for the user."""
        if event_name in ("", _BEFORE_CALL):
            return _specific(_BEFORE_CALL, permissionDecision="deny", permissionDecisionReason=reason)
        return {"systemMessage": reason}


def _result(payload: Mapping[str, JSON], kind: HookEventKind) -> JSON:
    if kind == "failure":
        return {"error": payload.get("error"), "is_interrupt": payload.get("is_interrupt")}
    return payload.get("tool_response")


def _specific(event: str, **members: str) -> dict[str, JSON]:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}
