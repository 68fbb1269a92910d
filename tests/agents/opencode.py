"""opencode, run without a person against a scripted model."""

import json
import sys
from pathlib import Path
from typing import Final

from tests.agents import mcp_server
from tests.agents.install import OPENCODE, program_of
from tests.agents.model import playing
from tests.agents.running import Place, Ran, run
from tests.agents.script import Call, Script

__all__ = ["LINGER_S", "bash", "note", "run_opencode", "subagent", "write"]

LINGER_S: Final = 0.0


def bash(command: str) -> Call:
    """Return a call of the shell."""
    return Call("bash", {"command": command, "description": "a step of the script"})


def write(path: Path) -> Call:
    """Return a call that writes a file."""
    return Call("write", {"filePath": str(path), "content": "written\n"})


def note(path: Path) -> Call:
    """Return a call of a tool of an MCP server."""
    return Call("desk_note", {"path": str(path), "text": "noted"})


def subagent(prompt: str) -> Call:
    """Return a call that starts a subagent; its thread is known by a word of the prompt."""
    return Call("task", {"description": "a part", "prompt": prompt, "subagent_type": "general"})


def run_opencode(
    place: Place, script: Script, *options: str, prompt: str = "run the script", **environment: str
) -> Ran:
    """Run opencode over a script, with everything pre-approved; its own settings come by the environment."""
    program = program_of(OPENCODE)
    with playing(script) as model:
        known = {"stand-in": {"tool_call": True, "limit": {"context": 100_000, "output": 10_000}}}
        api = {"baseURL": f"{model.url}/v1", "apiKey": "none"}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "stand-in", "options": api, "models": known}
        settings = {
            "provider": {"stand-in": provider},
            "model": "stand-in/stand-in",
            "small_model": "stand-in/stand-in",
            "permission": {"*": "allow", "external_directory": "allow"},
            "mcp": {"desk": {"type": "local", "command": [sys.executable, mcp_server.__file__], "enabled": True}},
        }
        return run(
            program,
            ["run", "--format", "json", *options, prompt],
            place,
            model,
            OPENCODE_CONFIG_CONTENT=json.dumps(settings),
            OPENCODE_DISABLE_AUTOUPDATE="1",
            OPENCODE_DISABLE_MODELS_FETCH="1",
            **environment,
        )
