"""The client of the Hub: what can be asked, and what is believed."""

import logging
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from remit.cli.errors import UNAVAILABLE, exit_code
from remit.client import hub_calls
from remit.errors import FieldInvalid, HubUnavailable, InputError, NotCanonicalizable, ServiceRefused
from remit.schemas.hub import Consent, Event, RequestedMission, SessionInfo, SourceInfo
from tests.client.conftest import ConnectHub
from tests.client.hub_service import EXPORT, FORBIDDEN, HubDesk
from tests.client.service import SESSION, canned_error, serve, statement
from tests.client.wire import Fault, relay
from tests.ports import refusing_port
from tests.world import KEYRING

SOURCE = SourceInfo(type="browser", origin="https://example.com")
EVENT = Event(kind="page", target="https://example.com/")
REFUSED_TOKEN = 77


@pytest.fixture
def desk() -> HubDesk:
    return HubDesk()


@pytest.fixture
def port(desk: HubDesk) -> Iterator[int]:
    with serve(desk) as port:
        yield port


def test_everything_that_can_be_asked_is_answered(connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    hub = connect_hub(port, keyring=KEYRING)
    session, mission = SessionInfo(title="example"), RequestedMission(max_tool_calls=3)
    assert hub.health().ok
    assert hub.status().sessions == 1
    assert hub.start(SOURCE, session=session, mission=mission).ardur_session_id == SESSION
    assert hub.observe(SOURCE, EVENT, session=session).decision == "PERMIT"
    assert hub.observe(SOURCE, Event(target=FORBIDDEN)).decision == "DENY"
    assert hub.check(SOURCE, EVENT).policy.decision == "compliant"
    assert hub.attest(SESSION, end=True).claims.state == "ended"
    assert b"".join(hub.export()) == EXPORT
    assert len({seen.connection for seen in desk.seen}) == 1
    assert {seen.headers["Authorization"] for seen in desk.seen} == {"Bearer s3cret"}


def test_an_event_without_a_key_gets_one_of_its_own_and_others_keep_theirs(
    connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    hub = connect_hub(port)
    receipts = [hub.observe(SOURCE, EVENT).receipt_id for _ in range(2)]
    kept = [hub.observe(SOURCE, EVENT, idempotency_key="mine").receipt_id for _ in range(2)]
    assert (len(set(receipts)), len(set(kept)), desk.decided["mine"]) == (2, 1, 1)


@pytest.mark.parametrize("at", [0, 10, 300, 900])
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_connection_that_is_cut_costs_no_second_receipt(
    way: Any, at: int, connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    with relay(port, Fault("cut", way, at), times=1) as relayed:
        assert connect_hub(relayed).observe(SOURCE, EVENT).decision == "PERMIT"
    assert len(desk.session.receipts) == len(desk.decided) == 1


ASKED: dict[str, Any] = {
    "health": lambda hub: hub.health(),
    "status": lambda hub: hub.status(),
    "start": lambda hub: hub.start(SOURCE),
    "observe": lambda hub: hub.observe(SOURCE, EVENT),
    "check": lambda hub: hub.check(SOURCE, EVENT),
    "attest": lambda hub: hub.attest(SESSION),
    "attest and end": lambda hub: hub.attest(SESSION, end=True),
    "export": lambda hub: list(hub.export()),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_hub_that_does_not_answer_is_unavailable(asked: str, connect_hub: ConnectHub) -> None:
    with refusing_port() as port, pytest.raises(HubUnavailable) as caught:
        ASKED[asked](connect_hub(port, retries=0))
    assert (caught.value.code, exit_code(caught.value)) == ("hub_unavailable", UNAVAILABLE)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("asked", ASKED)
def test_a_token_that_is_refused_has_an_exit_code_of_its_own(
    asked: str, connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    desk.script = [canned_error(401, "hub_auth_required", "not s3cret")]
    with pytest.raises(ServiceRefused) as caught:
        ASKED[asked](connect_hub(port))
    assert (caught.value.error_code, exit_code(caught.value)) == ("hub_auth_required", REFUSED_TOKEN)
    assert "s3cret" not in str(caught.value)


UNBELIEVED: list[tuple[str, dict[str, Any]]] = [
    ("health", {"ok": False}),
    ("status", {"sessions": -1}),
    ("status", {"latest_receipt": {}}),
    ("start", {"ardur_session_id": "pass:other:0001"}),
    ("start", {"source": {"type": "cli"}}),
    ("start", {"token": "a.b.c"}),
    ("observe", {"decision": "permit"}),
    ("observe", {"receipt_id": "rcpt:other"}),
    ("observe", {"ardur_session_id": "pass:other:0001"}),
    ("observe", {"policy": {"decision": "violation", "reason": "", "tool_name": "", "arguments": {}}}),
    ("observe", {"policy": {"decision": "compliant", "reason": "", "tool_name": "", "arguments": {}}}),
    ("observe", {"session_id": "browser|other"}),
    ("check", {"policy": {"decision": "PERMIT", "reason": "", "tool_name": "", "arguments": {}}}),
    ("attest", {"claims": {}}),
    ("attest", {"token": statement("pass:other:0001", ended=False).token}),
    ("attest and end", {"token": statement(ended=False).token}),
]


@pytest.mark.parametrize(("asked", "change"), UNBELIEVED)
def test_an_answer_that_is_not_to_the_request_is_no_answer(
    asked: str, change: dict[str, Any], connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    desk.change = change
    with pytest.raises(HubUnavailable) as caught:
        ASKED[asked](connect_hub(port, keyring=KEYRING))
    assert caught.value.code == "hub_unavailable"


def test_members_that_we_do_not_know_are_passed_over(connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    desk.change = {"mood": {"good": [1, 2]}}
    hub = connect_hub(port)
    assert hub.status().ok
    actions = hub.observe(SOURCE, EVENT).session_review.actions
    assert msgspec.json.decode(actions) == [{"kind": "page"}]


REFUSED: dict[str, tuple[type[InputError], Event]] = {
    "not a digest": (FieldInvalid, Event(content_digest="sha-256:")),
    "not a number": (NotCanonicalizable, Event(hidden_provider_activity={"seen": math.nan})),
    "half a character": (NotCanonicalizable, Event(target="\ud800")),
    "too long": (FieldInvalid, Event(target="x" * 10_000)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_hub_would_not_take_is_not_sent(case: str) -> None:
    error, event = REFUSED[case]
    for build in (hub_calls.observe, hub_calls.check):
        with pytest.raises(error) as caught:
            build(SOURCE, event)
        assert caught.value.code == error.code


def test_text_is_sent_with_consent() -> None:
    event = Event(text_excerpt="hello", consent=Consent(visible_text=True))
    assert b"hello" in hub_calls.observe(SOURCE, event).body


def test_neither_the_client_nor_the_log_shows_the_token(
    connect_hub: ConnectHub, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        hub = connect_hub(port)
        hub.observe(SOURCE, EVENT)
        list(hub.export())
    assert caplog.records
    assert "s3cret" not in caplog.text + repr(hub)
