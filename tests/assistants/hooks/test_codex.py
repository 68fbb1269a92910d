"""The adapter of Codex CLI, over payloads that were recorded from it."""

import pytest

from remit.assistants.codex.hooks import CodexHooks
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
    event = CodexHooks().parse_event(SAID[name])
    assert (event.kind, event.session) == (KINDS[name], SAID[name]["session_id"])


def test_a_call_is_judged_in_the_folder_that_it_asks_for() -> None:
    event = CodexHooks().parse_event(SAID["shell"])
    assert (event.tool, event.arguments, event.cwd) == ("Bash", {"command": "echo hi > ok.txt"}, "/project/sub")
    assert event.call_id.startswith("call_")


def test_an_outcome_names_the_call_it_belongs_to() -> None:
    done = CodexHooks().parse_event(SAID["shell_done"])
    assert (done.call_id, done.result) == (SAID["shell"]["tool_use_id"], "")


def test_a_subagent_is_told_from_its_lead() -> None:
    lead, kid = CodexHooks().parse_event(SAID["shell"]), CodexHooks().parse_event(SAID["shell_of_subagent"])
    assert (lead.agent, lead.session) == ("", kid.session)
    assert kid.agent == SAID["subagent_start"]["agent_id"]


def test_tools_for_subagents_go_by_their_own_names() -> None:
    assert SAID["wait"]["tool_name"] == "multi_agent_v1wait_agent"
    assert CodexHooks().parse_event(SAID["wait"]).tool == "wait_agent"
    other = SAID["wait"] | {"tool_name": "multi_agent_v1Bash"}
    assert CodexHooks().parse_event(other).tool == "multi_agent_v1Bash"


def test_a_denial_has_the_members_that_codex_reads_and_no_other() -> None:
    said = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert CodexHooks().deny_response("PreToolUse", "no") == {"hookSpecificOutput": said}
    assert CodexHooks().deny_response("", "no") == {"hookSpecificOutput": said}


@pytest.mark.parametrize("reason", ["", " \n"])
def test_a_denial_is_never_without_a_reason_because_codex_would_run_the_call(reason: str) -> None:
    answer = CodexHooks().deny_response("PreToolUse", reason)
    assert isinstance(answer["hookSpecificOutput"], dict)
    assert str(answer["hookSpecificOutput"]["permissionDecisionReason"]).strip()


@pytest.mark.parametrize("missing", ["hook_event_name", "session_id", "tool_name", "tool_input", "tool_use_id"])
def test_a_call_without_a_member_is_refused_by_its_name(missing: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        CodexHooks().parse_event({name: value for name, value in SAID["shell"].items() if name != missing})
    assert refused.value.place == f"$.{missing}"


def test_words_for_the_model_are_said_where_it_hears_them() -> None:
    answer = CodexHooks().permit_response(
        CodexHooks().parse_event(SAID["session_start"]), allow=False, context="be careful"
    )
    assert answer == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "be careful"}}
    assert CodexHooks().permit_response(CodexHooks().parse_event(SAID["shell"]), allow=False, context="") == {}
