"""A small service on a real loopback socket, in the loop of a test, with limits that a test need not wait long for."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from remit.claims.types import Claims
from remit.errors import AccessError
from remit.server.application import Application
from remit.server.auth import TokenAuthenticator
from remit.server.connection import Connection
from remit.server.hosts import allowed_hosts
from remit.server.limits import Limits
from remit.server.routes import BytesResponse, Request, Route, StreamedResponse
from remit.server.server import Server, bind
from remit.server.telemetry import Telemetry

__all__ = ["LARGE", "QUICK", "Client", "Heard", "Said", "Service", "Witness", "serving"]

# Long enough for a machine that has other things to do, short enough to wait for.
QUICK = Limits(
    watch_s=0.02,
    handshake_s=0.3,
    header_s=0.3,
    body_s=1.2,
    body_patience_s=0.3,
    idle_s=0.3,
    send_s=0.3,
    stop_s=2.0,
    linger_s=0.1,
)
LARGE = 8 * 2**20


class Said(Claims, frozen=True):
    """What the service is told, and says again."""

    word: str


class Heard(Struct, frozen=True):
    word: str


@dataclass
class Witness(Telemetry):
    """Telemetry that only keeps what was cut off."""

    cut: list[tuple[str, BaseException]] = field(default_factory=list)
    exporter: None = None

    def answered(self, *args: Any, **kwargs: Any) -> None:
        """A request was answered."""

    def cut_off(self, route: str, request_id: str, error: BaseException) -> None:
        """An answer was cut off."""
        assert request_id
        self.cut.append((route, error))


@dataclass
class Service:
    """What tests see of the service: `/wait` is answered when `go` is set, `/stream` with the parts."""

    host: str = ""
    port: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    parts: Callable[[], Iterator[bytes]] = lambda: iter(())
    witness: Witness = field(default_factory=Witness)
    refused: list[AccessError] = field(default_factory=list)
    clients: list["Client"] = field(default_factory=list)
    server: Server | None = None

    def note(self, error: AccessError, request_id: str) -> None:
        """Hear what is turned away."""
        assert request_id
        self.refused.append(error)

    def routes(self) -> list[Route]:
        """Return what can be asked for."""
        return [
            Route("GET", "/quick", self._quick, Heard, "At once"),
            Route("GET", "/wait", self._wait, Heard, "When the test says so"),
            Route("GET", "/large", self._large, "text/plain", "More than any buffer holds"),
            Route("GET", "/stream", self._stream, "text/plain", "As much as the test says"),
            Route("POST", "/say", self._say, Heard, "What was said", Said),
        ]

    async def _quick(self, ask: Request) -> Heard:  # noqa: ARG002 - as routes have it
        return Heard("quick")

    async def _wait(self, ask: Request) -> Heard:  # noqa: ARG002
        self.waiting += 1
        await self.go.wait()
        return Heard("waited")

    async def _large(self, ask: Request) -> BytesResponse:  # noqa: ARG002
        return BytesResponse(b"x" * LARGE, "text/plain")

    async def _stream(self, ask: Request) -> StreamedResponse:  # noqa: ARG002
        return StreamedResponse(self.parts(), "text/plain")

    async def _say(self, ask: Request) -> Heard:
        return Heard(ask.body.word)

    @property
    def open(self) -> int:
        """Return how many connections there are."""
        return len(self.server._state.connections) if self.server else 0

    @property
    def connections(self) -> list[Connection]:
        """Return the connections."""
        return list(self.server._state.connections) if self.server else []

    @property
    def counted(self) -> int:
        """Return how many connections count, from the moment they are accepted."""
        return len(self.server._state.limiter) if self.server else 0

    def stop(self) -> None:
        """Begin to stop."""
        if self.server:
            self.server.stop()

    async def connect(self, context: ssl.SSLContext | None = None) -> "Client":
        """Return a new connection; the service closes it at last."""
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=context), self.host))
        return self.clients[-1]


@dataclass
class Client:
    """One connection to the service."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    host: str

    def send(self, text: str) -> None:
        """Send text; $HOST stands for the service."""
        self.writer.write(text.replace("$HOST", self.host).encode("latin-1"))

    def get(self, path: str, *lines: str, method: str = "GET") -> None:
        """Request for something, with further lines of headers."""
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: $HOST", *lines, "", ""]))

    async def status(self) -> int:
        """Return the status of the next answer, which is read to its end."""
        async with asyncio.timeout(60):
            head = await self.head()
            await self.reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        return int(head.split()[1])

    async def head(self) -> str:
        """Return the next status and headers, in lower case."""
        async with asyncio.timeout(60):
            return (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()

    async def chunks(self) -> bytes:
        """Return a body that comes in chunks, to its last one; raise if the connection ends before."""
        body, size = bytearray(), -1
        async with asyncio.timeout(60):
            while size:
                size = int(await self.reader.readuntil(b"\r\n"), 16)
                body += (await self.reader.readexactly(size + 2))[:-2]
        return bytes(body)

    async def rest(self) -> bytes:
        """Return what comes until the service closes the connection."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def serving(limits: Limits = QUICK, tls: Callable[[], ssl.SSLContext] | None = None) -> AsyncIterator[Service]:
    """Run a service for as long as a test takes."""
    service, listening, ready = Service(), bind("127.0.0.1", 0), asyncio.Event()
    service.port = listening.getsockname()[1]
    service.host = f"127.0.0.1:{service.port}"
    application = Application(
        service.routes(),
        hosts=allowed_hosts("127.0.0.1", service.port),
        authenticator=TokenAuthenticator({}, clock=time.monotonic),
        body_bytes=limits.body_bytes,
        telemetry=service.witness,
    )
    service.server = Server(application, listening, limits=limits, tls=tls, on_refused=service.note)
    running = asyncio.get_running_loop().create_task(service.server.run(ready.set))
    try:
        async with asyncio.timeout(60):
            await ready.wait()
        yield service
    finally:
        for client in service.clients:
            client.writer.transport.abort()
        service.go.set()
        service.server.stop()
        await running
