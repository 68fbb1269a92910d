"""Claude Code, run without a person against a scripted model."""

import json
import sys
from pathlib import Path
from typing import Final

from tests.agents import mcp_server
from tests.agents.install import Assistant, program_of
from tests.agents.model import playing
from tests.agents.running import Place, Ran, run
from tests.agents.script import Call, Script

__all__ = [
    "LINGER_S",
    "MCP_NOTE",
    "UNASKED",
    "bash",
    "called",
    "note",
    "run_claude",
    "subagent",
    "transcripts",
    "write",
]

LINGER_S: Final = 0.0

# Everything is pre-approved: what does not happen was stopped by something else.
UNASKED: Final = ("--dangerously-skip-permissions",)
MCP_NOTE: Final = "mcp__desk__note"
# Nothing is pre-approved, and nobody is there to approve.
ASKING: Final = ("--permission-mode", "default")


def bash(command: str) -> Call:
    """Return a call of the shell."""
    return Call("Bash", {"command": command, "description": "a step of the script"})


def write(path: Path, content: str = "written\n") -> Call:
    """Return a call that writes a file."""
    return Call("Write", {"file_path": str(path), "content": content})


def note(path: Path) -> Call:
    """Return a call of a tool of an MCP server."""
    return Call(MCP_NOTE, {"path": str(path), "text": "noted"})


def subagent(prompt: str) -> Call:
    """Return a call that starts a subagent; its thread is known by a word of the prompt."""
    return Call("Agent", {"description": "a part", "prompt": prompt, "subagent_type": "general-purpose"})


def run_claude(
    assistant: Assistant,
    place: Place,
    script: Script,
    *options: str,
    prompt: str = "run the script",
    **environment: str,
) -> Ran:
    """Run Claude Code over a script; whatever was granted or not is for the options to say."""
    program = program_of(assistant)
    servers = {"desk": {"type": "stdio", "command": sys.executable, "args": [mcp_server.__file__]}}
    with playing(script) as model:
        arguments = [
            *("-p", prompt, "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"),
            *("--mcp-config", json.dumps({"mcpServers": servers}), *options),
        ]
        return run(
            program,
            arguments,
            place,
            model,
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="none",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
            # Without it, root may not skip permissions.
            IS_SANDBOX="1",
            **environment,
        )


def called(place: Place) -> set[str]:
    """Return the ids of all calls that the transcripts tell of."""
    lines = [json.loads(line) for file in transcripts(place) for line in file.read_text(encoding="utf-8").splitlines()]
    contents = [line["message"]["content"] for line in lines if line["type"] == "assistant"]
    return {block["id"] for content in contents for block in content if block["type"] == "tool_use"}


def transcripts(place: Place) -> list[Path]:
    """Return the transcripts that Claude Code keeps, those of subagents too."""
    return sorted((place.home / ".claude" / "projects").rglob("*.jsonl"))
