"""Reads transcripts of Codex CLI: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`.

Codex calls hooks for commands, patches and tools of MCP servers. Its planning tool has no hook, and is left out. Only
the text of the output shows that a call was not started, and a tool of an MCP server can write the same text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from remit.assistants.reconcile.calls import (
    CallCollector,
    Outcome,
    Result,
    Transcript,
    TranscriptCall,
    arguments_digest,
    clean_text,
    find_receipt_ids,
)
from remit.assistants.reconcile.lines import Lines

_MAX_CALLS: Final = 500_000
_SESSION: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_CALL_TYPES: Final = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUT_TYPES: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_PATCH: Final = "apply_patch"
# Tools that hooks receive under the name Bash.
_SHELLS: Final = ("exec_command", "shell", "shell_command", "local_shell_call")
# The namespace prefix of MCP tools. Hooks receive tools of other namespaces without the namespace.
_MCP: Final = "mcp__"
_PLANNING: Final = ("update_plan",)
_NOT_STARTED: Final[tuple[tuple[re.Pattern[str], Outcome], ...]] = (
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
        """Yield the files of a session."""
        if _SESSION.fullmatch(session):
            yield from sorted((config / "sessions").rglob(f"rollout-*-{session}.jsonl"))

    def find_in_folder(self, config: Path, folder: str | None) -> Iterator[Path]:  # noqa: ARG002 - file names do not show it
        """Yield the files of all sessions. The folder of each is in its calls."""
        yield from sorted((config / "sessions").rglob("rollout-*.jsonl"))

    def read(self, path: Path) -> Transcript:
        """Parse a transcript."""
        lines, collector, metadata = Lines(path), CallCollector(_MAX_CALLS), dict[str, str]()
        planned = set[str]()
        for line in lines:
            item = line.get("payload")
            if not isinstance(item, dict):
                continue
            if line.get("type") in ("session_meta", "turn_context"):
                # A session that continues another one repeats its metadata; the first values count, except for `cwd`.
                metadata = {
                    **_session_ids(item),
                    **metadata,
                    **({"cwd": clean_text(item["cwd"])} if clean_text(item.get("cwd")) else {}),
                }
            elif line.get("type") == "response_item":
                _add_item(collector, planned, _call(line, item, metadata), item)
        return Transcript(
            str(path),
            metadata.get("id", path.stem),
            collector.calls(),
            lines.bad,
            lines.cut or collector.full,
            lines.digest,
        )


def _session_ids(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: clean_text(item[name]) for name in ("id", "session_id") if clean_text(item.get(name))}


def _call(line: Mapping[str, Any], item: Mapping[str, Any], metadata: Mapping[str, str]) -> TranscriptCall:
    tool = clean_text(item.get("name")) or clean_text(item.get("type"))
    at = clean_text(line.get("timestamp"))
    # A subagent has its own file; hooks receive its calls under the session that started it.
    own = metadata.get("id", "")
    session = metadata.get("session_id", own)
    agent = own if own != session else ""
    return TranscriptCall(clean_text(item.get("call_id")), tool, session, agent, at, "pending", metadata.get("cwd", ""))


def _add_item(collector: CallCollector, planned: set[str], call: TranscriptCall, item: Mapping[str, Any]) -> None:
    kind = item.get("type")
    if not call.id or call.id in planned:
        return
    if kind in _CALL_TYPES and call.tool in _PLANNING:
        planned.add(call.id)
    elif kind in _CALL_TYPES:
        collector.add_call(_with_hook_fields(call, item))
    elif kind in _OUTPUT_TYPES:
        collector.add_result(call._replace(tool="").with_result(_result(item.get("output"))._replace(at=call.at)))


def _with_hook_fields(call: TranscriptCall, item: Mapping[str, Any]) -> TranscriptCall:
    """Return a call with the tool and arguments as its hook receives them, if that is known."""
    if call.tool == _PATCH:
        return call._replace(hook_tool=_PATCH, hook_arguments=arguments_digest({"command": item.get("input")}))
    try:
        arguments = json.loads(item.get("arguments") or "")
    except (TypeError, ValueError, RecursionError):
        arguments = None
    if call.tool not in _SHELLS:
        namespace = clean_text(item.get("namespace"))
        tool = f"{namespace}__{call.tool}" if namespace.startswith(_MCP) else call.tool
        return call._replace(hook_tool=tool, hook_arguments=arguments_digest(arguments) if namespace else "")
    command = arguments.get("cmd") if isinstance(arguments, dict) else None
    digest = arguments_digest({"command": command}) if isinstance(command, str) else ""
    return call._replace(hook_tool="Bash", hook_arguments=digest)


def _result(output: object) -> Result:
    if isinstance(output, dict):
        output = output.get("content")
    text = output if isinstance(output, str) else ""
    outcome = next((outcome for pattern, outcome in _NOT_STARTED if pattern.match(text)), None)
    return Result(outcome, by_words=True, receipts=find_receipt_ids(text)) if outcome else Result("ran")
