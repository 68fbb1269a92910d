"""The application of a service: from a request that was read to its answer, through every guard, in this order.

Host, door, route, body, answer. Keeps these invariants: nothing is looked for before the host is known to be ours, and
nothing of a body is read before the door is open; without a token, what is there and what is not look the same; every
answer has a request id; and an error that was not foreseen tells a client nothing.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from msgspec import json

from remit.claims.shapes import Claims, shape
from remit.claims.strictjson import parse_object
from remit.errors import AccessError, BodyTooLarge, HostRefused, MediaTypeRefused, MethodRefused, RouteNotFound
from remit.http.routes import Ask, Found, Plain, Route, Router
from remit.http.statuses import error_body, headers_for, status_of
from remit.http.telemetry import Span, Telemetry
from remit.http.tokens import Access, Doors

__all__ = ["Application", "Witness"]

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
_Headers: TypeAlias = list[tuple[bytes, bytes]]

_NOWHERE: Final = "other"
_JSON: Final = b"application/json"
_CHARSETS: Final = (b"", b"charset=utf-8", b'charset="utf-8"')
_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_BEARER: Final = "bearer "
# What a browser says of a request that no page of another origin has made.
_OWN_SITE: Final = (b"", b"none", b"same-origin")
# A body beyond this is read beside the loop: it would keep all others waiting.
_LARGE_BODY: Final = 64 * 1024


class Witness(Protocol):
    """Who is told what goes on. Nothing waits for it."""

    def stage(self, name: str, seconds: float) -> None:
        """A stage of a request took so long."""

    def answered(self, route: str, status: int, request_id: str, error: BaseException | None) -> None:
        """A request was answered."""


class _Sent(NamedTuple):
    """The headers that are looked at."""

    host: bytes = b""
    authorization: bytes = b""
    media_type: bytes = b""
    encoding: bytes = b""
    length: bytes = b""
    traceparent: bytes = b""
    origin: bytes = b""
    fetch_site: bytes = b""


class _Reply(NamedTuple):
    """What goes back."""

    status: int
    headers: _Headers
    content: bytes


_LOOKED_AT: Final = {
    b"host": "host",
    b"authorization": "authorization",
    b"content-type": "media_type",
    b"content-encoding": "encoding",
    b"content-length": "length",
    b"traceparent": "traceparent",
    b"origin": "origin",
    b"sec-fetch-site": "fetch_site",
}


class Application:
    """An ASGI application over a table of routes."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        hosts: frozenset[bytes],
        doors: Doors,
        body_bytes: int,
        witness: Witness,
        telemetry: Telemetry,
    ) -> None:
        """Serve `routes` under the names in `hosts`."""
        self._router = Router(routes)
        self._hosts = hosts
        self.doors = doors
        self._body_bytes = body_bytes
        self._witness = witness
        self._telemetry = telemetry
        # Ids tell requests apart; nobody has to guess them.
        self._run = secrets.token_hex(4)
        self._count = itertools.count(1)
        # One thread, because more would only take turns with the loop more often.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="bodies")

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        request_id = f"{self._run}-{next(self._count):08x}"
        sent = _sent(scope["headers"])
        with self._telemetry.span(_NOWHERE, scope["method"], sent.traceparent.decode("latin-1")) as span:
            reply = await self._reply(scope, receive, sent, request_id, span)
        if reply is None:
            return
        headers = [
            *reply.headers,
            *_COMMON,
            (b"x-request-id", request_id.encode("ascii")),
            (b"content-length", b"%d" % len(reply.content)),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.content})

    async def _reply(self, scope: _Scope, receive: _Receive, sent: _Sent, request_id: str, span: Span) -> _Reply | None:
        """Return what a client is told, whatever happens; None if it has gone."""
        route, failure = _NOWHERE, None
        try:
            found = self._admitted(scope, sent)
            route = found.route.path
            data = b""
            if found.route.request is not None:
                read = await self._read(found.route, sent, receive)
                if read is None:
                    return None
                data = read
            answer = await self._answer(found, data, Ask(None, found.parameters, _holder(scope), request_id, span))
            reply = _Reply(200, _media_type(answer.media_type), answer.content)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the service: whatever it is, the client gets an answer
            failure = error
            reply = _Reply(status_of(error).status, _error_headers(error), error_body(error))
        span.answered(route, reply.status, request_id)
        self._witness.answered(route, reply.status, request_id, failure)
        failure = None  # it holds this frame, and all that was read, for as long as this frame holds it
        return reply

    def _admitted(self, scope: _Scope, sent: _Sent) -> Found:
        """Return the route that is asked for, once it is clear that its client may know of it."""
        if sent.host.lower() not in self._hosts:
            raise HostRefused("this Host is not served here")
        found: Found | None = None
        missing: AccessError | None = None
        try:
            found = self._router.find(scope["method"], scope["raw_path"].decode("latin-1"))
        except (RouteNotFound, MethodRefused) as error:
            missing = error
        access: Access = found.route.access if found else "token"
        self.doors.check(access, _bearer(sent.authorization), scope["client"][0] if scope["client"] else "")
        if found is None:
            raise missing or RouteNotFound("nothing is at this path")
        return found

    async def _answer(self, found: Found, data: bytes, ask: Ask) -> Plain:
        """Return the answer to what was asked in full."""
        route, begun = found.route, time.perf_counter()
        if route.request is not None:
            ask = ask._replace(body=await self._decode(route.request, data))
        read = time.perf_counter()
        answer = await route.answering(ask)
        decided = time.perf_counter()
        self._witness.stage("decode", read - begun)
        self._witness.stage("decide", decided - read)
        if not isinstance(answer, Plain):
            answer = Plain(json.encode(answer), "application/json")
            self._witness.stage("answer", time.perf_counter() - decided)
        return answer

    async def _decode(self, request: type[Claims], data: bytes) -> Claims:
        """Return what a body says."""

        def decode() -> Claims:
            return shape(request, parse_object(data, max_bytes=self._body_bytes))

        if len(data) <= _LARGE_BODY:
            return decode()
        return await asyncio.get_running_loop().run_in_executor(self._beside, decode)

    async def _read(self, route: Route, sent: _Sent, receive: _Receive) -> bytes | None:
        """Return the body of a request, or None if the client went away."""
        most = self._body_bytes
        if sent.length and int(sent.length) > most:  # it has few digits, and nothing else
            raise BodyTooLarge(f"at most {most} bytes are read")
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            parts.append(message["body"])
            size, more = size + len(parts[-1]), message["more_body"]
            if size > most:
                raise BodyTooLarge(f"at most {most} bytes are read")
        data = b"".join(parts)
        if not data and route.without_body is not None and not _could_be_of_a_page(sent):
            return route.without_body
        _check_media_type(sent)
        return data or route.without_body or b""


def _sent(headers: _Headers) -> _Sent:
    """Return the headers that are looked at; of those that stand twice, all: none of them then means anything."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        wanted = _LOOKED_AT.get(name)
        if wanted is not None:
            found[wanted] = found[wanted] + b", " + value if wanted in found else value
    return _Sent(**found)


def _holder(scope: _Scope) -> str:
    holder: str = scope["state"]["holder"]
    return holder


def _bearer(authorization: bytes) -> str:
    text = authorization.decode("latin-1")
    return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""


def _could_be_of_a_page(sent: _Sent) -> bool:
    """Tell whether a page of another origin could have had this sent, without being asked first."""
    return bool(sent.media_type or sent.origin) or sent.fetch_site not in _OWN_SITE


def _check_media_type(sent: _Sent) -> None:
    """Raise unless the body is plain JSON by what its headers say.

    This also keeps pages of others out: a browser asks first before it sends this type to another origin.
    """
    name, _, parameters = sent.media_type.lower().partition(b";")
    if name.strip() != _JSON or parameters.strip() not in _CHARSETS:
        raise MediaTypeRefused("send JSON, as `Content-Type: application/json`")
    if sent.encoding.lower() not in (b"", b"identity"):
        raise MediaTypeRefused("a compressed body is not read")


def _media_type(name: str) -> _Headers:
    return [(b"content-type", name.encode("ascii"))]


def _error_headers(error: BaseException) -> _Headers:
    return [*_media_type("application/json"), *headers_for(error)]
