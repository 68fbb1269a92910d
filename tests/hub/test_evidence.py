"""From what adapters send to what is judged and what is shown: text goes one way, its digest the other."""

import base64
import hashlib
import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json, to_builtins

from remit.claims.canonical import canonicalize
from remit.claims.receipt import ActionClass
from remit.claims.types import COUNTER_NAME, SideEffectClass, convert
from remit.errors import FieldInvalid
from remit.governor.observe import ReportEvent
from remit.hub.evidence import MAX_ACTIONS, MAX_MEASURED_MESSAGES, OBSERVATION_TOOLS, build_report, build_reporter
from remit.schemas.hub import MAX_EXCERPT, HubStartRequest, ObserveRequest

CONSENT = {"visible_text": True}
# 2026-01-02T03:04:05Z
NOW_MS = 1_767_323_045_000
SECRET = "the text that a person has seen"


def digest(text: str) -> str:
    return "sha-256:" + hashlib.sha256(text.encode()).hexdigest()


def request(event: dict[str, Any], **members: Any) -> ObserveRequest:
    return convert(ObserveRequest, {"source": {"type": "browser"}, "event": event, **members})


def report(event: dict[str, Any], **members: Any) -> ReportEvent:
    return build_report(request(event, **members), NOW_MS)


def measured(event: dict[str, Any]) -> dict[str, Any]:
    """Return the measurements of an event as JSON, with each digest as events write it."""
    told: dict[str, Any] = to_builtins(report(event).observe.measured)
    for one in told.values():
        if "digest" in one:
            raw = base64.urlsafe_b64decode(one["digest"]["value"] + "=")
            one["digest"] = f"{one['digest']['alg']}:{raw.hex()}"
    return told


def key_of(**members: Any) -> str:
    return build_reporter(convert(HubStartRequest, {"source": {"type": "browser"}, **members})).key


TEXTS: list[dict[str, Any]] = [
    {"text_snapshot": SECRET},
    {"text_excerpt": SECRET},
    {"text_excerpt": SECRET, "text_snapshot_included": True},
    {"messages": [{"role": "user", "text_excerpt": SECRET}]},
    {"stdout": SECRET},
    {"stderr": SECRET},
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


@pytest.mark.parametrize("said", get_args(ActionClass))
def test_each_value_of_action_class_is_taken_as_it_is(said: str) -> None:
    assert report({"action_class": said}).observe.event["action_class"] == said


@pytest.mark.parametrize(
    ("members", "place", "allowed"),
    [
        ({"event": {"action_class": "bogus"}}, "$.event.action_class", get_args(ActionClass)),
        ({"event": {"action_class": "Send"}}, "$.event.action_class", get_args(ActionClass)),
        ({"event": {"action_class": ""}}, "$.event.action_class", get_args(ActionClass)),
        ({"source": {"type": "phone"}}, "$.source.type", ("browser", "desktop", "cli")),
        (
            {"mission": {"allowed_side_effect_classes": ["none", "everything"]}},
            "$.mission.allowed_side_effect_classes[1]",
            get_args(SideEffectClass),
        ),
    ],
)
def test_an_unknown_value_of_an_enumeration_is_refused_naming_those_allowed(
    members: dict[str, Any], place: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(FieldInvalid) as caught:
        convert(ObserveRequest, {"source": {"type": "cli"}, "event": {}, **members})
    assert (caught.value.place, caught.value.problem) == (place, f"must be one of {', '.join(sorted(allowed))}")


# Digests


def test_every_text_that_is_sent_has_its_digest_among_the_measurements() -> None:
    texts = {name: f"the {name}" for name in ("text_snapshot", "text_excerpt", "stdout", "stderr")}
    messages = [{"role": "user", "text_excerpt": "first"}, {"role": "tool"}, {"text_excerpt": "third"}]
    told = measured({**texts, "messages": messages, "consent": CONSENT})
    assert {name: one["digest"] for name, one in told.items()} == {
        **{f"remit.event.{name}": digest(text) for name, text in texts.items()},
        "remit.event.messages.0.text_excerpt": digest("first"),
        "remit.event.messages.2.text_excerpt": digest("third"),
    }
    assert {one["status"] for one in told.values()} == {"success"}


def test_digests_that_a_caller_gives_are_recorded_as_given() -> None:
    given = {"stdout_digest": digest("o"), "stderr_digest": digest("e")}
    messages = [{"text_digest": digest("whole"), "text_excerpt": "part"}]
    told = measured({**given, "messages": messages, "consent": CONSENT})
    assert {name: (one["digest"], one["status"]) for name, one in told.items()} == {
        "remit.event.stdout_digest": (digest("o"), "not-run"),
        "remit.event.stderr_digest": (digest("e"), "not-run"),
        "remit.event.messages.0.text_excerpt": (digest("part"), "success"),
        "remit.event.messages.0.text_digest": (digest("whole"), "not-run"),
    }


@pytest.mark.parametrize("count", [MAX_MEASURED_MESSAGES, MAX_MEASURED_MESSAGES + 1, 1000])
def test_beyond_a_bound_messages_have_one_digest_over_the_list_of_theirs(count: int) -> None:
    messages = [{"role": "user", "text_excerpt": f"message {number}"} for number in range(count)]
    told = measured({"messages": messages, "consent": CONSENT})
    if count <= MAX_MEASURED_MESSAGES:
        assert len(told) == count
        return
    listed = [{"text_excerpt": digest(f"message {number}")} for number in range(count)]
    assert {name: one["digest"] for name, one in told.items()} == {
        "remit.event.messages": digest(canonicalize(listed).decode())
    }


def test_an_event_without_text_digests_and_time_measures_nothing() -> None:
    assert measured({"kind": "page", "text_snapshot": "", "messages": [{"role": "user"}]}) == {}


@given(
    st.lists(st.sampled_from(["text_snapshot", "text_excerpt", "stdout", "stderr"]), unique=True), st.integers(0, 40)
)
def test_names_of_measurements_are_those_that_a_receipt_may_have(names: list[str], count: int) -> None:
    messages = [{"text_excerpt": "x", "text_digest": digest("y")}] * count
    told = measured({**dict.fromkeys(names, "x"), "messages": messages, "consent": CONSENT})
    assert all(re.fullmatch(COUNTER_NAME, name) for name in told)
    assert len(told) <= 4 + 2 * MAX_MEASURED_MESSAGES


# Times


@pytest.mark.parametrize(
    ("given", "at_ms"),
    [
        ("2026-01-02T03:04:05Z", NOW_MS), ("2026-01-02T05:04:05.250+02:00", NOW_MS + 250),
        ("2026-01-02t03:04:04.9999z", NOW_MS - 1), ("2026-01-02T03:09:05Z", NOW_MS + 300_000),
        ("2020-01-01T00:00:00Z", 1_577_836_800_000), ("2024-12-31T23:59:60Z", 1_735_689_600_000),
    ],
)  # fmt: skip
def test_the_time_of_an_event_is_the_one_given_and_stands_among_the_measurements(given: str, at_ms: int) -> None:
    observe = report({"observed_at": given}).observe
    assert observe.observed_ms == at_ms
    assert observe.measured["remit.event.observed_at"].collected_at == given


@pytest.mark.parametrize(
    "given",
    [
        "2026-01-02T03:09:05.001Z", "2027-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2019-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
        "2025-06-01T12:00:60Z", "yesterday", "2026-01-02", "2026-01-02T03:04:05", f"2026-01-02T03:04:05.{'1' * 60}Z",
    ],
)  # fmt: skip
def test_a_time_in_the_future_or_before_2020_is_refused_naming_the_field(given: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        report({"observed_at": given})
    assert caught.value.place == "$.event.observed_at"


@pytest.mark.parametrize("event", [{"command": "x --token=SEKRET"}, {"target": "https://u:SEKRET@h.example/?k=SEKRET"}])
def test_what_is_shown_of_an_event_has_no_secrets_that_can_be_told(event: dict[str, Any]) -> None:
    (action,) = report(event).observe.seen.actions
    assert "SEKRET" not in str(action["summary"])
