"""Hook adapter for Copilot CLI.

A payload does not name its event, so the event is inferred from the members of the payload. Invariant: a payload that
names a tool is a call to decide on, unless it also has a result or an error. The payloads of a subagent name the
session that started it as `parentAgentId`.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind, optional_text, require_text
from remit.claims.strictjson import JSON, parse_json
from remit.errors import FieldInvalid, InputError

_BEFORE_CALL: Final = "preToolUse"
_SESSION_START: Final = "sessionStart"
# The members of each event. The first event whose members are all present matches.
_EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "postToolUse": ("toolName", "toolResult"),
    "postToolUseFailure": ("toolName", "error"),
    _BEFORE_CALL: ("toolName",),
    "subagentStop": ("agentName", "stopReason"),
    "subagentStart": ("agentName",),
    "sessionEnd": ("reason",),
    _SESSION_START: ("source",),
}
_KINDS: Final[Mapping[str, HookEventKind]] = {
    "postToolUse": "outcome",
    "postToolUseFailure": "failure",
    _BEFORE_CALL: "call",
    "subagentStop": "agent_ended",
    "subagentStart": "agent_started",
    "sessionEnd": "session_ended",
    _SESSION_START: "session_started",
}


class CopilotHooks:
    """Hook adapter for Copilot CLI."""

    name = "copilot"
    title = "Copilot CLI"

    def event_name(self, payload: Mapping[str, JSON]) -> str:
        """Infer the event from the members of a payload."""
        return next((event for event, members in _EVENTS.items() if payload.keys() >= set(members)), "")

    def parse_event(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Parse a payload."""
        event_name = self.event_name(payload)
        event = HookEvent(
            _KINDS.get(event_name, "other"),
            event_name,
            optional_text(payload, "parentAgentId") or require_text(payload, "sessionId"),
            cwd=optional_text(payload, "cwd") or None,
            agent=optional_text(payload, "agentId"),
            agent_type=optional_text(payload, "agentType"),
            transcript=optional_text(payload, "transcriptPath"),
        )
        if "toolName" not in payload:
            return event
        return event._replace(
            tool=require_text(payload, "toolName"),
            arguments=_arguments(payload),
            result=payload.get("error") if event_name == "postToolUseFailure" else payload.get("toolResult"),
        )

    def permit_response(self, event: HookEvent, *, allow: bool, context: str) -> Mapping[str, JSON]:
        """Build the response that allows the call, or an empty one, which leaves it to the rules of Copilot CLI."""
        if event.event == _BEFORE_CALL and allow:
            return {"permissionDecision": "allow"}
        if event.event in (_SESSION_START, "subagentStart") and context:
            return {"additionalContext": context}
        return {}

    def deny_response(self, event_name: str, reason: str) -> Mapping[str, JSON]:
        """Build a denial of the call. Other events cannot be blocked, so their response is empty."""
        if event_name in ("", _BEFORE_CALL):
            return {"permissionDecision": "deny", "permissionDecisionReason": reason}
        return {}


def _arguments(payload: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return the arguments of a call, which some versions send as a string of JSON."""
    value = payload.get("toolArgs")
    try:
        arguments = parse_json(value.encode("utf-8"), exact_integers=True) if isinstance(value, str) else value
    except (InputError, UnicodeEncodeError):
        arguments = None
    if not isinstance(arguments, dict):
        raise FieldInvalid("must be an object, or one as JSON in a text", place="$.toolArgs")
    return arguments
