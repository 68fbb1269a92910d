"""The answer to an event is believed if it is about that event: with a keyring, by what is signed."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from remit.errors import HubUnavailable
from remit.schemas.hub import Event, SourceInfo
from tests.client.conftest import ConnectHub
from tests.client.hub_service import HubDesk
from tests.client.service import serve
from tests.world import KEYRING

SOURCE = SourceInfo(type="browser", origin="https://example.com")


@pytest.fixture
def desk() -> HubDesk:
    return HubDesk()


@pytest.fixture
def port(desk: HubDesk) -> Iterator[int]:
    with serve(desk) as port:
        yield port


FULL = Event(
    kind="page",
    action_class="send",
    target="https://example.com/",
    content_digest="sha-256:" + "0" * 64,
    capture_mode="dom",
    command=("true",),
    exit_code=0,
    stdout_digest="sha-256:" + "1" * 64,
    stderr_digest="sha-256:" + "2" * 64,
    observed_at="2026-01-01T00:00:00Z",
)
OTHERWISE: dict[str, Any] = {
    "kind": "form",
    "action_class": "read",
    "target": "https://example.com/other",
    "content_digest": "sha-256:" + "3" * 64,
    "capture_mode": None,
    "command": ["false"],
    "exit_code": 1,
    "stdout_digest": None,
    "stderr_digest": "sha-256:" + "3" * 64,
    "observed_at": "2026-01-01T00:00:01Z",
    "hidden_provider_activity": {"tools": 1},
}


def test_a_permit_for_the_event_that_was_sent_is_believed(connect_hub: ConnectHub, port: int) -> None:
    hub = connect_hub(port, keyring=KEYRING)
    for kind in ("browser", "desktop", "cli"):
        source = SourceInfo(type=kind)
        assert hub.observe(source, FULL).policy.arguments["action_class"] == "send"
        assert hub.observe(source, Event()).decision == "PERMIT"


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_permit_for_another_event_is_not_believed(
    name: str, connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    meant = {**msgspec.to_builtins(FULL), name: OTHERWISE[name]}
    desk.mistaken = {"source": {"type": "browser"}, "event": meant}
    with pytest.raises(HubUnavailable) as caught:
        connect_hub(port, keyring=KEYRING).observe(SOURCE, FULL)
    assert name in str(caught.value)


def test_a_permit_beside_arguments_that_nobody_has_signed_is_not_believed(
    connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    answer = connect_hub(port, keyring=KEYRING).observe(SOURCE, FULL)
    desk.mistaken = {"source": {"type": "browser"}, "event": {"target": "https://example.com/other"}}
    desk.change = {"policy": answer.policy}
    with pytest.raises(HubUnavailable) as caught:
        connect_hub(port, keyring=KEYRING).observe(SOURCE, FULL)
    assert "other arguments" in str(caught.value)


@pytest.mark.parametrize(("kind", "command"), [("desktop", ("true",)), ("cli", ("true",)), ("browser", None)])
def test_a_permit_for_another_tool_is_not_believed(
    kind: str, command: Any, connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    event = Event(command=command)
    desk.mistaken = {"source": {"type": kind}, "event": msgspec.to_builtins(event)}
    source = SourceInfo(type="browser" if kind != "browser" else "cli")
    with pytest.raises(HubUnavailable) as caught:
        connect_hub(port, keyring=KEYRING).observe(source, event)
    assert caught.value.code == "hub_unavailable"


def test_a_review_of_another_source_is_not_believed(connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    review = connect_hub(port).observe(SOURCE, FULL).session_review
    desk.change = {"session_review": msgspec.structs.replace(review, source={"type": "cli"})}
    with pytest.raises(HubUnavailable) as caught:
        connect_hub(port).observe(SOURCE, FULL)
    assert caught.value.code == "hub_unavailable"
