"""Evidence of what adapters have seen: judged and receipted on the same path as calls."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, SessionNotFound
from remit.governor.clock import format_timestamp
from remit.governor.evaluate import Evaluate
from remit.governor.observe import ObserveEvent, PreviewDecision, SourceType, parse_digest
from remit.governor.sessions import EndSession
from tests.governor.world import ALLOWED, FORBIDDEN, Service

TOOLS = ("browser_observe", "desktop_observe", "cli_command", "cli_observe")
SEEN: dict[str, JSON] = {"kind": "page", "target": "https://example.com/a"}


@pytest.fixture
def name(service: Service) -> str:
    return service.start(allowed_tools=TOOLS, resource_scope=("**",)).session.id


@pytest.mark.parametrize(
    ("source", "event", "tool"),
    [
        ("browser", SEEN, "browser_observe"),
        ("desktop", SEEN, "desktop_observe"),
        ("cli", SEEN, "cli_observe"),
        ("cli", {"command": "ls"}, "cli_command"),
        ("browser", {"command": "ls"}, "browser_observe"),
    ],
)
def test_an_event_is_receipted_under_the_tool_of_its_source(
    service: Service, name: str, source: SourceType, event: dict[str, JSON], tool: str
) -> None:
    answer = service.run(ObserveEvent(name, source, event))
    assert (answer.receipt.claims.tool, answer.permits) == (tool, True)


def test_the_digest_of_what_was_seen_is_bound_to_the_receipt(service: Service, name: str) -> None:
    claims = service.run(
        ObserveEvent(name, "browser", SEEN | {"content_digest": "sha-256:" + "ab" * 32})
    ).receipt.claims
    assert claims.result_hash == parse_digest("sha-256:" + "AB" * 32)
    assert claims.result_hash.value == base64.urlsafe_b64encode(bytes.fromhex("ab" * 32)).decode().rstrip("=")


@pytest.mark.parametrize("digest", ["sha-256:", "sha-256:" + "g" * 64, "sha256:" + "a" * 64, "a" * 64, 7, {}, ""])
def test_a_digest_of_another_form_is_refused_and_nothing_is_kept(service: Service, name: str, digest: JSON) -> None:
    with pytest.raises(FieldInvalid) as caught:
        service.run(ObserveEvent(name, "browser", SEEN | {"content_digest": digest}))
    assert caught.value.place == "$.event.content_digest"
    assert service.session(name).length == 0


def test_a_source_that_is_not_known_is_refused(service: Service, name: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        service.run(ObserveEvent(name, "toaster", SEEN))  # type: ignore[arg-type]
    assert caught.value.place == "$.source.type"


@pytest.mark.parametrize(
    ("said", "action_class", "side_effect"),
    [
        ("send", "send", "external_send"),
        ("write", "write", "internal_write"),
        ("read", "read", "none"),
        ("steal", "observe", "none"),
        (None, "observe", "none"),
        (["send"], "observe", "none"),
    ],
)
def test_a_receipt_says_what_the_observer_says_was_done(
    service: Service, name: str, said: JSON, action_class: str, side_effect: str
) -> None:
    claims = service.run(ObserveEvent(name, "browser", {"kind": "page", "action_class": said})).receipt.claims
    assert (claims.action_class, claims.side_effect_class) == (action_class, side_effect)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"hidden_provider_activity": True}, "provider_side_activity"),
        ({"command": "sudo rm -rf /"}, "dangerous_effect"),
        ({"action_class": "send", "target": "/home/user/.ssh/id_ed25519"}, "secret_target"),
    ],
)
def test_what_is_dangerous_or_hidden_is_no_permit(
    service: Service, name: str, event: dict[str, JSON], code: str
) -> None:
    answer = service.run(ObserveEvent(name, "cli", event))
    assert answer.receipt.claims.internal_denial_code == code


def test_text_of_an_event_is_in_no_receipt(service: Service, name: str) -> None:
    answer = service.run(ObserveEvent(name, "browser", SEEN | {"text_excerpt": "dear diary"}))
    payload = base64.urlsafe_b64decode(answer.receipt.token.split(".")[1] + "==")
    assert b"dear diary" not in payload


def test_an_event_that_is_reported_twice_is_one(service: Service, name: str) -> None:
    first = service.run(ObserveEvent(name, "browser", SEEN, idempotency_key="event-1"))
    second = service.run(ObserveEvent(name, "browser", SEEN, idempotency_key="event-1"))
    assert (second.repeated, second.receipt.token) == (True, first.receipt.token)


def test_considering_leaves_no_trace(service: Service, name: str) -> None:
    seen = service.run(PreviewDecision(ObserveEvent(name, "cli", {"command": "sudo reboot"})))
    assert (seen.verdict, seen.code) == ("violation", "dangerous_effect")
    assert service.run(PreviewDecision(Evaluate(name, ALLOWED))).code == "tool_not_allowed"
    assert (service.session(name).length, service.session(name).used) == (0, 0)


def test_considering_takes_the_state_of_the_session_into_account(service: Service) -> None:
    session_id = service.start().session.id
    assert service.run(PreviewDecision(Evaluate(session_id, ALLOWED))).permits
    assert not service.run(PreviewDecision(Evaluate(session_id, FORBIDDEN))).permits
    service.run(EndSession(session_id))
    assert service.run(PreviewDecision(Evaluate(session_id, ALLOWED))).code == "session_ended"


def test_considering_for_nobody_finds_nobody(service: Service) -> None:
    with pytest.raises(SessionNotFound):
        service.run(PreviewDecision(Evaluate("pass:nobody", ALLOWED)))


# Times


def test_the_timestamp_of_an_event_is_when_it_was_observed(service: Service, name: str) -> None:
    observed = service.clock.wall_ms - 60_000
    claims = service.run(ObserveEvent(name, "browser", SEEN, observed_ms=observed)).receipt.claims
    assert (claims.timestamp, claims.iat) == (format_timestamp(observed), service.clock.wall_ms // 1000)


def test_a_timestamp_is_never_after_now(service: Service, name: str) -> None:
    claims = service.run(ObserveEvent(name, "browser", SEEN, observed_ms=service.clock.wall_ms + 1000)).receipt.claims
    assert claims.timestamp == format_timestamp(service.clock.wall_ms)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_timestamp_is_never_before_that_of_the_receipt_before_it(service: Service, name: str, forgets: bool) -> None:
    """Whether this process has made that receipt, or reads it."""
    service.clock.wall_ms += 900  # so that the second it was issued in begins before the moment it is about
    first = service.run(ObserveEvent(name, "browser", SEEN, observed_ms=service.clock.wall_ms - 1)).receipt.claims
    service.clock.pass_s(30)
    if forgets:
        service.restart()
    second = service.run(ObserveEvent(name, "browser", SEEN, observed_ms=service.clock.wall_ms - 30_100)).receipt.claims
    third = service.run(ObserveEvent(name, "browser", SEEN, observed_ms=service.clock.wall_ms - 5_000)).receipt.claims
    assert second.timestamp == first.timestamp
    assert third.timestamp == format_timestamp(service.clock.wall_ms - 5_000)


def test_an_event_among_calls_is_not_dated_before_the_call_before_it(service: Service, name: str) -> None:
    called = service.call(name, FORBIDDEN).receipt.claims
    service.clock.pass_s(5)
    claims = service.run(ObserveEvent(name, "browser", SEEN, observed_ms=service.clock.wall_ms - 60_000)).receipt.claims
    assert claims.timestamp == called.timestamp


@given(offsets=st.lists(st.one_of(st.none(), st.integers(-100_000, 100_000)), max_size=12), steps=st.data())
@settings(max_examples=25, deadline=None)
def test_timestamps_never_run_backwards_within_a_chain(offsets: list[int | None], steps: st.DataObject) -> None:
    with Service() as service:
        name = service.start(allowed_tools=TOOLS, resource_scope=("**",), max_tool_calls=50).session.id
        for offset in offsets:
            service.clock.pass_s(steps.draw(st.integers(0, 2500)) / 1000)
            observed = None if offset is None else service.clock.wall_ms + offset
            service.run(ObserveEvent(name, "browser", SEEN, observed_ms=observed))
        moments = [claims.timestamp for claims in service.claims(name)]
        assert moments == sorted(moments)
        assert service.attest(name).fault is None


def test_the_time_of_an_event_does_not_tell_requests_under_one_key_apart(service: Service, name: str) -> None:
    """What identifies a request is the event itself, which holds the time as it was given."""
    first = service.run(ObserveEvent(name, "browser", SEEN, "key"))
    again = service.run(ObserveEvent(name, "browser", SEEN, "key", measured={}, observed_ms=1))
    assert again.receipt.token == first.receipt.token
