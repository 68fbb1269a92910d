"""Codex, run without a person against a scripted model."""

import json
import sys
from pathlib import Path
from typing import Final

from tests.agents import mcp_server
from tests.agents.install import CODEX, program_of
from tests.agents.model import playing
from tests.agents.running import Place, Ran, run
from tests.agents.script import Call, Script

__all__ = ["LINGER_S", "bash", "note", "run_codex", "settle", "subagent", "write"]

LINGER_S: Final = 10.0

# With this model, Codex offers the tool that applies patches.
MODEL: Final = "gpt-5.5"
ARGUMENTS: Final = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def bash(command: str) -> Call:
    """Return a call of the shell."""
    return Call("exec_command", {"cmd": command})


def write(path: Path) -> Call:
    """Return a call that makes a file by a patch."""
    return Call("apply_patch", f"*** Begin Patch\n*** Add File: {path}\n+written\n*** End Patch\n")


def note(path: Path) -> Call:
    """Return a call of a tool of an MCP server."""
    return Call("note", {"path": str(path), "text": "noted"}, namespace="mcp__desk")


def subagent(prompt: str) -> Call:
    """Return a call that starts a subagent; its thread is known by a word of the prompt."""
    return Call("spawn_agent", {"message": prompt, "agent_type": "default"}, namespace="multi_agent_v1")


def settle(place: Place) -> None:
    """Let the settings of its home name the model, the project as trusted, and the MCP server; what is there stays."""
    file = place.home / ".codex" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if "stand_in" not in before:
        file.write_text(before + _tables(place), encoding="utf-8")


def _tables(place: Place) -> str:
    return f"""
[model_providers.stand_in]
name = "stand-in"
wire_api = "responses"
env_key = "STAND_IN_KEY"
request_max_retries = 0

[projects.{json.dumps(str(place.project))}]
trust_level = "trusted"

[mcp_servers.desk]
command = {json.dumps(sys.executable)}
args = [{json.dumps(mcp_server.__file__)}]
"""


def run_codex(place: Place, script: Script, *options: str, prompt: str = "run the script", **environment: str) -> Ran:
    """Run Codex over a script, with everything pre-approved."""
    program = program_of(CODEX)
    settle(place)
    with playing(script) as model:
        settings = (
            f'model="{MODEL}"',
            'model_provider="stand_in"',
            f'model_providers.stand_in.base_url="{model.url}/v1"',
        )
        chosen = [word for setting in settings for word in ("-c", setting)]
        return run(program, [*ARGUMENTS, *chosen, *options, prompt], place, model, STAND_IN_KEY="none", **environment)
