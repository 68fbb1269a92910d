"""From what adapters send to what is judged and what is shown: text goes one way, its digest the other."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from remit.claims.shapes import shape
from remit.errors import FieldInvalid
from remit.governor.observe import Report
from remit.hub.evidence import MAX_ACTIONS, OBSERVATION_TOOLS, report_of, reporter_of
from remit.messages.hub import MAX_EXCERPT, ObserveRequest, StartRequest

CONSENT = {"visible_text": True}
SECRET = "the text that a person has seen"


def digest(text: str) -> str:
    return "sha-256:" + hashlib.sha256(text.encode()).hexdigest()


def request(event: dict[str, Any], **members: Any) -> ObserveRequest:
    return shape(ObserveRequest, {"source": {"type": "browser"}, "event": event, **members})


def report(event: dict[str, Any], **members: Any) -> Report:
    return report_of(request(event, **members))


def key_of(**members: Any) -> str:
    return reporter_of(shape(StartRequest, {"source": {"type": "browser"}, **members})).key


TEXTS: list[dict[str, Any]] = [
    {"text_snapshot": SECRET},
    {"text_excerpt": SECRET},
    {"text_excerpt": SECRET, "text_snapshot_included": True},
    {"messages": [{"role": "user", "text_excerpt": SECRET}]},
]


@pytest.mark.parametrize("event", TEXTS)
def test_text_is_judged_as_its_digest_and_shown_as_an_excerpt(event: dict[str, Any]) -> None:
    given = report({**event, "consent": CONSENT}).observe
    assert SECRET.encode() not in json.encode(given.event)
    assert digest(SECRET).encode() in json.encode(given.event)
    (action,) = given.seen.actions
    assert (action["summary"], action["text_digest"]) == (SECRET, digest(SECRET))


@pytest.mark.parametrize("consent", [{}, {"consent": None}, {"consent": {}}, {"consent": {"visible_text": False}}])
@pytest.mark.parametrize("event", [*TEXTS, {"text_snapshot_included": True}])
def test_text_that_nobody_has_agreed_to_show_is_refused(event: dict[str, Any], consent: dict[str, Any]) -> None:
    with pytest.raises(FieldInvalid) as caught:
        request({**event, **consent})
    assert caught.value.place.startswith("$.event.")


@pytest.mark.parametrize("consent", ["yes", 1, [True], {"visible_text": "true"}, {"visible_text": 1}])
def test_only_true_is_consent(consent: Any) -> None:
    with pytest.raises(FieldInvalid):
        request({"text_excerpt": SECRET, "consent": consent})


@pytest.mark.parametrize("members", [{"raw_content_included": True}, {"event": {"raw_content_included": True}}])
def test_raw_content_is_refused_wherever_it_is_announced(members: dict[str, Any]) -> None:
    with pytest.raises(FieldInvalid) as caught:
        request(members.get("event", {}), **{name: value for name, value in members.items() if name != "event"})
    assert caught.value.place.endswith(".raw_content_included")


def test_raw_content_that_is_denied_is_no_raw_content() -> None:
    assert report({"raw_content_included": False}, raw_content_included=False).observe.event == {}


def test_members_that_nobody_knows_go_nowhere() -> None:
    given = report({"kind": "page", "html": SECRET, "consent": CONSENT}, page=SECRET)
    assert SECRET not in repr(given)


@given(st.text(min_size=1, max_size=4000))
def test_an_excerpt_is_clipped_and_its_digest_is_of_the_whole(text: str) -> None:
    (action,) = report({"text_excerpt": text, "consent": CONSENT}).observe.seen.actions
    assert len(str(action["summary"])) <= MAX_EXCERPT
    assert action["text_digest"] == digest(text)


def test_of_a_long_conversation_the_end_is_shown_and_all_of_it_judged() -> None:
    messages = [{"role": "user", "text_excerpt": f"message {number}"} for number in range(80)]
    given = report({"messages": messages, "consent": CONSENT}).observe
    assert len(given.event["messages"]) == 80  # type: ignore[arg-type]
    assert [action["summary"] for action in given.seen.actions] == [f"message {n}" for n in range(80 - MAX_ACTIONS, 80)]


def test_a_digest_that_an_adapter_sends_in_the_place_of_text_needs_no_consent() -> None:
    given = report({"messages": [{"role": "user", "text_digest": digest("x")}]}).observe
    assert given.event["messages"] == [{"role": "user", "text_digest": digest("x")}]


@pytest.mark.parametrize(
    ("event", "marks"),
    [
        ({}, ()),
        ({"command": "ls"}, ("command",)),
        ({"messages": [{"role": "user"}]}, ("conversation",)),
        ({"text_excerpt": "x", "consent": CONSENT}, ("visible_text",)),
        ({"action_class": "send"}, ("send",)),
        ({"action_class": "read"}, ()),
    ],
)
def test_marks_are_words_for_what_was_in_an_event(event: dict[str, Any], marks: tuple[str, ...]) -> None:
    assert report(event).observe.seen.marks == marks


def test_a_session_is_known_by_its_source_and_its_id_or_title() -> None:
    keys = [
        key_of(),
        key_of(session={"title": "a"}),
        key_of(session={"id": "a"}),
        key_of(session={"title": "b"}),
        key_of(source={"type": "cli"}, session={"title": "a"}),
        *(
            key_of(source={"type": "browser", name: "x"}, session={"title": "a"})
            for name in ("app", "origin", "process")
        ),
    ]
    assert len(set(keys)) == len(keys)


def test_the_title_of_a_session_with_an_id_may_change() -> None:
    assert key_of(session={"id": "a", "title": "b"}) == key_of(session={"id": "a", "title": "c"})


@pytest.mark.parametrize("empty", [None, ""])
def test_members_that_are_empty_are_as_good_as_absent(empty: str | None) -> None:
    source = {"type": "browser", "app": empty, "origin": empty, "process": empty}
    assert key_of(source=source, session={"title": "a", "id": empty}) == key_of(session={"title": "a"})


def test_without_a_mission_an_observer_may_observe_and_nothing_else() -> None:
    mission = report({}).reporter.mission
    assert mission.allowed_tools == OBSERVATION_TOOLS
    assert (mission.resource_scope, mission.max_tool_calls, mission.max_duration_s) == (("**",), 5000, 86_400)


def test_a_mission_that_leaves_members_out_gets_those_of_the_hub_but_no_tools() -> None:
    mission = report({}, mission={"agent_id": "agent:x", "max_tool_calls": 7}).reporter.mission
    assert (mission.agent_id, mission.max_tool_calls, mission.max_duration_s) == ("agent:x", 7, 86_400)
    assert (mission.allowed_tools, mission.resource_scope) == ((), ("**",))


@pytest.mark.parametrize(
    ("mission", "place"),
    [
        ({"max_calls": 3}, "$.mission"),
        ({"agent_id": "\x1b[2J"}, "$.mission.agent_id"),
        ({"max_tool_calls": -1}, "$.mission.max_tool_calls"),
    ],
)
def test_a_mission_that_says_what_is_not_known_is_refused(mission: dict[str, Any], place: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        request({}, mission=mission)
    assert caught.value.place == place


@pytest.mark.parametrize("command", ["ls -l", ["ls", "-l"]])
def test_a_command_is_judged_as_it_was_sent(command: Any) -> None:
    assert report({"command": command, "exit_code": 0}).observe.event == {"command": command, "exit_code": 0}


@pytest.mark.parametrize("said", ["send", " send", "SEND\t"])
def test_what_was_done_is_known_however_it_is_spelt(said: str) -> None:
    observe = report({"action_class": said}).observe
    assert (observe.event["action_class"], observe.seen.marks) == ("send", ("send",))


@pytest.mark.parametrize("event", [{"command": "x --token=SEKRET"}, {"target": "https://u:SEKRET@h.example/?k=SEKRET"}])
def test_what_is_shown_of_an_event_has_no_secrets_that_can_be_told(event: dict[str, Any]) -> None:
    (action,) = report(event).observe.seen.actions
    assert "SEKRET" not in str(action["summary"])
