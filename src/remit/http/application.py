"""The application of a service: from a request that was read to its answer, through every guard, in this order.

Host, door, origin, route, body, answer. Keeps these invariants: nothing is looked for before the host is known to be
ours, and nothing of a body is read before the door is open; without a token, what is there and what is not look the
same; every answer has a request id; an error that was not foreseen tells a client nothing; and an answer that breaks
off cannot be taken for whole.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

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
from remit.http.customs import Customs
from remit.http.headers import HeaderList, Sent, accepts_gzip, check_media_type, could_be_of_a_page, gather
from remit.http.hosts import is_loopback_host
from remit.http.outlet import Outlet
from remit.http.query import parse_query
from remit.http.routes import Ask, Found, Plain, Route, Router, Streamed
from remit.http.statuses import error_body, headers_for, status_of
from remit.http.streaming import Stream
from remit.http.telemetry import Span, Telemetry
from remit.http.tokens import Access, Doorkeeper

__all__ = ["Application", "Witness"]

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

_NOWHERE: Final = "other"
_NOTHING_THERE: Final = RouteNotFound("nothing is at this path")
_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_CUSTOMS: Final = Customs()
_NO_CONTENT: Final = 204
# A body beyond this is read beside the loop: it would keep all others waiting.
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


class Application:
    """An ASGI application over a table of routes."""

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

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        request_id = f"{self._run}-{next(self._count):08x}"
        sent = gather(scope["headers"])
        with self._telemetry.span(_NOWHERE, scope["method"], sent.get(b"traceparent", b"").decode("latin-1")) as span:
            reply = await self._reply(scope, receive, sent, request_id, span)
        if reply is None:
            return
        headers = self._headers(reply, sent, request_id)
        start = {"type": "http.response.start", "status": reply.status, "headers": headers}
        if isinstance(reply.content, bytes):
            await send(start)
            await send({"type": "http.response.body", "body": reply.content})
        else:
            await self._send_pieces(
                scope, send, start, reply.content, lambda error: self._witness.cut_off(reply.route, request_id, error)
            )

    async def _reply(self, scope: _Scope, receive: _Receive, sent: Sent, request_id: str, span: Span) -> _Reply | None:
        """Return what a client is told, whatever happens; None if it has gone."""
        route, failure = _NOWHERE, None
        sought: Found | None = None
        ask = Ask(None, {}, scope["state"]["holder"], request_id, span, {}, sent)
        try:
            self._check_host(sent)
            if self._customs.is_preflight(scope["method"], sent):
                reply = _Reply(route, _NO_CONTENT, self._customs.preflight(), b"")
            else:
                sought, missing = self._sought(scope)
                found, query = self._admitted(scope, sent, sought, missing)
                route = found.route.path
                ask = ask._replace(parameters=found.parameters, query=query)
                if found.route.request is not None:
                    data = await self._read(found.route, sent, receive)
                    if data is None:
                        return None
                    ask = ask._replace(data=data)
                    ask = ask._replace(body=await self._decode(found.route.request, data))
                answer = await self._answer(found.route, ask)
                content = answer.content if isinstance(answer, Plain) else await self._begin(scope, sent, answer)
                reply = _Reply(route, 200, [*_media_type(answer.media_type), *answer.headers], content)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the service: whatever it is, the client gets an answer
            failure = error
            reply = _failed(sought, ask, error)
        span.answered(route, reply.status, request_id)
        self._witness.answered(route, reply.status, request_id, failure)
        failure = None  # it holds this frame, and all that was read, for as long as this frame holds it
        return reply

    def _check_host(self, sent: Sent) -> None:
        host = sent.get(b"host", b"").lower()
        if host not in self._hosts and not is_loopback_host(host):
            raise HostRefused("this Host is not served here")

    def _sought(self, scope: _Scope) -> tuple[Found | None, AccessError]:
        """Return the route that is asked for; where there is none, what to say to those who may know."""
        try:
            return self._router.find(scope["method"], scope["raw_path"].decode("latin-1")), _NOTHING_THERE
        except (RouteNotFound, MethodRefused) as error:
            return None, error

    def _admitted(
        self, scope: _Scope, sent: Sent, sought: Found | None, missing: AccessError
    ) -> tuple[Found, Mapping[str, str]]:
        """Return the route and the query that are asked for, once it is clear that their client may know of them."""
        query, unread = _read_query(scope)
        access: Access = sought.route.access if sought else "token"
        peer = scope["client"][0] if scope["client"] else ""
        subject = sought.parameters.get(sought.route.subject, "") if sought else ""
        self._doors.check(access, self._customs.shown(sent, query)._replace(subject=subject), peer)
        outlet: Outlet | None = scope["state"].get("outlet")
        if access != "open" and outlet is not None:
            outlet.is_authenticated = True
        self._customs.check_origin(scope["method"], sent)
        if sought is None:
            raise missing
        if unread is not None:
            raise unread
        return sought, query

    async def _answer(self, route: Route, ask: Ask) -> Plain | Streamed:
        """Return the answer to what was asked in full."""
        begun = time.perf_counter()
        answer = await route.answering(ask)
        decided = time.perf_counter()
        self._witness.stage("decide", decided - begun)
        if isinstance(answer, Struct):
            answer = Plain(json.encode(answer), "application/json")
            self._witness.stage("answer", time.perf_counter() - decided)
        return answer

    async def _begin(self, scope: _Scope, sent: Sent, answer: Streamed) -> Stream:
        """Return a stream with its first piece, unless none will be sent: what fails before that has a status."""
        stream = Stream(answer.parts, self._streams, is_packed=accepts_gzip(sent))
        try:
            _check_chunks(scope)
            if scope["method"] != "HEAD":
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

    async def _send_pieces(
        self, scope: _Scope, send: _Send, start: dict[str, Any], stream: Stream, failed: Callable[[Exception], None]
    ) -> None:
        """Send a stream to its end; if it has none, or nobody takes it, the connection is cut off."""
        outlet: Outlet = scope["state"]["outlet"]
        whole = False
        try:
            await send(start)
            is_last = stream.is_over or scope["method"] == "HEAD"
            await send({"type": "http.response.body", "body": stream.piece, "more_body": not is_last})
            while not is_last and not outlet.is_closing():
                await stream.advance()
                is_last = stream.is_over
                await send({"type": "http.response.body", "body": stream.piece, "more_body": not is_last})
            whole = is_last
        except Exception as error:  # noqa: BLE001 - the edge of the service: there is no status left to tell it by
            failed(error)
        finally:
            stream.close()
            if not whole:
                outlet.abort()

    async def _decode(self, request: type[Claims] | type[dict[str, Any]], data: bytes) -> Claims | dict[str, JSON]:
        """Return what a body says."""

        def decode() -> Claims | dict[str, JSON]:
            members = parse_object(data, max_bytes=self._body_bytes, exact_integers=True)
            return shape(request, members) if issubclass(request, Claims) else members

        begun = time.perf_counter()
        if len(data) <= _LARGE_BODY:
            body = decode()
        else:
            body = await asyncio.get_running_loop().run_in_executor(self._beside, decode)
        self._witness.stage("decode", time.perf_counter() - begun)
        return body

    async def _read(self, route: Route, sent: Sent, receive: _Receive) -> bytes | None:
        """Return the body of a request, or None if the client went away."""
        most = self._body_bytes
        if int(sent.get(b"content-length", 0)) > most:  # it has few digits, and nothing else
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
        if not data and route.without_body is not None and not could_be_of_a_page(sent):
            return route.without_body
        check_media_type(sent, any_type=self._customs.takes_any_type)
        return data or route.without_body or b""


def _read_query(scope: _Scope) -> tuple[Mapping[str, str], InputError | None]:
    """Return the query, and what is wrong with it: that is told to those who may come in."""
    try:
        return parse_query(scope["query_string"]), None
    except InputError as error:
        return {}, error


def _check_chunks(scope: _Scope) -> None:
    """Raise if the client knows no chunks: the end of a connection does not tell whether an answer was whole."""
    if scope["http_version"] == "1.0":
        raise HttpMalformed("this answer needs HTTP 1.1")


def _failed(found: Found | None, ask: Ask, error: Exception) -> _Reply:
    """Return what a client is told of a failure: by a status, or by the words of a route that knows only one."""
    route = found.route.path if found else _NOWHERE
    if found is None or found.route.failing is None or isinstance(error, OriginRefused):
        return _Reply(route, status_of(error).status, _error_headers(error), error_body(error))
    answer = found.route.failing(ask._replace(parameters=found.parameters), error)
    return _Reply(route, 200, [*_media_type(answer.media_type), *answer.headers], answer.content)


def _media_type(name: str) -> HeaderList:
    return [(b"content-type", name.encode("ascii"))]


def _error_headers(error: BaseException) -> HeaderList:
    return [*_media_type("application/json"), *headers_for(error)]
