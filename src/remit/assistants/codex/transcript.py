"""The transcripts of Codex CLI: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`.

Codex asks its hooks about commands, patches and tools of MCP servers. What is only its own planning is left out here.
That a call was not begun is told by the text of its output alone, which a tool of an MCP server can write as well.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from remit.assistants.reconcile.calls import Call, Outcome, Result, Tally, Transcript, digest_of, plain, receipts_in
from remit.assistants.reconcile.lines import Lines

__all__ = ["CodexTranscripts"]

_MAX_CALLS: Final = 500_000
_SESSION: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_ASKED: Final = ("function_call", "custom_tool_call", "local_shell_call")
_SETTLED: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_PATCH: Final = "apply_patch"
# Tools that hooks are told of as Bash.
_SHELLS: Final = ("exec_command", "shell", "shell_command", "local_shell_call")
# Before the names of tools of MCP servers; those of other namespaces are told without it.
_MCP: Final = "mcp__"
_PLANNING: Final = ("update_plan",)
_BEFORE_IT_BEGAN: Final[tuple[tuple[re.Pattern[str], Outcome], ...]] = (
    (re.compile(r"[A-Za-z ]{1,64} blocked by PreToolUse hook"), "refused_by_hook"),
    (re.compile(r"unsupported (custom tool )?call: "), "not_run"),
    (re.compile(r"failed to parse function arguments"), "not_run"),
    (re.compile(r"(exec command |patch )?rejected by user", re.IGNORECASE), "not_run"),
)


class CodexTranscripts:
    """Reads the transcripts of Codex CLI."""

    name = "codex"
    variable = "CODEX_HOME"
    folder = ".codex"

    def find(self, config: Path, session: str) -> Iterator[Path]:
        """Yield the files of a session, by its id."""
        if _SESSION.fullmatch(session):
            yield from sorted((config / "sessions").rglob(f"rollout-*-{session}.jsonl"))

    def found_in(self, config: Path, folder: str | None) -> Iterator[Path]:  # noqa: ARG002 - names do not tell it
        """Yield the files of all sessions: where each was started, its calls say."""
        yield from sorted((config / "sessions").rglob("rollout-*.jsonl"))

    def read(self, path: Path) -> Transcript:
        """Return what a file tells."""
        lines, tally, about = Lines(path), Tally(_MAX_CALLS), dict[str, str]()
        planned = set[str]()
        for line in lines:
            item = line.get("payload")
            if not isinstance(item, dict):
                continue
            if line.get("type") in ("session_meta", "turn_context"):
                # A session that goes on from another one repeats what that one says of itself.
                about = {**_about(item), **about, **({"cwd": plain(item["cwd"])} if plain(item.get("cwd")) else {})}
            elif line.get("type") == "response_item":
                _note(tally, planned, _call(line, item, about), item)
        return Transcript(
            str(path), about.get("id", path.stem), tally.calls(), lines.bad, lines.cut or tally.full, lines.digest
        )


def _about(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: plain(item[name]) for name in ("id", "session_id") if plain(item.get(name))}


def _call(line: Mapping[str, Any], item: Mapping[str, Any], about: Mapping[str, str]) -> Call:
    tool = plain(item.get("name")) or plain(item.get("type"))
    at = plain(line.get("timestamp"))
    # A subagent has a file of its own, and hooks are told of it under the session that has started it.
    own = about.get("id", "")
    session = about.get("session_id", own)
    agent = own if own != session else ""
    return Call(plain(item.get("call_id")), tool, session, agent, at, "pending", about.get("cwd", ""))


def _note(tally: Tally, planned: set[str], call: Call, item: Mapping[str, Any]) -> None:
    kind = item.get("type")
    if not call.id or call.id in planned:
        return
    if kind in _ASKED and call.tool in _PLANNING:
        planned.add(call.id)
    elif kind in _ASKED:
        tally.asked(_as_hooked(call, item))
    elif kind in _SETTLED:
        tally.settled(call._replace(tool="").settled(_result(item.get("output"))._replace(at=call.at)))


def _as_hooked(call: Call, item: Mapping[str, Any]) -> Call:
    """Return a call with what its hook is told, where that is known."""
    if call.tool == _PATCH:
        return call._replace(hook_tool=_PATCH, hook_arguments=digest_of({"command": item.get("input")}))
    try:
        given = json.loads(item.get("arguments") or "")
    except (TypeError, ValueError, RecursionError):
        given = None
    if call.tool not in _SHELLS:
        namespace = plain(item.get("namespace"))
        tool = f"{namespace}__{call.tool}" if namespace.startswith(_MCP) else call.tool
        return call._replace(hook_tool=tool, hook_arguments=digest_of(given) if namespace else "")
    command = given.get("cmd") if isinstance(given, dict) else None
    arguments = digest_of({"command": command}) if isinstance(command, str) else ""
    return call._replace(hook_tool="Bash", hook_arguments=arguments)


def _result(output: object) -> Result:
    if isinstance(output, dict):
        output = output.get("content")
    text = output if isinstance(output, str) else ""
    outcome = next((outcome for words, outcome in _BEFORE_IT_BEGAN if words.match(text)), None)
    return Result(outcome, by_words=True, receipts=receipts_in(text)) if outcome else Result("ran")
