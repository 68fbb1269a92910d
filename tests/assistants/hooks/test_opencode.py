"""The adapter of our plugin in opencode, over what the plugin has sent from there."""

import pytest

from remit.assistants.opencode.hooks import OpencodeHooks
from remit.errors import FieldInvalid
from tests.assistants.hooks.recorded import recorded

SAID = recorded("opencode")
KINDS = {
    "session_start": "session_started",
    "session_end": "session_ended",
    "subagent_start": "agent_started",
    "subagent_idle": "agent_ended",
    "shell": "call",
    "shell_of_subagent": "call",
    "shell_done": "outcome",
    "idle": "other",
}


@pytest.mark.parametrize("name", SAID)
def test_every_event_is_known_for_what_it_is(name: str) -> None:
    event = OpencodeHooks().parse_event(SAID[name])
    assert (event.kind, event.session, event.cwd) == (KINDS[name], "ses_lead", "/project")


def test_a_subagent_acts_in_the_session_that_its_line_began_with() -> None:
    kid = OpencodeHooks().parse_event(SAID["shell_of_subagent"])
    assert (kid.agent, kid.agent_type) == ("ses_kid", "general")
    assert (
        OpencodeHooks().parse_event(SAID["shell"]).agent,
        OpencodeHooks().parse_event(SAID["shell"]).agent_type,
    ) == ("", "")


def test_a_call_and_its_outcome_have_the_same_name() -> None:
    asked, done = OpencodeHooks().parse_event(SAID["shell"]), OpencodeHooks().parse_event(SAID["shell_done"])
    assert (asked.tool, asked.call_id) == (done.tool, done.call_id) == ("bash", "call_62c4330a42b24a49")
    assert done.result == SAID["shell_done"]["result"]


@pytest.mark.parametrize("missing", ["event", "session", "lead", "directory", "tool", "call", "arguments"])
def test_a_call_without_a_member_is_refused_by_its_name(missing: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        OpencodeHooks().parse_event({name: value for name, value in SAID["shell"].items() if name != missing})
    assert refused.value.place == f"$.{missing}"


def test_one_word_permits_and_it_is_in_no_denial() -> None:
    call = OpencodeHooks().parse_event(SAID["shell"])
    assert OpencodeHooks().permit_response(call, allow=True, context="") == {"decision": "permit"}
    assert OpencodeHooks().permit_response(call, allow=False, context="be careful") == {
        "decision": "permit",
        "told": "be careful",
    }
    assert OpencodeHooks().deny_response("", "no") == {"decision": "deny", "reason": "no"}
