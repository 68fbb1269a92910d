"""One HTTP/1.1 connection: reads requests strictly, answers them in order, and closes without losing an answer.

Invariants:
- What a lenient parser lets through is refused before any route is looked for: a request has exactly one `Host` and a
  target that agrees with it, one length or one chunked body, and bounded headers.
- Requests are handled one after the other. The next one is begun when the response before it was written and the client
  reads; so many may wait and no more.
- A request that was read in full is answered before the connection closes, unless its client goes away or does not
  read. Nothing is parsed after the connection has begun to close.
- No client keeps a connection open by leaving something undone, and no request is begun after its certificate expired.

Parsing is httptools'. Which hosts, tokens and routes there are is for `application.py`.
"""

import asyncio
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from types import coroutine
from typing import Any, Final, Literal, TypeAlias, final

import httptools

from remit.claims.canonical import sha256_base64url
from remit.errors import (
    AccessError,
    BodyTooLarge,
    HeadersTooLarge,
    HostRefused,
    HttpMalformed,
    RequestTooSlow,
    ServiceBusy,
)
from remit.server.headers import HeaderList, Sent, join_repeated
from remit.server.limits import ConnectionLimiter, Limits
from remit.server.statuses import error_body, headers_for, status_of

__all__ = ["Connection", "Exchange", "Handler", "ServerState"]

# What is read: the headers of a request, its body, or nothing until the next one begins.
_Stage: TypeAlias = Literal["headers", "body", "idle"]

_VERSIONS: Final = ("1.0", "1.1")
_SCHEMES: Final = (b"http", b"https")
# The largest length that the parser reads has so many digits; it would read any number of zeros before it.
_LENGTH_DIGITS: Final = 20
# A body that no handler has asked for is buffered up to this size; then nothing more is read.
_UNREAD_BYTES: Final = 64 * 1024
_FIELD: Final = b"%b: %b\r\n"
_CLOSE: Final = b"connection: close\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES: Final[dict[int, bytes]] = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


class Exchange:
    """A request, and how it is answered: by `respond`, or by `begin` and `send`.

    Its headers are complete; its body may still be on its way.
    """

    __slots__ = (
        "_head",
        "connection",
        "content_length",
        "expects_continue",
        "headers",
        "is_gone",
        "is_read",
        "is_started",
        "keep_alive",
        "method",
        "most",
        "parts",
        "path",
        "query",
        "size",
        "version",
        "waiter",
    )

    def __init__(
        self,
        connection: "Connection",
        method: str,
        path: str,
        query: bytes,
        headers: Sent,
        *,
        content_length: int = 0,
        version: str = "1.1",
        keep_alive: bool = True,
    ) -> None:
        """Take what was read; `headers` are those without the length, which is 0 for a body in chunks."""
        self.connection = connection
        self.method = method
        # As it was sent: not decoded.
        self.path = path
        self.query = query
        self.headers = headers
        self.content_length = content_length
        self.version = version
        self.keep_alive = keep_alive
        # Whether the request was read to its end, its response has begun, and nobody waits for it any more.
        self.is_read = False
        self.is_started = False
        self.is_gone = False
        # Whether the client waits for `100 Continue` before it sends the body.
        self.expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        # The body as far as it has come, how much of it is buffered before reading pauses, and who waits for it.
        self.parts: list[bytes] = []
        self.size = 0
        self.most = _UNREAD_BYTES
        self.waiter: asyncio.Future[None] | None = None
        self._head = b""

    @property
    def is_closing(self) -> bool:
        """Tell whether there is no use in sending more."""
        return self.is_gone or self.connection.transport.is_closing()

    async def read_body(self, most: int) -> bytes | None:
        """Return the body, or None if the client has gone; raise `BodyTooLarge` if it has more than `most` bytes."""
        if self.expects_continue and not self.is_gone:
            self.expects_continue = False
            self.connection.transport.write(_CONTINUE)
        if not (self.is_read or self.is_gone or self.size > most):
            self.most = most
            if not self.connection.is_reading:
                self.connection.resume_reading()
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        if self.is_gone:
            return None
        if self.size > most:
            raise BodyTooLarge(f"at most {most} bytes are read")
        return b"".join(self.parts)

    def give_up(self) -> None:
        """Note that nobody waits for the response: what is written to it from now on is dropped."""
        self.is_gone = True
        self.wake()

    def respond(self, status: int, headers: HeaderList, content: bytes) -> None:
        """Send a response, in one piece."""
        if self.is_gone:
            return
        head = self.connection.head(status, headers, close=not self.keep_alive)
        self.is_started = True
        self.parts = []
        self.connection.transport.write(head if self.method == "HEAD" else head + content)
        self.connection.finish(self)

    def begin(self, status: int, headers: HeaderList) -> None:
        """Begin a response whose length is not known; its head is sent with the first piece."""
        if self.method != "HEAD":
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        self._head = self.connection.head(status, headers, close=not self.keep_alive)
        self.is_started = True
        self.parts = []

    async def send(self, piece: bytes, *, is_last: bool) -> None:
        """Send a piece of the response that was begun, once the client has read most of what was sent before."""
        await self.connection.writable()
        if self.is_closing:
            return
        data = [self._head]
        self._head = b""
        if self.method != "HEAD":
            if piece:
                data += [b"%x\r\n" % len(piece), piece, b"\r\n"]
            if is_last:
                data.append(b"0\r\n\r\n")
        self.connection.transport.write(b"".join(data))
        if is_last:
            self.connection.finish(self)

    def wake(self) -> None:
        """Let `read_body` look again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


Handler: TypeAlias = Callable[[Exchange], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class ServerState:
    """What the connections of a server share."""

    handler: Handler
    limits: Limits
    limiter: ConnectionLimiter
    # Called with every request or connection that is refused before it has a handler, and the id that the client gets.
    refused: Callable[[AccessError, str], None]
    # The `Date` of responses, as a header line; the server keeps it up to date.
    date_line: bytes = b""
    connections: set["Connection"] = field(default_factory=set)
    # Kept, because the loop keeps no task alive by itself.
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


@final
class Connection(asyncio.Protocol):
    """A connection, from the moment it is accepted."""

    transport: asyncio.Transport

    def __init__(self, state: ServerState, peer: str, accepted: socket.socket | None = None) -> None:
        """Read from `peer`; `accepted` is what is shut down as long as there is no transport."""
        self.peer = peer
        # The thumbprint of the certificate that the client has shown; empty if none.
        self.holder = ""
        # Whether a request was authorized by a token.
        self.is_authenticated = False
        # What the handler keeps from one request to the next.
        self.kept: Any = None
        self.stage: _Stage = "headers"
        self._loop = asyncio.get_running_loop()
        # Since when the client has time for the stage it is in, and does not read what was sent to it.
        self.since = self._loop.time()
        self.unsent_since = 0.0
        self._state = state
        self._limits = state.limits
        self._accepted = accepted
        self._is_connected = False
        self._is_admitted = True
        self._valid_until = inf
        # Nothing that comes is parsed any more; and all was sent, so that the client only has to read it.
        self._is_over = False
        self._lingers = False
        self.is_reading = True
        self._writable: asyncio.Future[None] | None = None
        self._parser = httptools.HttpRequestParser(self)
        # What follows the last request is not answered, but it is no error either.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        # Requests that are not answered yet, in order: the first one may be running, the last one incomplete.
        self._exchanges: deque[Exchange] = deque()
        self._running: Exchange | None = None
        # The request that is being read, or was read last.
        self._current: Exchange | None = None
        self._target = b""
        self._headers: HeaderList = []
        self._header_bytes = 0
        self._body_bytes = 0
        # What came since the stage began, whatever it turns out to be.
        self._stage_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Tell whether a request was read in full, and it is up to us that it is not answered yet."""
        return self._owes and not self._lingers and not self.is_stalled

    @property
    def is_stalled(self) -> bool:
        """Tell whether the client does not read what was sent to it."""
        return bool(self.unsent_since) and self._loop.time() - self.unsent_since > self._limits.stalled_s

    @property
    def is_connected(self) -> bool:
        """Tell whether the connection was made: TLS was agreed on, and requests may have been read."""
        return self._is_connected

    @property
    def _owes(self) -> bool:
        """Tell whether a request was read in full and is not answered yet."""
        return bool(self._exchanges) and self._exchanges[0].is_read

    # The life of a connection.

    def admit(self) -> bool:
        """Tell whether there is room for this connection, or some could be made."""
        self._is_admitted = self._state.limiter.admit(self)
        return self._is_admitted

    def leave(self) -> None:
        """Make room for another connection."""
        self._state.limiter.leave(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it always is one
        """Take the client's certificate, and begin to read."""
        self.transport = transport
        self._is_connected = True
        self._accepted = None
        self._state.connections.add(self)
        self.since = self._loop.time()
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate:
            self.holder = sha256_base64url(certificate)
            self._valid_until = _end_of(tls.getpeercert())
        if not self._is_admitted:
            self._refuse(ServiceBusy("too many connections are busy; try again"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it makes no difference why
        """Make room for another connection, and wake the handlers that wait for this one."""
        self._state.connections.discard(self)
        self.leave()
        self._is_over = True
        self._give_up()
        self.resume_writing()
        # The parser and the request hold this connection: without them it is freed at once.
        del self._parser
        self._current = None

    def abort(self) -> None:
        """Close at once, in the middle of whatever is sent."""
        if self._is_connected:
            self._is_over = True
            self._give_up()
            self.transport.abort()
        elif self._accepted is not None:
            # The socket is closed by the task that makes the connection.
            try:
                self._accepted.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # the client has closed it already

    def shutdown(self) -> None:
        """Begin to close: what was read in full is answered, and nothing else is waited for."""
        if not self._lingers:
            self._stop_reading()

    def watch(self, now: float) -> None:
        """Close the connection if its client takes too long over what it is doing."""
        limits, waited = self._limits, now - self.since
        if self.unsent_since and now - self.unsent_since > limits.send_s:
            self.transport.abort()
        elif self.transport.is_closing():
            # It closes when everything was sent, which a client can leave undone for ever.
            if waited > limits.send_s:
                self.transport.abort()
        elif self._lingers:
            if waited > limits.linger_s:
                self.transport.close()
        elif time.time() > self._valid_until:
            self._stop_reading()
        elif not self._owes:
            self._watch_stage(waited)

    def _watch_stage(self, waited: float) -> None:
        limits = self._limits
        if self.stage == "idle":
            if waited > limits.idle_s:
                self._close()
        elif self.stage == "headers":
            if waited > limits.header_s:
                self._refuse(RequestTooSlow("the headers did not arrive in time"))
        elif waited > limits.body_s or waited > max(limits.body_patience_s, self._body_bytes / limits.body_bytes_per_s):
            self._refuse(RequestTooSlow("the body did not arrive in time"))

    # Reading: called by the transport, and by the parser.

    def data_received(self, data: bytes) -> None:
        """Parse what came, and begin the first request that is there."""
        self._stage_bytes += len(data)
        if self._is_over:
            if self._lingers and self._stage_bytes > self._limits.linger_bytes:
                self.transport.abort()
            return
        if time.time() > self._valid_until:
            # By now, the client's certificate would not let it in.
            self._stop_reading()
            return
        try:
            self._parser.feed_data(data)
            if self._stage_bytes > self._limits.header_bytes:
                self._check_stage_bytes()
        except httptools.HttpParserUpgrade:
            self._refuse(HttpMalformed("nothing here is upgraded to another protocol"))
        except httptools.HttpParserError as error:
            ours = error.__context__
            self._refuse(ours if isinstance(ours, AccessError) else HttpMalformed("this is not HTTP as it must be"))
        except AccessError as error:
            self._refuse(error)
        if self._running is None:
            self._start_next()

    def _check_stage_bytes(self) -> None:
        """Raise if more comes than can be meant: the parser keeps a field until it ends, and drops chunk extensions."""
        limits = self._limits
        if self.stage == "body":
            if self._stage_bytes > limits.header_bytes + 2 * self._body_bytes:
                raise HttpMalformed("there is more around the body than in it")
        elif self._stage_bytes > limits.target_bytes + limits.header_bytes:
            raise HeadersTooLarge(_too_large(limits))

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._target = b""
        self._headers = []
        self._header_bytes = self._body_bytes = self._stage_bytes = 0
        self.stage = "headers"
        self.since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """Take the target, or a part of it."""
        self._target += url
        if len(self._target) > self._limits.target_bytes:
            raise HeadersTooLarge(f"the request target has more than {self._limits.target_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field."""
        if self.stage == "body":
            # Fields after the body would be taken for headers, which were checked without them.
            raise HttpMalformed("fields after the body are not read")
        self._header_bytes += len(name) + len(value) + 4
        self._headers.append((name.lower(), value))
        if self._header_bytes > self._limits.header_bytes or len(self._headers) > self._limits.header_fields:
            raise HeadersTooLarge(_too_large(self._limits))

    def on_headers_complete(self) -> None:
        """Check what no single field shows; the request is begun when all before it are answered."""
        parser = self._parser
        if len(self._exchanges) >= self._limits.unanswered:
            # They would be read by the thousand before anyone else has a turn, and kept until they are answered.
            raise HttpMalformed("wait for answers before more is asked")
        if parser.should_upgrade():
            raise HttpMalformed("nothing here is upgraded to another protocol")
        version: str = parser.get_http_version()
        fields, target = self._headers, self._target
        headers = dict(fields)
        if len(headers) != len(fields):
            headers = join_repeated(fields)
        _check_form(version, target, fields, headers)
        if target.startswith(b"/"):
            raw_path, _, query = target.partition(b"?")
            path = raw_path.decode("ascii")
        else:
            path, query = _split_absolute(target)
        length = int(headers.pop(b"content-length", b"0"))  # the parser has checked that it is a number
        self.stage = "body"
        self._stage_bytes = 0
        self.since = self._loop.time()
        self._current = Exchange(
            self,
            parser.get_method().decode("ascii"),
            path,
            query,
            headers,
            content_length=length,
            version=version,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
        )
        self._exchanges.append(self._current)
        if len(self._exchanges) > 1:
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; it is dropped if the response has begun."""
        self._body_bytes += len(body)
        exchange = self._current
        if exchange is None or exchange.is_started or exchange.is_gone:
            return
        exchange.size += len(body)
        exchange.parts.append(body)
        if exchange.size > exchange.most:
            self.pause_reading()
            exchange.wake()

    def on_message_complete(self) -> None:
        """End the request; its response may be sent already."""
        exchange = self._current
        if exchange is not None:
            exchange.is_read = True
            if exchange.waiter is not None:
                exchange.wake()
        self.stage = "idle"
        self._stage_bytes = 0
        self.since = self._loop.time()

    def pause_reading(self) -> None:
        """Read nothing more until there is use for it."""
        if self.is_reading and not self._is_over:
            self.is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if not self.is_reading:
            self.is_reading = True
            self.transport.resume_reading()

    # Answering: one request after the other.

    def _start_next(self) -> None:
        """Run the next request, unless one is running or the client does not read the responses before it.

        A handler has a task only from where it waits for something, which many never do.
        """
        tasks = self._state.tasks
        while self._running is None and self._exchanges and not self.unsent_since and not self.transport.is_closing():
            self._running = self._exchanges[0]
            handling, context = self._state.handler(self._running), copy_context()
            try:
                waits_for = context.run(handling.send, None)
            except StopIteration:
                continue
            except Exception as error:  # noqa: BLE001 - the edge of the server: the others go on
                self._fail(error)
                continue
            task = self._loop.create_task(self._continue(handling, waits_for), context=context)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    @coroutine
    def _continue(self, handling: Coroutine[Any, Any, None], waits_for: object) -> Generator[object, None, None]:
        """Go on with a handler that has begun to wait for something, as a coroutine that a task can begin."""
        failure: BaseException | None = None
        try:
            while True:
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001 - what the handler waited for has failed: that is for it
                    failure = error
                waits_for = handling.send(None) if failure is None else handling.throw(failure)
                failure = None
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - the edge of the server: the others go on
            self._fail(error)
        finally:
            failure = None  # it holds this frame for as long as this frame holds it

    def _fail(self, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": "a request was not answered", "exception": error})
        self.abort()

    def head(self, status: int, headers: HeaderList, *, close: bool) -> bytes:
        """Return the status line and the headers of a response, to the empty line after them."""
        fields = b"".join(map(_FIELD.__mod__, headers))
        if fields.count(b"\n") != len(headers) or fields.count(b"\r") != len(headers):
            raise ValueError("a header of a response has more than one line")
        return _STATUS_LINES[status] + self._state.date_line + fields + (_CLOSE if close else b"\r\n")

    async def writable(self) -> None:
        """Wait until the client has read most of what was sent, or has gone."""
        while self.unsent_since:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await self._writable

    def pause_writing(self) -> None:
        """Note since when the client does not read what was sent."""
        self.unsent_since = self._loop.time()

    def resume_writing(self) -> None:
        """Send on."""
        self.unsent_since = 0.0
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None
        self._start_next()

    def finish(self, exchange: Exchange) -> None:
        """Go on after a response was written. Time begins again: until now, it was ours."""
        self._exchanges.popleft()
        self._running = None
        exchange.is_gone = True
        self.since = self._loop.time()
        if not exchange.keep_alive or (self._is_over and not self._owes):
            self._hang_up()
            return
        if not self.is_reading and len(self._exchanges) < 2:  # noqa: PLR2004 - what is being read is the next one
            self.resume_reading()
        if self._exchanges:
            self._start_next()

    # Closing.

    def _close(self) -> None:
        """Close when everything was sent."""
        self._is_over = True
        self.transport.close()

    def _hang_up(self) -> None:
        """Close after the last response; a client that is still sending has a moment to read it."""
        self._give_up()
        if self.stage == "idle":
            self._close()
        else:
            self._linger()

    def _stop_reading(self) -> None:
        """Close, after the responses to what was read in full."""
        self._is_over = True
        owed = [exchange for exchange in self._exchanges if exchange.is_read]
        if owed:
            owed[-1].keep_alive = False
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Say that this was all, and drop what still comes: unread, it would cut off what was sent to the client."""
        if not self._is_admitted or self.transport.is_closing():
            self._close()
            return
        self._is_over = self._lingers = True
        self._stage_bytes = 0
        self.since = self._loop.time()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.resume_reading()

    def _refuse(self, error: AccessError) -> None:
        """Send why, if nothing else is being sent, and close."""
        request_id = secrets.token_hex(8)
        self._state.refused(error, request_id)
        if self.transport.is_closing() or self._owes:
            self._stop_reading()  # what was read in full is answered first
            return
        self._is_over = True
        current = self._current
        if self.stage == "body" and current is not None and current.is_started:
            # The rest of a body that nobody wanted; a second answer would be taken for that of the next request.
            self.abort() if self._exchanges else self.transport.close()
            return
        self._give_up()
        body = error_body(error)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", request_id.encode("ascii")),
            *headers_for(error),
        ]
        self.transport.write(self.head(status_of(error).status, headers, close=True) + body)
        self._linger()

    def _give_up(self) -> None:
        for exchange in self._exchanges:
            exchange.give_up()
        self._exchanges.clear()


def _check_form(version: str, target: bytes, fields: HeaderList, headers: Sent) -> None:
    """Raise unless this is one request to one host, with one end, however it is read."""
    if version not in _VERSIONS:
        raise HttpMalformed("HTTP 1.1 is spoken here")
    if b"#" in target or not target.isascii():
        raise HttpMalformed("a request target has no fragment, and nothing but ASCII")
    # Of a field that stands twice the values are joined, so neither of these passes then.
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or version != "1.1"):
        raise HttpMalformed("no transfer coding but chunked is read")
    if len(headers.get(b"content-length", b"")) > _LENGTH_DIGITS:
        raise HttpMalformed(f"a length has {_LENGTH_DIGITS} digits at most")
    host = headers.get(b"host")
    if host is None or (len(headers) != len(fields) and [name for name, _ in fields].count(b"host") != 1):
        raise HostRefused("exactly one Host is needed")
    if not target.startswith(b"/") and _authority(target) != host.lower():
        raise HostRefused("the request target names another host")


def _authority(target: bytes) -> bytes:
    """Return the host of an absolute target, as `Host` would write it; nothing for a target of another kind."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserError:
        return b""
    if (url.schema or b"").lower() not in _SCHEMES or url.userinfo:
        return b""
    host = (url.host or b"").lower()
    # httptools takes the brackets off; a colon in a host is an address of version 6.
    host = b"[" + host + b"]" if b":" in host else host
    port: int | None = url.port
    return host if port is None else b"%s:%d" % (host, port)


def _split_absolute(target: bytes) -> tuple[str, bytes]:
    """Return the path and the query of an absolute target, as they were sent."""
    url = httptools.parse_url(target)
    if url.path is None:
        raise HttpMalformed("the request target has no path")
    return url.path.decode("ascii"), url.query or b""


def _too_large(limits: Limits) -> str:
    return f"at most {limits.header_bytes} bytes and {limits.header_fields} fields of headers are read"


def _end_of(certificate: dict[str, Any] | None) -> float:
    """Return when a certificate that was verified expires; nothing is known of others."""
    written = (certificate or {}).get("notAfter")
    try:
        return inf if written is None else ssl.cert_time_to_seconds(written)
    except ValueError:
        return 0.0
