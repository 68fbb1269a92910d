"""Gemini CLI, run without a person against a scripted model."""

import json
import sys
from pathlib import Path
from typing import Final

from tests.agents import mcp_server
from tests.agents.install import GEMINI, program_of
from tests.agents.model import playing
from tests.agents.running import Place, Ran, run
from tests.agents.script import Call, Script

__all__ = ["LINGER_S", "bash", "note", "run_gemini", "settle", "subagent", "write"]

LINGER_S: Final = 0.0

# Everything is pre-approved, and the folder outside is made known: the assistant itself would refuse to write there.
ARGUMENTS: Final = ("-m", "gemini-2.5-pro", "-o", "stream-json", "--yolo")


def bash(command: str) -> Call:
    """Return a call of the shell."""
    return Call("run_shell_command", {"command": command, "description": "a step of the script"})


def write(path: Path) -> Call:
    """Return a call that writes a file."""
    return Call("write_file", {"file_path": str(path), "content": "written\n"})


def note(path: Path) -> Call:
    """Return a call of a tool of an MCP server."""
    return Call("mcp_desk_note", {"path": str(path), "text": "noted"})


def subagent(prompt: str) -> Call:
    """Return a call that starts a subagent; its thread is known by a word of the prompt."""
    return Call("invoke_agent", {"agent_name": "generalist", "prompt": prompt})


def settle(place: Place) -> None:
    """Let the settings of its home say how it reaches the model, and name the MCP server; what is there stays."""
    file = place.home / ".gemini" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    settings = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if "mcpServers" not in settings:
        settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
        settings["mcpServers"] = {"desk": {"command": sys.executable, "args": [mcp_server.__file__], "trust": True}}
        file.write_text(json.dumps(settings, indent=2), encoding="utf-8")


def run_gemini(place: Place, script: Script, *options: str, prompt: str = "run the script", **environment: str) -> Ran:
    """Run Gemini CLI over a script, with everything pre-approved."""
    program = program_of(GEMINI)
    settle(place)
    with playing(script) as model:
        return run(
            program,
            [*ARGUMENTS, "--include-directories", str(place.outside), *options, "-p", prompt],
            place,
            model,
            GEMINI_API_KEY="none",
            GOOGLE_GEMINI_BASE_URL=model.url,
            GEMINI_CLI_TRUST_WORKSPACE="true",
            **environment,
        )
