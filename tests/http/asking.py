"""An application with a few routes, and one client that asks it: nothing is sent over a wire."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.http.application import Application
from remit.http.customs import Customs
from remit.http.routes import Ask, Plain, Route
from remit.http.telemetry import Telemetry
from remit.http.tokens import Access, Doorkeeper, Doors
from tests.http.serving import Heard, Said

__all__ = ["HOST", "JSON", "TOKEN", "Desk", "Witness", "World"]

HOST = b"ours:1"
JSON = {b"content-type": b"application/json"}
TOKEN = "a-token"


@dataclass
class Witness:
    """Remembers what it was told."""

    told: list[tuple[str, int, str]] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    cut: list[tuple[str, str, BaseException]] = field(default_factory=list)

    def stage(self, name: str, seconds: float) -> None:
        assert seconds >= 0
        self.stages.append(name)

    def answered(self, route: str, status: int, request_id: str, error: BaseException | None) -> None:
        self.told.append((route, status, request_id))
        self.errors.append(error)

    def cut_off(self, route: str, request_id: str, error: BaseException) -> None:
        self.cut.append((route, request_id, error))


@dataclass
class Desk:
    """What the routes lead to; it fails with `failure`, if there is one."""

    failure: BaseException | None = None
    asked: list[Ask] = field(default_factory=list)

    async def say(self, ask: Ask) -> Heard:
        self.asked.append(ask)
        if self.failure:
            raise self.failure
        return Heard(ask.body.word if ask.body else "nothing")

    async def hear(self, ask: Ask) -> Plain:
        self.asked.append(ask)
        if self.failure:
            raise self.failure
        return Plain(json.dumps(ask.body).encode(), "application/json")

    async def page(self, ask: Ask) -> Plain:
        self.asked.append(ask)
        return Plain(b"<page>", "text/html", ((b"x-page", b"1"),))


def _told(ask: Ask, error: Exception) -> Plain:
    return Plain(json.dumps([ask.parameters["name"], ask.body, type(error).__name__]).encode(), "application/json")


@dataclass
class World:
    """An application, and one client that asks it."""

    desk: Desk = field(default_factory=Desk)
    witness: Witness = field(default_factory=Witness)
    is_closed: bool = False
    sent: list[Mapping[str, Any]] = field(default_factory=list)
    read: int = 0
    body_bytes: int = 100
    request: type[Said] = Said
    customs: Customs = field(default_factory=Customs)
    doors: Doorkeeper | None = None
    # Whom the page is for.
    access: Access = "open"

    def ask(
        self, method: str = "POST", path: str = "/say", parts: tuple[bytes, ...] = (b'{"word":"x"}',), **changes: Any
    ) -> None:
        headers = {b"host": HOST, **JSON, **changes.pop("headers", {})}
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "raw_path": path.encode("latin-1"), "client": ("198.51.100.7", 1),
            "query_string": query.encode("latin-1"), "http_version": "1.1", "state": {"holder": "thumbprint"},
            "headers": [(name, value) for name, value in headers.items() if value is not None], **changes,
        }  # fmt: skip
        messages = [
            {"type": "http.request", "body": part, "more_body": number < len(parts)}
            for number, part in enumerate(parts, 1)
        ]

        async def receive() -> dict[str, Any]:
            self.read += 1
            return messages[self.read - 1] if self.read <= len(messages) else {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            self.sent.append(message)

        asyncio.run(self.application()(scope, receive, send))

    def application(self) -> Application:
        routes = [
            Route("POST", "/say", self.desk.say, Heard, "Say", self.request),
            Route("GET", "/say", self.desk.say, Heard, "Say"),
            Route("GET", "/page", self.desk.page, "text/html", "A page", access=self.access),
            Route(
                "POST", "/maybe/{name}", self.desk.say, Heard, "Say or not", Said, without_body=b'{"word":"default"}'
            ),
            Route("POST", "/always/{name}", self.desk.hear, "application/json", "Any object", dict, failing=_told),
        ]
        doors = Doors({"token": (TOKEN,)} if self.is_closed else {}, clock=time.monotonic)
        return Application(
            routes,
            hosts=frozenset({HOST}),
            doors=self.doors or doors,
            body_bytes=self.body_bytes,
            witness=self.witness,
            telemetry=Telemetry(),
            customs=self.customs,
        )

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> Any:
        return json.loads(self.sent[1]["body"])
