"""The supported coding assistants: hook adapter, settings planner and transcript reader of each.

To add one, write a package with `hooks.py`, `settings.py` and, if it keeps transcripts in files, `transcript.py`, and
add a line to `ASSISTANTS`.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remit.assistants.claude_code.hooks import ClaudeCodeHooks
from remit.assistants.claude_code.settings import ClaudeCodePlanner
from remit.assistants.claude_code.transcript import ClaudeCodeTranscripts
from remit.assistants.codex.hooks import CodexHooks
from remit.assistants.codex.settings import CodexPlanner
from remit.assistants.codex.transcript import CodexTranscripts
from remit.assistants.copilot.hooks import CopilotHooks
from remit.assistants.copilot.settings import CopilotPlanner
from remit.assistants.events import HookAdapter
from remit.assistants.gemini.hooks import GeminiHooks
from remit.assistants.gemini.settings import GeminiPlanner
from remit.assistants.install.plan import Planner
from remit.assistants.opencode.hooks import OpencodeHooks
from remit.assistants.opencode.settings import OpencodePlanner
from remit.assistants.reconcile.calls import TranscriptReader
from remit.errors import FieldInvalid


class Assistant(NamedTuple):
    """One supported assistant."""

    hooks: HookAdapter
    settings: Planner
    # Takes the user's home directory and returns a transcript reader. None if transcripts cannot be reconciled.
    transcript: Callable[[str], TranscriptReader] | None
    # Why they cannot be reconciled with receipts.
    unreadable: str = ""


_NO_IDS: Final = "its hooks do not get call ids"
_NO_FILES: Final = "it keeps no transcript in files, only a store of its own"

ASSISTANTS: Final[Mapping[str, Assistant]] = {
    assistant.hooks.name: assistant
    for assistant in (
        Assistant(ClaudeCodeHooks(), ClaudeCodePlanner(), ClaudeCodeTranscripts),
        Assistant(CodexHooks(), CodexPlanner(), lambda _home: CodexTranscripts()),
        Assistant(CopilotHooks(), CopilotPlanner(), None, _NO_IDS),
        Assistant(GeminiHooks(), GeminiPlanner(), None, _NO_IDS),
        Assistant(OpencodeHooks(), OpencodePlanner(), None, _NO_FILES),
    )
}
HOOK_ADAPTERS: Final[Mapping[str, HookAdapter]] = {name: each.hooks for name, each in ASSISTANTS.items()}
PLANNERS: Final[Mapping[str, Planner]] = {name: each.settings for name, each in ASSISTANTS.items()}


def get_transcript_reader(assistant: str, user_home: str) -> TranscriptReader:
    """Return the transcript reader of an assistant. Raises `FieldInvalid` if its transcripts cannot be reconciled."""
    found = ASSISTANTS[assistant]
    if found.transcript is None:
        refused = FieldInvalid(f"{assistant} cannot be reconciled: {found.unreadable}", place="ASSISTANT")
        refused.add_note(f"Its receipts are in the ledger: remit ledger show; its hooks: remit doctor {assistant}")
        raise refused
    return found.transcript(user_home)
