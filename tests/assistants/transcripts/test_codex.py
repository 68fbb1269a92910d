"""What rollouts of Codex tell of calls."""

from pathlib import Path

import pytest

from remit.assistants.codex.transcript import CodexTranscripts
from remit.assistants.reconcile.calls import arguments_digest
from tests.assistants.transcripts.written import AT, SESSION, codex_lines, joined

READER = CodexTranscripts()


def call(name: str, kind: str = "function_call", tool: str = "exec_command") -> dict[str, str]:
    return {"type": kind, "call_id": name, "name": tool, "arguments": "{}"}


def output(name: str, text: str, kind: str = "function_call_output") -> dict[str, str]:
    return {"type": kind, "call_id": name, "output": text}


def read(tmp_path: Path, *items: dict[str, str]) -> dict[str, str]:
    path = tmp_path / f"rollout-2026-11-15T18-10-55-{SESSION}.jsonl"
    path.write_bytes(codex_lines(*items))
    told = READER.read(path)
    assert {one.session for one in told.calls} <= {SESSION}
    return {one.id: one.outcome for one in told.calls}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nok", "ran"),
        ("Chunk ID: 1\nProcess exited with code 3\nOutput:\n", "ran"),
        ("Command blocked by PreToolUse hook: Remit refused this call. Command: x", "refused_by_hook"),
        ("unsupported call: nosuch", "not_run"),
        ("failed to parse function arguments: missing field `cmd`", "not_run"),
    ],
)
def test_an_output_says_whether_the_call_was_begun(tmp_path: Path, text: str, outcome: str) -> None:
    assert read(tmp_path, call("call_1"), output("call_1", text)) == {"call_1": outcome}


def test_a_refusal_is_told_with_its_receipt_and_with_what_the_hook_was_told(tmp_path: Path) -> None:
    path = tmp_path / f"rollout-2026-11-15T18-10-55-{SESSION}.jsonl"
    text = "Command blocked by PreToolUse hook: Remit refused this call. Receipt rcpt:0123456789abcdef. Command: x"
    patch = {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"}
    shell = call("call_1") | {"arguments": '{"cmd": "true"}'}
    done = output("call_2", "x", "custom_tool_call_output")
    path.write_bytes(codex_lines(shell, output("call_1", text), patch, done))
    first, second = READER.read(path).calls
    assert (first.by_words, first.receipts) == (True, ("rcpt:0123456789abcdef",))
    assert (first.hook_tool, first.hook_arguments) == ("Bash", arguments_digest({"command": "true"}))
    assert (second.hook_tool, second.hook_arguments) == (
        "apply_patch",
        arguments_digest({"command": "*** Begin Patch"}),
    )


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"cmd": 7}', "{}"])
def test_arguments_that_cannot_be_told_are_not_guessed(tmp_path: Path, arguments: str) -> None:
    path = tmp_path / f"rollout-2026-11-15T18-10-55-{SESSION}.jsonl"
    path.write_bytes(codex_lines(call("call_1") | {"arguments": arguments}))
    assert [one.hook_arguments for one in READER.read(path).calls] == [""]


def test_a_patch_is_a_call_too(tmp_path: Path) -> None:
    items = (call("call_1", "custom_tool_call", "apply_patch"), output("call_1", "Done", "custom_tool_call_output"))
    assert read(tmp_path, *items) == {"call_1": "ran"}


def test_planning_is_no_call(tmp_path: Path) -> None:
    assert read(tmp_path, call("call_1", tool="update_plan"), output("call_1", "Plan updated")) == {}


def test_a_call_without_an_output_is_pending(tmp_path: Path) -> None:
    assert read(tmp_path, call("call_1")) == {"call_1": "pending"}


def test_the_file_of_a_session_is_found_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "2026" / "11" / "15" / f"rollout-2026-11-15T18-10-55-{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(codex_lines())
    assert list(READER.find(tmp_path, SESSION)) == [path]
    assert list(READER.find(tmp_path, "*")) == []
    assert list(READER.find_in_folder(tmp_path, "/work")) == [path]


def test_a_call_of_a_subagent_belongs_to_the_session_that_hooks_are_told(tmp_path: Path) -> None:
    parent, agent = SESSION, SESSION.replace("0e87", "aaaa")
    meta = {"id": agent, "session_id": parent, "cwd": "/work/project"}
    repeated = {"id": "another", "session_id": "another", "cwd": "/work/project"}
    path = tmp_path / f"rollout-2026-11-15T18-10-55-{agent}.jsonl"
    lines = [{"type": "session_meta", "payload": one} for one in (meta, repeated)]
    path.write_bytes(joined([*lines, {"type": "response_item", "payload": call("call_1")}]))
    told = READER.read(path)
    assert (told.session, [(one.session, one.agent) for one in told.calls]) == (agent, [(parent, agent)])


def test_a_tool_of_a_server_is_told_as_hooks_are_told_it(tmp_path: Path) -> None:
    path = tmp_path / f"rollout-2026-11-15T18-10-55-{SESSION}.jsonl"
    given = {"namespace": "mcp__desk", "arguments": '{"path": "a"}'}
    path.write_bytes(codex_lines(call("call_1", tool="note") | given, output("call_1", "ok")))
    (one,) = READER.read(path).calls
    assert (one.hook_tool, one.hook_arguments, one.ended) == ("mcp__desk__note", arguments_digest({"path": "a"}), AT)
