"""The adapter of Gemini CLI, over payloads that were recorded from it."""

import pytest

from remit.assistants.gemini.hooks import GeminiHooks
from remit.errors import FieldInvalid
from tests.assistants.hooks.recorded import recorded

SAID = recorded("gemini")
KINDS = {
    "session_start": "session_started",
    "session_end": "session_ended",
    "shell": "call",
    "read": "call",
    "mcp": "call",
    "shell_done": "outcome",
    "mcp_done": "outcome",
    "read_failed": "outcome",
    "before_agent": "other",
}


@pytest.mark.parametrize("name", SAID)
def test_every_event_is_known_for_what_it_is(name: str) -> None:
    event = GeminiHooks().parse_event(SAID[name])
    assert (event.kind, event.session) == (KINDS[name], SAID[name]["session_id"])


def test_a_call_has_its_tool_and_arguments_and_no_name_of_its_own() -> None:
    event = GeminiHooks().parse_event(SAID["shell"])
    assert (event.tool, event.cwd, event.call_id) == ("run_shell_command", "/project", "")
    assert event.arguments == SAID["shell"]["tool_input"]


def test_an_outcome_repeats_its_call_and_says_what_came_of_it() -> None:
    asked, done = GeminiHooks().parse_event(SAID["mcp"]), GeminiHooks().parse_event(SAID["mcp_done"])
    assert (done.tool, done.arguments) == (asked.tool, asked.arguments)
    assert done.result == SAID["mcp_done"]["tool_response"]


def test_a_denial_says_deny_and_never_ask() -> None:
    for event in ("BeforeTool", ""):
        assert GeminiHooks().deny_response(event, "no") == {"decision": "deny", "reason": "no"}
    assert GeminiHooks().deny_response("SessionStart", "no") == {"systemMessage": "no"}


def test_an_opinion_is_given_only_where_the_profile_allows() -> None:
    call = GeminiHooks().parse_event(SAID["shell"])
    assert GeminiHooks().permit_response(call, allow=False, context="") == {}
    assert GeminiHooks().permit_response(call, allow=True, context="") == {"decision": "allow"}


def test_words_for_the_model_are_said_at_the_start() -> None:
    answer = GeminiHooks().permit_response(
        GeminiHooks().parse_event(SAID["session_start"]), allow=False, context="be careful"
    )
    assert answer == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "be careful"}}


@pytest.mark.parametrize("missing", ["hook_event_name", "session_id", "tool_name", "tool_input"])
def test_a_call_without_a_member_is_refused_by_its_name(missing: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        GeminiHooks().parse_event({name: value for name, value in SAID["shell"].items() if name != missing})
    assert refused.value.place == f"$.{missing}"


def test_the_event_of_a_payload_that_cannot_be_read_is_still_told() -> None:
    assert GeminiHooks().event_name({"hook_event_name": "BeforeTool"}) == "BeforeTool"
    assert GeminiHooks().event_name({"hook_event_name": 7}) == ""
