"""The application of a service: from a request to its response, through every guard, in this order.

Host, token, origin, route, body, response. Invariants: nothing is looked for before the host is known to be ours, and
nothing of a body is read before the request is authorized; without a token, what is there and what is not look the
same; every response has a request id; an error that was not foreseen tells a client nothing; and a response that breaks
off cannot be taken for whole.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct, json

from remit.claims.shapes import Claims, shape
from remit.claims.strictjson import JSON, parse_object
from remit.errors import (
    AccessError,
    BodyTooLarge,
    HostRefused,
    HttpMalformed,
    InputError,
    MethodRefused,
    OriginRefused,
    RouteNotFound,
)
from remit.http.connection import Exchange
from remit.http.customs import Customs
from remit.http.headers import HeaderList, Sent, accepts_gzip, check_media_type, could_be_of_a_page
from remit.http.hosts import is_loopback_host
from remit.http.query import parse_query
from remit.http.routes import Ask, Found, Plain, Route, Router, Streamed
from remit.http.statuses import error_body, headers_for, status_of
from remit.http.streaming import Stream
from remit.http.telemetry import NO_SPAN, Span, Telemetry
from remit.http.tokens import Access, Doorkeeper, Shown

__all__ = ["Application", "Witness"]

_NOWHERE: Final = "other"
_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON: Final = (b"content-type", b"application/json")
_CUSTOMS: Final = Customs()
_NO_CONTENT: Final = 204
_NO_QUERY: Final[Mapping[str, str]] = {}
# A body beyond this is decoded in a thread: it would keep all other requests waiting.
_LARGE_BODY: Final = 64 * 1024
# So many streams can wait for a disk at the same time.
_STREAM_THREADS: Final = 4


class Witness(Protocol):
    """Who is told what goes on. Nothing waits for it."""

    def stage(self, name: str, seconds: float) -> None:
        """A stage of a request took so long."""

    def answered(self, route: str, status: int, request_id: str, error: BaseException | None) -> None:
        """A request was answered, or the first of its answer is there."""

    def cut_off(self, route: str, request_id: str, error: BaseException) -> None:
        """An answer that had begun could not be brought to its end."""


class _Reply(NamedTuple):
    """What goes back."""

    route: str
    status: int
    headers: HeaderList
    content: bytes | Stream


class _Examined(NamedTuple):
    """What the target and the headers of a request say. Whether its client is authorized is not part of it.

    A connection keeps it for as long as requests come with the same target and headers, but for their length.
    """

    method: str
    path: str
    query_text: bytes
    headers: Sent
    sought: Found | None
    # Why nothing is there, or the query cannot be read: that is told to those who are authorized.
    error: AccessError | InputError | None
    query: Mapping[str, str]
    shown: Shown
    is_preflight: bool

    def is_of(self, exchange: Exchange) -> bool:
        """Tell whether a request says the same."""
        return (
            self.headers == exchange.headers
            and self.path == exchange.path
            and self.method == exchange.method
            and self.query_text == exchange.query
        )


class Application:
    """Answers requests by a table of routes."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        hosts: frozenset[bytes],
        doors: Doorkeeper,
        body_bytes: int,
        witness: Witness,
        telemetry: Telemetry,
        customs: Customs = _CUSTOMS,
    ) -> None:
        """Serve `routes` under loopback names, and under those in `hosts`."""
        self._router = Router(routes)
        self._hosts = hosts
        self._doors = doors
        self._body_bytes = body_bytes
        self._witness = witness
        self._telemetry = telemetry
        self._customs = customs
        # Ids tell requests apart; nobody has to guess them.
        self._run = secrets.token_hex(4)
        self._count = itertools.count(1)
        # One thread, because more would only take turns with the loop more often.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self._streams = ThreadPoolExecutor(_STREAM_THREADS, thread_name_prefix="streams")

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        request_id = f"{self._run}-{next(self._count):08x}"
        if self._telemetry.is_on:
            trace = exchange.headers.get(b"traceparent", b"").decode("latin-1")
            with self._telemetry.span(_NOWHERE, exchange.method, trace) as span:
                reply = await self._reply(exchange, request_id, span)
        else:
            reply = await self._reply(exchange, request_id, NO_SPAN)
        if reply is None:
            return
        headers = self._headers(reply, exchange.headers, request_id)
        if isinstance(reply.content, bytes):
            exchange.respond(reply.status, headers, reply.content)
        else:
            exchange.begin(reply.status, headers)
            await self._send(exchange, reply.content, reply.route, request_id)

    async def _reply(self, exchange: Exchange, request_id: str, span: Span) -> _Reply | None:
        """Return what a client is told, whatever happens; None if it has gone."""
        failure: Exception | None = None
        known: _Examined | None = exchange.connection.kept
        sought: Found | None = None
        query, data, body = _NO_QUERY, b"", None
        route, headers = _NOWHERE, exchange.headers
        try:
            if known is None or not known.is_of(exchange):
                known = self._examine(exchange)
                # An error is made anew each time: it holds the frames that it has passed through.
                exchange.connection.kept = known if known.error is None else None
            sought = known.sought
            if known.is_preflight:
                reply = _Reply(route, _NO_CONTENT, self._customs.preflight(), b"")
            else:
                found = self._authorize(exchange, known)
                route, query = found.route.path, known.query
                if found.route.request is not None:
                    read = await self._read(found.route, exchange)
                    if read is None:
                        return None
                    data = read
                    body = await self._decode(found.route.request, data)
                ask = Ask(body, found.parameters, exchange.connection.holder, request_id, span, query, headers, data)
                reply = await self._answer(found.route, ask, exchange)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the service: whatever it is, the client gets an answer
            failure = error
            parameters = sought.parameters if sought else _NO_QUERY
            ask = Ask(body, parameters, exchange.connection.holder, request_id, span, query, headers, data)
            reply = _failed(sought.route if sought else None, ask, error)
        span.answered(route, reply.status, request_id)
        self._witness.answered(route, reply.status, request_id, failure)
        failure = known = None  # an error holds this frame, and all that was read, for as long as this frame holds it
        return reply

    def _examine(self, exchange: Exchange) -> _Examined:
        """Return what the target and the headers of a request say, or raise if its host is not served here."""
        headers = exchange.headers
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts and not is_loopback_host(host):
            raise HostRefused("this Host is not served here")
        sought, query = None, _NO_QUERY
        error: AccessError | InputError | None = None
        try:
            query = parse_query(exchange.query)
        except InputError as unreadable:
            error = unreadable.with_traceback(None)  # which holds this frame, and this frame holds it
        try:
            sought = self._router.find(exchange.method, exchange.path)
        except (RouteNotFound, MethodRefused) as missing:
            error = missing.with_traceback(None)
        shown = self._customs.shown(headers, query)
        if sought and sought.route.subject:
            shown = shown._replace(subject=sought.parameters.get(sought.route.subject, ""))
        return _Examined(
            exchange.method,
            exchange.path,
            exchange.query,
            headers,
            sought,
            error,
            query,
            shown,
            self._customs.is_preflight(exchange.method, headers),
        )

    def _authorize(self, exchange: Exchange, known: _Examined) -> Found:
        """Return the route of a request, once it is clear that its client may know of it."""
        access: Access = known.sought.route.access if known.sought else "token"
        self._doors.check(access, known.shown, exchange.connection.peer)
        if access != "open":
            exchange.connection.is_authenticated = True
        self._customs.check_origin(exchange.method, exchange.headers)
        if known.sought is None or known.error is not None:
            raise known.error or RouteNotFound("nothing is at this path")
        return known.sought

    async def _read(self, route: Route, exchange: Exchange) -> bytes | None:
        """Return the body of a request, or None if the client went away."""
        most, headers = self._body_bytes, exchange.headers
        if exchange.content_length > most:
            raise BodyTooLarge(f"at most {most} bytes are read")
        data = await exchange.read_body(most)
        if data is None:
            return None
        if not data and route.without_body is not None and not could_be_of_a_page(headers):
            return route.without_body
        check_media_type(headers, any_type=self._customs.takes_any_type)
        return data or route.without_body or b""

    async def _decode(self, request: type[Claims] | type[dict[str, Any]], data: bytes) -> Claims | dict[str, JSON]:
        """Return what a body says."""
        begun = time.perf_counter()
        if len(data) <= _LARGE_BODY:
            body = _parse(request, data, self._body_bytes)
        else:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._beside, _parse, request, data, self._body_bytes)
        self._witness.stage("decode", time.perf_counter() - begun)
        return body

    async def _answer(self, route: Route, ask: Ask, exchange: Exchange) -> _Reply:
        """Return the answer of a route."""
        begun = time.perf_counter()
        answer = await route.answering(ask)
        decided = time.perf_counter()
        self._witness.stage("decide", decided - begun)
        if isinstance(answer, Struct):
            content = json.encode(answer)
            self._witness.stage("answer", time.perf_counter() - decided)
            return _Reply(route.path, 200, [_JSON], content)
        if isinstance(answer, Plain):
            return _Reply(route.path, 200, [_media_type(answer.media_type), *answer.headers], answer.content)
        stream = await self._begin(exchange, answer)
        return _Reply(route.path, 200, [_media_type(answer.media_type), *answer.headers], stream)

    async def _begin(self, exchange: Exchange, answer: Streamed) -> Stream:
        """Return a stream with its first piece, unless none will be sent: what fails before that has a status."""
        stream = Stream(answer.parts, self._streams, is_packed=accepts_gzip(exchange.headers))
        try:
            _check_chunks(exchange)
            if exchange.method != "HEAD":
                await stream.advance()
        except BaseException:
            stream.close()
            raise
        return stream

    def _headers(self, reply: _Reply, sent: Sent, request_id: str) -> HeaderList:
        headers = [*reply.headers, *_COMMON, (b"x-request-id", request_id.encode("ascii"))]
        varies = []
        if self._customs.origins is not None:
            headers += self._customs.crossing(sent)
            varies.append(b"Origin")
        if isinstance(reply.content, Stream):
            headers += reply.content.headers
            varies.append(b"Accept-Encoding")
        elif reply.status != _NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(reply.content)))
        if varies:
            headers.append((b"vary", b", ".join(varies)))
        return headers

    async def _send(self, exchange: Exchange, stream: Stream, route: str, request_id: str) -> None:
        """Send a stream to its end; if it has none, or nobody takes it, the connection is cut off."""
        is_last = False
        try:
            is_last = stream.is_over or exchange.method == "HEAD"
            await exchange.send(stream.piece, is_last=is_last)
            while not is_last and not exchange.is_closing:
                await stream.advance()
                await exchange.send(stream.piece, is_last=stream.is_over)
                is_last = stream.is_over
        except Exception as error:  # noqa: BLE001 - the edge of the service: there is no status left to tell it by
            is_last = False
            self._witness.cut_off(route, request_id, error)
        finally:
            stream.close()
            if not is_last:
                exchange.connection.abort()


def _parse(request: type[Claims] | type[dict[str, Any]], data: bytes, most: int) -> Claims | dict[str, JSON]:
    members = parse_object(data, max_bytes=most, exact_integers=True)
    return shape(request, members) if issubclass(request, Claims) else members


def _check_chunks(exchange: Exchange) -> None:
    """Raise if the client knows no chunks: the end of a connection does not tell whether a response was whole."""
    if exchange.version == "1.0":
        raise HttpMalformed("this answer needs HTTP 1.1")


def _failed(route: Route | None, ask: Ask, error: Exception) -> _Reply:
    """Return what a client is told of a failure: by a status, or by the words of a route that knows only one."""
    path = route.path if route else _NOWHERE
    if route is None or route.failing is None or isinstance(error, OriginRefused):
        return _Reply(path, status_of(error).status, [_JSON, *headers_for(error)], error_body(error))
    answer = route.failing(ask, error)
    return _Reply(path, 200, [_media_type(answer.media_type), *answer.headers], answer.content)


def _media_type(name: str) -> tuple[bytes, bytes]:
    return b"content-type", name.encode("ascii")
