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
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, json

from remit.claims.shapes import Claims, shape
from remit.claims.strictjson import JSON, parse_object
from remit.errors import (
    AccessError,
    BodyTooLarge,
    HostRefused,
    HttpMalformed,
    InputError,
    MediaTypeRefused,
    MethodRefused,
    OriginRefused,
    RouteNotFound,
)
from remit.server.auth import Access, Authenticator, BrowserPolicy, Credentials
from remit.server.connection import Exchange
from remit.server.headers import HeaderList, Sent, accepts_gzip, could_be_of_a_page, media_type_error
from remit.server.hosts import is_loopback_host
from remit.server.query import parse_query
from remit.server.routes import Found, Plain, Request, Route, Router, Streamed
from remit.server.statuses import error_body, headers_for, status_of
from remit.server.streaming import Stream
from remit.server.telemetry import OTHER, Telemetry

if TYPE_CHECKING:
    from remit.server.otlp import OtlpExporter, Span

__all__ = ["Application"]

_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON: Final = (b"content-type", b"application/json")
_NO_BROWSERS: Final = BrowserPolicy()
_NO_CONTENT: Final = 204
_NO_PARAMETERS: Final[Mapping[str, str]] = {}
# A body beyond this is decoded in a thread: it would keep all other requests waiting.
_LARGE_BODY: Final = 64 * 1024
# So many streams can wait for a disk at the same time.
_STREAM_THREADS: Final = 4


class _Response(NamedTuple):
    """A response but for the headers that all have."""

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
    found: Found | None
    # Why there is no route, or the query cannot be read: that is told to clients that are authorized.
    error: AccessError | InputError | None
    query: Mapping[str, str]
    credentials: Credentials
    is_preflight: bool
    is_origin_allowed: bool
    # Whether no page of another origin can have made this request: only then may its body be left out.
    may_omit_body: bool
    # Why the body is not one to be read; empty if it is.
    media_type_error: str


class Application:
    """Answers requests by a table of routes."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        hosts: frozenset[bytes],
        authenticator: Authenticator,
        body_bytes: int,
        telemetry: Telemetry,
        browser_policy: BrowserPolicy = _NO_BROWSERS,
    ) -> None:
        """Serve `routes` under loopback names, and under those in `hosts`."""
        self._router = Router(routes)
        self._hosts = hosts
        self._authenticator = authenticator
        self._body_bytes = body_bytes
        self._telemetry = telemetry
        self._browser_policy = browser_policy
        # Ids tell requests apart; nobody has to guess them.
        self._run = secrets.token_hex(4)
        self._count = itertools.count(1)
        # One thread, because more would only take turns with the loop more often.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self._streams = ThreadPoolExecutor(_STREAM_THREADS, thread_name_prefix="streams")

    def __call__(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer one request."""
        exporter = self._telemetry.exporter
        return self._answer(exchange, None) if exporter is None else self._answer_traced(exchange, exporter)

    async def _answer_traced(self, exchange: Exchange, exporter: "OtlpExporter") -> None:
        parent = exchange.headers.get(b"traceparent", b"").decode("latin-1")
        with exporter.span(OTHER, exchange.method, parent) as span:
            await self._answer(exchange, span)

    async def _answer(self, exchange: Exchange, span: "Span | None") -> None:
        """Respond to a request, whatever happens; not if its client has gone."""
        connection, headers = exchange.connection, exchange.headers
        request_id = f"{self._run}-{next(self._count):08x}"
        request = Request(None, _NO_PARAMETERS, connection.holder, request_id, headers=headers)
        # The template of the path, once the client is authorized.
        path, route, failure = OTHER, None, None
        stages: dict[str, float] = {}
        try:
            known: _Examined | None = connection.kept
            if (
                known is None
                or known.headers != headers
                or known.path != exchange.path
                or known.method != exchange.method
                or known.query_text != exchange.query
            ):
                known = self._examine(exchange)
                # An error is made anew each time: it holds the frames that it has passed through.
                connection.kept = known if known.error is None else None
            if known.found is not None:
                route, request.parameters = known.found
            if known.is_preflight:
                response = _Response(_NO_CONTENT, self._browser_policy.preflight_headers(), b"")
            else:
                route = self._authorize(exchange, known)
                path, request.query = route.path, known.query
                if route.request is not None and not await self._read(exchange, route, known, request, stages):
                    return
                begun = time.perf_counter()
                answer = await route.answering(request)
                decided = time.perf_counter()
                stages["decide"] = decided - begun
                if isinstance(answer, Struct):
                    response = _Response(200, [_JSON], json.encode(answer))
                    stages["answer"] = time.perf_counter() - decided
                elif isinstance(answer, Plain):
                    response = _response_of(answer, answer.content)
                else:
                    response = _response_of(answer, await self._begin(exchange, answer))
        except Exception as error:  # noqa: BLE001 - the edge of the service: whatever it is, the client gets an answer
            failure = error
            response = _failed(route, request, error)
        self._telemetry.answered(request, path, response.status, stages=stages, error=failure, span=span)
        failure = known = None  # an error holds this frame, and all that was read, for as long as this frame holds it
        head = self._headers(response, headers, request_id)
        if isinstance(response.content, bytes):
            exchange.respond(response.status, head, response.content)
        else:
            exchange.begin(response.status, head)
            await self._send(exchange, response.content, path, request_id)

    def _examine(self, exchange: Exchange) -> _Examined:
        """Return what the target and the headers of a request say, or raise if its host is not served here."""
        headers = exchange.headers
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts and not is_loopback_host(host):
            raise HostRefused("this Host is not served here")
        found, query = None, _NO_PARAMETERS
        error: AccessError | InputError | None = None
        try:
            query = parse_query(exchange.query)
        except InputError as unreadable:
            error = unreadable.with_traceback(None)  # which holds this frame, and this frame holds it
        try:
            found = self._router.find(exchange.method, exchange.path)
        except (RouteNotFound, MethodRefused) as missing:
            error = missing.with_traceback(None)
        policy = self._browser_policy
        credentials = policy.credentials(headers, query)
        if found and found.route.subject:
            credentials = credentials._replace(subject=found.parameters.get(found.route.subject, ""))
        return _Examined(
            exchange.method,
            exchange.path,
            exchange.query,
            headers,
            found,
            error,
            query,
            credentials,
            is_preflight=policy.is_preflight(exchange.method, headers),
            is_origin_allowed=policy.allows(exchange.method, headers),
            may_omit_body=not could_be_of_a_page(headers),
            media_type_error=media_type_error(headers, any_type=policy.accepts_any_type),
        )

    def _authorize(self, exchange: Exchange, known: _Examined) -> Route:
        """Return the route of a request, once it is clear that its client may know of it."""
        access: Access = known.found.route.access if known.found else "token"
        self._authenticator.check(access, known.credentials, exchange.connection.peer)
        if access != "open":
            exchange.connection.is_authenticated = True
        if not known.is_origin_allowed:
            raise OriginRefused("pages of this origin may change nothing here")
        if known.found is None or known.error is not None:
            raise known.error or RouteNotFound("nothing is at this path")
        return known.found.route

    async def _read(
        self, exchange: Exchange, route: Route, known: _Examined, request: Request, stages: dict[str, float]
    ) -> bool:
        """Read the body of a request and decode it; tell whether the client is still there."""
        most = self._body_bytes
        if exchange.content_length > most:
            raise BodyTooLarge(f"at most {most} bytes are read")
        data: bytes | None
        if exchange.is_read and exchange.size <= most and not (exchange.expects_continue or exchange.is_gone):
            data = b"".join(exchange.parts)
        else:
            data = await exchange.read_body(most)
        if data is None:
            return False
        if known.media_type_error and (data or route.without_body is None or not known.may_omit_body):
            raise MediaTypeRefused(known.media_type_error)
        request.data = data = data or route.without_body or b""
        schema = route.request or dict
        begun = time.perf_counter()
        if len(data) <= _LARGE_BODY:
            request.body = _parse(schema, data, most)
        else:
            loop = asyncio.get_running_loop()
            request.body = await loop.run_in_executor(self._beside, _parse, schema, data, most)
        stages["decode"] = time.perf_counter() - begun
        return True

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

    def _headers(self, response: _Response, sent: Sent, request_id: str) -> HeaderList:
        headers = [*response.headers, *_COMMON, (b"x-request-id", request_id.encode("ascii"))]
        varies = []
        if self._browser_policy.origins is not None:
            headers += self._browser_policy.cors_headers(sent)
            varies.append(b"Origin")
        if isinstance(response.content, Stream):
            headers += response.content.headers
            varies.append(b"Accept-Encoding")
        elif response.status != _NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(response.content)))
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
            self._telemetry.cut_off(route, request_id, error)
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


def _failed(route: Route | None, request: Request, error: Exception) -> _Response:
    """Return what a client is told of a failure: by a status, or by the route if its clients know only one status."""
    if route is None or route.failing is None or isinstance(error, OriginRefused):
        return _Response(status_of(error).status, [_JSON, *headers_for(error)], error_body(error))
    answer = route.failing(request, error)
    return _response_of(answer, answer.content)


def _response_of(answer: Plain | Streamed, content: bytes | Stream) -> _Response:
    return _Response(200, [(b"content-type", answer.media_type.encode("ascii")), *answer.headers], content)
