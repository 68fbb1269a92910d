"""The transcripts of Claude Code: `projects/<folder>/<session>.jsonl`, and files of subagents beneath `<session>/`.

The table here holds the words that Claude Code writes where a call was not begun. A tool can write the same words as
its own error, so they are marked as words and nothing more. Where Claude Code has put its own marks around a text,
which a tool cannot do, the call was not one that it could make. All other failures count as begun.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from remit.assistants.reconcile.calls import Call, Outcome, Result, Tally, Transcript, digest_of, plain, receipts_in
from remit.assistants.reconcile.lines import Lines

__all__ = ["ClaudeCodeTranscripts"]

_MAX_CALLS: Final = 500_000
_SESSION: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
# Names of folders that are longer are cut, and end in a digest.
_MAX_NAME: Final = 180
_MAX_DEPTH: Final = 5
_PATHS: Final = ("file_path", "notebook_path", "path")
_WRAPPED: Final = "<tool_use_error>"
# Of the beginning of a result that is an error. The second line is how a refusal of ours reads in older versions.
_BEFORE_IT_BEGAN: Final[tuple[tuple[re.Pattern[str], Outcome], ...]] = (
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
    # What names the folder of its settings, where it is not `.claude` in the user's home.
    variable = "CLAUDE_CONFIG_DIR"
    folder = ".claude"

    def __init__(self, home: str = "") -> None:
        """Read transcripts of the user whose home directory this is; empty where that is not known."""
        self._home = home

    def find(self, config: Path, session: str) -> Iterator[Path]:
        """Yield the files of a session, by its id."""
        if not _SESSION.fullmatch(session):
            return
        for main in sorted((config / "projects").glob(f"*/{session}.jsonl")):
            yield main
            yield from _below(main.with_suffix(""))

    def found_in(self, config: Path, folder: str | None) -> Iterator[Path]:
        """Yield the files of all sessions, and of their subagents, in a folder or beneath it; None is anywhere."""
        begin = "" if folder is None else re.sub(r"[^A-Za-z0-9]", "-", folder)[:_MAX_NAME]
        for project in sorted((config / "projects").glob("*")):
            if project.name.startswith(begin):
                yield from _below(project)

    def read(self, path: Path) -> Transcript:
        """Return what a file tells."""
        lines, tally, session = Lines(path), Tally(_MAX_CALLS), ""
        for line in lines:
            session = session or plain(line.get("sessionId"))
            for block in _blocks(line):
                _note(tally, line, block, self._home)
        return Transcript(
            str(path), session or path.stem, tally.calls(), lines.bad, lines.cut or tally.full, lines.digest
        )


def _below(folder: Path) -> list[Path]:
    """Return the transcripts in a folder, and as deep beneath it as Claude Code puts any."""
    return sorted(path for depth in range(_MAX_DEPTH) for path in folder.glob("*/" * depth + "*.jsonl"))


def _blocks(line: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the parts of a message; copies of what was sent to the model are no messages."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if line.get("type") not in ("assistant", "user") or not isinstance(content, list):
        return ()
    return [block for block in content if isinstance(block, dict)]


def _note(tally: Tally, line: Mapping[str, Any], block: Mapping[str, Any], home: str) -> None:
    kind = block.get("type")
    if kind == "tool_use" and line["type"] == "assistant" and plain(block.get("id")):
        call = _call(line, plain(block["id"]), plain(block.get("name")))
        given = block.get("input")
        absolute = digest_of(_absolute(given, call.cwd, home)) if isinstance(given, dict) else ""
        tally.asked(call._replace(hook_tool=call.tool, hook_arguments=digest_of(given), absolute_arguments=absolute))
    elif kind == "tool_result" and line["type"] == "user" and plain(block.get("tool_use_id")):
        result = _result(block, line.get("toolUseResult"))
        call = _call(line, plain(block["tool_use_id"]), "")
        tally.settled(call.settled(result._replace(at=call.at)))


def _absolute(given: Mapping[str, Any], cwd: str, home: str) -> dict[str, Any]:
    """Return arguments with the paths of files as hooks are told them: absolute, and without `.` and `..`."""
    paths = {name: given[name] for name in _PATHS if isinstance(given.get(name), str) and given[name]}
    absolute = {name: posixpath.join(cwd, _at_home(path, home)) for name, path in paths.items()}
    return {**given, **{name: posixpath.normpath(path) for name, path in absolute.items()}}


def _at_home(path: str, home: str) -> str:
    """Return a path with the user's home in the place of a tilde."""
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def _call(line: Mapping[str, Any], name: str, tool: str) -> Call:
    session, agent, at, cwd = (plain(line.get(member)) for member in ("sessionId", "agentId", "timestamp", "cwd"))
    return Call(name, tool, session, agent, at, "pending", cwd)


def _result(block: Mapping[str, Any], beside: object) -> Result:
    """Return what became of a call; `beside` is the same without what is put around it for the model."""
    if block.get("is_error") is not True:
        return Result("ran")
    text = _text(block.get("content"))
    # A tool may write these marks itself; then they stand in what was said beside it too.
    wrapped = text.startswith(_WRAPPED) and isinstance(beside, str) and _WRAPPED not in beside
    text = text.removeprefix(_WRAPPED) if wrapped else text
    for words, outcome in _BEFORE_IT_BEGAN:
        if words.match(text):
            by_words = not wrapped or outcome == "refused_by_hook"
            return Result(outcome, by_words, receipts_in(text))
    return Result("not_run" if wrapped else "failed")


def _text(content: object) -> str:
    """Return the text of a result, or the first text in it."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        content = next((text for text in texts if isinstance(text, str)), "")
    return content if isinstance(content, str) else ""
