"""The server of the ledger process: fronts and commands send use cases and receive the results once these are durable.

Invariants: only clients that have authenticated (`handshake.py`) are served. A received use case is validated like any
untrusted input: nothing is signed without a check of its own. Answers that are ready in the same loop iteration are
sent in one frame. While requests are outstanding, an empty frame is sent every half second, so that a front can tell a
slow answer from a hung process.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import msgpack

from remit.errors import FieldInvalid, LedgerUnavailable, RemitError
from remit.governor.context import UseCaseRunner
from remit.governor.handshake import (
    MAX_HANDSHAKE,
    Hello,
    Introduction,
    PolicySettings,
    check_peer,
    check_version,
    compute_proof,
    decode_hello,
    encode,
    is_valid_proof,
    new_hello,
)
from remit.governor.wire import (
    ANSWER,
    BYE,
    EVENT,
    HEADER_BYTES,
    MAX_FRAME,
    FrameDecoder,
    decode_case,
    decode_messages,
    encode_failure,
    encode_frame,
    encode_message,
)
from remit.ledger.commit import CommitObserver
from remit.ledger.transaction import Store

# The maximum number of unanswered requests of one connection.
_MAX_OUTSTANDING: Final = 4096
_MAX_CONNECTIONS: Final = 512
_HANDSHAKE_S: Final = 5.0
_TICK_S: Final = 0.5
_MAX_UNSENT: Final = 4 * MAX_FRAME
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
_MAX_GOVERNORS: Final = 32


class IdleTimeouts(NamedTuple):
    """How many seconds a ledger process without services keeps running: at the start, and after losing one."""

    first_s: float = 30.0
    lost_s: float = 1.0


class CommitEventForwarder(CommitObserver):
    """Collects commit events on the writer thread, to forward them to services for their metrics."""

    def __init__(self, then: CommitObserver | None = None) -> None:
        """Call `then` with every event, too."""
        self._then = then or CommitObserver()
        self._events: list[tuple[str, int, float, str]] = []
        self._is_awake = False
        self._wake: Callable[[], object] | None = None

    def start(self, wake: Callable[[], object] | None) -> None:
        """Start collecting events, calling `wake` when there are some; with None, stop collecting."""
        self._wake = wake
        if wake is None:
            self.take()

    def take(self) -> list[tuple[str, int, float, str]]:
        """Return the collected events and remove them."""
        self._is_awake = False
        events, self._events = self._events, []
        return events

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """Collect the size of the group and the duration of its commit."""
        self._then.committed(store, size, seconds)
        # `wake` is not called: the next tick forwards it within half a second.
        if self._wake is not None and len(self._events) < _MAX_OUTSTANDING:
            self._events.append(("committed", size, seconds, ""))

    def epoch_changed(self) -> None:
        """Collect the change of the epoch."""
        self._then.epoch_changed()
        self._collect(("turned", 0, 0.0, ""))

    def failed(self, error: BaseException) -> None:
        """Collect the reason why a group was not committed."""
        self._then.failed(error)
        self._collect(("failed", 0, 0.0, str(error) if isinstance(error, RemitError) else type(error).__name__))

    def stopping(self, store: Store) -> None:
        """Call the next observer."""
        self._then.stopping(store)

    def _collect(self, event: tuple[str, int, float, str]) -> None:
        wake = self._wake
        if wake is not None and len(self._events) < _MAX_OUTSTANDING:
            self._events.append(event)
            if not self._is_awake:
                self._is_awake = True
                wake()


class LedgerServer:
    """Serves the socket of a home on the running event loop; `governor_for` makes a governor with a front's policy."""

    def __init__(
        self,
        listening: socket.socket,
        secret: bytes,
        governor_for: Callable[[PolicySettings], UseCaseRunner],
        *,
        forwarding: CommitEventForwarder | None = None,
        lifetime: IdleTimeouts | None = None,
        told: Callable[[str, str], None] = lambda _event, _reason: None,
    ) -> None:
        """Serve until `stop`, or with a `lifetime`, until no service is connected for that long."""
        self.secret = secret
        self._listening = listening
        self._governor_for = governor_for
        self._governors: dict[PolicySettings, UseCaseRunner] = {}
        self._forwarding = forwarding
        self._lifetime = lifetime
        self._log = told
        self._connections: set[_Connection] = set()
        self._deadline = time.monotonic() + (lifetime.first_s if lifetime else 0.0)
        self._stop_requested = False
        self._stopped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._accepting: asyncio.Server | None = None

    async def serve(self) -> None:
        """Serve until stopped; then stop accepting connections and drain in-flight requests."""
        self._accepting = await self._loop.create_unix_server(lambda: _Connection(self), sock=self._listening)
        ticking = self._loop.create_task(self._tick())
        await self._stopped.wait()
        self._accepting.close()
        deadline = time.monotonic() + 2.0
        while any(one.outstanding for one in self._connections) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        ticking.cancel()

    def stop(self) -> None:
        """Stop, even if services are connected."""
        self._stopped.set()

    def stop_when_idle(self) -> None:
        """Stop as soon as no service is connected."""
        self._stop_requested = True
        self._stop_if_idle()

    def hang_up(self) -> None:
        """Close all connections, which signals to the services that the ledger is closed."""
        for one in tuple(self._connections):
            one.close()

    def is_full(self) -> bool:
        """Return whether further connections are refused."""
        return len(self._connections) >= _MAX_CONNECTIONS

    def add(self, connection: "_Connection") -> None:
        """Register a connection."""
        self._connections.add(connection)

    def remove(self, connection: "_Connection", *, said_bye: bool) -> None:
        """Remove a connection. After a lost connection, wait for the service to return, unless it has sent a bye."""
        self._connections.discard(connection)
        self.update_forwarding()
        if connection.service and self._lifetime is not None:
            self._deadline = time.monotonic() + (0.0 if said_bye else self._lifetime.lost_s)
            self._stop_if_idle()

    def leave(self, connection: "_Connection") -> bool:
        """Mark a service as leaving; return whether the server stops because it was the last one."""
        connection.leaving = True
        if self._lifetime is not None:
            self._deadline = time.monotonic()
            self._stop_if_idle()
        return self._stopped.is_set()

    def update_forwarding(self) -> None:
        """Start forwarding commit events if a service is connected, else stop it."""
        if self._forwarding is not None:
            told = any(one.service for one in self._connections)
            self._forwarding.start((lambda: self._loop.call_soon_threadsafe(self._forward)) if told else None)

    def governor_of(self, judging: PolicySettings) -> UseCaseRunner:
        """Return the governor for a front's policy settings; cached."""
        known = self._governors.get(judging)
        if known is None:
            if len(self._governors) >= _MAX_GOVERNORS:
                self._governors.pop(next(iter(self._governors)))
            known = self._governors[judging] = self._governor_for(judging)
        return known

    def note(self, event: str, reason: str) -> None:
        """Write to the log."""
        self._log(event, reason)

    def _stop_if_idle(self) -> None:
        """Stop if no service is connected and the deadline has passed or a stop was requested."""
        if any(one.service and not one.leaving for one in self._connections):
            return
        if self._stop_requested or (self._lifetime is not None and time.monotonic() >= self._deadline):
            self._stopped.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for one in tuple(self._connections):
                one.tick()
            self._forward()
            if self._lifetime is not None:
                self._stop_if_idle()

    def _forward(self) -> None:
        """Send the commit events to one connection of each service."""
        if self._forwarding is None:
            return
        events = self._forwarding.take()
        if not events:
            return
        told = set[str]()
        for one in self._connections:
            if one.service and one.service not in told:
                told.add(one.service)
                one.send(encode_message(0, EVENT, events))


class _Connection(asyncio.Protocol):
    """The connection of a front or command: first the handshake, then requests."""

    def __init__(self, server: LedgerServer) -> None:
        self.service = ""
        self.leaving = False
        self.outstanding = 0
        self._server = server
        self._frames = FrameDecoder(MAX_HANDSHAKE)
        self._next = self._take_hello
        self._started = time.monotonic()
        self._transport: asyncio.Transport | None = None
        self._governor: UseCaseRunner | None = None
        self._out: list[bytes] = []
        self._said_bye = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: Hello | None = None
        self._own = new_hello()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection if it comes from the same user."""
        self._transport = stream = cast("asyncio.Transport", transport)
        try:
            if self._server.is_full():
                raise LedgerUnavailable("too many connections")
            check_peer(stream.get_extra_info("socket"))
        except RemitError as error:
            self._server.note("connection_refused", str(error))
            stream.abort()
            return
        self._server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        """Remove the connection. Its requests are not cancelled: they may be durable already."""
        self._transport = None
        self._server.remove(self, said_bye=self._said_bye)

    def data_received(self, data: bytes) -> None:
        """Handle received data; close the connection if it is invalid."""
        try:
            # During the handshake, each frame decides how the next one is read.
            frames = self._frames.feed(data) if self._governor is None else self._frames.feed_all(data)
            for body in frames:
                self._next(body)
        except RemitError as error:
            self._server.note("connection_refused", str(error))
            self.close()
        except Exception as error:  # noqa: BLE001 - one connection must not affect the others
            self._server.note("connection_failed", type(error).__name__)
            self.close()

    def tick(self) -> None:
        """Send a keep-alive if requests are outstanding; close stalled handshakes and stalled readers."""
        transport = self._transport
        if transport is None:
            return
        if self._governor is None and time.monotonic() - self._started > _HANDSHAKE_S:
            self.close()
        elif transport.get_write_buffer_size() > _MAX_UNSENT:
            self._server.note("connection_refused", "it does not read its answers")
            transport.abort()
        elif self.outstanding:
            transport.write(_KEEP_ALIVE)

    def close(self) -> None:
        """Flush and close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def send(self, message: bytes) -> None:
        """Queue a message; all messages of one loop iteration are sent together."""
        self._out.append(message)
        if len(self._out) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        out, self._out = self._out, []
        start = size = 0
        for index, message in enumerate(out):
            size += len(message)
            if size > _MAX_BATCH_BYTES or index == len(out) - 1:
                self._write(encode_frame(out[start : index + 1]))
                start, size = index + 1, 0

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def _write_handshake(self, message: bytes) -> None:
        self._write(len(message).to_bytes(HEADER_BYTES) + message)

    def _take_hello(self, body: bytes) -> None:
        """Answer a hello, then check its version. A client of another version sees ours in the answer."""
        self._client = client = decode_hello(body)
        proof = compute_proof("server", self._server.secret, client, self._own)
        self._write_handshake(encode(msgspec.structs.replace(self._own, proof=proof)))
        check_version(client)
        self._next = self._take_proof

    def _take_proof(self, body: bytes) -> None:
        assert self._client is not None  # noqa: S101 - by the order of the messages
        try:
            given = msgpack.decode(body, type=bytes)
        except msgspec.DecodeError:
            given = b""
        if not is_valid_proof(given, "client", self._server.secret, self._client, self._own):
            raise LedgerUnavailable("it does not know the secret of the home")
        self._frames.max_bytes = MAX_FRAME
        self._next = self._take_introduction

    def _take_introduction(self, body: bytes) -> None:
        try:
            introduced = msgpack.decode(body, type=Introduction)
        except (msgspec.DecodeError, UnicodeError):
            raise FieldInvalid("is not a valid introduction") from None
        try:
            self._governor = self._server.governor_of(introduced.judging)
        except RemitError as error:
            self.send(encode_failure(0, error))
            self.close()
            return
        self.service = introduced.service
        self._server.update_forwarding()
        self._next = self._take_requests
        self.send(encode_message(0, ANSWER, None))

    def _take_requests(self, body: bytes) -> None:
        for number, name, content in decode_messages(body):
            if name == BYE:
                self._handle_bye()
                return
            try:
                if self.outstanding >= _MAX_OUTSTANDING:
                    raise LedgerUnavailable("too many requests to the ledger process are outstanding")
                case = decode_case(name, content)
            except RemitError as error:
                self.send(encode_failure(number, error))
                continue
            self.outstanding += 1
            task = asyncio.get_running_loop().create_task(self._run(number, case))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, number: int, case: Any) -> None:  # noqa: ANN401 - a use case, as it was decoded
        assert self._governor is not None  # noqa: S101 - by the order of the messages
        try:
            message = encode_message(number, ANSWER, await self._governor.arun(case))
        except Exception as error:  # noqa: BLE001 - every error is sent to the front
            if not isinstance(error, RemitError):
                self._server.note("case_failed", f"{type(case).__name__}: {type(error).__name__}")
            message = encode_failure(number, error)
        finally:
            self.outstanding -= 1
        self.send(message)

    def _handle_bye(self) -> None:
        """Handle the bye of a service. If the server stops, the connection is closed after the ledger."""
        self._said_bye = True
        if not self._server.leave(self):
            self.close()


_KEEP_ALIVE: Final = encode_frame([])
