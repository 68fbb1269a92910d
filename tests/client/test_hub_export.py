"""An export from the Hub: whole, in parts, or an error."""

import asyncio
import gzip
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from remit.client.hub import Hub
from remit.client.stream import StreamedBody
from remit.errors import HubUnavailable
from tests.client.conftest import ConnectHub
from tests.client.hub_service import EXPORT, HubDesk, packed
from tests.client.service import Canned, serve
from tests.client.wire import Fault, relay

MEGABYTE = 2**20


@pytest.fixture
def desk() -> HubDesk:
    return HubDesk()


@pytest.fixture
def port(desk: HubDesk) -> Iterator[int]:
    with serve(desk) as port:
        yield port


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


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
PAGE = b"<!doctype html><p>Log in"
NOT_AN_EXPORT: dict[str, Canned] = {
    "a page": Canned(body=PAGE, headers={"Content-Type": "text/html"}),
    "a page that is called JSON": Canned(body=PAGE),
    "an export that is called a page": Canned(body=EXPORT, headers={"Content-Type": "text/html"}),
    "an error": Canned(body=b'{"ok":false}'),
    "nothing": Canned(body=b""),
    "a beginning": Canned(body=EXPORT[:5]),
    "no end": Canned(body=EXPORT[:-1]),
    "a list": Canned(body=b"[" + EXPORT + b"]"),
}


@pytest.mark.parametrize("case", NOT_AN_EXPORT)
def test_what_is_not_an_export_raises(case: str, connect_hub: ConnectHub, desk: HubDesk, port: int) -> None:
    desk.script = [NOT_AN_EXPORT[case]]
    with pytest.raises(HubUnavailable) as caught:
        list(connect_hub(port).export())
    assert "not an export" in str(caught.value)


def test_an_export_is_known_by_its_beginning_however_it_is_cut_up(
    connect_hub: ConnectHub, desk: HubDesk, port: int
) -> None:
    parts = [EXPORT[at : at + 1] for at in range(20)] + [EXPORT[20:], b"\n"]
    desk.script = [Canned(body=iter(parts))]
    assert b"".join(connect_hub(port).export()) == EXPORT + b"\n"


def test_an_export_whose_end_is_only_the_end_of_the_connection_raises(connect_hub: ConnectHub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(HEAD + EXPORT[:1000])

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
    large = gzip.compress(b'{"ok":true'.ljust(16 * MEGABYTE - 1) + b"}")
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


def test_whoever_is_interrupted_while_waiting_for_a_part_can_let_go() -> None:
    async def interrupted() -> bool:
        waits = asyncio.Event()

        async def coming() -> AsyncIterator[bytes]:
            yield EXPORT[:100]
            waits.set()
            await asyncio.Event().wait()

        response = httpx.Response(200, content=coming())
        parts = StreamedBody(response, 20)
        assert await parts.next() == EXPORT[:100]
        waiting = asyncio.create_task(parts.next())
        await waits.wait()
        waiting.cancel()
        await parts.close()
        return response.is_closed

    assert asyncio.run(interrupted())


def test_closing_the_client_ends_an_export(desk: HubDesk, port: int) -> None:
    hub = Hub(f"http://127.0.0.1:{port}", "s3cret")
    parts = hub.export()
    assert next(parts)
    hub.close()
    with pytest.raises(HubUnavailable):
        next(parts)
    with pytest.raises(HubUnavailable):
        next(hub.export())
