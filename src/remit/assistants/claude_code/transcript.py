"""Reads transcripts of Claude Code: `projects/<folder>/<session>.jsonl`, and files of subagents below `<session>/`.

A table lists the texts that Claude Code writes if a call was not started. A tool can return the same text as its own
error, so such a result is marked as known by text only. If Claude Code has put its own tags around a text, which a tool
cannot do, the call was invalid and did not start. All other failed calls count as started.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
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
# Longer folder names are truncated and end in a digest.
_MAX_NAME: Final = 180
_MAX_DEPTH: Final = 5
_PATHS: Final = ("file_path", "notebook_path", "path")
_ERROR_TAG: Final = "<tool_use_error>"
# Matched against the start of an error result. The second pattern is a denial by Remit in older versions.
_NOT_STARTED: Final[tuple[tuple[re.Pattern[str], Outcome], ...]] = (
    (re.compile(r"PreToolUse:\S+ hook (error|blocked)"), "refused_by_hook"),
    (re.compile(r"Remit[ :]"), "refused_by_hook"),
    (re.compile(r"(Execution s|S)topped by PreToolUse hook"), "refused_by_hook"),
    (re.compile(r"(Claude|The agent) requested permissions? to .{1,4096}haven't granted it yet", re.DOTALL), "not_run"),
    (re.compile(r"The user doesn't want to (proceed with this tool use|take this action right now)"), "not_run"),
    (re.compile(r"Permission (to use|for this) .{1,4096}has been denied", re.DOTALL), "not_run"),
)


class ClaudeCodeTranscripts:
    """Reads the transcripts of Claude Code."""

    name = "claude-code"
    # Names the settings folder, if it is not `.claude` in the home directory.
    variable = "CLAUDE_CONFIG_DIR"
    folder = ".claude"

    def __init__(self, home: str = "") -> None:
        """Create a reader. `home` is the home directory of the user; empty if unknown."""
        self._home = home

    def find(self, config: Path, session: str) -> Iterator[Path]:
        """Yield the files of a session."""
        if not _SESSION.fullmatch(session):
            return
        for main in sorted((config / "projects").glob(f"*/{session}.jsonl")):
            yield main
            yield from _below(main.with_suffix(""))

    def find_in_folder(self, config: Path, folder: str | None) -> Iterator[Path]:
        """Yield the files of all sessions in a folder or below it, and of their subagents; None is every folder."""
        begin = "" if folder is None else re.sub(r"[^A-Za-z0-9]", "-", folder)[:_MAX_NAME]
        for project in sorted((config / "projects").glob("*")):
            if project.name.startswith(begin):
                yield from _below(project)

    def read(self, path: Path) -> Transcript:
        """Parse a transcript."""
        lines, collector, session = Lines(path), CallCollector(_MAX_CALLS), ""
        for line in lines:
            session = session or clean_text(line.get("sessionId"))
            for block in _blocks(line):
                _add_block(collector, line, block, self._home)
        return Transcript(
            str(path), session or path.stem, collector.calls(), lines.bad, lines.cut or collector.full, lines.digest
        )


def _below(folder: Path) -> list[Path]:
    """Return the transcripts in a folder and its subfolders."""
    return sorted(path for depth in range(_MAX_DEPTH) for path in folder.glob("*/" * depth + "*.jsonl"))


def _blocks(line: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the content blocks of a message. Lines of other types may contain copies of messages, and are ignored."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if line.get("type") not in ("assistant", "user") or not isinstance(content, list):
        return ()
    return [block for block in content if isinstance(block, dict)]


def _add_block(collector: CallCollector, line: Mapping[str, Any], block: Mapping[str, Any], home: str) -> None:
    kind = block.get("type")
    if kind == "tool_use" and line["type"] == "assistant" and clean_text(block.get("id")):
        call = _call(line, clean_text(block["id"]), clean_text(block.get("name")))
        arguments = block.get("input")
        absolute = arguments_digest(_absolute(arguments, call.cwd, home)) if isinstance(arguments, dict) else ""
        collector.add_call(
            call._replace(hook_tool=call.tool, hook_arguments=arguments_digest(arguments), absolute_arguments=absolute)
        )
    elif kind == "tool_result" and line["type"] == "user" and clean_text(block.get("tool_use_id")):
        result = _result(block, line.get("toolUseResult"))
        call = _call(line, clean_text(block["tool_use_id"]), "")
        collector.add_result(call.with_result(result._replace(at=call.at)))


def _absolute(given: Mapping[str, Any], cwd: str, home: str) -> dict[str, Any]:
    """Return arguments with file paths as hooks receive them: absolute, and without `.` and `..`."""
    paths = {name: given[name] for name in _PATHS if isinstance(given.get(name), str) and given[name]}
    absolute = {name: posixpath.join(cwd, _expand_home(path, home)) for name, path in paths.items()}
    return {**given, **{name: posixpath.normpath(path) for name, path in absolute.items()}}


def _expand_home(path: str, home: str) -> str:
    """Replace a leading tilde by the home directory."""
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def _call(line: Mapping[str, Any], name: str, tool: str) -> TranscriptCall:
    session, agent, at, cwd = (clean_text(line.get(member)) for member in ("sessionId", "agentId", "timestamp", "cwd"))
    return TranscriptCall(name, tool, session, agent, at, "pending", cwd)


def _result(block: Mapping[str, Any], raw: object) -> Result:
    """Return the result of a call; `raw` is the same text without the tags that are added for the model."""
    if block.get("is_error") is not True:
        return Result("ran")
    text = _text(block.get("content"))
    # If a tool has written the tag itself, it is in the raw text too.
    wrapped = text.startswith(_ERROR_TAG) and isinstance(raw, str) and _ERROR_TAG not in raw
    text = text.removeprefix(_ERROR_TAG) if wrapped else text
    for pattern, outcome in _NOT_STARTED:
        if pattern.match(text):
            by_words = not wrapped or outcome == "refused_by_hook"
            return Result(outcome, by_words, find_receipt_ids(text))
    return Result("not_run" if wrapped else "failed")


def _text(content: object) -> str:
    """Return the text of a result, or its first text block."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        content = next((text for text in texts if isinstance(text, str)), "")
    return content if isinstance(content, str) else ""
