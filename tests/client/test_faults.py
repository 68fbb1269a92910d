"""A network that fails: no receipt twice, no call beyond its deadline, no error that reads as a decision.

Each case is run at many places of the request and of the answer, several at a time.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remit.errors import ServiceUnavailable
from tests.client.certs import Authority
from tests.client.conftest import Connect
from tests.client.service import SESSION, Desk, serve
from tests.client.wire import Fault, Kind, Way, relay

ARGUMENTS = {"path": "/srv/project/" + "x" * 300}
# A request has some 650 bytes, an answer some 2,400; with TLS there is more.
PLACES: dict[Way, range] = {"up": range(0, 800, 20), "down": range(0, 2600, 65)}
FEW_PLACES: dict[Way, range] = {"up": range(0, 800, 160), "down": range(0, 2600, 520)}
# On a busy machine, what is due at once is late by this much at most.
SLACK_S = 4.0


def at_each(places: Iterable[int], case: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(case, places))


def asking(connect: Connect, port: int, **settings: Any) -> str:
    proxy = connect(port, **settings)
    return proxy.evaluate(SESSION, "read_file", ARGUMENTS).decision


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_connection_cut_once_costs_an_attempt_and_no_receipt(
    way: Way, connect: Connect, desk: Desk, port: int
) -> None:
    def case(at: int) -> None:
        with relay(port, Fault("cut", way, at), times=1) as relayed:
            assert asking(connect, relayed) == "PERMIT"

    at_each(PLACES[way], case)
    assert len(desk.session.receipts) == len(desk.decided) == len(PLACES[way])


def test_a_cut_of_tls_costs_an_attempt_and_no_receipt(connect: Connect, desk: Desk, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    places = range(0, 3600, 150)
    with serve(desk, pair=ours.issue("service")) as port:

        def case(at: int) -> None:
            with relay(port, Fault("cut", "down", at), times=1) as relayed:
                assert asking(connect, relayed, scheme="https", ca=ours.ca) == "PERMIT"

        at_each(places, case)
    assert len(desk.session.receipts) == len(desk.decided) == len(places)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("kind", ["drop", "dribble", "delay"])
def test_a_connection_that_stalls_once_costs_an_attempt_and_no_receipt(
    kind: Kind, way: Way, connect: Connect, desk: Desk, port: int
) -> None:
    def case(at: int) -> None:
        with relay(port, Fault(kind, way, at), times=1) as relayed:
            assert asking(connect, relayed, timeout_s=3) == "PERMIT"

    at_each(FEW_PLACES[way], case)
    assert len(desk.session.receipts) == len(desk.decided) == len(FEW_PLACES[way])


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("kind", ["cut", "drop", "dribble"])
def test_a_connection_that_never_works_is_given_up_in_time(
    kind: Kind, way: Way, connect: Connect, desk: Desk, port: int
) -> None:
    def case(at: int) -> None:
        with relay(port, Fault(kind, way, at)) as relayed:
            begun = time.monotonic()
            with pytest.raises(ServiceUnavailable):
                asking(connect, relayed, timeout_s=1, token="s3cret")
            assert time.monotonic() - begun < 1 + SLACK_S

    at_each(range(0, 600, 120), case)
    assert len(desk.session.receipts) == len(desk.decided) <= 5


@pytest.mark.parametrize("kind", ["cut", "drop", "dribble"])
def test_tls_that_never_works_is_given_up_in_time(kind: Kind, connect: Connect, desk: Desk, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    with serve(desk, pair=ours.issue("service")) as port:

        def case(at: int) -> None:
            with relay(port, Fault(kind, "down", at)) as relayed:
                begun = time.monotonic()
                with pytest.raises(ServiceUnavailable):
                    asking(connect, relayed, scheme="https", ca=ours.ca, timeout_s=1)
                assert time.monotonic() - begun < 1 + SLACK_S

        at_each((0, 10, 700, 1500), case)
    assert len(desk.session.receipts) == len(desk.decided) <= 4


def test_a_service_that_reads_nothing_is_given_up_in_time(connect: Connect) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        proxy = connect(listener.getsockname()[1], timeout_s=1)
        begun = time.monotonic()
        with pytest.raises(ServiceUnavailable):
            proxy.evaluate(SESSION, "write_file", {name: name * 250_000 for name in "abc"})
        assert time.monotonic() - begun < 1 + SLACK_S


def test_a_name_that_is_not_found_out_is_given_up_in_time(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60) and [])
    begun = time.monotonic()
    try:
        with pytest.raises(ServiceUnavailable):
            connect(443, scheme="https", host="proxy.example", timeout_s=1).health()
        assert time.monotonic() - begun < 1 + SLACK_S
    finally:
        over.set()


def test_an_unknown_outcome_is_found_out_with_the_same_key(connect: Connect, desk: Desk, port: int) -> None:
    with relay(port, Fault("cut", "down", 10)) as relayed, pytest.raises(ServiceUnavailable):
        connect(relayed).evaluate(SESSION, "read_file", ARGUMENTS, idempotency_key="mine")
    assert connect(port).evaluate(SESSION, "read_file", ARGUMENTS, idempotency_key="mine").decision == "PERMIT"
    assert desk.decided == {"mine": 1}


def test_a_release_of_the_kill_switch_is_not_sent_again_after_a_cut(connect: Connect, desk: Desk, port: int) -> None:
    with relay(port, Fault("cut", "down", 10), times=1) as relayed:
        with pytest.raises(ServiceUnavailable):
            connect(relayed).kill_switch(on=False)
        assert len(desk.seen) == 1
        assert connect(relayed).kill_switch(on=True).on


def test_nobody_there_is_said_with_host_and_port(connect: Connect, desk: Desk) -> None:
    with serve(desk) as port:
        pass
    with pytest.raises(ServiceUnavailable) as caught:
        connect(port, token="s3cret").health()
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_service_that_starts_late_is_reached(connect: Connect, desk: Desk, port: int) -> None:
    with relay(port, Fault("cut", "up", 0), times=3) as relayed:
        assert asking(connect, relayed) == "PERMIT"
