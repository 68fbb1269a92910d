"""Copilot CLI, run without a person against a scripted model."""

import json
import sys
from pathlib import Path
from typing import Final

from tests.agents import mcp_server
from tests.agents.install import COPILOT, program_of
from tests.agents.model import playing
from tests.agents.running import Place, Ran, run
from tests.agents.script import Call, Script

__all__ = ["LINGER_S", "bash", "note", "run_copilot", "subagent", "write"]

LINGER_S: Final = 0.0


def bash(command: str) -> Call:
    """Return a call of the shell."""
    return Call("bash", {"command": command, "description": "a step of the script"})


def write(path: Path) -> Call:
    """Return a call that makes a file."""
    return Call("create", {"path": str(path), "file_text": "written\n"})


def note(path: Path) -> Call:
    """Return a call of a tool of an MCP server."""
    return Call("desk-note", {"path": str(path), "text": "noted"})


def subagent(prompt: str) -> Call:
    """Return a call that starts a subagent; its thread is known by a word of the prompt."""
    return Call("task", {"name": "part", "description": "a part", "prompt": prompt, "agent_type": "general-purpose"})


def run_copilot(place: Place, script: Script, *options: str, prompt: str = "run the script", **environment: str) -> Ran:
    """Run Copilot CLI over a script, with everything pre-approved."""
    program = program_of(COPILOT)
    servers = {"desk": {"type": "local", "command": sys.executable, "args": [mcp_server.__file__], "tools": ["*"]}}
    with playing(script) as model:
        arguments = [
            *("-p", prompt, "--output-format", "json", "--allow-all-tools", "--allow-all-paths"),
            *("--additional-mcp-config", json.dumps({"mcpServers": servers}), *options),
        ]
        return run(
            program,
            arguments,
            place,
            model,
            COPILOT_OFFLINE="true",
            COPILOT_PROVIDER_BASE_URL=f"{model.url}/v1",
            COPILOT_PROVIDER_TYPE="openai",
            COPILOT_PROVIDER_API_KEY="none",
            COPILOT_MODEL="gpt-4.1",
            **environment,
        )
