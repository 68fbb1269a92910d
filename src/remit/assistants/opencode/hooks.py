"""opencode: what our plugin in it says, and the answers that the plugin understands.

The plugin lets a call run after one answer only, the word `permit`. A subagent has a session of its own; the plugin
tells the session that all of its line began with.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.events import HookEvent, HookEventKind
from remit.assistants.members import member, opt_text, said, text
from remit.claims.strictjson import JSON

__all__ = ["Opencode"]

_ASKING: Final = "tool.execute.before"
_AFTER: Final = "tool.execute.after"
_STARTING: Final = "session.created"
# By whether the session is one of a subagent: its lead goes on after it was idle, and it does not.
_KINDS: Final[Mapping[tuple[str, bool], HookEventKind]] = {
    (_ASKING, False): "call",
    (_ASKING, True): "call",
    (_AFTER, False): "outcome",
    (_AFTER, True): "outcome",
    (_STARTING, False): "session_started",
    (_STARTING, True): "agent_started",
    ("session.deleted", False): "session_ended",
    ("session.deleted", True): "agent_ended",
    ("session.idle", True): "agent_ended",
}


class Opencode:
    """The dialect of our plugin in opencode."""

    name = "opencode"
    title = "opencode"

    def event_of(self, payload: Mapping[str, JSON]) -> str:
        """Return the event that a payload names."""
        return said(payload, "event")

    def read(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Return what a payload says."""
        event, session, lead = text(payload, "event"), text(payload, "session"), text(payload, "lead")
        is_agent = session != lead
        kind = _KINDS.get((event, is_agent), "other")
        notice = HookEvent(
            kind,
            event,
            lead,
            cwd=text(payload, "directory"),
            agent=session if is_agent else "",
            agent_type=opt_text(payload, "agent") if is_agent else "",
        )
        if kind not in ("call", "outcome"):
            return notice
        return notice._replace(
            tool=text(payload, "tool"),
            arguments=member(payload, "arguments"),
            call_id=text(payload, "call"),
            result=payload.get("result"),
        )

    def permitted(self, notice: HookEvent, *, allow: bool, told: str) -> Mapping[str, JSON]:
        """Return the word that the plugin waits for; what opencode itself asks about stays its own matter."""
        del notice, allow
        return {"decision": "permit", **({"told": told} if told else {})}

    def denied(self, event: str, reason: str) -> Mapping[str, JSON]:
        """Return the denial, whatever the event."""
        del event
        return {"decision": "deny", "reason": reason}
