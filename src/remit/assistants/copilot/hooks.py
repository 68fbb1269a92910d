"""Copilot CLI: the payloads of its hooks, and the answers it understands.

A payload does not name its event: its members tell it. Keeps this invariant: one that names a tool is a call to be
decided on, unless it says what became of the call. A subagent has a session of its own, and names that of its lead.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind
from remit.assistants.members import opt_text, text
from remit.claims.strictjson import JSON, parse_json
from remit.errors import FieldInvalid, InputError

__all__ = ["Copilot"]

_ASKING: Final = "preToolUse"
_STARTING: Final = "sessionStart"
# The members that tell an event; the first that has all of them is it.
_EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "postToolUse": ("toolName", "toolResult"),
    "postToolUseFailure": ("toolName", "error"),
    _ASKING: ("toolName",),
    "subagentStop": ("agentName", "stopReason"),
    "subagentStart": ("agentName",),
    "sessionEnd": ("reason",),
    _STARTING: ("source",),
}
_KINDS: Final[Mapping[str, HookEventKind]] = {
    "postToolUse": "outcome",
    "postToolUseFailure": "failure",
    _ASKING: "call",
    "subagentStop": "agent_ended",
    "subagentStart": "agent_started",
    "sessionEnd": "session_ended",
    _STARTING: "session_started",
}


class Copilot:
    """The dialect of Copilot CLI."""

    name = "copilot"
    title = "Copilot CLI"

    def event_of(self, payload: Mapping[str, JSON]) -> str:
        """Return the event that the members of a payload tell."""
        return next((event for event, members in _EVENTS.items() if payload.keys() >= set(members)), "")

    def read(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Return what a payload says."""
        event = self.event_of(payload)
        notice = HookEvent(
            _KINDS.get(event, "other"),
            event,
            opt_text(payload, "parentAgentId") or text(payload, "sessionId"),
            cwd=opt_text(payload, "cwd") or None,
            agent=opt_text(payload, "agentId"),
            agent_type=opt_text(payload, "agentType"),
            transcript=opt_text(payload, "transcriptPath"),
        )
        if "toolName" not in payload:
            return notice
        return notice._replace(
            tool=text(payload, "toolName"),
            arguments=_arguments(payload),
            result=payload.get("error") if event == "postToolUseFailure" else payload.get("toolResult"),
        )

    def permitted(self, notice: HookEvent, *, allow: bool, told: str) -> Mapping[str, JSON]:
        """Return no opinion, so that Copilot CLI goes on as it would; or that the call is allowed."""
        if notice.event == _ASKING and allow:
            return {"permissionDecision": "allow"}
        if notice.event in (_STARTING, "subagentStart") and told:
            return {"additionalContext": told}
        return {}

    def denied(self, event: str, reason: str) -> Mapping[str, JSON]:
        """Return the denial of a call; nothing of anything else, as nothing can be stopped there."""
        if event in ("", _ASKING):
            return {"permissionDecision": "deny", "permissionDecisionReason": reason}
        return {}


def _arguments(payload: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return the arguments of a call, which some versions tell as JSON in a text."""
    told = payload.get("toolArgs")
    try:
        read = parse_json(told.encode("utf-8"), exact_integers=True) if isinstance(told, str) else told
    except (InputError, UnicodeEncodeError):
        read = None
    if not isinstance(read, dict):
        raise FieldInvalid("must be an object, or one as JSON in a text", place="$.toolArgs")
    return read
