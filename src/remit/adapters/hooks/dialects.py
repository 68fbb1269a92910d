"""Every assistant whose hooks are understood, by name."""

from collections.abc import Mapping
from typing import Final

from remit.adapters.hooks.claude_code import ClaudeCode
from remit.adapters.hooks.codex import Codex
from remit.adapters.hooks.copilot import Copilot
from remit.adapters.hooks.gemini import Gemini
from remit.adapters.hooks.notice import Dialect
from remit.adapters.hooks.opencode import Opencode

__all__ = ["DIALECTS"]

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (ClaudeCode(), Codex(), Copilot(), Gemini(), Opencode())
}
