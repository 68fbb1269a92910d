"""Reviews: counts from the session's own row, and the last of what was done, whoever has added it."""

import pytest
from msgspec import json, structs

from remit.governor.evaluate import EventSummary
from remit.governor.observe import ObserveEvent, ReportEvent
from remit.governor.sources import Reporter, StartSourceSession
from remit.hub.reviews import MAX_ACTIONS, Review, ReviewCache, load_review, review_answer
from remit.ledger.records import EventNote
from tests.governor.conftest import *  # noqa: F403 - the fixtures of a service
from tests.governor.world import Service, mission

REPORTER = Reporter(
    "hub:one",
    '{"type":"browser","origin":"https://chat.example.com/x","title":"A chat"}',
    mission(allowed_tools=("browser_observe",), resource_scope=("**",), max_tool_calls=200),
)


def note(number: int, actions: int = 1) -> EventNote:
    """Return the note of the n-th event."""
    return EventNote(number, json.encode([{"n": number, "i": index} for index in range(actions)]).decode())


def review(*notes: EventNote) -> Review:
    found = Review("hub:one", {"type": "cli", "title": "t"})
    for one in notes:
        found.add_if_next(one)
    return found


def numbers(found: Review) -> list[int]:
    return [action["n"] for action in json.decode(found.actions())]


def test_what_was_done_is_shown_in_the_order_of_events() -> None:
    assert numbers(review()) == []
    assert numbers(review(note(1), note(2, 2), note(3))) == [1, 2, 2, 3]


@pytest.mark.parametrize("other", [1, 2, 4])
def test_an_event_that_does_not_come_next_is_not_added(other: int) -> None:
    assert numbers(review(note(1), note(2), note(other))) == [1, 2]


def test_only_the_last_actions_are_shown() -> None:
    assert numbers(review(*map(note, range(1, 200)))) == list(range(200 - MAX_ACTIONS, 200))
    assert numbers(review(note(1, 30), note(2, 30))) == [1] * 20 + [2] * 30


def test_no_more_is_kept_than_is_shown() -> None:
    found = review(*map(note, range(1, 400)))
    assert len(found.text) == sum(found.sizes)
    assert len(found.sizes) == MAX_ACTIONS


@pytest.mark.parametrize(
    ("there", "up_to", "lacks"),
    [([], 0, False), ([1], 1, False), ([1, 2], 1, False), ([1], 2, True), ([2], 2, True), ([1, 3], 3, True)],
)
def test_what_is_missing_is_noticed(there: list[int], up_to: int, lacks: bool) -> None:
    assert review(*map(note, there)).lacks(up_to) is lacks


def test_what_was_read_does_not_take_the_place_of_what_is_newer() -> None:
    cache = ReviewCache()
    newer = cache.put("one", review(note(1), note(2)))
    assert cache.put("one", review(note(1))) is newer
    newest = review(*map(note, range(1, 4)))
    assert cache.put("one", newest) is cache.get("one") is newest


def test_what_was_looked_at_longest_ago_is_forgotten_first() -> None:
    cache = ReviewCache()
    for number in range(64):
        cache.put(f"s{number}", review())
    assert cache.get("s0") is not None
    cache.put("another", review())
    assert (cache.get("s0") is not None, cache.get("s1")) == (True, None)


def test_a_review_says_how_a_session_stands(service: Service) -> None:
    seen = EventSummary(("visible_text",), ({"kind": "page", "role": None, "summary": "hello"},))
    session_id, answer = service.run(ReportEvent(REPORTER, ObserveEvent("", "browser", {"kind": "page"}, "", seen)))
    hidden = ObserveEvent("", "browser", {"hidden_provider_activity": True}, "", seen)
    _, last = service.run(ReportEvent(REPORTER, hidden))
    found = load_review(service.governor.context, session_id)
    assert found is not None
    review = review_answer(service.session(session_id), found)
    assert (review.provider, review.title, review.status) == ("chat.example.com", "A chat", "active")
    assert (review.observations, review.verdicts) == (2, {"compliant": 1, "violation": 0, "insufficient_evidence": 1})
    assert review.labels == ("provider_side_activity", "visible_text")
    assert (review.latest_receipt_id, review.latest_receipt_hash) == (last.receipt.claims.receipt_id, last.receipt.hash)
    assert review.summary == "2 observations; receipts: 1 compliant, 1 without enough evidence"
    actions = json.decode(review.actions)
    assert [action["verdict"] for action in actions] == ["compliant", "insufficient_evidence"]
    assert actions[0]["receipt_id"] == answer.receipt.claims.receipt_id


@pytest.mark.parametrize("origin", ["http://[", "not a url", ""])
def test_a_source_whose_origin_is_no_url_is_known_by_its_program(service: Service, origin: str) -> None:
    session = service.run(StartSourceSession(REPORTER)).session
    details = {"type": "browser", "title": "t", "origin": origin, "app": "Navigator"}
    assert review_answer(session, structs.replace(review(), details=details)).provider == "Navigator"


def test_a_session_that_no_adapter_reports_to_has_no_review(service: Service) -> None:
    session_id = service.start().session.id
    assert load_review(service.governor.context, session_id) is None
