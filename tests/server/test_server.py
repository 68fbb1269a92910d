"""A server on a real socket: what clients leave undone, who has to make room, and how it stops."""

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop

from remit.errors import HttpMalformed, PortInUse, ServiceBusy
from remit.server.connection import Exchange
from remit.server.limits import Limits
from remit.server.server import Server, bind, listening_url
from tests.proxy.certificates import CLIENT, Workshop
from tests.server.serving import QUICK, Client, Service, serving

pytestmark = pytest.mark.slow

GET = "GET /quick HTTP/1.1\r\nHost: $HOST\r\n"
SAY = "POST /say HTTP/1.1\r\nHost: $HOST\r\nContent-Type: application/json\r\n"
BODY = SAY + "Content-Length: 60000\r\n\r\n"
CHUNKED = SAY + "Transfer-Encoding: chunked\r\n\r\n"
TOO_LARGE = SAY + "Content-Length: 2000000\r\n\r\n"
LAST_TOO_LARGE = SAY + "Connection: close\r\nContent-Length: 8000000\r\n\r\n"


def play(
    scene: Callable[[Service], Awaitable[None]], limits: Limits = QUICK, tls: ssl.SSLContext | None = None
) -> None:
    """Run a scene with a service, on the loop that the real one has."""

    async def act() -> None:
        async with serving(limits, (lambda: tls) if tls else None) as service, asyncio.timeout(120):
            await scene(service)

    uvloop.run(act())


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def statuses(stream: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", stream)]


# What is sent before a client falls silent, and what it is told before the connection ends.
STALLED = {
    "nothing": ("", [408]),
    "empty lines": ("\r\n\r\n", [408]),
    "half a request line": ("GET /qui", [408]),
    "half of the headers": (GET + "X: a", [408]),
    "no body": (BODY, [408]),
    "half a body": (BODY + "{", [408]),
    "half a chunk": (CHUNKED + "ff\r\n{", [408]),
    "no last chunk": (CHUNKED + '10\r\n{"word":"hello"}\r\n', [408]),
    "nothing after an answer": (GET + "\r\n", [200]),
    "an empty line after an answer": (GET + "\r\n\r\n", [200]),
    "half of the next headers": (GET + "\r\n" + GET, [200, 408]),
    "half of the next body": (GET + "\r\n" + BODY + "{", [200, 408]),
    "the rest of a body that was refused": (TOO_LARGE + "{", [413]),
    "a body of a request that is unknown": (BODY.replace("/say", "/nowhere"), [404]),
}
# What a client begins with, and then goes on with, bit by bit, for ever.
DRIPPING = {
    "a header": (GET + "X: ", "a"),
    "fields": (GET, "X: a\r\n"),
    "empty lines": ("", "\r\n"),
    "empty lines after an answer": (GET + "\r\n", "\r\n"),
    "the next headers": (GET + "\r\n" + GET + "X: ", "a"),
    "a body": (BODY, " "),
    "the next body": (GET + "\r\n" + BODY, " "),
    "chunks": (CHUNKED, "1\r\n \r\n"),
    "a chunk extension": (CHUNKED + "1;", "a"),
    "the rest of a body that was refused": (TOO_LARGE, " "),
    "the rest of a body after all was said": (LAST_TOO_LARGE, " "),
    "nonsense after nonsense": ("nonsense\r\n\r\n", " "),
}


@pytest.mark.parametrize(("sent", "told"), STALLED.values(), ids=STALLED)
def test_a_client_that_falls_silent_is_let_go(sent: str, told: list[int]) -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.send(sent)
        assert statuses(await client.rest()) == told

    play(scene)


@pytest.mark.parametrize(("begun", "bit"), DRIPPING.values(), ids=DRIPPING)
def test_a_client_that_goes_on_bit_by_bit_is_let_go(begun: str, bit: str) -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.send(begun)
        ended = asyncio.get_running_loop().create_task(client.rest())
        while not ended.done() or service.open:
            client.send(bit)
            await asyncio.sleep(0.02)
        assert 200 not in statuses(await ended)[1:]

    play(scene)


def test_a_body_that_comes_slowly_but_fast_enough_is_read() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.send(BODY + '{"word":"slow"')
        for part in [" " * 5000] * 11:
            await asyncio.sleep(0.06)
            client.send(part)
        client.send("}".rjust(60000 - 55000 - 14))
        assert await client.status() == 200

    play(scene, QUICK._replace(body_s=60))


@pytest.mark.parametrize("requests", [1, 3])
def test_a_client_that_leaves_its_answers_lying_is_let_go(requests: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        for _ in range(requests):
            client.get("/large")
        await until(lambda: service.open == 1)
        await until(lambda: service.open == 0)

    play(scene)
    assert caplog.messages == []


def test_an_answer_that_takes_us_long_is_waited_for_and_costs_the_client_no_time() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.get("/wait")
        await until(lambda: service.waiting == 1)
        await asyncio.sleep(4 * QUICK.idle_s)
        service.go.set()
        assert await client.status() == 200
        await asyncio.sleep(4 * QUICK.watch_s)
        client.get("/quick")
        assert await client.status() == 200

    play(scene)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's."""
    workshop = Workshop(tmp_path_factory.mktemp("certificates"))
    authority = workshop.authority()
    pair = workshop.server(authority)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.cert_path, pair.key_path)
    return server, ssl.create_default_context(cafile=authority.cert_path)


def test_a_client_that_does_not_get_on_with_tls_is_let_go(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def scene(service: Service) -> None:
        for sent in ("", "\x16\x03\x01\x02\x00", "GET / HTTP/1.1\r\n\r\n"):
            client = await service.connect()
            client.send(sent)
            assert statuses(await client.rest()) == []
        await until(lambda: service.counted == 0)

    play(scene, tls=contexts[0])


ROOM_FOR_FOUR = Limits(connections_per_peer=4, handshake_s=60)
WAITING = ("", "GET /qu", GET + "\r\n", BODY, GET + "\r\n" + BODY)


async def crowd(service: Service, sent: str, count: int) -> list[Client]:
    """Return connections that have sent this, one after the other."""
    clients = []
    for _ in range(count):
        clients.append(await service.connect())
        clients[-1].send(sent)
        await until(lambda: service.open == len(clients))
    return clients


@pytest.mark.parametrize("sent", WAITING)
def test_whoever_waits_without_having_asked_makes_room_the_longest_first(sent: str) -> None:
    async def scene(service: Service) -> None:
        clients = await crowd(service, sent, 4)
        await asyncio.sleep(0.05)
        for longest in (0, 1):
            late = await service.connect()
            late.get("/quick")
            assert await late.status() == 200
            await clients[longest].rest()
            clients.append(late)
        assert not clients[2].reader.at_eof()
        assert not clients[3].reader.at_eof()

    play(scene, ROOM_FOR_FOUR)


def test_whoever_has_asked_is_never_cut_off() -> None:
    async def scene(service: Service) -> None:
        clients = await crowd(service, "GET /wait HTTP/1.1\r\nHost: $HOST\r\n\r\n", 4)
        await until(lambda: service.waiting == 4)
        late = await service.connect()
        assert statuses(await late.rest()) == [503]
        assert [type(error) for error in service.refused] == [ServiceBusy]
        service.go.set()
        assert [await client.status() for client in clients] == [200] * 4

    play(scene, ROOM_FOR_FOUR)


def test_the_one_who_has_not_asked_makes_room_among_those_who_have() -> None:
    async def scene(service: Service) -> None:
        busy = await crowd(service, "GET /wait HTTP/1.1\r\nHost: $HOST\r\n\r\n", 3)
        await until(lambda: service.waiting == 3)
        idle, late = await service.connect(), await service.connect()
        late.get("/quick")
        assert await late.status() == 200
        assert await idle.rest() == b""
        service.go.set()
        assert [await client.status() for client in busy] == [200] * 3

    play(scene, ROOM_FOR_FOUR)


def test_whoever_does_not_get_on_with_tls_makes_room_too(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def scene(service: Service) -> None:
        stalled = [await service.connect() for _ in range(8)]
        late = await service.connect(contexts[1])
        late.get("/quick")
        assert await late.status() == 200
        for client in stalled[:5]:
            assert await client.rest() == b""

    play(scene, ROOM_FOR_FOUR, tls=contexts[0])


def test_whoever_leaves_answers_lying_makes_room() -> None:
    async def scene(service: Service) -> None:
        await crowd(service, "GET /large HTTP/1.1\r\nHost: $HOST\r\n\r\n" * 3, 4)
        await until(lambda: all(connection.is_stalled for connection in service.connections))
        late = await service.connect()
        late.get("/quick")
        assert await late.status() == 200

    play(scene, ROOM_FOR_FOUR._replace(stalled_s=0.05))


def test_as_many_requests_as_may_wait_are_answered_and_the_connection_goes_on() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        for _ in range(3):
            client.send((GET + "\r\n") * 8)
            assert [await client.status() for _ in range(8)] == [200] * 8

    play(scene, Limits())


def test_requests_beyond_those_that_may_wait_end_the_connection_after_the_answers_before() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.send((GET + "\r\n") * 5000)
        assert statuses(await client.rest()) == [200] * 8
        assert [type(error) for error in service.refused] == [HttpMalformed]

    play(scene, Limits())


@pytest.mark.parametrize("is_tls", [False, True])
def test_an_early_answer_reaches_a_client_that_is_still_sending(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], is_tls: bool
) -> None:
    async def scene(service: Service) -> None:
        for sent in (LAST_TOO_LARGE, "nonsense\r\n\r\n"):
            client = await service.connect(contexts[1] if is_tls else None)
            client.send(sent)
            for _ in range(8):
                client.send(" " * 1_000_000)
                await client.writer.drain()
            assert await client.status() in (413, 400)

    play(scene, Limits(), tls=contexts[0] if is_tls else None)


def test_a_client_that_sends_without_end_after_all_was_said_is_cut_off() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.send(LAST_TOO_LARGE)
        with suppress(ConnectionError):
            while True:
                client.send(" " * 1_000_000)
                await client.writer.drain()

    play(scene, Limits(linger_s=60, linger_bytes=2**20))


@pytest.mark.parametrize("watch_s", [0.02, 60])
def test_a_connection_does_not_outlive_the_certificate_of_its_client(tmp_path: Path, watch_s: float) -> None:
    workshop = Workshop(tmp_path)
    authority = workshop.authority()
    ours = workshop.server(authority)
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    theirs = workshop.pair("A client", issuer=authority, uses=CLIENT, until=end)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.cert_path)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(ours.cert_path, ours.key_path)
    context = ssl.create_default_context(cafile=authority.cert_path)
    context.load_cert_chain(theirs.cert_path, theirs.key_path)

    async def scene(service: Service) -> None:
        client = await service.connect(context)
        client.get("/quick")
        assert await client.status() == 200
        if watch_s > 1:
            await asyncio.sleep((end - datetime.now(UTC)).total_seconds() + 0.1)
            client.get("/quick")
        assert await client.rest() == b""
        assert datetime.now(UTC) > end

    play(scene, Limits(watch_s=watch_s), tls=server)


@pytest.mark.parametrize("begun", [BODY + "{", GET + "\r\n" + BODY + "{", CHUNKED])
def test_a_stop_does_not_wait_for_what_was_not_asked_in_full(begun: str) -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.send(begun)
        await until(lambda: any(connection.stage == "body" for connection in service.connections))
        service.stop()
        async with asyncio.timeout(60):
            await client.rest()
            await until(lambda: service.open == 0)

    play(scene, Limits(stop_s=120))


def test_a_stop_answers_what_was_asked_in_full_before_something_that_was_not() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.get("/wait")
        client.send(BODY + "{")
        await until(lambda: service.waiting == 1)
        service.stop()
        await asyncio.sleep(0.1)
        service.go.set()
        assert statuses(await client.rest()) == [200]

    play(scene, Limits(stop_s=10))


def reloading(renew: Callable[[], None], times: int) -> list[tuple[str, BaseException | None]]:
    """Return what is told when a server reads everything again, so many times at once."""
    told = []

    async def handle(exchange: Exchange) -> None:
        raise AssertionError

    async def act() -> None:
        with bind("127.0.0.1", 0) as listening:
            server = Server(
                handle,
                listening,
                limits=QUICK,
                on_reload=renew,
                on_event=lambda event, error: told.append((event, error)),
            )
            await asyncio.gather(*(server.reload() for _ in range(times)))

    uvloop.run(act())
    return told


def test_what_is_read_again_is_read_once_at_a_time() -> None:
    busy = threading.Lock()

    def renew() -> None:
        assert busy.acquire(blocking=False)
        time.sleep(0.02)
        busy.release()

    assert reloading(renew, 4) == []


def test_whatever_goes_wrong_when_all_is_read_again_is_told_and_ends_nothing() -> None:
    def renew() -> None:
        raise ZeroDivisionError

    ((event, error),) = reloading(renew, 1)
    assert (event, type(error)) == ("settings_kept", ZeroDivisionError)


def test_a_stop_answers_what_was_asked_and_lets_the_others_go() -> None:
    async def scene(service: Service) -> None:
        busy, idle = await service.connect(), await service.connect()
        busy.get("/wait")
        idle.send("GET /qu")
        await until(lambda: service.waiting == 1 and service.open == 2)
        service.stop()
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await service.connect()
        service.go.set()
        assert await busy.status() == 200
        assert await busy.rest() == b""

    play(scene, Limits(stop_s=10))


def test_a_stop_does_not_wait_for_ever() -> None:
    async def scene(service: Service) -> None:
        client = await service.connect()
        client.get("/wait")
        await until(lambda: service.waiting == 1)
        service.stop()
        assert await client.rest() == b""

    play(scene, Limits(stop_s=0.1, watch_s=0.02))


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("target_bytes", 8192), ("header_bytes", 16384), ("header_fields", 100), ("body_bytes", 2**20),
        ("connections", 1024), ("connections_per_peer", 64),
    ],
)  # fmt: skip
def test_the_limits_of_size_are_as_promised(name: str, most: int) -> None:
    assert getattr(Limits(), name) == most


@pytest.mark.parametrize(
    ("name", "most_s"), [("handshake_s", 10), ("header_s", 10), ("body_s", 30), ("idle_s", 15), ("stop_s", 5)]
)
def test_the_limits_of_time_hold_even_if_one_must_wait_to_be_looked_after(name: str, most_s: float) -> None:
    limits = Limits()
    assert most_s - 1 <= getattr(limits, name) + limits.watch_s <= most_s
    assert limits.body_bytes_per_s == 1024


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortInUse) as refused:
        bind("127.0.0.1", taken.getsockname()[1])
    assert refused.value.code == "port_in_use"


@pytest.mark.parametrize(
    ("host", "port"), [("203.0.113.1", 0), ("127.0.0.1", 65536), ("127.0.0.1", -1), ("no.such.invalid", 0)]
)
def test_what_cannot_be_listened_on_is_refused(host: str, port: int) -> None:
    with pytest.raises(PortInUse):
        bind(host, port)


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_the_url_is_where_the_socket_is_reached(host: str, url: str) -> None:
    with bind(host, 0) as listening:
        assert listening_url(listening, tls=False).startswith(url)
        assert listening_url(listening, tls=True).startswith(url.replace("http", "https"))
