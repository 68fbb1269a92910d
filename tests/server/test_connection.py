"""One connection by itself: bytes come in and bytes go out, in order, and what was read in full is answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remit.errors import AccessError
from remit.server.connection import Connection, Exchange, ServerState
from remit.server.limits import ConnectionLimiter, Limits

GET = b"GET /%b HTTP/1.1\r\nHost: ours\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: ours\r\nContent-Length: 4\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that keeps what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = self.is_aborted = self.is_paused = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Scene:
    """A connection whose handler answers with the path; it waits first where a request is for `/wait`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.bodies: list[bytes | None] = []
        self.refused: list[AccessError] = []
        self.failed: list[dict[str, Any]] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.failure: Exception | None = None
        limits = Limits()
        self.state = ServerState(
            self.handle, limits, ConnectionLimiter(9, 9), lambda error, _: self.refused.append(error)
        )
        self.wire = Wire()
        self.connection = Connection(self.state, "198.51.100.7")
        self.connection.connection_made(self.wire)
        asyncio.get_running_loop().set_exception_handler(lambda _, told: self.failed.append(told))

    async def handle(self, exchange: Exchange) -> None:
        self.asked.append(exchange.path)
        if exchange.method == "POST":
            self.bodies.append(await exchange.read_body(100))
        if exchange.path == "/wait":
            await self.go.wait()
        if self.failure:
            raise self.failure
        body = exchange.path.encode()
        exchange.respond(200, [*self.headers, (b"content-length", b"%d" % len(body))], body)

    def receive(self, *requests: bytes) -> None:
        """Let these come in one packet."""
        self.connection.data_received(b"".join(requests))

    @property
    def answers(self) -> list[str]:
        """Return the bodies of the answers."""
        return [write.partition(b"\r\n\r\n")[2].decode() for write in self.wire.writes]


def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def act() -> None:
        await scene(Scene())

    asyncio.run(act())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_response_is_written_at_once_and_in_one_piece() -> None:
    async def scene(it: Scene) -> None:
        it.receive(GET % b"a")
        assert it.wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n/a"]
        assert not it.state.tasks

    play(scene)


@pytest.mark.parametrize("first", [b"a", b"wait"])
def test_requests_in_one_packet_are_run_one_after_the_other(first: bytes) -> None:
    async def scene(it: Scene) -> None:
        it.receive(GET % first, GET % b"b", POST % b"c", b"body", GET % b"d")
        assert it.asked[0] == f"/{first.decode()}"
        assert len(it.asked) == (1 if first == b"wait" else 4)
        it.go.set()
        await settle()
        assert it.answers == it.asked == [f"/{first.decode()}", "/b", "/c", "/d"]
        assert it.bodies == [b"body"]
        assert not it.wire.is_paused

    play(scene)


def test_the_next_request_is_begun_when_the_client_reads() -> None:
    async def scene(it: Scene) -> None:
        it.connection.pause_writing()
        it.receive(GET % b"a", GET % b"b")
        await settle()
        assert (it.asked, it.wire.is_paused) == ([], True)
        it.connection.resume_writing()
        assert it.answers == ["/a", "/b"]

    play(scene)


def test_a_stop_answers_all_that_was_read_in_full_and_begins_nothing_else() -> None:
    async def scene(it: Scene) -> None:
        it.receive(GET % b"wait", GET % b"b", POST % b"c")
        it.connection.shutdown()
        it.receive(b"body", GET % b"d")
        assert not it.wire.is_closed
        it.go.set()
        await settle()
        assert (it.asked, it.answers) == (["/wait", "/b"], ["/wait", "/b"])
        assert [b"connection: close" in write for write in it.wire.writes] == [False, True]

    play(scene)


def test_a_stop_answers_what_was_read_in_full_while_the_client_did_not_read() -> None:
    async def scene(it: Scene) -> None:
        it.connection.pause_writing()
        it.receive(GET % b"a")
        it.connection.shutdown()
        assert not it.wire.is_closed
        it.connection.resume_writing()
        assert (it.answers, it.wire.is_closed) == (["/a"], True)

    play(scene)


def test_a_stop_leaves_a_client_that_is_still_sending_its_moment_to_read_the_refusal() -> None:
    async def scene(it: Scene) -> None:
        it.receive(b"nonsense\r\n\r\n")
        it.connection.shutdown()
        assert (len(it.refused), len(it.wire.writes), it.wire.is_closed) == (1, 1, False)
        it.connection.check_timeouts(it.connection.since + 10)
        assert it.wire.is_closed

    play(scene)


def test_nothing_is_run_after_the_connection_has_begun_to_close() -> None:
    async def scene(it: Scene) -> None:
        it.receive((GET % b"a").replace(b"Host", b"Connection: close\r\nHost"), GET % b"b")
        it.receive(GET % b"c")
        assert (it.asked, it.answers, it.wire.is_closed) == (["/a"], ["/a"], True)

    play(scene)


def test_nothing_is_run_that_comes_after_an_idle_connection_was_closed() -> None:
    async def scene(it: Scene) -> None:
        it.receive(GET % b"a")
        it.connection.check_timeouts(it.connection.since + 1000)
        it.receive(GET % b"b")
        assert (it.asked, it.wire.is_closed) == (["/a"], True)

    play(scene)


def test_a_refusal_is_the_only_answer_even_if_a_handler_comes_to_one_later() -> None:
    async def scene(it: Scene) -> None:
        it.receive(b"GET /wait HTTP/1.1\r\nHost: ours\r\nContent-Length: 4\r\n\r\n")
        assert it.asked == ["/wait"]
        it.connection.check_timeouts(it.connection.since + 1000)
        it.go.set()
        await settle()
        assert [write.split()[1] for write in it.wire.writes] == [b"408"]

    play(scene)


@pytest.mark.parametrize("path", [b"a", b"wait"])
def test_a_handler_that_fails_ends_the_connection_and_is_told(path: bytes) -> None:
    async def scene(it: Scene) -> None:
        it.failure = ValueError("a bug")
        it.go.set()
        it.receive(GET % path)
        it.connection.connection_lost(None)
        await settle()
        assert (it.wire.writes, it.wire.is_aborted) == ([], True)
        assert [told["exception"] for told in it.failed] == [it.failure]

    play(scene)


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
def test_a_header_of_more_than_one_line_is_not_sent(value: bytes) -> None:
    async def scene(it: Scene) -> None:
        it.headers = [(b"x-name", value)]
        it.receive(GET % b"a")
        assert (it.wire.writes, len(it.failed)) == ([], 1)

    play(scene)


def test_a_handler_learns_that_its_client_has_gone() -> None:
    async def scene(it: Scene) -> None:
        it.receive(POST % b"a", b"bo")
        it.connection.connection_lost(None)
        await settle()
        assert (it.bodies, it.wire.writes, len(it.state.tasks)) == ([None], [], 0)

    play(scene)


def test_what_a_handler_waits_for_can_fail() -> None:
    async def failing(exchange: Exchange) -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError())
        try:
            await future
        except KeyError:
            await asyncio.sleep(0)
            exchange.respond(200, [(b"content-length", b"0")], b"")

    async def scene(it: Scene) -> None:
        it.state.handler = failing
        it.receive(GET % b"a", GET % b"b")
        await settle()
        await settle()
        assert (len(it.wire.writes), it.failed) == (2, [])

    play(scene)
