"""A network that fails: no receipt twice, no call beyond its deadline, no error that reads as a decision.

Each case is run at many places of the request and of the answer, several at a time.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from remit.errors import ServiceUnavailable
from tests.client.certs import Authority
from tests.client.conftest import Connect
from tests.client.service import SESSION, Desk, serve
from tests.client.wire import Fault, Kind, Way, relay
from tests.ports import refusing_port

ARGUMENTS = {"path": "/srv/project/" + "x" * 300}
# A request has some 650 bytes, an answer some 2,400; with TLS there is more.
PLACES: dict[Way, range] = {"up": range(0, 800, 20), "down": range(0, 2600, 65)}
FEW_PLACES: dict[Way, range] = {"up": range(0, 800, 160), "down": range(0, 2600, 520)}
# No machine is so busy that it takes this long to give up, and a connection with a fault would take far longer.
PATIENCE_S = 60.0
_Case = TypeVar("_Case")


def at_each(cases: Iterable[_Case], run: Callable[[_Case], None], *, at_once: int = 8) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(run, cases))


@contextmanager
def given_up() -> Iterator[None]:
    """Expect that no answer comes, and that this is said."""
    begun = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        yield
    assert time.monotonic() - begun < PATIENCE_S


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
    assert desk.count_decided() == len(PLACES[way])


def test_a_cut_of_tls_costs_an_attempt_and_no_receipt(connect: Connect, desk: Desk, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    places = range(0, 3600, 150)
    with serve(desk, pair=ours.issue("service")) as port:

        def case(at: int) -> None:
            with relay(port, Fault("cut", "down", at), times=1) as relayed:
                assert asking(connect, relayed, scheme="https", ca=ours.ca) == "PERMIT"

        at_each(places, case)
    assert desk.count_decided() == len(places)


def test_a_connection_that_stalls_once_costs_an_attempt_and_no_receipt(connect: Connect, desk: Desk, port: int) -> None:
    kinds: tuple[Kind, ...] = ("drop", "dribble", "delay")
    faults = [Fault(kind, way, at) for kind in kinds for way, places in FEW_PLACES.items() for at in places]

    def case(fault: Fault) -> None:
        with relay(port, fault, times=1) as relayed:
            # Half of the time is lost in the connection that stalls; what is left is enough on a busy machine.
            assert asking(connect, relayed, timeout_s=12) == "PERMIT"

    at_each(faults, case, at_once=len(faults))
    assert desk.count_decided() == len(faults)


def test_a_connection_that_never_works_is_given_up_in_time(connect: Connect, desk: Desk, port: int) -> None:
    kinds: tuple[Kind, ...] = ("cut", "drop", "dribble")
    faults = [Fault(kind, way, at) for kind in kinds for way in FEW_PLACES for at in range(0, 600, 120)]

    def case(fault: Fault) -> None:
        with relay(port, fault) as relayed, given_up():
            asking(connect, relayed, timeout_s=1, token="s3cret")

    at_each(faults, case, at_once=len(faults))
    assert desk.count_decided() <= len(faults)


def test_tls_that_never_works_is_given_up_in_time(connect: Connect, desk: Desk, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    kinds: tuple[Kind, ...] = ("cut", "drop", "dribble")
    faults = [Fault(kind, "down", at) for kind in kinds for at in (0, 10, 700, 1500)]
    with serve(desk, pair=ours.issue("service")) as port:

        def case(fault: Fault) -> None:
            with relay(port, fault) as relayed, given_up():
                asking(connect, relayed, scheme="https", ca=ours.ca, timeout_s=1)

        at_each(faults, case, at_once=len(faults))
    assert desk.count_decided() <= len(faults)


def test_a_service_that_reads_nothing_is_given_up_in_time(connect: Connect) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        proxy = connect(listener.getsockname()[1], timeout_s=1)
        with given_up():
            proxy.evaluate(SESSION, "write_file", {name: name * 250_000 for name in "abc"})


def test_a_name_that_is_not_found_out_is_given_up_in_time(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(10 * PATIENCE_S) and [])
    try:
        with given_up():
            connect(443, scheme="https", host="proxy.example", timeout_s=1).health()
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


def test_nobody_there_is_said_with_host_and_port(connect: Connect) -> None:
    with refusing_port() as port, pytest.raises(ServiceUnavailable) as caught:
        connect(port, token="s3cret").health()
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_service_that_starts_late_is_reached(connect: Connect, desk: Desk, port: int) -> None:
    with relay(port, Fault("cut", "up", 0), times=3) as relayed:
        assert asking(connect, relayed) == "PERMIT"
