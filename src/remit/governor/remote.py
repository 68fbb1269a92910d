"""The governor of a front process: sends use cases to the ledger process, and runs those that only read itself.

Invariants: a result is returned only if the ledger process has sent it. If a connection breaks, the outcome of requests
without an answer is unknown, and they raise `LedgerUnavailable`; so do requests that cannot be sent within the
deadline. A ledger process that sends nothing for that long is considered hung. The front has no private key.

An event loop has one connection, and sends all requests of one loop iteration in one frame. A thread opens a connection
for each use case. A service has one more connection (`LedgerProcessSupervisor`), which keeps the process running.
"""

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import msgpack

from remit.claims.keys import Keyring, SigningKey
from remit.errors import FieldInvalid, InputError, LedgerUnavailable, RemitError, StateMissing
from remit.governor.context import Context, UseCase
from remit.governor.governor import run_sync
from remit.governor.handshake import (
    MAX_HANDSHAKE,
    SOCKET_NAME,
    Hello,
    Introduction,
    check_peer,
    check_version,
    compute_proof,
    decode_hello,
    encode,
    is_valid_proof,
    load_secret,
    new_hello,
)
from remit.governor.pools import Pools
from remit.governor.wire import (
    ANSWER,
    BYE,
    EVENT,
    FAILURE,
    HEADER_BYTES,
    MAX_FRAME,
    USE_CASES,
    FrameDecoder,
    decode_answer,
    decode_failure,
    decode_messages,
    encode_case,
    encode_frame,
    encode_message,
)
from remit.ledger.commit import DEADLINE_S, CommitObserver
from remit.ledger.home import Home
from remit.ledger.keys import build_keyring
from remit.ledger.store import LedgerReader, Prepare, Work
from remit.ledger.transaction import Store

_T = TypeVar("_T")

# The maximum number of unanswered requests of one event loop.
_MAX_OUTSTANDING: Final = 4096
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
_MAX_UNSENT: Final = 4 * MAX_FRAME
_RETRY_S: Final = 0.05
_MAX_DELAY_S: Final = 5.0
_CHECK_S: Final = 0.25
_BYE_TIMEOUT_S: Final = 1.2
_LATE: Final = "the ledger process did not answer in time"
_BROKEN: Final = "the ledger process has ended, and it is not known whether this was recorded"
_ABSENT: Final = "the ledger process is not running; it is being started again"


class LedgerProcessNotRunning(Exception):
    """No ledger process is running for the home. Callers retry, start one, or raise a `RemitError`."""


class PublicKeys:
    """The trusted keys, for a process that does not sign."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader
        self._keyring = build_keyring(reader.keys())

    def signing(self, kid: str) -> SigningKey:  # noqa: ARG002 - there is none
        """Raise `LedgerUnavailable`: only the ledger process signs."""
        raise LedgerUnavailable("this process has no private keys")

    def keyring(self) -> Keyring:
        """Return the trusted keys."""
        return self._keyring

    def refresh(self) -> Keyring:
        """Reload the trusted keys and return them."""
        self._keyring = build_keyring(self._reader.keys())
        return self._keyring


def connect(home: Home, introduction: Introduction, timeout_s: float = DEADLINE_S) -> socket.socket:
    """Connect to the ledger process of a home and complete the handshake.

    Raise `LedgerProcessNotRunning` if none is running, `LedgerInUse` if it has another version. Errors that the
    process sends, such as for invalid policies, are raised unchanged.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with home.folder("run", create=False) as folder:
            secret = load_secret(folder)
            connection.connect(folder.socket_address(SOCKET_NAME))
        check_peer(connection)
        _do_handshake(connection, secret, introduction)
    except (OSError, StateMissing):
        connection.close()
        raise LedgerProcessNotRunning(_ABSENT) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _do_handshake(connection: socket.socket, secret: bytes, introduction: Introduction) -> None:
    mine = new_hello()
    _send_handshake(connection, encode(mine))
    try:
        other = decode_hello(_receive_one(connection, MAX_HANDSHAKE))
    except InputError:
        raise LedgerUnavailable("the process listening on ledger.sock is not a ledger process") from None
    check_version(other)
    bare = Hello(other.magic, other.protocol, other.version, other.nonce)
    if not is_valid_proof(other.proof, "server", secret, mine, bare):
        raise LedgerUnavailable("the process listening on ledger.sock does not know the secret of the home")
    _send_handshake(connection, encode(compute_proof("client", secret, mine, bare)))
    _send_handshake(connection, encode(introduction))
    [(_, kind, content)] = decode_messages(_receive_one(connection, MAX_FRAME))
    if kind == FAILURE:
        raise decode_failure(content)


def _send_handshake(connection: socket.socket, message: bytes) -> None:
    connection.sendall(len(message).to_bytes(HEADER_BYTES) + message)


def _receive_one(connection: socket.socket, most: int) -> bytes:
    """Read one frame, and nothing after it."""
    size = int.from_bytes(_receive_exactly(connection, HEADER_BYTES))
    if size > most:
        raise LedgerUnavailable("the process listening on ledger.sock is not a ledger process")
    return _receive_exactly(connection, size)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection has ended")
        data += part
    return bytes(data)


def _receive(connection: socket.socket, frames: FrameDecoder) -> bytes:
    """Read until a frame is complete and return it; raise `ConnectionResetError` at the end of the stream."""
    data = b""
    while True:
        for body in frames.feed(data):
            return body
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError("the connection has ended")


class _Prejudging(Protocol):
    """A use case that can be judged in the front before it is sent."""

    async def prejudge(self, context: Context) -> Any:  # noqa: ANN401 - itself
        """Return the use case with the findings of this process."""


class _Learning(Protocol):
    """A use case whose answer updates the caches of the front."""

    def learn(self, context: Context, answer: Any) -> None:  # noqa: ANN401 - its answer
        """Update the caches."""


# Precomputed by type: `hasattr` on each request would take longer than sending it.
_REMOTE: Final = frozenset(USE_CASES.values())
_WITH_PREJUDGE: Final = frozenset(kind for kind in USE_CASES.values() if hasattr(kind, "prejudge"))
_WITH_LEARN: Final = frozenset(kind for kind in USE_CASES.values() if hasattr(kind, "learn"))


class RemoteGovernor:
    """Runs use cases in the ledger process, with the interface of a `Governor`."""

    def __init__(
        self, context: Context, connect: Callable[[], socket.socket], *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Use the context of a front; `connect` returns a connection with a completed handshake."""
        self.context = context
        self._connect = connect
        self._deadline_s = deadline_s
        self._pools = Pools()
        self._blocking = _RemoteBlockingRuntime(self)
        self._on_loop = _RemoteLoopRuntime(self, self._pools)
        self._links: dict[int, _Link] = {}
        self._closed = False

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for link in self._links.values():
            link.abort()
        self._pools.close()

    async def disconnect(self) -> None:
        """Close the connection of the running loop. Call it before the loop is closed."""
        link = self._links.pop(id(asyncio.get_running_loop()), None)
        if link is not None:
            link.abort()
            await asyncio.sleep(0)

    def run(self, case: UseCase[_T]) -> _T:
        """Run a use case and return its result. Blocks the calling thread."""
        return run_sync(self._run(case, self.context.for_request(self._blocking)))

    async def _run(self, case: UseCase[_T], context: Context) -> _T:
        kind = type(case)
        if kind not in _REMOTE:
            return await case.run(context)
        sent = await cast("_Prejudging", case).prejudge(context) if kind in _WITH_PREJUDGE else case
        answer: _T = self.ask(sent)
        if kind in _WITH_LEARN:
            cast("_Learning", case).learn(context, answer)
        return answer

    def arun(self, case: UseCase[_T]) -> Coroutine[Any, Any, _T]:
        """Run a use case on an event loop, without blocking it."""
        return self.arun_with(case, self.context.for_request(self._on_loop))

    def arun_with(self, case: UseCase[_T], context: Context) -> Coroutine[Any, Any, _T]:
        """Run a use case with the context of a request, remotely or in this process."""
        return self._arun_remote(case, context) if type(case) in _REMOTE else case.run(context)

    async def _arun_remote(self, case: UseCase[_T], context: Context) -> _T:
        kind = type(case)
        sent = await cast("_Prejudging", case).prejudge(context) if kind in _WITH_PREJUDGE else case
        link = self._link()
        if not link.is_ready:
            await link.open()
        answer: _T = await link.ask(sent)
        if kind in _WITH_LEARN:
            cast("_Learning", case).learn(context, answer)
        return answer

    def ask(self, case: UseCase[_T]) -> _T:
        """Send a use case over a new connection, and return its answer."""
        message = encode_case(1, case)
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        with self._connect_with_retry() as connection:
            connection.settimeout(self._deadline_s)
            try:
                connection.sendall(encode_frame([message]))
                return _wait_for_answer(connection, type(case))
            except TimeoutError:
                raise LedgerUnavailable(_LATE) from None
            except OSError:
                raise LedgerUnavailable(_BROKEN) from None

    def _connect_with_retry(self) -> socket.socket:
        deadline = time.monotonic() + self._deadline_s
        while True:
            try:
                return self._connect()
            except LedgerProcessNotRunning as error:
                if self._closed or time.monotonic() > deadline:
                    raise LedgerUnavailable(str(error)) from None
            time.sleep(_RETRY_S)

    def _link(self) -> "_Link":
        """Return the connection of the running loop."""
        loop = asyncio.get_running_loop()
        link = self._links.get(id(loop))
        if link is None or link.loop is not loop:
            for number in [number for number, other in self._links.items() if other.loop.is_closed()]:
                del self._links[number]
            link = self._links[id(loop)] = _Link(loop, self._connect_with_retry, self._deadline_s)
        return link


def _wait_for_answer(connection: socket.socket, kind: type[UseCase[_T]]) -> _T:
    """Wait for the answer. Each received frame, even an empty one, restarts the timeout of the socket."""
    frames = FrameDecoder()
    while True:
        for _, what, content in decode_messages(_receive(connection, frames)):
            if what == FAILURE:
                raise decode_failure(content)
            if what == ANSWER:
                return _decode_answer(kind, content)


def _decode_answer(kind: type[UseCase[_T]], content: msgspec.Raw) -> _T:
    """Decode an answer. A decoding error is not the caller's fault, so it is raised as `LedgerUnavailable`."""
    try:
        return decode_answer(kind, content)
    except FieldInvalid as error:
        raise LedgerUnavailable(f"the answer of the ledger process cannot be read: {error}") from None


class _RemoteBlockingRuntime:
    """The runtime for threads in a front."""

    def __init__(self, governor: RemoteGovernor) -> None:
        self._governor = governor

    async def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:  # noqa: ARG002
        """Raise `LedgerUnavailable`: a front does not write."""
        raise LedgerUnavailable("this process does not write the ledger")

    async def to_thread(self, compute: Callable[[], _T], *, limit_key: str = "") -> _T:  # noqa: ARG002 - there is no pool to limit
        """Compute in the calling thread."""
        return compute()

    async def to_quick_thread(self, compute: Callable[[], _T]) -> _T:
        """Compute in the calling thread."""
        return compute()

    def run(self, case: UseCase[_T], context: Context) -> Coroutine[Any, Any, _T]:
        """Run the use case in the ledger process, or here if it only reads."""
        return self._governor._run(case, context)  # noqa: SLF001 - a part of it


class _RemoteLoopRuntime:
    """The runtime for an event loop in a front."""

    def __init__(self, governor: RemoteGovernor, pools: Pools) -> None:
        self.run: Final = governor.arun_with
        self.to_thread: Final = pools.run
        self.to_quick_thread: Final = pools.run_quick

    async def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:  # noqa: ARG002
        """Raise `LedgerUnavailable`: a front does not write."""
        raise LedgerUnavailable("this process does not write the ledger")


class _Link(asyncio.Protocol):
    """The connection of one event loop to the ledger process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connect: Callable[[], socket.socket], deadline_s: float
    ) -> None:
        self.loop = loop
        self._connect = connect
        self._deadline_s = deadline_s
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._frames = FrameDecoder()
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[asyncio.Future[Any], type[Any]]] = {}
        self._out: list[bytes] = []
        self._last_received = 0.0
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether the connection is open."""
        return self._transport is not None

    async def open(self) -> None:
        """Open the connection, or raise `LedgerUnavailable` after the deadline."""
        if self._connecting is None or self._connecting.done():
            self._connecting = self.loop.create_task(self._connect_once())
        await asyncio.shield(self._connecting)

    async def _connect_once(self) -> None:
        connection = await self.loop.run_in_executor(None, self._connect)
        connection.setblocking(False)  # noqa: FBT003 - as sockets have it
        self._frames = FrameDecoder()
        await self.loop.create_unix_connection(lambda: self, sock=connection)

    def ask(self, case: UseCase[_T]) -> "asyncio.Future[_T]":
        """Queue a use case for sending, and return a future of its answer."""
        transport = self._transport
        if transport is None:
            raise LedgerUnavailable(_ABSENT)
        if len(self._pending) >= _MAX_OUTSTANDING or transport.get_write_buffer_size() > _MAX_UNSENT:
            raise LedgerUnavailable("too many requests to the ledger process are outstanding")
        number = next(self._numbers)
        message = encode_case(number, case)
        future: asyncio.Future[_T] = self.loop.create_future()
        if not self._pending:
            self._last_received = self.loop.time()
            if self._check_timer is None:
                self._check_timer = self.loop.call_later(_CHECK_S, self._check_alive)
        self._pending[number] = future, type(case)
        self._out.append(message)
        if len(self._out) == 1:
            self.loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is None:
            return
        start = size = 0
        for index, message in enumerate(out):
            size += len(message)
            if size > _MAX_BATCH_BYTES or index == len(out) - 1:
                self._transport.write(encode_frame(out[start : index + 1]))
                start, size = index + 1, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Resolve the futures of the received answers; close the connection on invalid data."""
        self._last_received = self.loop.time()
        try:
            for body in self._frames.feed_all(data):
                for number, kind, content in decode_messages(body):
                    self._resolve(number, kind, content)
        except InputError:
            self.abort()

    def _resolve(self, number: int, kind: int | str, content: msgspec.Raw) -> None:
        future, case = self._pending.pop(number, (None, None))
        if future is None or case is None or future.done():
            return
        if kind == FAILURE:
            future.set_exception(decode_failure(content))
            return
        try:
            future.set_result(_decode_answer(case, content))
        except LedgerUnavailable as error:
            future.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        """Fail all outstanding requests: their outcome is unknown."""
        self._transport = None
        self._out.clear()
        self._fail(_BROKEN)

    def abort(self) -> None:
        """Close the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            with suppress(RuntimeError):  # its loop is closed
                transport.abort()

    def _fail(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(LedgerUnavailable(reason))

    def _check_alive(self) -> None:
        """Close the connection if the process has sent nothing for too long while answers are outstanding."""
        self._check_timer = None
        if not self._pending:
            return
        if self.loop.time() - self._last_received > self._deadline_s:
            self._fail(_LATE)
            self.abort()
            return
        self._check_timer = self.loop.call_later(_CHECK_S, self._check_alive)


class LedgerProcessSupervisor:
    """Supervises the ledger process for a service: keeps a connection to it, and restarts it when it has ended.

    It forwards the commit events of the ledger process to an observer, and reports a failure while there is none.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        restart: Callable[[], None],
        observer: CommitObserver,
        *,
        told: Callable[[str, str], None] = lambda _event, _why: None,
    ) -> None:
        """Supervise the process that `restart` starts; `told` is called with log events and their reasons."""
        self._connect = connect
        self._restart = restart
        self._observer = observer
        self._log = told
        self._closing = threading.Event()
        self._connection: socket.socket | None = None
        with suppress(LedgerProcessNotRunning):  # it has just ended; the thread restarts it
            self._connection = connect()
        self._thread = threading.Thread(target=self._supervise, name="ledger-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Disconnect, and wait until the process has closed the ledger if this was the last service."""
        self._closing.set()
        connection = self._connection
        if connection is not None:
            _send_bye(connection)
        self._thread.join(_BYE_TIMEOUT_S)
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _supervise(self) -> None:
        while True:
            connection = self._connection
            if connection is not None:
                if self._closing.is_set():  # it was restarted in the meantime, and would wait for a service
                    _send_bye(connection)
                connection.settimeout(_BYE_TIMEOUT_S if self._closing.is_set() else None)
                self._listen(connection)
                self._connection = None
                connection.close()
            if self._closing.is_set():
                return
            self._log("ledger_process_lost", _BROKEN)
            with suppress(Exception):
                self._observer.failed(LedgerUnavailable(_ABSENT))
            self._reconnect()

    def _reconnect(self) -> None:
        """Connect to a ledger process, starting one if necessary, until that succeeds or `close` is called."""
        for attempt in itertools.count():
            try:
                self._connection = self._connect()
            except LedgerProcessNotRunning:
                pass
            except RemitError as error:
                self._log("ledger_process_refuses", str(error))
            else:
                self._log("ledger_process_found", "")
                return
            if attempt:
                self._closing.wait(min(_RETRY_S * 2**attempt, _MAX_DELAY_S))
            if self._closing.is_set():
                return
            try:
                self._restart()
            except RemitError as error:
                self._log("ledger_process_not_started", str(error))

    def _listen(self, connection: socket.socket) -> None:
        """Handle the events of the ledger process until the connection ends."""
        frames = FrameDecoder()
        try:
            while True:
                for _, kind, content in decode_messages(_receive(connection, frames)):
                    if kind == EVENT:
                        self._forward(content)
        except (OSError, RemitError):
            return

    def _forward(self, content: msgspec.Raw) -> None:
        with suppress(Exception):  # a failing observer must not end the thread
            for name, size, seconds, reason in _events(content):
                if name == "committed":
                    # Observers of a front do not use the store.
                    self._observer.committed(cast("Store", None), size, seconds)
                elif name == "turned":
                    self._observer.epoch_changed()
                else:
                    self._observer.failed(LedgerUnavailable(reason))


def _send_bye(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(encode_frame([encode_message(0, BYE, None)]))


_events: Final = msgpack.Decoder(list[tuple[str, int, float, str]]).decode
