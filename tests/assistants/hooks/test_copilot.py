"""The adapter of Copilot CLI, over payloads that were recorded from it; their members alone tell their events."""

import json

import pytest

from remit.assistants.copilot.hooks import CopilotHooks
from remit.errors import FieldInvalid
from tests.assistants.hooks.recorded import recorded

SAID = recorded("copilot")
KINDS = {
    "session_start": "session_started",
    "session_end": "session_ended",
    "subagent_start": "agent_started",
    "subagent_stop": "agent_ended",
    "shell": "call",
    "view": "call",
    "mcp": "call",
    "task": "call",
    "shell_of_subagent": "call",
    "shell_done": "outcome",
    "mcp_done": "outcome",
    "task_done": "outcome",
    "shell_done_of_subagent": "outcome",
    "view_failed": "failure",
    "prompt": "other",
    "agent_stop": "other",
}


@pytest.mark.parametrize("name", SAID)
def test_every_event_is_known_for_what_it_is(name: str) -> None:
    assert CopilotHooks().parse_event(SAID[name]).kind == KINDS[name]


def test_all_of_a_subagent_belongs_to_the_session_of_its_lead() -> None:
    lead = SAID["shell"]["sessionId"]
    for name in ("subagent_start", "shell_of_subagent", "shell_done_of_subagent", "subagent_stop"):
        event = CopilotHooks().parse_event(SAID[name])
        assert (event.session, event.agent) == (lead, SAID["subagent_start"]["agentId"])
        assert event.agent_type == "general-purpose"
    assert CopilotHooks().parse_event(SAID["task"]).agent == ""


def test_arguments_may_come_as_json_in_a_text() -> None:
    told = SAID["shell"]["toolArgs"]
    assert CopilotHooks().parse_event(SAID["shell"] | {"toolArgs": json.dumps(told)}).arguments == told


@pytest.mark.parametrize("told", [None, [], "", "[]", "{", '{"a":1,"a":2}', "\ud800", 7])
def test_arguments_that_are_no_object_are_refused(told: object) -> None:
    with pytest.raises(FieldInvalid) as refused:
        CopilotHooks().parse_event(SAID["shell"] | {"toolArgs": told})
    assert refused.value.place == "$.toolArgs"


def test_whatever_names_a_tool_and_no_outcome_is_a_call() -> None:
    odd = SAID["shell"] | {"reason": "x", "source": "y", "agentName": "z", "stopReason": "s"}
    assert CopilotHooks().parse_event(odd).kind == "call"


def test_an_outcome_and_a_failure_say_what_came_of_the_call() -> None:
    assert CopilotHooks().parse_event(SAID["shell_done"]).result == SAID["shell_done"]["toolResult"]
    assert CopilotHooks().parse_event(SAID["view_failed"]).result == "Path does not exist"


@pytest.mark.parametrize("missing", ["sessionId", "toolArgs"])
def test_a_call_without_a_member_is_refused_by_its_name(missing: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        CopilotHooks().parse_event({name: value for name, value in SAID["shell"].items() if name != missing})
    assert refused.value.place == f"$.{missing}"


def test_a_denial_is_said_flatly_as_copilot_reads_it() -> None:
    for event in ("preToolUse", ""):
        assert CopilotHooks().deny_response(event, "no") == {
            "permissionDecision": "deny",
            "permissionDecisionReason": "no",
        }
    assert CopilotHooks().deny_response("sessionStart", "no") == {}


def test_an_opinion_is_given_only_where_the_profile_allows() -> None:
    call, start = CopilotHooks().parse_event(SAID["shell"]), CopilotHooks().parse_event(SAID["session_start"])
    assert CopilotHooks().permit_response(call, allow=False, context="") == {}
    assert CopilotHooks().permit_response(call, allow=True, context="") == {"permissionDecision": "allow"}
    assert CopilotHooks().permit_response(start, allow=False, context="be careful") == {
        "additionalContext": "be careful"
    }
