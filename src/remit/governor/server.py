"""The server of the ledger process: fronts and commands send use cases, and get their answers once these are durable.

Keeps these invariants. Nobody is served who has not proved to belong to the home (`handshake.py`). A case that arrives
is checked like one from outside, and does what its use case does: nothing is signed because a front says so. What is
asked together is answered together. While something is asked and not answered, a frame goes out every half second, so
that a front tells a slow answer from a process that hangs.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import msgpack

from remit.errors import FieldInvalid, LedgerUnavailable, RemitError
from remit.governor.handshake import (
    MAX_HANDSHAKE,
    Hello,
    Introduction,
    Judging,
    check_peer,
    check_version,
    compute_proof,
    decode_hello,
    encode,
    is_valid_proof,
    new_hello,
)
from remit.governor.means import UseCaseRunner
from remit.governor.wire import (
    ANSWER,
    BYE,
    EVENT,
    HEADER_BYTES,
    MAX_FRAME,
    Frames,
    decode_case,
    decode_messages,
    encode_failure,
    encode_message,
    frame_of,
)
from remit.ledger.commit import Observer
from remit.ledger.transaction import Store

__all__ = ["Forwarding", "LedgerServer", "Lifetime"]

# What one connection may have asked for and not been answered.
_MAX_OUTSTANDING: Final = 4096
_MAX_CONNECTIONS: Final = 512
_HANDSHAKE_S: Final = 5.0
_TICK_S: Final = 0.5
_MAX_UNSENT: Final = 4 * MAX_FRAME
_BATCH: Final = 4 * 1024 * 1024
_MAX_JUDGINGS: Final = 32


class Lifetime(NamedTuple):
    """How long a ledger process waits for services, in seconds: for the first one, and after one was lost."""

    first_s: float = 30.0
    lost_s: float = 1.0


class Forwarding(Observer):
    """Passes on to services what the writer does: they show it in their metrics. It is told on the writer's thread."""

    def __init__(self, then: Observer | None = None) -> None:
        """Tell `then`, too, of everything."""
        self._then = then or Observer()
        self._told: list[tuple[str, int, float, str]] = []
        self._is_awake = False
        self._wake: Callable[[], object] | None = None

    def start(self, wake: Callable[[], object] | None) -> None:
        """Call `wake` when there is something to pass on; None if nobody is there to be told."""
        self._wake = wake
        if wake is None:
            self.take()

    def take(self) -> list[tuple[str, int, float, str]]:
        """Return what is to be passed on."""
        self._is_awake = False
        told, self._told = self._told, []
        return told

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """Pass on how large a group was, and how long it took."""
        self._then.committed(store, size, seconds)
        # Without waking anyone: it is only counted, and passed on within half a second.
        if self._wake is not None and len(self._told) < _MAX_OUTSTANDING:
            self._told.append(("committed", size, seconds, ""))

    def turned(self) -> None:
        """Pass it on."""
        self._then.turned()
        self._tell(("turned", 0, 0.0, ""))

    def failed(self, error: BaseException) -> None:
        """Pass on why a group was not committed."""
        self._then.failed(error)
        self._tell(("failed", 0, 0.0, str(error) if isinstance(error, RemitError) else type(error).__name__))

    def stopping(self, store: Store) -> None:
        """Tell the next."""
        self._then.stopping(store)

    def _tell(self, event: tuple[str, int, float, str]) -> None:
        wake = self._wake
        if wake is not None and len(self._told) < _MAX_OUTSTANDING:
            self._told.append(event)
            if not self._is_awake:
                self._is_awake = True
                wake()


class LedgerServer:
    """Serves the socket of a home on the event loop that is running; `governor_for` gives a governor for a front."""

    def __init__(
        self,
        listening: socket.socket,
        secret: bytes,
        governor_for: Callable[[Judging], UseCaseRunner],
        *,
        forwarding: Forwarding | None = None,
        lifetime: Lifetime | None = None,
        told: Callable[[str, str], None] = lambda _event, _why: None,
    ) -> None:
        """Serve until `stop`, or until no service is left if there is a `lifetime`."""
        self.secret = secret
        self._listening = listening
        self._governor_for = governor_for
        self._governors: dict[Judging, UseCaseRunner] = {}
        self._forwarding = forwarding
        self._lifetime = lifetime
        self._told = told
        self._connections: set[_Connection] = set()
        self._deadline = time.monotonic() + (lifetime.first_s if lifetime else 0.0)
        self._asked_to_stop = False
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._accepting: asyncio.Server | None = None

    async def serve(self) -> None:
        """Serve until it is over; then nobody new is let in, and what was asked is answered."""
        self._accepting = await self._loop.create_unix_server(lambda: _Connection(self), sock=self._listening)
        ticking = self._loop.create_task(self._tick())
        await self._over.wait()
        self._accepting.close()
        deadline = time.monotonic() + 2.0
        while any(one.outstanding for one in self._connections) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        ticking.cancel()

    def stop(self) -> None:
        """Stop, whoever is connected."""
        self._over.set()

    def stop_when_alone(self) -> None:
        """Stop as soon as no service is connected."""
        self._asked_to_stop = True
        self._look()

    def hang_up(self) -> None:
        """Close all connections; their ends tell that the ledger is closed."""
        for one in tuple(self._connections):
            one.hang_up()

    def is_full(self) -> bool:
        """Tell whether further connections are refused."""
        return len(self._connections) >= _MAX_CONNECTIONS

    def add(self, connection: "_Connection") -> None:
        """Count a connection."""
        self._connections.add(connection)

    def lose(self, connection: "_Connection", *, said_bye: bool) -> None:
        """Forget a connection; a service that was lost may come back, one that has said goodbye does not."""
        self._connections.discard(connection)
        self.introduced()
        if connection.service and self._lifetime is not None:
            self._deadline = time.monotonic() + (0.0 if said_bye else self._lifetime.lost_s)
            self._look()

    def leave(self, connection: "_Connection") -> bool:
        """Let a service go that says goodbye; tell whether the server ends with it."""
        connection.leaving = True
        if self._lifetime is not None:
            self._deadline = time.monotonic()
            self._look()
        return self._over.is_set()

    def introduced(self) -> None:
        """Pass on what the writer does while there is a service to be told."""
        if self._forwarding is not None:
            told = any(one.service for one in self._connections)
            self._forwarding.start((lambda: self._loop.call_soon_threadsafe(self._forward)) if told else None)

    def governor_of(self, judging: Judging) -> UseCaseRunner:
        """Return the governor that judges as a front does."""
        known = self._governors.get(judging)
        if known is None:
            if len(self._governors) >= _MAX_JUDGINGS:
                self._governors.pop(next(iter(self._governors)))
            known = self._governors[judging] = self._governor_for(judging)
        return known

    def note(self, event: str, why: str) -> None:
        """Write to the log."""
        self._told(event, why)

    def _look(self) -> None:
        """See whether it is over."""
        if any(one.service and not one.leaving for one in self._connections):
            return
        if self._asked_to_stop or (self._lifetime is not None and time.monotonic() >= self._deadline):
            self._over.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for one in tuple(self._connections):
                one.tick()
            self._forward()
            if self._lifetime is not None:
                self._look()

    def _forward(self) -> None:
        """Tell one connection of each service what the writer has done."""
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
    """One front or command: first the handshake, then what it asks for."""

    def __init__(self, server: LedgerServer) -> None:
        self.service = ""
        self.leaving = False
        self.outstanding = 0
        self._server = server
        self._frames = Frames(MAX_HANDSHAKE)
        self._next = self._take_hello
        self._begun = time.monotonic()
        self._transport: asyncio.Transport | None = None
        self._governor: UseCaseRunner | None = None
        self._out: list[bytes] = []
        self._said_bye = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: Hello | None = None
        self._own = new_hello()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept connections of the same user."""
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
        """Forget it. What it has asked for goes on: it may be durable already."""
        self._transport = None
        self._server.lose(self, said_bye=self._said_bye)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived; whoever sends what is no message of ours is cut off."""
        try:
            # In the handshake, what one frame says decides how the next one is read.
            frames = self._frames.feed(data) if self._governor is None else self._frames.feed_all(data)
            for body in frames:
                self._next(body)
        except RemitError as error:
            self._server.note("connection_refused", str(error))
            self.hang_up()
        except Exception as error:  # noqa: BLE001 - the edge: one connection must not harm the others
            self._server.note("connection_failed", type(error).__name__)
            self.hang_up()

    def tick(self) -> None:
        """Tell that answers are still to come, and cut off who does not get on with the handshake or does not read."""
        transport = self._transport
        if transport is None:
            return
        if self._governor is None and time.monotonic() - self._begun > _HANDSHAKE_S:
            self.hang_up()
        elif transport.get_write_buffer_size() > _MAX_UNSENT:
            self._server.note("connection_refused", "it does not read its answers")
            transport.abort()
        elif self.outstanding:
            transport.write(_NOTHING_YET)

    def hang_up(self) -> None:
        """Close the connection, once everything is sent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def send(self, message: bytes) -> None:
        """Send a message with all others of this turn of the loop."""
        self._out.append(message)
        if len(self._out) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        out, self._out = self._out, []
        start = size = 0
        for index, message in enumerate(out):
            size += len(message)
            if size > _BATCH or index == len(out) - 1:
                self._write(frame_of(out[start : index + 1]))
                start, size = index + 1, 0

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def _write_handshake(self, message: bytes) -> None:
        self._write(len(message).to_bytes(HEADER_BYTES) + message)

    def _take_hello(self, body: bytes) -> None:
        """Answer a hello; one of another version reads in the answer why that is all."""
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
        self._frames.most = MAX_FRAME
        self._next = self._take_introduction

    def _take_introduction(self, body: bytes) -> None:
        try:
            introduced = msgpack.decode(body, type=Introduction)
        except (msgspec.DecodeError, UnicodeError):
            raise FieldInvalid("is not an introduction of ours") from None
        try:
            self._governor = self._server.governor_of(introduced.judging)
        except RemitError as error:
            self.send(encode_failure(0, error))
            self.hang_up()
            return
        self.service = introduced.service
        self._server.introduced()
        self._next = self._take_asks
        self.send(encode_message(0, ANSWER, None))

    def _take_asks(self, body: bytes) -> None:
        for number, name, content in decode_messages(body):
            if name == BYE:
                self._part()
                return
            try:
                if self.outstanding >= _MAX_OUTSTANDING:
                    raise LedgerUnavailable("too much is asked of the ledger at once")
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
        except Exception as error:  # noqa: BLE001 - whatever it is, the front is told
            if not isinstance(error, RemitError):
                self._server.note("case_failed", f"{type(case).__name__}: {type(error).__name__}")
            message = encode_failure(number, error)
        finally:
            self.outstanding -= 1
        self.send(message)

    def _part(self) -> None:
        """Let a service go. If the server ends with it, the connection ends when the ledger is closed."""
        self._said_bye = True
        if not self._server.leave(self):
            self.hang_up()


_NOTHING_YET: Final = frame_of([])
