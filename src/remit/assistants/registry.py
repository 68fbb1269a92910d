"""Every assistant that Remit knows: how its hooks speak, which settings protect it, and how its transcript is read.

To add one, write a package with `hooks.py`, `settings.py` and, if it keeps transcripts in files, `transcript.py`, and
add a line to `ASSISTANTS`.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remit.assistants.claude_code import hooks as claude_code_hooks
from remit.assistants.claude_code import settings as claude_code_settings
from remit.assistants.claude_code import transcript as claude_code_transcript
from remit.assistants.codex import hooks as codex_hooks
from remit.assistants.codex import settings as codex_settings
from remit.assistants.codex import transcript as codex_transcript
from remit.assistants.copilot import hooks as copilot_hooks
from remit.assistants.copilot import settings as copilot_settings
from remit.assistants.events import HookAdapter
from remit.assistants.gemini import hooks as gemini_hooks
from remit.assistants.gemini import settings as gemini_settings
from remit.assistants.install.plan import Planner
from remit.assistants.opencode import hooks as opencode_hooks
from remit.assistants.opencode import settings as opencode_settings
from remit.assistants.reconcile.calls import TranscriptReader

__all__ = ["ASSISTANTS", "HOOK_ADAPTERS", "PLANNERS", "Assistant"]


class Assistant(NamedTuple):
    """One assistant."""

    hooks: HookAdapter
    settings: Planner
    # Returns the reader of its transcripts, given the user's home directory.
    transcript: Callable[[str], TranscriptReader] | None
    # Why its calls cannot be found again among receipts, where there is no reader.
    unreadable: str = ""


_NO_IDS: Final = "its hooks are told no call ids"
_NO_FILES: Final = "it keeps no transcript in files, only a store of its own"

ASSISTANTS: Final[Mapping[str, Assistant]] = {
    assistant.hooks.name: assistant
    for assistant in (
        Assistant(claude_code_hooks.ClaudeCode(), claude_code_settings.ClaudeCode(), claude_code_transcript.ClaudeCode),
        Assistant(codex_hooks.Codex(), codex_settings.Codex(), lambda _home: codex_transcript.Codex()),
        Assistant(copilot_hooks.Copilot(), copilot_settings.Copilot(), None, _NO_IDS),
        Assistant(gemini_hooks.Gemini(), gemini_settings.Gemini(), None, _NO_IDS),
        Assistant(opencode_hooks.Opencode(), opencode_settings.Opencode(), None, _NO_FILES),
    )
}
HOOK_ADAPTERS: Final[Mapping[str, HookAdapter]] = {name: each.hooks for name, each in ASSISTANTS.items()}
PLANNERS: Final[Mapping[str, Planner]] = {name: each.settings for name, each in ASSISTANTS.items()}
