"""The HTTP application of a service: checks each request, calls its handler, and sends the response.

The checks are in this order: host, token, origin, route, body. Invariants: the host is checked before anything else,
and a body is read only after the request was authorized. Without a token, a client cannot detect which paths exist.
Every response has a request id. The message of an unexpected error is not sent. A response that was cut off is
recognized as incomplete.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, json

from remit.claims.strictjson import JSON, parse_object
from remit.claims.types import Claims, convert
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
from remit.server.headers import HeaderList, Headers, accepts_gzip, could_be_cross_origin, media_type_error
from remit.server.hosts import is_loopback_host
from remit.server.query import parse_query
from remit.server.routes import BytesResponse, Found, Request, Route, Router, StreamedResponse
from remit.server.statuses import error_body, get_status, headers_for
from remit.server.streaming import Stream
from remit.server.telemetry import OTHER, Telemetry

if TYPE_CHECKING:
    from remit.server.otlp import OtlpExporter, Span

_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON: Final = (b"content-type", b"application/json")
_NO_BROWSERS: Final = BrowserPolicy()
_NO_CONTENT: Final = 204
_NO_PARAMETERS: Final[Mapping[str, str]] = {}
# Larger bodies are decoded in a thread, because they would block the event loop.
_LARGE_BODY: Final = 64 * 1024
# Streams that can read from disk at the same time.
_STREAM_THREADS: Final = 4


class _Response(NamedTuple):
    """A response without the headers that all responses have."""

    status: int
    headers: HeaderList
    content: bytes | Stream


class _RequestHead(NamedTuple):
    """What follows from the target and the headers of a request alone. It does not say that the client is authorized.

    A connection caches it, because most requests of a client differ only in the length of their body.
    """

    method: str
    path: str
    query_text: bytes
    headers: Headers
    found: Found | None
    # Why there is no route, or the query is invalid. Sent to authorized clients only.
    error: AccessError | InputError | None
    query: Mapping[str, str]
    credentials: Credentials
    is_preflight: bool
    is_origin_allowed: bool
    # Whether no page of another origin can have sent this request. Only then may its body be left out.
    may_omit_body: bool
    # Why the body is refused by its type; empty if it is not.
    media_type_error: str


class Application:
    """Handles requests with a table of routes."""

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
        """Serve `routes` for loopback hosts, and for those in `hosts`."""
        self._router = Router(routes)
        self._hosts = hosts
        self._authenticator = authenticator
        self._body_bytes = body_bytes
        self._telemetry = telemetry
        self._browser_policy = browser_policy
        # Request ids are unique; they need not be secret.
        self._run = secrets.token_hex(4)
        self._count = itertools.count(1)
        # One thread: more would only compete with the event loop for the interpreter lock.
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self._streams = ThreadPoolExecutor(_STREAM_THREADS, thread_name_prefix="streams")

    def __call__(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Handle one request."""
        exporter = self._telemetry.exporter
        return self._answer(exchange, None) if exporter is None else self._answer_traced(exchange, exporter)

    async def _answer_traced(self, exchange: Exchange, exporter: "OtlpExporter") -> None:
        parent = exchange.headers.get(b"traceparent", b"").decode("latin-1")
        with exporter.span(OTHER, exchange.method, parent) as span:
            await self._answer(exchange, span)

    async def _answer(self, exchange: Exchange, span: "Span | None") -> None:
        """Handle a request, and send a response whatever happens, unless the client has disconnected."""
        connection, headers = exchange.connection, exchange.headers
        request_id = f"{self._run}-{next(self._count):08x}"
        request = Request(None, _NO_PARAMETERS, connection.holder, request_id, headers=headers)
        # `path` is the template of the route, once the client is authorized.
        path, route, failure = OTHER, None, None
        stages: dict[str, float] = {}
        try:
            head: _RequestHead | None = connection.cache
            if (
                head is None
                or head.headers != headers
                or head.path != exchange.path
                or head.method != exchange.method
                or head.query_text != exchange.query
            ):
                head = self._check_head(exchange)
                # One with an error is not cached: the traceback of the error grows each time it is raised.
                connection.cache = head if head.error is None else None
            if head.found is not None:
                route, request.parameters = head.found
            if head.is_preflight:
                response = _Response(_NO_CONTENT, self._browser_policy.preflight_headers(), b"")
            else:
                route = self._authorize(exchange, head)
                path, request.query = route.path, head.query
                if route.request is not None and not await self._read_body(exchange, route, head, request, stages):
                    return
                begun = time.perf_counter()
                answer = await route.handler(request)
                decided = time.perf_counter()
                stages["decide"] = decided - begun
                if isinstance(answer, Struct):
                    response = _Response(200, [_JSON], json.encode(answer))
                    stages["answer"] = time.perf_counter() - decided
                elif isinstance(answer, BytesResponse):
                    response = _build_response(answer, answer.content)
                else:
                    response = _build_response(answer, await self._begin_stream(exchange, answer))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a response
            failure = error
            response = _error_response(route, request, error)
        self._telemetry.answered(request, path, response.status, stages=stages, error=failure, span=span)
        failure = head = None  # the traceback refers to this frame: break the cycle, so that the body is freed
        response_headers = self._headers(response, headers, request_id)
        if isinstance(response.content, bytes):
            exchange.respond(response.status, response_headers, response.content)
        else:
            exchange.begin(response.status, response_headers)
            await self._send_stream(exchange, response.content, path, request_id)

    def _check_head(self, exchange: Exchange) -> _RequestHead:
        """Return the checked target and headers of a request, or raise if its host is not served."""
        headers = exchange.headers
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts and not is_loopback_host(host):
            raise HostRefused("this Host is not served here")
        found, query = None, _NO_PARAMETERS
        error: AccessError | InputError | None = None
        try:
            query = parse_query(exchange.query)
        except InputError as unreadable:
            error = unreadable.with_traceback(None)  # the traceback refers to this frame
        try:
            found = self._router.find(exchange.method, exchange.path)
        except (RouteNotFound, MethodRefused) as missing:
            error = missing.with_traceback(None)
        policy = self._browser_policy
        credentials = policy.credentials(headers, query)
        if found and found.route.subject:
            credentials = credentials._replace(subject=found.parameters.get(found.route.subject, ""))
        return _RequestHead(
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
            may_omit_body=not could_be_cross_origin(headers),
            media_type_error=media_type_error(headers, any_type=policy.accepts_any_type),
        )

    def _authorize(self, exchange: Exchange, head: _RequestHead) -> Route:
        """Return the route of a request, or raise unless the request is authorized and the route exists."""
        access: Access = head.found.route.access if head.found else "token"
        self._authenticator.check(access, head.credentials, exchange.connection.peer)
        if access != "open":
            exchange.connection.is_authenticated = True
        if not head.is_origin_allowed:
            raise OriginRefused("pages of this origin may not make changes")
        if head.found is None or head.error is not None:
            raise head.error or RouteNotFound("there is nothing at this path")
        return head.found.route

    async def _read_body(
        self, exchange: Exchange, route: Route, head: _RequestHead, request: Request, stages: dict[str, float]
    ) -> bool:
        """Read the body of a request and decode it; return False if the client has disconnected."""
        most = self._body_bytes
        if exchange.content_length > most:
            raise BodyTooLarge(f"the body has more than {most} bytes")
        data: bytes | None
        if exchange.is_read and exchange.size <= most and not (exchange.expects_continue or exchange.is_gone):
            data = b"".join(exchange.parts)
        else:
            data = await exchange.read_body(most)
        if data is None:
            return False
        if head.media_type_error and (data or route.without_body is None or not head.may_omit_body):
            raise MediaTypeRefused(head.media_type_error)
        request.data = data = data or route.without_body or b""
        schema = route.request or dict
        begun = time.perf_counter()
        if len(data) <= _LARGE_BODY:
            request.body = _parse(schema, data, most)
        else:
            loop = asyncio.get_running_loop()
            request.body = await loop.run_in_executor(self._decoder, _parse, schema, data, most)
        stages["decode"] = time.perf_counter() - begun
        return True

    async def _begin_stream(self, exchange: Exchange, answer: StreamedResponse) -> Stream:
        """Return a stream with its first piece read: an error before that can still have an error status."""
        stream = Stream(answer.parts, self._streams, compress=accepts_gzip(exchange.headers))
        try:
            _check_chunks(exchange)
            if exchange.method != "HEAD":
                await stream.advance()
        except BaseException:
            stream.close()
            raise
        return stream

    def _headers(self, response: _Response, sent: Headers, request_id: str) -> HeaderList:
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

    async def _send_stream(self, exchange: Exchange, stream: Stream, route: str, request_id: str) -> None:
        """Send a stream. Abort the connection if the stream fails or the client disconnects."""
        is_last = False
        try:
            is_last = stream.is_over or exchange.method == "HEAD"
            await exchange.send(stream.piece, is_last=is_last)
            while not is_last and not exchange.is_closing:
                await stream.advance()
                await exchange.send(stream.piece, is_last=stream.is_over)
                is_last = stream.is_over
        except Exception as error:  # noqa: BLE001 - the status was sent already
            is_last = False
            self._telemetry.cut_off(route, request_id, error)
        finally:
            stream.close()
            if not is_last:
                exchange.connection.abort()


def _parse(request: type[Claims] | type[dict[str, Any]], data: bytes, most: int) -> Claims | dict[str, JSON]:
    members = parse_object(data, max_bytes=most, exact_integers=True)
    return convert(request, members) if issubclass(request, Claims) else members


def _check_chunks(exchange: Exchange) -> None:
    """Raise if the client does not support chunked responses: without chunks it could not detect a truncated one."""
    if exchange.version == "1.0":
        raise HttpMalformed("this response requires HTTP/1.1")


def _error_response(route: Route | None, request: Request, error: Exception) -> _Response:
    """Return the response for an error: by its status, or by `on_error` of the route."""
    if route is None or route.on_error is None or isinstance(error, OriginRefused):
        return _Response(get_status(error).status, [_JSON, *headers_for(error)], error_body(error))
    answer = route.on_error(request, error)
    return _build_response(answer, answer.content)


def _build_response(answer: BytesResponse | StreamedResponse, content: bytes | Stream) -> _Response:
    return _Response(200, [(b"content-type", answer.media_type.encode("ascii")), *answer.headers], content)
