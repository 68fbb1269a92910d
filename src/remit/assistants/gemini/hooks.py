"""Gemini CLI: the payloads of its hooks, and the answers it understands.

It names no calls, and does not tell a subagent from the one that started it. It is never told to ask: without a person
at the terminal it would wait for one for ever.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind
from remit.assistants.members import member, opt_text, said, text
from remit.claims.strictjson import JSON

__all__ = ["Gemini"]

_ASKING: Final = "BeforeTool"
_STARTING: Final = "SessionStart"
_KINDS: Final[Mapping[str, HookEventKind]] = {
    _ASKING: "call",
    "AfterTool": "outcome",
    _STARTING: "session_started",
    "SessionEnd": "session_ended",
}
_WITH_A_CALL: Final = ("call", "outcome")


class Gemini:
    """The dialect of Gemini CLI."""

    name = "gemini"
    title = "Gemini CLI"

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
            transcript=opt_text(payload, "transcript_path"),
        )
        if kind not in _WITH_A_CALL:
            return notice
        return notice._replace(
            tool=text(payload, "tool_name"),
            arguments=member(payload, "tool_input"),
            result=payload.get("tool_response"),
        )

    def permitted(self, notice: HookEvent, *, allow: bool, told: str) -> Mapping[str, JSON]:
        """Return no opinion, so that Gemini CLI goes on as it would; or that the call is allowed."""
        if notice.event == _ASKING and allow:
            return {"decision": "allow"}
        if notice.event == _STARTING and told:
            return {"hookSpecificOutput": {"hookEventName": _STARTING, "additionalContext": told}}
        return {}

    def denied(self, event: str, reason: str) -> Mapping[str, JSON]:
        """Return the denial of a call; of anything else, a word for the user, as nothing can be stopped there."""
        if event in ("", _ASKING):
            return {"decision": "deny", "reason": reason}
        return {"systemMessage": reason}
