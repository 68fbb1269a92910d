"""Hook adapter for Codex CLI, which uses the format of Claude Code and parses responses more strictly.

Codex CLI ignores a response with an unknown member, or a denial without a reason, and runs the call. So a denial has
exactly the members that were tested.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.claude_code.hooks import ClaudeCodeHooks
from remit.assistants.events import HookEvent
from remit.claims.strictjson import JSON

_DEFAULT_REASON: Final = "Remit refused this call"
# Codex CLI prefixes the names of the tools for subagents with the name of their group, without a separator.
_GROUP: Final = "multi_agent_v1"
_AGENT_TOOLS: Final = ("close_agent", "resume_agent", "send_input", "spawn_agent", "wait_agent")
_UNPREFIXED: Final[Mapping[str, str]] = {f"{_GROUP}{name}": name for name in _AGENT_TOOLS}


class CodexHooks(ClaudeCodeHooks):
    """Hook adapter for Codex CLI."""

    name = "codex"
    title = "Codex CLI"

    def parse_event(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Parse a payload. Its `cwd` is the directory that the call asks to run in."""
        event = super().parse_event(payload)
        return event._replace(tool=_UNPREFIXED.get(event.tool, event.tool))

    def deny_response(self, event_name: str, reason: str) -> Mapping[str, JSON]:
        """Build a denial of the call, with a default reason if `reason` is blank."""
        return super().deny_response(event_name, reason if reason.strip() else _DEFAULT_REASON)
