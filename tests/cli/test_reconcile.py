"""`remit reconcile`: transcripts held against the ledger, the answer signed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from remit.assistants.reconcile.lines import MAX_LINE
from remit.assistants.records import Protections
from remit.claims.canonical import canonicalize, sha256_base64url
from remit.claims.receipt import SignedReceipt, verify_receipt
from remit.cli.errors import DONE, NO, STATE, USAGE
from remit.governor.assistants import Actor, EvaluateAssistantCall
from remit.governor.sources import Reporter
from remit.ledger.home import open_home
from remit.ledger.keys import build_keyring
from remit.policy.call import ToolCall
from remit.wiring import build_service
from tests.assistants.hooks.scenes import PROTECTION, protection
from tests.assistants.transcripts.written import SESSION, ClaudeTranscript
from tests.cli.running import run
from tests.governor.world import mission

LATER: Final = "2099-01-01T00:00:00.000Z"
SINCE_IT_WAS_PROTECTED: Final = "2026-01-02T00:00:00.000Z"


class World:
    """A home with a ledger, and the folder where an assistant keeps transcripts."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        self.project = tmp_path / "project"
        self.config = tmp_path / "claude"
        with open_home(self.home) as opened:
            Protections(opened).put(protection(self.project))

    def governs(self, *names: str, tool: str = "Bash", session: str = SESSION, agent: str = "") -> list[str]:
        """Decide on calls of these names, and permit those of Bash; return the ids of their receipts."""
        told = json.dumps({"type": "cli", "app": "claude-code", "id": session, "protection": PROTECTION})
        wanted = mission(allowed_tools=("Bash",), resource_scope=("**",))
        actor = Actor(Reporter(f"hook:{session}", told, wanted), agent)
        service, found = build_service(self.home), list[str]()
        for name in names:
            call = ToolCall(tool, {"command": "true"}, "/work/project")
            governed = service.governor.run(EvaluateAssistantCall(actor, call, name, f"claude-code {name}"))
            found.append(governed.answer.receipt.claims.receipt_id)
        service.close()
        return found

    def keeps(self, transcript: ClaudeTranscript, name: str = f"{SESSION}.jsonl") -> Path:
        """Keep a transcript where Claude Code keeps it."""
        slug = "".join(letter if letter.isalnum() else "-" for letter in str(self.project))
        return transcript.write(self.config / "projects" / slug / name)

    def reconciled(self, *arguments: str, code: int = DONE, verdict: str = "") -> dict[str, Any]:
        """Return what is answered, which must be signed."""
        result = run(self.home, "reconcile", "claude-code", *arguments, "--json")
        assert result.exit_code == code, result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        claims = self.statement(answer["receipt"]).claims
        beside = ("ok", "error", "error_code", "receipt")
        report = {name: value for name, value in answer.items() if name not in beside}
        assert claims.result_hash.value == sha256_base64url(canonicalize(report))
        expected = verdict or ("compliant" if code == DONE else "violation")
        assert (claims.tool, claims.verdict) == ("remit.reconcile", expected)
        return answer

    def statement(self, token: str) -> SignedReceipt:
        """Return a receipt of the ledger's key."""
        service = build_service(self.home)
        try:
            return verify_receipt(token, build_keyring(service.reader.keys()))
        finally:
            service.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    built = World(tmp_path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(built.config))
    return built


def told(*names: str, session: str = SESSION, **changes: str) -> ClaudeTranscript:
    transcript = ClaudeTranscript(session, **changes)
    for name in names:
        transcript.runs(name, at=LATER)
    return transcript


def age(world: World, days: int) -> None:
    """Let the ledger have heard of its sessions this long ago."""
    connection = apsw.Connection(str(world.home / "ledger.db"))
    connection.execute("UPDATE sessions SET seen_wall_ms = seen_wall_ms - ?", (days * 24 * 3600 * 1000,))
    connection.close()


def names_of(calls: list[dict[str, str]]) -> list[str]:
    return [call["call"] for call in calls]


def test_every_call_with_a_receipt_is_full_coverage(world: World) -> None:
    world.governs("c1", "c2")
    world.keeps(told("c1", "c2"))
    answer = world.reconciled()
    assert (answer["full"], answer["calls"], answer["receipted"], answer["run"]) == (True, 2, 2, 2)
    assert [one["calls"] for one in answer["transcripts"]] == [2]


def test_a_call_without_a_receipt_is_named_and_signed_as_a_gap(world: World) -> None:
    world.governs("c1")
    world.keeps(told("c1", "c2"))
    answer = world.reconciled(code=NO)
    assert names_of(answer["unreceipted"]) == ["c2"]
    assert world.statement(answer["receipt"]).claims.internal_denial_code == "coverage_gap"


def test_a_call_that_was_refused_and_run_is_named(world: World) -> None:
    world.governs("c1")
    world.governs("c2", tool="WebFetch")
    transcript = told("c1")
    transcript.runs("c2", "WebFetch", at=LATER)
    world.keeps(transcript)
    assert names_of(world.reconciled(code=NO)["refused_but_run"]) == ["c2"]


def test_a_refusal_that_held_is_covered(world: World) -> None:
    world.governs("c1")
    (receipt,) = world.governs("c2", tool="WebFetch")
    transcript = told("c1")
    transcript.refused("c2", receipt, "WebFetch")
    world.keeps(transcript)
    assert world.reconciled()["refused"] == 1


@pytest.mark.parametrize("tool", ["", "WebFetch"], ids=["no receipt", "denied by another receipt"])
@pytest.mark.parametrize(
    "text",
    [
        "Remit: the Hub does not answer",
        "Remit refused this call: no. Receipt rcpt:01a1e0756f1be57e8639abd911767dd0.",
        "PreToolUse:mcp__demo__run hook error: Remit: no",
        "The user doesn't want to proceed with this tool use",
    ],
)
def test_an_error_text_of_a_tool_is_no_refusal(world: World, text: str, tool: str) -> None:
    world.governs("c1")
    transcript = told("c1")
    if tool:
        world.governs("c2", tool=tool)
    transcript.asks("c2", "mcp__demo__run", LATER)
    transcript.answers("c2", text, is_error=True, beside=f"Error: {text}")
    world.keeps(transcript)
    answer = world.reconciled(code=NO, verdict="insufficient_evidence")
    assert (answer["full"], names_of(answer["unproven"])) == (False, ["c2"])
    assert world.statement(answer["receipt"]).claims.internal_denial_code == "coverage_unproven"
    shown = run(world.home, "reconcile", "claude-code").stdout
    assert (shown.splitlines()[0], "not proven: " in shown) == ("NOT PROVEN", True)


def test_calls_of_subagents_lie_in_files_and_chains_of_their_own(world: World) -> None:
    world.governs("c1")
    world.governs("c2", agent="a1")
    world.keeps(told("c1"))
    world.keeps(told("c2", "c3", agent="a1"), f"{SESSION}/subagents/agent-a1.jsonl")
    answer = world.reconciled(code=NO)
    assert (names_of(answer["unreceipted"]), answer["receipted"]) == (["c3"], 2)


def test_a_session_that_goes_on_under_another_name_is_covered_by_the_receipts_of_the_first(world: World) -> None:
    fork = SESSION.replace("0e87", "ffff")
    world.governs("c1")
    world.governs("c2", session=fork)
    first = world.keeps(told("c1"))
    forked = world.keeps(told("c1", "c2", session=fork), f"{fork}.jsonl")
    assert world.reconciled(str(first), str(forked))["receipted"] == 2
    assert world.reconciled()["receipted"] == 2
    # Without the transcript of the first, nothing says that the call was made there.
    answer = world.reconciled(str(forked), code=NO)
    assert [(one["call"], one["differs"]) for one in answer["mismatched"]] == [("c1", ["session"])]


def test_a_permit_for_another_call_does_not_cover_one_of_its_id(world: World) -> None:
    other = SESSION.replace("0e87", "dddd")
    world.governs("c1", session=other)
    world.governs("c2", "c3", "c4")
    transcript = told("c1")
    transcript.runs("c2", "Read", at=LATER)
    transcript.asks("c3", at=LATER, command="false")
    transcript.answers("c3")
    transcript.asks("c4", at=SINCE_IT_WAS_PROTECTED)
    transcript.answers("c4", at=SINCE_IT_WAS_PROTECTED)
    world.keeps(transcript)
    world.keeps(ClaudeTranscript(other), f"{other}.jsonl")
    answer = world.reconciled(code=NO)
    assert (answer["full"], answer["receipted"]) == (False, 0)
    assert {one["call"]: one["differs"] for one in answer["mismatched"]} == {
        "c1": ["session"], "c2": ["tool"], "c3": ["arguments"], "c4": ["late"]
    }  # fmt: skip
    assert all(one["receipt_id"].startswith("rcpt:") for one in answer["mismatched"])
    shown = run(world.home, "reconcile", "claude-code").stdout
    assert (shown.splitlines()[0], "other arguments" in shown, "decided after the result" in shown) == (
        "GAPS", True, True
    )  # fmt: skip


def test_a_session_past_its_hooks_in_a_protected_folder_is_found(world: World) -> None:
    world.governs("c1")
    world.keeps(told("c1"))
    bare = SESSION.replace("0e87", "bbbb")
    world.keeps(told("c9", session=bare, cwd=str(world.project / "src")), f"{bare}.jsonl")
    assert names_of(world.reconciled(code=NO)["unreceipted"]) == ["c9"]


@pytest.mark.parametrize("changes", [{"cwd": "/elsewhere"}, {"at": "2020-01-01T00:00:00.000Z"}])
def test_calls_elsewhere_or_from_before_the_protection_are_no_gap(world: World, changes: dict[str, str]) -> None:
    world.governs("c1")
    world.keeps(told("c1"))
    bare = SESSION.replace("0e87", "bbbb")
    transcript = ClaudeTranscript(bare, cwd=changes.get("cwd", str(world.project)))
    transcript.runs("c9", at=changes.get("at", LATER))
    world.keeps(transcript, f"{bare}.jsonl")
    assert world.reconciled()["full"]


def test_a_transcript_that_is_gone_is_a_gap(world: World) -> None:
    world.governs("c1")
    assert world.reconciled(code=NO)["missing"] == [SESSION]


@pytest.mark.parametrize("tool", ["Bash", "WebFetch"])
def test_a_session_that_ran_past_its_hooks_before_or_after_it_was_heard_of_is_found_out(
    world: World, tool: str
) -> None:
    bare = ClaudeTranscript(cwd=str(world.project))
    bare.runs("c0", at=SINCE_IT_WAS_PROTECTED)
    (receipt,) = world.governs("c1", tool=tool)
    bare.refused("c1", receipt, tool)
    bare.runs("c9", at=LATER)
    world.keeps(bare)
    assert names_of(world.reconciled(code=NO)["unreceipted"]) == ["c0", "c9"]
    assert names_of(world.reconciled(str(next(world.config.rglob("*.jsonl"))), code=NO)["unreceipted"]) == ["c0", "c9"]


def test_a_session_with_nothing_but_refusals_is_covered(world: World) -> None:
    (receipt,) = world.governs("c1", tool="WebFetch")
    transcript = ClaudeTranscript()
    transcript.refused("c1", receipt, "WebFetch")
    world.keeps(transcript)
    answer = world.reconciled()
    assert (answer["calls"], answer["refused"], answer["missing"]) == (1, 1, [])


def test_a_session_of_long_ago_that_goes_on_past_its_hooks_is_found_out(world: World) -> None:
    world.governs("c1")
    age(world, days=30)
    world.keeps(told("c1", "c9", cwd=str(world.project)))
    assert names_of(world.reconciled("--days", "1", code=NO)["unreceipted"]) == ["c9"]


def test_a_file_past_its_hooks_that_names_a_session_of_others_is_found_out(world: World) -> None:
    world.governs("c1")
    world.keeps(told("c1"))
    world.keeps(told("c9", cwd=str(world.project)), "another.jsonl")
    assert names_of(world.reconciled(code=NO)["unreceipted"]) == ["c9"]


def test_subagents_of_a_session_past_its_hooks_are_looked_at(world: World) -> None:
    world.governs("c1")
    world.keeps(told("c1"))
    bare = SESSION.replace("0e87", "bbbb")
    subagent = told("c9", session=bare, agent="a1", cwd=str(world.project))
    world.keeps(subagent, f"{bare}/subagents/agent-a1.jsonl")
    assert names_of(world.reconciled(code=NO)["unreceipted"]) == ["c9"]


def no_file(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def unreadable_lines(path: Path) -> None:
    path.write_bytes(b"{broken\n")


def a_line_without_an_end(path: Path) -> None:
    path.write_bytes(b'{"a":"' + b"x" * MAX_LINE)


@pytest.mark.parametrize("name", [SESSION, SESSION.replace("0e87", "bbbb")], ids=["known", "not known"])
@pytest.mark.parametrize("damage", [no_file, a_folder, unreadable_lines, a_line_without_an_end])
def test_a_transcript_that_cannot_be_read_is_a_gap_and_stops_nothing(
    world: World, name: str, damage: Callable[[Path], None]
) -> None:
    other = SESSION.replace("0e87", "cccc")
    world.governs("c1", session=other)
    world.keeps(told("c1", session=other), f"{other}.jsonl")
    world.governs("c2", tool="WebFetch")
    damage(world.keeps(told("c2"), f"{name}.jsonl"))
    answer = world.reconciled(code=NO)
    assert (answer["receipted"], sum(one["bad_lines"] for one in answer["transcripts"])) == (1, 1)


def test_a_session_in_which_nothing_was_permitted_needs_no_transcript(world: World) -> None:
    world.governs("c1")
    world.keeps(told("c1"))
    world.governs("c2", tool="WebFetch", session="another")
    assert world.reconciled()["missing"] == []


def test_lines_that_cannot_be_read_leave_a_gap(world: World) -> None:
    world.governs("c1")
    path = world.keeps(told("c1"))
    path.write_bytes(path.read_bytes() + b"{broken\n")
    assert world.reconciled(code=NO)["transcripts"][0]["bad_lines"] == 1


@pytest.mark.parametrize(("seq", "uncovered"), [(2, ["c2", "c3"]), (3, ["c3"])])
def test_a_receipt_that_was_taken_out_of_the_ledger_is_a_broken_chain(
    world: World, seq: int, uncovered: list[str]
) -> None:
    world.governs("c1", "c2", "c3")
    world.keeps(told("c1", "c2", "c3"))
    world.governs("c4", session="another")
    connection = apsw.Connection(str(world.home / "ledger.db"))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM receipts WHERE seq = ?", (seq,))
    connection.close()
    answer = world.reconciled(str(next(world.config.rglob("*.jsonl"))), code=NO)
    assert len(answer["broken"]) == 1
    assert names_of(answer["unreceipted"]) == uncovered


def test_people_are_told_which_call_and_what_to_do(world: World) -> None:
    world.governs("c1")
    transcript = told("c1")
    transcript.runs("c2", "Bash\x1b[31m", LATER)
    world.keeps(transcript)
    result = run(world.home, "reconcile", "claude-code")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (NO, "GAPS")
    assert f"no receipt: {LATER}  Bash\\x1b[31m  c2 (ran)" in result.stdout
    assert "remit doctor claude-code" in result.stdout


def test_nothing_to_compare_is_an_answer_of_its_own(world: World) -> None:
    world.governs("c1", tool="WebFetch")
    result = run(world.home, "reconcile", "claude-code", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (NO, "session_not_found")


@pytest.mark.parametrize("assistant", ["gemini", "copilot", "opencode"])
def test_an_assistant_without_call_ids_is_refused_with_the_reason(world: World, assistant: str) -> None:
    world.governs("c1")
    assert run(world.home, "reconcile", assistant).exit_code == USAGE


def test_without_a_ledger_it_says_so_and_makes_none(tmp_path: Path) -> None:
    assert run(tmp_path / "nowhere", "reconcile", "claude-code").exit_code == STATE
    assert list(tmp_path.iterdir()) == []


def test_under_the_kill_switch_the_answer_is_signed_all_the_same(world: World) -> None:
    world.governs("c1")
    world.keeps(told("c1"))
    run(world.home, "kill-switch", "on")
    result = run(world.home, "reconcile", "claude-code", "--json")
    assert json.loads(result.stdout)["receipt"]
