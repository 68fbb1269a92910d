"""One HTTP/1.1 connection: parses requests strictly, answers them in order, and closes without losing a response.

Invariants:
- What a lenient parser accepts is refused before routing: a request has exactly one `Host` and a target that agrees
  with it, one length or one chunked body, and bounded headers.
- Requests are handled one after the other. The next one starts when the response before it was written and the client
  reads. The number of pipelined requests is bounded.
- A request that was read in full is answered before the connection closes, unless its client disconnects or does not
  read. Nothing is parsed after the connection has begun to close.
- Every state that waits for the client has a timeout, and no request starts after the client's certificate expired.

httptools does the parsing. `application.py` checks hosts and tokens, and does the routing.
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
from remit.server.headers import HeaderList, Headers, join_repeated
from remit.server.limits import ConnectionLimiter, Limits
from remit.server.statuses import error_body, get_status, headers_for

# What is being read: the headers of a request, its body, or nothing until the next request begins.
_Stage: TypeAlias = Literal["headers", "body", "idle"]

_VERSIONS: Final = ("1.0", "1.1")
_SCHEMES: Final = (b"http", b"https")
# Digits of the largest length that the parser accepts. It would accept any number of leading zeros.
_LENGTH_DIGITS: Final = 20
# A body is buffered up to this size before its handler calls `read_body`; then reading pauses.
_UNREAD_BYTES: Final = 64 * 1024
_FIELD: Final = b"%b: %b\r\n"
_CLOSE: Final = b"connection: close\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES: Final[dict[int, bytes]] = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


class Exchange:
    """A request, and the methods to answer it: `respond`, or `begin` and `send`.

    The headers are complete; the body may still be arriving.
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
        "max_buffered",
        "method",
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
        headers: Headers,
        *,
        content_length: int = 0,
        version: str = "1.1",
        keep_alive: bool = True,
    ) -> None:
        """Start with the parsed head. `headers` has no `Content-Length`; `content_length` is 0 for a chunked body."""
        self.connection = connection
        self.method = method
        # Not decoded.
        self.path = path
        self.query = query
        self.headers = headers
        self.content_length = content_length
        self.version = version
        self.keep_alive = keep_alive
        # Whether the request was read in full, its response has begun, and nothing more can be written to the response.
        self.is_read = False
        self.is_started = False
        self.is_gone = False
        # Whether the client waits for `100 Continue` before it sends the body.
        self.expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        # The parts of the body that have arrived, their size, and the size at which reading pauses.
        self.parts: list[bytes] = []
        self.size = 0
        self.max_buffered = _UNREAD_BYTES
        # Set while `read_body` waits.
        self.waiter: asyncio.Future[None] | None = None
        self._head = b""

    @property
    def is_closing(self) -> bool:
        """Return whether more data could not be sent."""
        return self.is_gone or self.connection.transport.is_closing()

    async def read_body(self, most: int) -> bytes | None:
        """Return the body, or None if the client has disconnected. Raise `BodyTooLarge` if it exceeds `most` bytes."""
        if self.expects_continue and not self.is_gone:
            self.expects_continue = False
            self.connection.transport.write(_CONTINUE)
        if not (self.is_read or self.is_gone or self.size > most):
            self.max_buffered = most
            if not self.connection.is_reading:
                self.connection.resume_reading()
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        if self.is_gone:
            return None
        if self.size > most:
            raise BodyTooLarge(f"the body has more than {most} bytes")
        return b"".join(self.parts)

    def give_up(self) -> None:
        """Drop what is written to the response from now on, and wake `read_body`."""
        self.is_gone = True
        self.wake()

    def respond(self, status: int, headers: HeaderList, content: bytes) -> None:
        """Send a complete response."""
        if self.is_gone:
            return
        head = self.connection.head(status, headers, close=not self.keep_alive)
        self.is_started = True
        self.parts = []
        self.connection.transport.write(head if self.method == "HEAD" else head + content)
        self.connection.finish(self)

    def begin(self, status: int, headers: HeaderList) -> None:
        """Begin a response of unknown length. Its head is sent with the first piece."""
        if self.method != "HEAD":
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        self._head = self.connection.head(status, headers, close=not self.keep_alive)
        self.is_started = True
        self.parts = []

    async def send(self, piece: bytes, *, is_last: bool) -> None:
        """Send a piece of the response, once the client has read most of what was sent before."""
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
        """Wake `read_body`."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


Handler: TypeAlias = Callable[[Exchange], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class ServerState:
    """The state that the connections of a server share."""

    handler: Handler
    limits: Limits
    limiter: ConnectionLimiter
    # Called with the error and the request id when a request or connection is refused before it has a handler.
    refused: Callable[[AccessError, str], None]
    # The `Date` of responses, as a header line; the server keeps it up to date.
    date_line: bytes = b""
    connections: set["Connection"] = field(default_factory=set)
    # References, because the event loop has only weak references to tasks.
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


@final
class Connection(asyncio.Protocol):
    """The protocol of one connection, created when it is accepted."""

    transport: asyncio.Transport

    def __init__(self, state: ServerState, peer: str, accepted: socket.socket | None = None) -> None:
        """Start with the address of the client. `abort` shuts `accepted` down while there is no transport."""
        self.peer = peer
        # The thumbprint of the client's certificate; empty without one.
        self.holder = ""
        # Whether a token of the client was accepted.
        self.is_authenticated = False
        # For the handler, to reuse results from one request to the next.
        self.cache: Any = None
        self.stage: _Stage = "headers"
        self._loop = asyncio.get_running_loop()
        # When the current stage began, and when the client stopped reading what was sent to it (0 while it reads).
        self.since = self._loop.time()
        self.unsent_since = 0.0
        self._state = state
        self._limits = state.limits
        self._accepted = accepted
        self._is_connected = False
        self._is_admitted = True
        self._valid_until = inf
        # Whether input is not parsed any more; and whether everything was sent and the connection waits for the client.
        self._ignores_input = False
        self._lingers = False
        self.is_reading = True
        self._writable: asyncio.Future[None] | None = None
        self._parser = httptools.HttpRequestParser(self)
        # Data after the last request is ignored, and is no error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        # Requests without a response, in order. The first may be running, the last may be incomplete.
        self._exchanges: deque[Exchange] = deque()
        self._running: Exchange | None = None
        # The request that is being read, or was read last.
        self._current: Exchange | None = None
        self._target = b""
        self._headers: HeaderList = []
        self._header_bytes = 0
        self._body_bytes = 0
        # Bytes received in this stage, before parsing.
        self._stage_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Return whether a request was read in full, has no response yet, and its client reads."""
        return self._owes_response and not self._lingers and not self.is_stalled

    @property
    def is_stalled(self) -> bool:
        """Return whether the client does not read what was sent to it."""
        return bool(self.unsent_since) and self._loop.time() - self.unsent_since > self._limits.stalled_s

    @property
    def is_connected(self) -> bool:
        """Return whether `connection_made` was called: the TLS handshake is done, and requests may have been read."""
        return self._is_connected

    @property
    def _owes_response(self) -> bool:
        """Return whether a request was read in full and has no response yet."""
        return bool(self._exchanges) and self._exchanges[0].is_read

    # Lifecycle.

    def admit(self) -> bool:
        """Count the connection against the limits; return whether there was room, or another one was closed for it."""
        self._is_admitted = self._state.limiter.admit(self)
        return self._is_admitted

    def leave(self) -> None:
        """Do not count the connection any more."""
        self._state.limiter.leave(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio declares a base class
        """Read the client's certificate, and start reading requests."""
        self.transport = transport
        self._is_connected = True
        self._accepted = None
        self._state.connections.add(self)
        self.since = self._loop.time()
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate:
            self.holder = sha256_base64url(certificate)
            self._valid_until = _expiry(tls.getpeercert())
        if not self._is_admitted:
            self._refuse(ServiceBusy("too many connections are busy; try again"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason makes no difference
        """Release the place of the connection, and wake handlers that wait for it."""
        self._state.connections.discard(self)
        self.leave()
        self._ignores_input = True
        self._give_up()
        self.resume_writing()
        # Break the reference cycles, so that the connection is freed at once.
        del self._parser
        self._current = None

    def abort(self) -> None:
        """Close at once, even if a response is being sent."""
        if self._is_connected:
            self._ignores_input = True
            self._give_up()
            self.transport.abort()
        elif self._accepted is not None:
            # The socket is closed by the task that makes the connection.
            try:
                self._accepted.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # the client has closed it already

    def shutdown(self) -> None:
        """Close after the responses to requests that were read in full."""
        if not self._lingers:
            self._stop_reading()

    def check_timeouts(self, now: float) -> None:
        """Close the connection if its client has exceeded a timeout."""
        limits, waited = self._limits, now - self.since
        if self.unsent_since and now - self.unsent_since > limits.send_s:
            self.transport.abort()
        elif self.transport.is_closing():
            # The transport closes when everything was sent, and a client that does not read can delay that for ever.
            if waited > limits.send_s:
                self.transport.abort()
        elif self._lingers:
            if waited > limits.linger_s:
                self.transport.close()
        elif time.time() > self._valid_until:
            self._stop_reading()
        elif not self._owes_response:
            self._check_stage_timeout(waited)

    def _check_stage_timeout(self, waited: float) -> None:
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
        """Parse the data, and start the first request if none is running."""
        self._stage_bytes += len(data)
        if self._ignores_input:
            if self._lingers and self._stage_bytes > self._limits.linger_bytes:
                self.transport.abort()
            return
        if time.time() > self._valid_until:
            # The client's certificate has expired since the handshake.
            self._stop_reading()
            return
        try:
            self._parser.feed_data(data)
            if self._stage_bytes > self._limits.header_bytes:
                self._check_stage_bytes()
        except httptools.HttpParserUpgrade:
            self._refuse(HttpMalformed("protocol upgrades are not supported"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, AccessError) else HttpMalformed("the request is not valid HTTP"))
        except AccessError as error:
            self._refuse(error)
        if self._running is None:
            self._start_next()

    def _check_stage_bytes(self) -> None:
        """Raise if more was sent than the parser reports: it buffers unfinished fields, and drops chunk extensions."""
        limits = self._limits
        if self.stage == "body":
            if self._stage_bytes > limits.header_bytes + 2 * self._body_bytes:
                raise HttpMalformed("the chunked body has more overhead than content")
        elif self._stage_bytes > limits.target_bytes + limits.header_bytes:
            raise HeadersTooLarge(_too_large(limits))

    def on_message_begin(self) -> None:
        """Reset the state for a new request."""
        self._target = b""
        self._headers = []
        self._header_bytes = self._body_bytes = self._stage_bytes = 0
        self.stage = "headers"
        self.since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        self._target += url
        if len(self._target) > self._limits.target_bytes:
            raise HeadersTooLarge(f"the request target has more than {self._limits.target_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field."""
        if self.stage == "body":
            # The parser reports trailers like headers, but the headers were checked already.
            raise HttpMalformed("trailer fields are not supported")
        self._header_bytes += len(name) + len(value) + 4
        self._headers.append((name.lower(), value))
        if self._header_bytes > self._limits.header_bytes or len(self._headers) > self._limits.header_fields:
            raise HeadersTooLarge(_too_large(self._limits))

    def on_headers_complete(self) -> None:
        """Check the head as a whole, and queue the request."""
        parser = self._parser
        if len(self._exchanges) >= self._limits.unanswered:
            # Without this limit, thousands could be parsed in one turn of the event loop, and stay in memory.
            raise HttpMalformed("too many pipelined requests")
        if parser.should_upgrade():
            raise HttpMalformed("protocol upgrades are not supported")
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
        """Add a part of the body; drop it if the response has begun."""
        self._body_bytes += len(body)
        exchange = self._current
        if exchange is None or exchange.is_started or exchange.is_gone:
            return
        exchange.size += len(body)
        exchange.parts.append(body)
        if exchange.size > exchange.max_buffered:
            self.pause_reading()
            exchange.wake()

    def on_message_complete(self) -> None:
        """Mark the request as read in full. Its response may have been sent already."""
        exchange = self._current
        if exchange is not None:
            exchange.is_read = True
            if exchange.waiter is not None:
                exchange.wake()
        self.stage = "idle"
        self._stage_bytes = 0
        self.since = self._loop.time()

    def pause_reading(self) -> None:
        """Pause reading from the transport."""
        if self.is_reading and not self._ignores_input:
            self.is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading from the transport."""
        if not self.is_reading:
            self.is_reading = True
            self.transport.resume_reading()

    # Responses, one request after the other.

    def _start_next(self) -> None:
        """Run the next request, unless one is running or the client does not read the responses before it.

        The handler runs without a task until it first waits for something, which many handlers never do.
        """
        tasks = self._state.tasks
        while self._running is None and self._exchanges and not self.unsent_since and not self.transport.is_closing():
            self._running = self._exchanges[0]
            handling, context = self._state.handler(self._running), copy_context()
            try:
                waits_for = context.run(handling.send, None)
            except StopIteration:
                continue
            except Exception as error:  # noqa: BLE001 - one request must not stop the server
                self._fail(error)
                continue
            task = self._loop.create_task(self._continue(handling, waits_for), context=context)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    @coroutine
    def _continue(self, handling: Coroutine[Any, Any, None], waits_for: object) -> Generator[object, None, None]:
        """Continue a handler that waits for something, as a coroutine for a task."""
        failure: BaseException | None = None
        try:
            while True:
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001 - it is thrown into the handler
                    failure = error
                waits_for = handling.send(None) if failure is None else handling.throw(failure)
                failure = None
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - one request must not stop the server
            self._fail(error)
        finally:
            failure = None  # its traceback refers to this frame: break the cycle

    def _fail(self, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": "a request was not answered", "exception": error})
        self.abort()

    def head(self, status: int, headers: HeaderList, *, close: bool) -> bytes:
        """Return the head of a response: the status line, the headers and an empty line."""
        fields = b"".join(map(_FIELD.__mod__, headers))
        if fields.count(b"\n") != len(headers) or fields.count(b"\r") != len(headers):
            raise ValueError("a response header contains a line break")
        return _STATUS_LINES[status] + self._state.date_line + fields + (_CLOSE if close else b"\r\n")

    async def writable(self) -> None:
        """Wait until the client has read most of what was sent, or has disconnected."""
        while self.unsent_since:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await self._writable

    def pause_writing(self) -> None:
        """Record when the client stopped reading."""
        self.unsent_since = self._loop.time()

    def resume_writing(self) -> None:
        """Continue to send, and start the next request."""
        self.unsent_since = 0.0
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None
        self._start_next()

    def finish(self, exchange: Exchange) -> None:
        """Continue after a response was written. The timeouts of the client start again."""
        self._exchanges.popleft()
        self._running = None
        exchange.is_gone = True
        self.since = self._loop.time()
        if not exchange.keep_alive or (self._ignores_input and not self._owes_response):
            self._hang_up()
            return
        if not self.is_reading and len(self._exchanges) < 2:  # noqa: PLR2004 - one request ahead is read
            self.resume_reading()
        if self._exchanges:
            self._start_next()

    # Closing.

    def _close(self) -> None:
        """Close when everything was sent."""
        self._ignores_input = True
        self.transport.close()

    def _hang_up(self) -> None:
        """Close after the last response. A client that is still sending gets `linger_s` to read it."""
        self._give_up()
        if self.stage == "idle":
            self._close()
        else:
            self._linger()

    def _stop_reading(self) -> None:
        """Close, after the responses to what was read in full."""
        self._ignores_input = True
        owed = [exchange for exchange in self._exchanges if exchange.is_read]
        if owed:
            owed[-1].keep_alive = False
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Shut down the sending side, and discard input until the client closes.

        Closing with unread input would reset the connection, and the client could lose the response.
        """
        if not self._is_admitted or self.transport.is_closing():
            self._close()
            return
        self._ignores_input = self._lingers = True
        self._stage_bytes = 0
        self.since = self._loop.time()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.resume_reading()

    def _refuse(self, error: AccessError) -> None:
        """Send an error response, unless another response is owed or being sent, and close."""
        request_id = secrets.token_hex(8)
        self._state.refused(error, request_id)
        if self.transport.is_closing() or self._owes_response:
            self._stop_reading()  # what was read in full is answered first
            return
        self._ignores_input = True
        current = self._current
        if self.stage == "body" and current is not None and current.is_started:
            # The rest of the body of an answered request: the client would take a second response for the next one's.
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
        self.transport.write(self.head(get_status(error).status, headers, close=True) + body)
        self._linger()

    def _give_up(self) -> None:
        for exchange in self._exchanges:
            exchange.give_up()
        self._exchanges.clear()


def _check_form(version: str, target: bytes, fields: HeaderList, headers: Headers) -> None:
    """Raise unless the version, the target, the length and the host are unambiguous."""
    if version not in _VERSIONS:
        raise HttpMalformed("the HTTP version must be 1.0 or 1.1")
    if b"#" in target or not target.isascii():
        raise HttpMalformed("the request target must be ASCII, and without a fragment")
    # The values of a repeated field are joined, so a repeated one of these does not pass.
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or version != "1.1"):
        raise HttpMalformed("chunked is the only supported transfer coding")
    if len(headers.get(b"content-length", b"")) > _LENGTH_DIGITS:
        raise HttpMalformed(f"Content-Length has more than {_LENGTH_DIGITS} digits")
    host = headers.get(b"host")
    if host is None or (len(headers) != len(fields) and [name for name, _ in fields].count(b"host") != 1):
        raise HostRefused("exactly one Host header is required")
    if not target.startswith(b"/") and _authority(target) != host.lower():
        raise HostRefused("the request target names another host")


def _authority(target: bytes) -> bytes:
    """Return the host and port of an absolute target in the form of `Host`; empty for other targets."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserError:
        return b""
    if (url.schema or b"").lower() not in _SCHEMES or url.userinfo:
        return b""
    host = (url.host or b"").lower()
    # httptools removes the brackets of IPv6 addresses.
    host = b"[" + host + b"]" if b":" in host else host
    port: int | None = url.port
    return host if port is None else b"%s:%d" % (host, port)


def _split_absolute(target: bytes) -> tuple[str, bytes]:
    """Return the path and the query of an absolute target, not decoded."""
    url = httptools.parse_url(target)
    if url.path is None:
        raise HttpMalformed("the request target has no path")
    return url.path.decode("ascii"), url.query or b""


def _too_large(limits: Limits) -> str:
    return f"the headers have more than {limits.header_bytes} bytes or {limits.header_fields} fields"


def _expiry(certificate: dict[str, Any] | None) -> float:
    """Return when a verified certificate expires, in seconds since 1970; infinity if it was not verified."""
    not_after = (certificate or {}).get("notAfter")
    try:
        return inf if not_after is None else ssl.cert_time_to_seconds(not_after)
    except ValueError:
        return 0.0
