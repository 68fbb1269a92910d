"""An application with a few routes, and one client that asks it: nothing is sent over a socket."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.server.application import Application
from remit.server.auth import Access, Authenticator, BrowserPolicy, TokenAuthenticator
from remit.server.connection import Connection, Exchange, ServerState
from remit.server.limits import ConnectionLimiter, Limits
from remit.server.routes import BytesResponse, Request, Route
from remit.server.telemetry import Telemetry
from tests.server.serving import Heard, Said

__all__ = ["HOST", "JSON", "TOKEN", "Asked", "Handlers", "Witness", "World"]

HOST = b"ours:1"
JSON = {b"content-type": b"application/json"}
TOKEN = "a-token"


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


class Asked(Exchange):
    """A request as values, whose body comes part by part as it is read; without parts, the client goes away."""

    __slots__ = ("coming", "read", "wire")

    def __init__(
        self,
        application: Application,
        method: str,
        target: str,
        headers: Mapping[bytes, bytes],
        parts: tuple[bytes, ...],
        *,
        peer: str = "198.51.100.7",
        holder: str = "thumbprint",
        after: "Asked | None" = None,
    ) -> None:
        """Request on a connection of its own, or on that of a request before."""
        state = ServerState(application, Limits(), ConnectionLimiter(1, 1), lambda *_: None)
        connection, self.wire = Connection(state, peer), Wire()
        if after is not None:
            connection, self.wire = after.connection, after.wire
        connection.connection_made(self.wire)
        connection.holder = holder
        path, _, query = target.partition("?")
        length = int(headers.get(b"content-length", 0))
        rest = {name: value for name, value in headers.items() if name != b"content-length"}
        super().__init__(connection, method, path, query.encode("latin-1"), rest, content_length=length)
        connection._exchanges.append(self)
        connection._current = self
        self.coming = parts
        self.read = 0

    async def read_body(self, most: int) -> bytes | None:
        for part in self.coming:
            if self.size > most:
                break
            self.read += 1
            self.connection.on_body(part)
        if not self.coming:
            self.give_up()
        elif self.read == len(self.coming):
            self.connection.on_message_complete()
        return await super().read_body(most)


@dataclass
class Witness(Telemetry):
    """Remembers what it was told."""

    told: list[tuple[str, int, str]] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    cut: list[tuple[str, str, BaseException]] = field(default_factory=list)

    exporter: None = None

    def answered(
        self,
        request: Request,
        route: str,
        status: int,
        *,
        stages: Mapping[str, float],
        error: BaseException | None,
        span: Any,
    ) -> None:
        assert span is None
        assert all(seconds >= 0 for seconds in stages.values())
        self.stages += stages
        self.told.append((route, status, request.request_id))
        self.errors.append(error)

    def cut_off(self, route: str, request_id: str, error: BaseException) -> None:
        self.cut.append((route, request_id, error))


@dataclass
class Handlers:
    """What the routes lead to; it fails with `failure`, if there is one."""

    failure: BaseException | None = None
    asked: list[Request] = field(default_factory=list)

    async def say(self, ask: Request) -> Heard:
        self.asked.append(ask)
        if self.failure:
            raise self.failure
        return Heard(ask.body.word if ask.body else "nothing")

    async def hear(self, ask: Request) -> BytesResponse:
        self.asked.append(ask)
        if self.failure:
            raise self.failure
        return BytesResponse(json.dumps(ask.body).encode(), "application/json")

    async def page(self, ask: Request) -> BytesResponse:
        self.asked.append(ask)
        return BytesResponse(b"<page>", "text/html", ((b"x-page", b"1"),))


def _told(ask: Request, error: Exception) -> BytesResponse:
    return BytesResponse(
        json.dumps([ask.parameters["name"], ask.body, type(error).__name__]).encode(), "application/json"
    )


@dataclass
class World:
    """An application, and one client that asks it."""

    desk: Handlers = field(default_factory=Handlers)
    witness: Witness = field(default_factory=Witness)
    is_closed: bool = False
    written: bytes = b""
    # How many parts of bodies were read.
    read: int = 0
    body_bytes: int = 100
    request: type[Said] = Said
    browser_policy: BrowserPolicy = field(default_factory=BrowserPolicy)
    authenticator: Authenticator | None = None
    # Whom the page is for.
    access: Access = "open"

    def ask(
        self, method: str = "POST", path: str = "/say", parts: tuple[bytes, ...] = (b'{"word":"x"}',), **changes: Any
    ) -> None:
        headers = {b"host": HOST, **JSON, **changes.pop("headers", {})}
        given = {name: value for name, value in headers.items() if value is not None}

        async def run() -> None:
            application = self.application()
            asked = Asked(application, method, path, given, parts, **changes)
            try:
                await application(asked)
            finally:
                self.read += asked.read
                self.written = asked.wire.written

        asyncio.run(run())

    def application(self) -> Application:
        routes = [
            Route("POST", "/say", self.desk.say, Heard, "Say", self.request),
            Route("GET", "/say", self.desk.say, Heard, "Say"),
            Route("GET", "/page", self.desk.page, "text/html", "A page", access=self.access),
            Route(
                "POST", "/maybe/{name}", self.desk.say, Heard, "Say or not", Said, without_body=b'{"word":"default"}'
            ),
            Route("POST", "/always/{name}", self.desk.hear, "application/json", "Any object", dict, on_error=_told),
        ]
        authenticator = TokenAuthenticator({"token": (TOKEN,)} if self.is_closed else {}, clock=time.monotonic)
        return Application(
            routes,
            hosts=frozenset({HOST}),
            authenticator=self.authenticator or authenticator,
            body_bytes=self.body_bytes,
            telemetry=self.witness,
            browser_policy=self.browser_policy,
        )

    @property
    def status(self) -> int:
        return int(self.written.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[bytes, bytes]:
        lines = self.written.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        return {name: value for name, _, value in (line.partition(b": ") for line in lines)}

    @property
    def content(self) -> bytes:
        return self.written.partition(b"\r\n\r\n")[2]

    @property
    def body(self) -> Any:
        return json.loads(self.content)
