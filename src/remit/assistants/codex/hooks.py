"""Codex CLI: its hooks speak as those of Claude Code do, and read answers more strictly.

An answer with a member that it does not know, or a denial without a reason, counts for nothing there: the call runs. So
a denial has exactly the members that were tried.
"""

from collections.abc import Mapping
from typing import Final

from remit.assistants.claude_code.hooks import ClaudeCode
from remit.assistants.events import HookEvent
from remit.claims.strictjson import JSON

__all__ = ["Codex"]

_UNSAID: Final = "Remit refused this call"
# Tools for subagents come with the name of their group before their own, and nothing between.
_GROUP: Final = "multi_agent_v1"
_OF_AGENTS: Final = ("close_agent", "resume_agent", "send_input", "spawn_agent", "wait_agent")
_OWN_NAMES: Final[Mapping[str, str]] = {f"{_GROUP}{name}": name for name in _OF_AGENTS}


class Codex(ClaudeCode):
    """The dialect of Codex CLI."""

    name = "codex"
    title = "Codex CLI"

    def read(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Return what a payload says. The folder that it names is the one that the call asks to run in."""
        notice = super().read(payload)
        return notice._replace(tool=_OWN_NAMES.get(notice.tool, notice.tool))

    def denied(self, event: str, reason: str) -> Mapping[str, JSON]:
        """Return the denial of a call, with a reason in any case."""
        return super().denied(event, reason if reason.strip() else _UNSAID)
