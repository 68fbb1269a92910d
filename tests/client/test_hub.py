"""The client of the Hub: what can be asked, what is believed, and an export that is whole or raises."""

import gzip
import logging
import math
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from remit.cli.errors import UNAVAILABLE, exit_code
from remit.client import hub_calls
from remit.client.hub import Hub
from remit.errors import FieldInvalid, HubUnavailable, InputError, NotCanonicalizable, ServiceRefused
from remit.messages.hub import Consent, Event, MissionAsked, SessionTold, SourceTold
from tests.client.conftest import ConnectHub
from tests.client.hub_service import EXPORT, FORBIDDEN, HubDesk, packed
from tests.client.service import SESSION, Canned, canned_error, serve, statement
from tests.client.wire import Fault, relay
from tests.world import KEYRING

SOURCE = SourceTold(type="browser", origin="https://example.com")
EVENT = Event(kind="page", target="https://example.com/")
MEGABYTE = 2**20
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
    session, mission = SessionTold(title="example"), MissionAsked(max_tool_calls=3)
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
def test_a_hub_that_does_not_answer_is_unavailable(asked: str, connect_hub: ConnectHub, desk: HubDesk) -> None:
    with serve(desk) as port:
        pass
    with pytest.raises(HubUnavailable) as caught:
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


WHOLE = gzip.compress(EXPORT)
HALF = len(WHOLE) // 2


def test_an_export_comes_packed_or_not(connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    desk.script = [Canned(body=EXPORT), Canned(body=iter([EXPORT[:99], EXPORT[99:]])), packed(WHOLE)]
    for _ in range(3):
        assert b"".join(connect_hub(port).export()) == EXPORT
    assert {seen.headers["Accept-Encoding"] for seen in desk.seen} == {"gzip"}


NOT_WHOLE: dict[str, Callable[[], Canned]] = {
    "half": lambda: packed(WHOLE[:HALF]),
    "all but the last byte": lambda: packed(WHOLE[:-1]),
    "nothing": packed,
    "more": lambda: packed(WHOLE, b"more"),
    "not packed": lambda: packed(EXPORT),
    "packed otherwise": lambda: Canned(body=EXPORT, headers={"Content-Encoding": "br"}),
    "another sum": lambda: packed(WHOLE[:-8], zlib.crc32(b"").to_bytes(4, "little"), WHOLE[-4:]),
}


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_an_export_that_is_not_whole_raises(case: str, connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    desk.script = [NOT_WHOLE[case]()]
    with pytest.raises(HubUnavailable) as caught:
        list(connect_hub(port).export())
    assert caught.value.code == "hub_unavailable"


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_an_export_that_is_cut_raises(
    share: float, plain: bool, connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    desk.script = [Canned(body=EXPORT)] if plain else []
    at = int(len(EXPORT if plain else WHOLE) * share)
    with relay(port, Fault("cut", "down", at)) as relayed, pytest.raises(HubUnavailable):
        list(connect_hub(relayed).export())


def test_an_export_whose_end_is_only_the_end_of_the_connection_raises(connect_hub: ConnectHub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + EXPORT[:1000])

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HubUnavailable):
            list(connect_hub(listening.getsockname()[1]).export())
        thread.join()


def test_an_export_that_stalls_is_given_up_in_time(connect_hub: ConnectHub, port: int) -> None:
    with relay(port, Fault("drop", "down", HALF)) as relayed:
        begun = time.monotonic()
        with pytest.raises(HubUnavailable):
            list(connect_hub(relayed, timeout_s=0.5).export())
        assert time.monotonic() - begun < 5


def test_an_export_is_never_held_whole(connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    large = gzip.compress(b" " * (16 * MEGABYTE))
    desk.script = [packed(large), packed(large)]
    hub = connect_hub(port)
    assert sum(map(len, hub.export())) == 16 * MEGABYTE
    tracemalloc.start()
    try:
        assert sum(map(len, hub.export())) == 16 * MEGABYTE
        assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_an_export_that_is_not_wanted_any_more_lets_go(desk: HubDesk, port: int) -> None:
    with Hub(f"http://127.0.0.1:{port}", "s3cret") as hub:
        parts = hub.export()
        assert next(parts)
        parts.close()  # type: ignore[attr-defined]
        assert hub.health().ok
        assert b"".join(hub.export()) == EXPORT


FORK = """
import os, sys
from remit.client.hub import Hub
from remit.errors import HubUnavailable
hub = Hub(f"http://127.0.0.1:{sys.argv[1]}", "s3cret")
parts = hub.export()
assert next(parts)
child = os.fork()
if child == 0:
    try:
        next(parts)
    except HubUnavailable:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sys.exit(sum(map(len, parts)) == 0)
"""


def test_an_export_goes_on_in_one_half_of_a_fork_only(port: int) -> None:
    assert subprocess.run([sys.executable, "-c", FORK, str(port)], timeout=60, check=False).returncode == 0


def test_closing_the_client_ends_an_export(desk: HubDesk, port: int) -> None:
    hub = Hub(f"http://127.0.0.1:{port}", "s3cret")
    parts = hub.export()
    assert next(parts)
    hub.close()
    with pytest.raises(HubUnavailable):
        next(parts)
    with pytest.raises(HubUnavailable):
        next(hub.export())
