"""The dialect of Gemini CLI, over payloads that were recorded from it."""

import pytest

from remit.assistants.gemini.hooks import Gemini
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
    notice = Gemini().read(SAID[name])
    assert (notice.kind, notice.session) == (KINDS[name], SAID[name]["session_id"])


def test_a_call_has_its_tool_and_arguments_and_no_name_of_its_own() -> None:
    notice = Gemini().read(SAID["shell"])
    assert (notice.tool, notice.cwd, notice.call_id) == ("run_shell_command", "/project", "")
    assert notice.arguments == SAID["shell"]["tool_input"]


def test_an_outcome_repeats_its_call_and_says_what_came_of_it() -> None:
    asked, done = Gemini().read(SAID["mcp"]), Gemini().read(SAID["mcp_done"])
    assert (done.tool, done.arguments) == (asked.tool, asked.arguments)
    assert done.result == SAID["mcp_done"]["tool_response"]


def test_a_denial_says_deny_and_never_ask() -> None:
    for event in ("BeforeTool", ""):
        assert Gemini().denied(event, "no") == {"decision": "deny", "reason": "no"}
    assert Gemini().denied("SessionStart", "no") == {"systemMessage": "no"}


def test_an_opinion_is_given_only_where_the_profile_allows() -> None:
    call = Gemini().read(SAID["shell"])
    assert Gemini().permitted(call, allow=False, told="") == {}
    assert Gemini().permitted(call, allow=True, told="") == {"decision": "allow"}


def test_words_for_the_model_are_said_at_the_start() -> None:
    answer = Gemini().permitted(Gemini().read(SAID["session_start"]), allow=False, told="be careful")
    assert answer == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "be careful"}}


@pytest.mark.parametrize("missing", ["hook_event_name", "session_id", "tool_name", "tool_input"])
def test_a_call_without_a_member_is_refused_by_its_name(missing: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        Gemini().read({name: value for name, value in SAID["shell"].items() if name != missing})
    assert refused.value.place == f"$.{missing}"


def test_the_event_of_a_payload_that_cannot_be_read_is_still_told() -> None:
    assert Gemini().event_of({"hook_event_name": "BeforeTool"}) == "BeforeTool"
    assert Gemini().event_of({"hook_event_name": 7}) == ""
