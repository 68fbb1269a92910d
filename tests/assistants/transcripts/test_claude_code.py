"""What transcripts of Claude Code tell of calls."""

from pathlib import Path
from typing import Any

import pytest

from remit.assistants.claude_code.transcript import ClaudeCodeTranscripts
from remit.assistants.reconcile.calls import TranscriptCall, arguments_digest
from tests.assistants.transcripts.written import AT, SESSION, ClaudeTranscript

READER = ClaudeCodeTranscripts("/work")


def read(transcript: ClaudeTranscript, tmp_path: Path) -> dict[str, TranscriptCall]:
    told = READER.read(transcript.write(tmp_path / f"{SESSION}.jsonl"))
    assert (told.bad_lines, told.cut, told.session) == (0, False, SESSION)
    return {call.id: call for call in told.calls}


def test_a_call_is_told_with_its_tool_its_session_and_its_time(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.runs("toolu_1", "mcp__demo__echo")
    expected = TranscriptCall("toolu_1", "mcp__demo__echo", SESSION, "", AT, "ran", "/work/project")
    found = read(transcript, tmp_path)["toolu_1"]
    assert found[:7] == expected[:7]
    assert (found.hook_tool, found.hook_arguments) == ("mcp__demo__echo", arguments_digest({"command": "true"}))


def test_a_call_of_a_subagent_names_it(tmp_path: Path) -> None:
    transcript = ClaudeTranscript(agent="ad235abc")
    transcript.runs("toolu_1")
    assert read(transcript, tmp_path)["toolu_1"].agent == "ad235abc"


def test_a_call_without_an_end_is_pending(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.asks("toolu_1")
    assert read(transcript, tmp_path)["toolu_1"].outcome == "pending"


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("exit code", "failed"),
        ("timed out", "failed"),
        ("interrupted", "failed"),
        ("hook", "refused_by_hook"),
        ("hook, older", "refused_by_hook"),
        ("hook without Hub", "refused_by_hook"),
        ("hook, managed", "refused_by_hook"),
        ("no such tool", "not_run"),
        ("invalid", "not_run"),
        ("not granted", "not_run"),
        ("rejected", "not_run"),
        ("denied by rule", "not_run"),
        ("forged marks", "failed"),
        ("marks alone", "failed"),
    ],
)
def test_an_error_says_whether_the_call_was_begun(tmp_path: Path, how: str, outcome: str) -> None:
    transcript = ClaudeTranscript()
    transcript.fails("toolu_1", how)
    assert read(transcript, tmp_path)["toolu_1"].outcome == outcome


@pytest.mark.parametrize(
    ("how", "by_words"),
    [
        ("hook", True),
        ("hook, older", True),
        ("hook without Hub", True),
        ("hook, managed", True),
        ("not granted", True),
        ("rejected", True),
        ("denied by rule", True),
        ("no such tool", False),
        ("invalid", False),
    ],
)
def test_what_a_tool_could_have_written_itself_is_words_alone(tmp_path: Path, how: str, by_words: bool) -> None:
    transcript = ClaudeTranscript()
    transcript.fails("toolu_1", how)
    assert read(transcript, tmp_path)["toolu_1"].by_words == by_words


def test_the_receipt_that_a_refusal_names_is_told(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.refused("toolu_1", "rcpt:0123456789abcdef")
    transcript.runs("toolu_2")
    transcript.answers("toolu_3", "rcpt:0123456789abcdef")
    found = read(transcript, tmp_path)
    assert [found[f"toolu_{number}"].receipts for number in (1, 2, 3)] == [("rcpt:0123456789abcdef",), (), ()]


def test_words_of_a_refusal_within_an_answer_are_only_words(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.asks("toolu_1")
    transcript.answers("toolu_1", "Exit code 1\nPreToolUse:Bash hook error: no", is_error=True, beside="Error: …")
    transcript.asks("toolu_2")
    transcript.answers("toolu_2", "PreToolUse:Bash hook error: no")
    assert [call.outcome for call in read(transcript, tmp_path).values()] == ["failed", "ran"]


def test_an_answer_in_parts_is_read_by_its_first_text(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.asks("toolu_1")
    parts: list[Any] = [{"type": "image"}, 7, {"type": "text", "text": "PreToolUse:Read hook error: no"}]
    transcript.answers("toolu_1", parts, is_error=True, beside="Error: …")
    assert read(transcript, tmp_path)["toolu_1"].outcome == "refused_by_hook"


def test_an_answer_to_nothing_counts_as_a_call(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.answers("toolu_1")
    assert read(transcript, tmp_path)["toolu_1"][:2] == ("toolu_1", "")


def test_a_call_that_ran_stays_so_whatever_is_written_after_it(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.runs("toolu_1")
    transcript.fails("toolu_1", "no such tool")
    assert read(transcript, tmp_path)["toolu_1"].outcome == "ran"


@pytest.mark.parametrize(
    "line",
    [
        {"type": "assistant"},
        {"type": "assistant", "message": "x"},
        {"type": "assistant", "message": {"content": "x"}},
        {"type": "assistant", "message": {"content": [1, None, {"type": "tool_use"}, {"type": "tool_use", "id": 7}]}},
        {"type": "user", "message": {"content": [{"type": "tool_use", "id": "toolu_1"}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}},
        {"type": "api-request-blob", "message": {"content": [{"type": "tool_use", "id": "toolu_1"}]}},
    ],
)
def test_what_is_no_call_is_none(tmp_path: Path, line: dict[str, Any]) -> None:
    transcript = ClaudeTranscript()
    transcript.lines.append(line)
    assert read(transcript, tmp_path) == {}


def test_long_and_broken_texts_are_cut_and_whole(tmp_path: Path) -> None:
    transcript = ClaudeTranscript()
    transcript.runs("toolu_1", "\ud800" + "x" * 5000)
    tool = read(transcript, tmp_path)["toolu_1"].tool
    assert (len(tool), tool[:2]) == (256, "?x")


def test_the_files_of_a_session_are_found_by_its_id(tmp_path: Path) -> None:
    project = tmp_path / "projects" / "-work-project"
    main = ClaudeTranscript().write(project / f"{SESSION}.jsonl")
    sub = ClaudeTranscript(agent="a1").write(project / SESSION / "subagents" / "agent-a1.jsonl")
    ClaudeTranscript("other").write(project / "other.jsonl")
    assert list(READER.find(tmp_path, SESSION)) == [main, sub]


@pytest.mark.parametrize("session", ["", "*", "../x", "a/b", "[a]", "x" * 300])
def test_a_session_id_that_is_a_path_or_a_pattern_finds_nothing(tmp_path: Path, session: str) -> None:
    ClaudeTranscript().write(tmp_path / "projects" / "p" / f"{SESSION}.jsonl")
    assert list(READER.find(tmp_path, session)) == []


def test_sessions_of_a_folder_and_beneath_it_are_found(tmp_path: Path) -> None:
    for name in ("-work-my-project", "-work-my-project-src", "-elsewhere"):
        ClaudeTranscript().write(tmp_path / "projects" / name / f"{SESSION}.jsonl")
    found = [path.parent.name for path in READER.find_in_folder(tmp_path, "/work/my.project")]
    assert found == ["-work-my-project", "-work-my-project-src"]
    assert len(list(READER.find_in_folder(tmp_path, None))) == 3


@pytest.mark.parametrize("given", ["a", "./a", "../project/a", "/work/project/b/../a", "~/project/a"])
def test_paths_of_files_are_told_as_they_are_and_absolute(tmp_path: Path, given: str) -> None:
    transcript = ClaudeTranscript()
    transcript.asks("c1", "Read")
    transcript.lines[-1]["message"]["content"][1]["input"] = {"file_path": given, "limit": 1}
    (one,) = READER.read(transcript.write(tmp_path / "x.jsonl")).calls
    assert one.hook_arguments == arguments_digest({"file_path": given, "limit": 1})
    assert one.absolute_arguments == arguments_digest({"file_path": "/work/project/a", "limit": 1})
