"""The assistants that can be protected, by name."""

from collections.abc import Mapping
from typing import Final

from remit.adapters.protection.plan import Planner
from remit.adapters.protection.plans.claude_code import ClaudeCode
from remit.adapters.protection.plans.codex import Codex
from remit.adapters.protection.plans.copilot import Copilot
from remit.adapters.protection.plans.gemini import Gemini
from remit.adapters.protection.plans.opencode import Opencode

__all__ = ["PLANNERS"]

PLANNERS: Final[Mapping[str, Planner]] = {
    planner.name: planner for planner in (ClaudeCode(), Codex(), Copilot(), Gemini(), Opencode())
}
