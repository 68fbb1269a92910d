"""The dialect of Codex CLI, over payloads that were recorded from it."""

import pytest

from remit.assistants.codex.hooks import Codex
from remit.errors import FieldInvalid
from tests.assistants.hooks.recorded import recorded

SAID = recorded("codex")
KINDS = {
    "session_start": "session_started",
    "session_end": "session_ended",
    "subagent_start": "agent_started",
    "subagent_stop": "agent_ended",
    "shell": "call",
    "patch": "call",
    "spawn": "call",
    "wait": "call",
    "shell_of_subagent": "call",
    "shell_done": "outcome",
    "stop": "other",
}


@pytest.mark.parametrize("name", SAID)
def test_every_event_is_known_for_what_it_is(name: str) -> None:
    notice = Codex().read(SAID[name])
    assert (notice.kind, notice.session) == (KINDS[name], SAID[name]["session_id"])


def test_a_call_is_judged_in_the_folder_that_it_asks_for() -> None:
    notice = Codex().read(SAID["shell"])
    assert (notice.tool, notice.arguments, notice.cwd) == ("Bash", {"command": "echo hi > ok.txt"}, "/project/sub")
    assert notice.call_id.startswith("call_")


def test_an_outcome_names_the_call_it_belongs_to() -> None:
    done = Codex().read(SAID["shell_done"])
    assert (done.call_id, done.result) == (SAID["shell"]["tool_use_id"], "")


def test_a_subagent_is_told_from_its_lead() -> None:
    lead, kid = Codex().read(SAID["shell"]), Codex().read(SAID["shell_of_subagent"])
    assert (lead.agent, lead.session) == ("", kid.session)
    assert kid.agent == SAID["subagent_start"]["agent_id"]


def test_tools_for_subagents_go_by_their_own_names() -> None:
    assert SAID["wait"]["tool_name"] == "multi_agent_v1wait_agent"
    assert Codex().read(SAID["wait"]).tool == "wait_agent"
    other = SAID["wait"] | {"tool_name": "multi_agent_v1Bash"}
    assert Codex().read(other).tool == "multi_agent_v1Bash"


def test_a_denial_has_the_members_that_codex_reads_and_no_other() -> None:
    said = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert Codex().denied("PreToolUse", "no") == {"hookSpecificOutput": said}
    assert Codex().denied("", "no") == {"hookSpecificOutput": said}


@pytest.mark.parametrize("reason", ["", " \n"])
def test_a_denial_is_never_without_a_reason_because_codex_would_run_the_call(reason: str) -> None:
    answer = Codex().denied("PreToolUse", reason)
    assert isinstance(answer["hookSpecificOutput"], dict)
    assert str(answer["hookSpecificOutput"]["permissionDecisionReason"]).strip()


@pytest.mark.parametrize("missing", ["hook_event_name", "session_id", "tool_name", "tool_input", "tool_use_id"])
def test_a_call_without_a_member_is_refused_by_its_name(missing: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        Codex().read({name: value for name, value in SAID["shell"].items() if name != missing})
    assert refused.value.place == f"$.{missing}"


def test_words_for_the_model_are_said_where_it_hears_them() -> None:
    answer = Codex().permitted(Codex().read(SAID["session_start"]), allow=False, told="be careful")
    assert answer == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "be careful"}}
    assert Codex().permitted(Codex().read(SAID["shell"]), allow=False, told="") == {}
