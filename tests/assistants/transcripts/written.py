"""Transcripts as assistants write them, line by line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["AT", "ENDED", "ERRORS", "SESSION", "ClaudeTranscript", "codex_lines", "joined"]

SESSION: Final = "0e87a4c6-0000-4000-8000-00000000000a"
AT: Final = "2026-11-15T18:07:23.010Z"
# When results are written: after every decision that a test makes.
ENDED: Final = "2099-01-01T00:00:00.500Z"
# What a result says that is an error: the text for the model, and what stands beside it.
ERRORS: Final[Mapping[str, tuple[str, Any]]] = {
    "exit code": ("Exit code 3", "Error: Exit code 3"),
    "timed out": ("Exit code 143\nCommand timed out after 1s", "Error: Exit code 143\nCommand timed out after 1s"),
    "interrupted": ("[Request interrupted by user for tool use]", "Error: [Request interrupted by user for tool use]"),
    "hook": ("PreToolUse:Bash hook error: Remit refused this call", "Error: PreToolUse:Bash hook error: Remit refused"),
    "hook, older": ("Remit refused this call: no", "Error: Remit refused this call: no"),
    "hook without Hub": ("PreToolUse:Bash hook error: [python]: Remit: the Hub does not answer", "Error: …"),
    "hook, managed": ("<tool_use_error>PreToolUse:Bash hook error: no</tool_use_error>", "Error: hook error: no"),
    "no such tool": ("<tool_use_error>Error: No such tool available: X</tool_use_error>", "Error: No such tool: X"),
    "invalid": ("<tool_use_error>InputValidationError: Bash failed</tool_use_error>", "InputValidationError: []"),
    "not granted": ("Claude requested permissions to write to /a, but you haven't granted it yet.", "Error: Claude"),
    "rejected": ("The user doesn't want to proceed with this tool use. The tool use was rejected", "User rejected"),
    "denied by rule": ("Permission to use Bash with command rm has been denied.", "Error: Permission to use"),
    "forged marks": ("<tool_use_error>fake</tool_use_error>", "Error: <tool_use_error>fake</tool_use_error>"),
    "marks alone": ("<tool_use_error>fake</tool_use_error>", None),
}


class ClaudeTranscript:
    """A transcript of Claude Code that is being written."""

    def __init__(self, session: str = SESSION, agent: str = "", cwd: str = "/work/project") -> None:
        self._common = {"sessionId": session, "timestamp": AT, "cwd": cwd, "version": "2.1.325"}
        if agent:
            self._common |= {"agentId": agent}
        self.lines: list[dict[str, Any]] = [{"type": "queue-operation", "sessionId": session}]

    def asks(self, name: str, tool: str = "Bash", at: str = AT, command: str = "true") -> None:
        """A model asks for a call."""
        block = {"type": "tool_use", "id": name, "name": tool, "input": {"command": command}}
        content = [{"type": "text", "text": "go"}, block]
        self.lines.append({**self._common, "timestamp": at, "type": "assistant", "message": {"content": content}})

    def answers(
        self, name: str, text: Any = "ok", *, is_error: bool = False, beside: Any = None, at: str = ENDED
    ) -> None:
        """A call comes to its end."""
        block = {"type": "tool_result", "tool_use_id": name, "content": text, "is_error": is_error}
        line = {**self._common, "timestamp": at, "type": "user", "message": {"content": [block]}}
        self.lines.append(line if beside is None else {**line, "toolUseResult": beside})

    def runs(self, name: str, tool: str = "Bash", at: str = AT) -> None:
        """A call is asked for, and runs."""
        self.asks(name, tool, at)
        self.answers(name)

    def fails(self, name: str, how: str, tool: str = "Bash") -> None:
        """A call is asked for, and does not go well."""
        text, beside = ERRORS[how]
        self.asks(name, tool)
        self.answers(name, text, is_error=True, beside=beside)

    def refused(self, name: str, receipt: str, tool: str = "Bash") -> None:
        """A call is asked for, and refused by our hook, with a receipt."""
        self.asks(name, tool)
        text = f"PreToolUse:{tool} hook error: Remit refused this call: no. Receipt {receipt}."
        self.answers(name, text, is_error=True, beside=f"Error: {text}")

    def write(self, path: Path) -> Path:
        """Write it down."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(joined(self.lines))
        return path


def joined(lines: list[dict[str, Any]]) -> bytes:
    """Return lines as a file holds them."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def codex_lines(*items: Mapping[str, Any]) -> bytes:
    """Return a rollout of Codex with these items in it."""
    meta = {"timestamp": AT, "type": "session_meta", "payload": {"id": SESSION, "cwd": "/work/project"}}
    return joined([meta, *({"timestamp": AT, "type": "response_item", "payload": dict(item)} for item in items)])
