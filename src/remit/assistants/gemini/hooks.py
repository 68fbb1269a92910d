"""Hook adapter for Gemini CLI.

Its payloads have no call ids, and do not distinguish subagents from the agent that started them. No response asks it to
prompt the user: without a user at the terminal it would wait forever.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind, optional_text, require_object, require_text, text_or_empty
from remit.claims.strictjson import JSON

_BEFORE_CALL: Final = "BeforeTool"
_SESSION_START: Final = "SessionStart"
_KINDS: Final[Mapping[str, HookEventKind]] = {
    _BEFORE_CALL: "call",
    "AfterTool": "outcome",
    _SESSION_START: "session_started",
    "SessionEnd": "session_ended",
}
_CALL_KINDS: Final = ("call", "outcome")


class GeminiHooks:
    """Hook adapter for Gemini CLI."""

    name = "gemini"
    title = "Gemini CLI"

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
            transcript=optional_text(payload, "transcript_path"),
        )
        if kind not in _CALL_KINDS:
            return event
        return event._replace(
            tool=require_text(payload, "tool_name"),
            arguments=require_object(payload, "tool_input"),
            result=payload.get("tool_response"),
        )

    def permit_response(self, event: HookEvent, *, allow: bool, context: str) -> Mapping[str, JSON]:
        """Build the response that allows the call, or an empty one, which leaves it to the rules of Gemini CLI."""
        if event.event == _BEFORE_CALL and allow:
            return {"decision": "allow"}
        if event.event == _SESSION_START and context:
            return {"hookSpecificOutput": {"hookEventName": _SESSION_START, "additionalContext": context}}
        return {}

    def deny_response(self, event_name: str, reason: str) -> Mapping[str, JSON]:
        """Build a denial of the call. Other events cannot be blocked: their response is a message for the user."""
        if event_name in ("", _BEFORE_CALL):
            return {"decision": "deny", "reason": reason}
        return {"systemMessage": reason}
