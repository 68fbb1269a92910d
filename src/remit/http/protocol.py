"""One connection, read strictly: what a lenient reader lets through is refused here, before any route is looked for.

Keeps these invariants: a request has exactly one `Host`, and a target that agrees with it; headers are bounded; the
connection is closed after anything that is not HTTP as we read it; nothing a client leaves undone keeps it open; and no
request is begun after the end of the client's certificate. Reading and writing HTTP is uvicorn's, on httptools. Which
hosts are ours, and who may come in, is for `application.py`.
"""

import asyncio
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from remit.claims.canonical import sha256_base64url
from remit.errors import AccessError, HeadersTooLarge, HttpMalformed, RequestTooSlow, ServiceBusy
from remit.http.admission import Admission
from remit.http.form import check_form
from remit.http.limits import Limits
from remit.http.outlet import Outlet
from remit.http.statuses import error_body, headers_for, status_of

__all__ = ["AppState", "StrictProtocol"]

# What is read: the headers of a request, its body, or nothing until the next one begins.
_Stage: TypeAlias = Literal["headers", "body", "idle"]
_LINE_END: Final = b"\r\n"


class AppState(TypedDict):
    """What every connection of a server shares, and each request carries in its scope."""

    limits: Limits
    admission: Admission
    # Told of everything that is refused at the door, with the id that the client was told.
    refused: Callable[[AccessError, str], None]
    # The thumbprint of the certificate that the client has shown, and the way back to it; each connection has its own.
    holder: str
    outlet: NotRequired[Outlet]


class StrictProtocol(HttpToolsProtocol):
    """A connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, dict(app_state), _loop)
        self.limits: Limits = app_state["limits"]
        self._admission: Admission = app_state["admission"]
        self._refused: Callable[[AccessError, str], None] = app_state["refused"]
        self._admitted = False
        # Nothing that comes is read any more; and all was said, so that the client only has to take it.
        self._over = False
        self._lingers = False
        self._outlet: Outlet | None = None
        self._valid_until = inf
        self._stage: _Stage = "headers"
        self.since = self.loop.time()
        # Requests that were read to their end, and answers that were given: either may be ahead.
        self._asked = 0
        self._answered = 0
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._header_bytes = 0
        self._body_bytes = 0
        # What came since the stage began, whatever it turns out to be.
        self._stage_bytes = 0
        self._unsent_since = 0.0

    @property
    def is_busy(self) -> bool:
        """Tell whether a request was asked in full, and it is up to us that it is not answered yet."""
        return self._owes and not self._lingers and not self.is_stalled

    @property
    def is_stalled(self) -> bool:
        """Tell whether the client leaves an answer lying."""
        return bool(self._unsent_since) and self.loop.time() - self._unsent_since > self.limits.stalled_s

    @property
    def is_authenticated(self) -> bool:
        """Tell whether a request on this connection was authorized by a token."""
        return self._outlet is not None and self._outlet.is_authenticated

    @property
    def _owes(self) -> bool:
        """Tell whether a request was asked in full, and is not answered yet."""
        return self._asked > self._answered

    @property
    def peer(self) -> str:
        """Return the address of the client."""
        return self.client[0] if self.client else ""

    def arrive(self, client: tuple[str, int], transport: asyncio.Transport) -> bool:
        """Tell whether there is room, or some could be made; `transport` is what is cut off until there is another."""
        self.client, self.transport = client, transport
        self._admitted = self._admission.admit(self)
        return self._admitted

    def depart(self) -> None:
        """Make room for another, if no connection was made after all."""
        self._admission.leave(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take the client's certificate, and begin to read."""
        client = self.client
        super().connection_made(transport)
        self._outlet = self.app_state["outlet"] = Outlet(transport, hang_up=self.hang_up, cut_off=self.cut_off)
        self.client = client  # the transport does not know it any more if the client has gone
        self._enter("headers")
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate:
            self.app_state["holder"] = sha256_base64url(certificate)
            self._valid_until = _end_of(tls.getpeercert())
        if not self._admitted:
            self._refuse(ServiceBusy("too many connections are busy; try again"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another, and tell those at work that nobody waits for their answers."""
        self._admission.leave(self)
        self._give_up_answers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; what is not HTTP ends the connection."""
        self._stage_bytes += len(data)
        if self._over:
            if self._lingers and self._stage_bytes > self.limits.linger_bytes:
                self.transport.abort()
            return
        if self._has_expired():
            self._stop_reading()
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
            self._check_stage_bytes()
        except httptools.HttpParserUpgrade:
            self._refuse(HttpMalformed("nothing here is upgraded to another protocol"))
        except httptools.HttpParserError as error:
            ours = error.__context__
            self._refuse(ours if isinstance(ours, AccessError) else HttpMalformed("this is not HTTP as it must be"))
        except AccessError as error:
            self._refuse(error)

    def _check_stage_bytes(self) -> None:
        """Raise if more comes than can be meant: the parser keeps a field until it ends, and drops chunk extensions."""
        limits = self.limits
        if self._stage == "body":
            if self._stage_bytes > limits.header_bytes + 2 * self._body_bytes:
                raise HttpMalformed("there is more around the body than in it")
        elif self._stage_bytes > limits.target_bytes + limits.header_bytes:
            raise HeadersTooLarge(_too_large(limits))

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._enter("headers")
        self._header_bytes = self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Read the target, or a piece of it."""
        super().on_url(url)
        if len(self.url) > self.limits.target_bytes:
            raise HeadersTooLarge(f"the request target has more than {self.limits.target_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header field."""
        if self._stage == "body":
            # Fields after the body would be taken for headers, which were checked without them.
            raise HttpMalformed("fields after the body are not read")
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self.limits.header_bytes or len(self.headers) >= self.limits.header_fields:
            raise HeadersTooLarge(_too_large(self.limits))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check what no single field shows, and let the application begin."""
        if len(self._unanswered) >= self.limits.unanswered:
            # They would be read by the thousand before anyone else has a turn, and kept until they are answered.
            raise HttpMalformed("wait for answers before more is asked")
        if self.parser.should_upgrade():
            raise HttpMalformed("nothing here is upgraded to another protocol")
        check_form(self.parser.get_http_version(), self.url, self.headers)
        self._enter("body")
        super().on_headers_complete()
        self.cycle.transport = self._outlet or self.transport
        self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; its answer may be there already."""
        super().on_message_complete()
        self._asked += 1
        self._enter("idle")

    def on_response_complete(self) -> None:
        """Go on with the next request. Time begins again: until now, it was ours."""
        self._answered += 1
        self._unanswered.popleft()
        self.since = self.loop.time()
        if self._over and not self._owes:
            self.hang_up()
        if not self._lingers:
            super().on_response_complete()

    def pause_writing(self) -> None:
        """Note since when the client leaves an answer lying."""
        self._unsent_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._unsent_since = 0.0
        super().resume_writing()

    def shutdown(self) -> None:
        """Begin to end: what was asked in full is answered, and nothing else is waited for."""
        if self._owes:
            self._unanswered[self._asked - self._answered - 1].keep_alive = False
        self._stop_reading()

    def hang_up(self) -> None:
        """Close when all was said; a client that is not done sending has a moment to take it."""
        if self._stage == "idle":
            self.transport.close()
        else:
            self._linger()

    def cut_off(self) -> None:
        """Close at once, in the middle of whatever is being said."""
        self._give_up_answers()
        self.transport.abort()

    def watch(self, now: float) -> None:
        """End the connection if its client takes too long over what it is doing."""
        limits, waited = self.limits, now - self.since
        if self._unsent_since and now - self._unsent_since > limits.send_s:
            self.transport.abort()
        elif self.transport.is_closing():
            # It closes when all was taken, which a client can leave undone for ever.
            if waited > limits.send_s:
                self.transport.abort()
        elif self._lingers:
            if waited > limits.linger_s:
                self.transport.close()
        elif self._has_expired():
            self._stop_reading()
        elif not self._owes:
            self._watch_stage(waited)

    def _watch_stage(self, waited: float) -> None:
        limits = self.limits
        if self._stage == "idle":
            if waited > limits.idle_s:
                self.transport.close()
        elif self._stage == "headers":
            if waited > limits.header_s:
                self._refuse(RequestTooSlow("the headers did not arrive in time"))
        elif waited > limits.body_s or waited > max(limits.body_patience_s, self._body_bytes / limits.body_bytes_per_s):
            self._refuse(RequestTooSlow("the body did not arrive in time"))

    def _give_up_answers(self) -> None:
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()

    def _has_expired(self) -> bool:
        """Tell whether the client's certificate is over, which by now would not let it in."""
        return self._valid_until < inf and time.time() > self._valid_until

    def _stop_reading(self) -> None:
        """Close, after the answers to what was asked before."""
        self._over = True
        if not self._owes:
            self.transport.close()

    def _linger(self) -> None:
        """Say that this was all, and drop what still comes: unread, it would cut off what was said to the client."""
        if not self._admitted or self.transport.is_closing():
            self.transport.close()
            return
        self._over = self._lingers = True
        self._stage_bytes = 0
        self.since = self.loop.time()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    def _enter(self, stage: _Stage) -> None:
        self._stage = stage
        self._stage_bytes = 0
        self.since = self.loop.time()

    def _refuse(self, error: AccessError) -> None:
        """Say why, if nothing else is being said, and close."""
        self._over = True
        request_id = secrets.token_hex(8)
        self._refused(error, request_id)
        if self.transport.is_closing() or self._owes:
            return  # what was asked before is answered before it closes
        cycle: RequestResponseCycle | None = self.cycle
        if self._stage == "body" and cycle is not None and cycle.response_started:
            # The rest of a body that nobody wanted; a second answer would be taken for that of the next request.
            self.transport.close() if cycle.response_complete else self.transport.abort()
            return
        body = error_body(error)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", request_id.encode("ascii")),
            (b"connection", b"close"),
            *headers_for(error),
        ]
        lines = [name + b": " + value + _LINE_END for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[status_of(error).status], *lines, _LINE_END, body]))
        self._linger()


def _too_large(limits: Limits) -> str:
    return f"at most {limits.header_bytes} bytes and {limits.header_fields} fields of headers are read"


def _end_of(certificate: dict[str, Any] | None) -> float:
    """Return when a certificate that was verified is over; nothing is known of others."""
    written = (certificate or {}).get("notAfter")
    try:
        return inf if written is None else ssl.cert_time_to_seconds(written)
    except ValueError:
        return 0.0
