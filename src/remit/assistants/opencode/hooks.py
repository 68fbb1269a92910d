"""Hook adapter for the Remit plugin in opencode.

The plugin runs a call only after the decision `permit`. opencode gives each subagent a session; the plugin sends the
id of the topmost session as `lead`.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind, optional_text, require_object, require_text, text_or_empty
from remit.claims.strictjson import JSON

_BEFORE_CALL: Final = "tool.execute.before"
_AFTER_CALL: Final = "tool.execute.after"
_SESSION_START: Final = "session.created"
# By event name and whether the session belongs to a subagent. A subagent that is idle has ended; its lead has not.
_KINDS: Final[Mapping[tuple[str, bool], HookEventKind]] = {
    (_BEFORE_CALL, False): "call",
    (_BEFORE_CALL, True): "call",
    (_AFTER_CALL, False): "outcome",
    (_AFTER_CALL, True): "outcome",
    (_SESSION_START, False): "session_started",
    (_SESSION_START, True): "agent_started",
    ("session.deleted", False): "session_ended",
    ("session.deleted", True): "agent_ended",
    ("session.idle", True): "agent_ended",
}


class OpencodeHooks:
    """Hook adapter for the Remit plugin in opencode."""

    name = "opencode"
    title = "opencode"

    def event_name(self, payload: Mapping[str, JSON]) -> str:
        """Return the `event` member of a payload."""
        return text_or_empty(payload, "event")

    def parse_event(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Parse a payload."""
        event_name = require_text(payload, "event")
        session, lead = require_text(payload, "session"), require_text(payload, "lead")
        is_agent = session != lead
        kind = _KINDS.get((event_name, is_agent), "other")
        event = HookEvent(
            kind,
            event_name,
            lead,
            cwd=require_text(payload, "directory"),
            agent=session if is_agent else "",
            agent_type=optional_text(payload, "agent") if is_agent else "",
        )
        if kind not in ("call", "outcome"):
            return event
        return event._replace(
            tool=require_text(payload, "tool"),
            arguments=require_object(payload, "arguments"),
            call_id=require_text(payload, "call"),
            result=payload.get("result"),
        )

    def permit_response(self, event: HookEvent, *, allow: bool, context: str) -> Mapping[str, JSON]:
        """Build the response that the plugin waits for. opencode's own permission prompts are not affected."""
        del event, allow
        return {"decision": "permit", **({"told": context} if context else {})}

    def deny_response(self, event_name: str, reason: str) -> Mapping[str, JSON]:
        """Build a denial, for every event."""
        del event_name
        return {"decision": "deny", "reason": reason}
