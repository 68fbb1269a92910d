"""Answers that are made while they go out: whole or cut off, in little memory, and closed at last."""

import asyncio
import gzip
import threading
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import uvloop

from remit.server.limits import Limits
from remit.server.streaming import PIECE_BYTES, Stream
from tests.server.serving import QUICK, Client, Service, serving

pytestmark = pytest.mark.slow

PART = b"0123456789abcdef" * 64
GZIP = "Accept-Encoding: gzip"


class Tap:
    """Gives parts, and tells what becomes of it."""

    def __init__(self, count: int | None = None, failure: BaseException | None = None) -> None:
        """Give so many parts, or parts without end; then fail, if there is a failure."""
        self.count, self.failure = count, failure
        self.given = 0
        self.is_closed = threading.Event()
        self.threads: set[str] = set()

    def parts(self) -> Iterator[bytes]:
        try:
            while self.count is None or self.given < self.count:
                self.given += 1
                self.threads.add(threading.current_thread().name)
                yield PART
            if self.failure:
                raise self.failure
        finally:
            self.is_closed.set()


class Untouched(Iterator[bytes]):
    """Parts that nobody asks for."""

    def __init__(self) -> None:
        self.is_closed = threading.Event()

    def __next__(self) -> bytes:
        raise AssertionError

    def close(self) -> None:
        self.is_closed.set()


def play(tap: Tap, scene: Callable[[Service, Client], Awaitable[None]], limits: Limits | None = None) -> Service:
    """Run a scene with a service that streams what `tap` gives, and wait until it is closed."""

    async def act() -> Service:
        async with serving(limits or Limits()) as service, asyncio.timeout(120):
            service.parts = tap.parts
            await scene(service, await service.connect())
            await until(tap.is_closed.is_set)
        return service

    return uvloop.run(act())


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_all_parts_arrive_in_order_and_the_connection_goes_on(count: int) -> None:
    tap = Tap(count)

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        head = await client.head()
        assert "transfer-encoding: chunked" in head
        assert "content-length" not in head
        assert await client.chunks() == PART * count
        client.get("/quick")
        assert await client.status() == 200

    assert play(tap, scene).witness.cut == []
    assert all(name.startswith("streams") for name in tap.threads)


def test_small_parts_are_gathered_to_large_pieces() -> None:
    tap = Tap(640)

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream", "Connection: close")
        await client.head()
        assert (await client.rest()).startswith(b"%x\r\n" % PIECE_BYTES)

    play(tap, scene)


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_whoever_asks_for_gzip_gets_gzip(count: int) -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream", GZIP)
        head = await client.head()
        packed = await client.chunks()
        assert {"content-encoding: gzip", "vary: accept-encoding"} <= {*head.split("\r\n")}
        assert gzip.decompress(packed) == PART * count
        assert count < 2 or len(packed) < len(PART) * count / 50

    play(Tap(count), scene)


@pytest.mark.parametrize("accepted", ["gzip;q=0", "identity", ""])
def test_whoever_does_not_gets_it_plain_and_is_told_that_others_may_not(accepted: str) -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream", f"Accept-Encoding: {accepted}")
        head = await client.head()
        assert ("content-encoding" in head, "vary: accept-encoding" in head) == (False, True)
        assert await client.chunks() == PART

    play(Tap(1), scene)


@pytest.mark.parametrize("lines", [[], [GZIP]])
def test_what_fails_on_the_way_is_cut_off_and_told(lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    failure = ValueError("secret")

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream", *lines)
        assert " 200 " in await client.head()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.chunks()
        await until(lambda: service.open == 0)

    assert play(Tap(5000, failure), scene).witness.cut == [("/stream", failure)]
    assert caplog.messages == []


@pytest.mark.parametrize("count", [0, 1])
def test_what_fails_before_anything_was_sent_has_a_status(count: int) -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        assert await client.status() == 500
        client.get("/quick")
        assert await client.status() == 200

    assert play(Tap(count, ValueError("secret")), scene).witness.cut == []


def test_head_gets_the_headers_and_no_part_is_asked_for() -> None:
    parts = Untouched()

    async def act() -> None:
        async with serving(Limits()) as service:
            service.parts = lambda: parts
            client = await service.connect()
            client.get("/stream", GZIP, method="HEAD")
            client.get("/quick")
            assert "content-encoding: gzip" in await client.head()
            assert await client.status() == 200
            await until(parts.is_closed.is_set)
            assert service.witness.cut == []

    uvloop.run(act())


def test_a_client_that_knows_no_chunks_is_told_so() -> None:
    parts = Untouched()

    async def act() -> None:
        async with serving(Limits()) as service:
            service.parts = lambda: parts
            client = await service.connect()
            client.send("GET /stream HTTP/1.0\r\nHost: $HOST\r\n\r\n")
            assert await client.status() == 400
            await until(parts.is_closed.is_set)

    uvloop.run(act())


def test_the_parts_are_closed_when_the_client_goes_away(caplog: pytest.LogCaptureFixture) -> None:
    tap = Tap()

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        await client.head()
        client.writer.transport.abort()
        await until(lambda: service.open == 0)

    assert play(tap, scene).witness.cut == []
    assert caplog.messages == []


def test_a_client_that_says_no_more_is_still_let_go_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        client.writer.write_eof()
        with suppress(ConnectionResetError):
            await client.rest()

    assert play(Tap(), scene).witness.cut == []
    assert caplog.messages == []


def test_a_client_that_stops_reading_is_waited_for_and_then_let_go(caplog: pytest.LogCaptureFixture) -> None:
    tap = Tap()

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        await client.head()
        await until(lambda: any(connection.unsent_since for connection in service.connections))
        given = tap.given
        await asyncio.sleep(QUICK.send_s / 2)
        assert tap.given - given <= 2 * PIECE_BYTES / len(PART)
        await until(lambda: service.open == 0)

    play(tap, scene, QUICK)
    assert caplog.messages == []


def test_a_client_that_reads_again_gets_the_rest() -> None:
    tap = Tap(16 * 1024)

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        await client.head()
        await until(lambda: any(connection.unsent_since for connection in service.connections))
        assert await client.chunks() == PART * 16 * 1024

    play(tap, scene)


def test_memory_does_not_grow_with_the_answer() -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream", "Connection: close")
        tracemalloc.start()
        size = 0
        while data := await client.reader.read(2**16):
            size += len(data)
        assert size > 64 * 2**20
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
        tracemalloc.stop()

    play(Tap(64 * 1024), scene)


def test_several_streams_and_requests_behind_them_are_answered_in_order() -> None:
    tap = Tap(300)

    async def scene(service: Service, client: Client) -> None:
        service.parts = lambda: Tap(300).parts()
        for path in ("/stream", "/quick", "/stream", "/quick"):
            client.get(path)
        for _ in range(2):
            await client.head()
            assert await client.chunks() == PART * 300
            assert await client.status() == 200
        tap.is_closed.set()

    play(tap, scene)


def test_what_was_asked_behind_an_answer_that_is_cut_off_is_not_answered() -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        client.get("/quick")
        stream = await client.rest()
        assert (stream.count(b"HTTP/1.1 "), stream.endswith(b"0\r\n\r\n")) == (1, False)
        await until(lambda: service.open == 0)

    play(Tap(500, ValueError()), scene)


def test_others_are_answered_while_parts_are_waited_for() -> None:
    go = threading.Event()
    tap = Tap(1)

    def slow() -> Iterator[bytes]:
        yield PART * 64
        go.wait(10)
        yield from tap.parts()

    async def scene(service: Service, client: Client) -> None:
        service.parts = slow
        client.get("/stream")
        await client.head()
        other = await service.connect()
        other.get("/quick")
        assert await other.status() == 200
        go.set()
        assert await client.chunks() == PART * 65

    play(tap, scene)


def test_a_stop_lets_a_stream_come_to_its_end() -> None:
    tap = Tap(16 * 1024)

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        await client.head()
        await until(lambda: any(connection.unsent_since for connection in service.connections))
        service.stop()
        assert await client.chunks() == PART * 16 * 1024
        assert await client.rest() == b""

    play(tap, scene, Limits(stop_s=10))


def test_a_stop_does_not_wait_for_a_stream_without_end() -> None:
    tap = Tap()

    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        await client.head()
        service.stop()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.chunks()

    play(tap, scene, Limits(stop_s=0.1, watch_s=0.02))


def test_whoever_leaves_a_stream_lying_makes_room() -> None:
    async def scene(service: Service, client: Client) -> None:
        client.get("/stream")
        await client.head()
        await until(lambda: all(connection.is_stalled for connection in service.connections))
        late = await service.connect()
        late.get("/quick")
        assert await late.status() == 200

    play(Tap(), scene, Limits(connections_per_peer=1, stalled_s=0.05))


def test_parts_are_closed_after_the_turn_that_is_under_way() -> None:
    order: list[str] = []

    def parts() -> Iterator[bytes]:
        try:
            time.sleep(0.1)
            order.append("turn")
            yield PART * 64
        finally:
            order.append("closed")

    kept = parts()  # so that nothing else closes it

    async def act(threads: ThreadPoolExecutor) -> None:
        stream = Stream(kept, threads, compress=False)
        turn = asyncio.get_running_loop().create_task(stream.advance())
        await asyncio.sleep(0.02)
        turn.cancel()
        stream.close()
        await until(lambda: order == ["turn", "closed"])

    with ThreadPoolExecutor(2) as threads:
        asyncio.run(act(threads))


def test_pieces_that_are_packed_can_be_read_as_they_come() -> None:
    async def act(threads: ThreadPoolExecutor) -> bytes:
        stream, unpacker, text = Stream(Tap(1000).parts(), threads, compress=True), zlib.decompressobj(31), b""
        while not stream.is_over:
            await stream.advance()
            text += unpacker.decompress(stream.piece)
        assert unpacker.eof
        return text

    with ThreadPoolExecutor(2) as threads:
        assert asyncio.run(act(threads)) == PART * 1000
