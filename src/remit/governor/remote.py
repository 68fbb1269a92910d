"""The governor of a front: sends use cases to the ledger process, and runs those that only read itself.

Keeps these invariants. An answer is given only if the ledger process has given it. What was sent and not answered when
a connection breaks is unknown: it raises `LedgerUnavailable`, and so does what cannot be sent within the deadline. A
process that says nothing for that long counts as one that hangs. The front has no private key.

An event loop has one connection, over which everything that is asked in one turn goes out in one frame. A thread makes
a connection for each use case. A service has one more (`Keeper`), by which the ledger process knows that it is there.
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
from remit.governor.governor import run_sync
from remit.governor.handshake import (
    MAX_HANDSHAKE,
    SOCKET,
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
from remit.governor.means import Means, UseCase
from remit.governor.pools import Pools
from remit.governor.wire import (
    ANSWER,
    BYE,
    EVENT,
    FAILURE,
    HEADER_BYTES,
    MAX_FRAME,
    USE_CASES,
    Frames,
    decode_answer,
    decode_failure,
    decode_messages,
    encode_case,
    encode_message,
    frame_of,
)
from remit.ledger.commit import DEADLINE_S, Observer
from remit.ledger.home import Home
from remit.ledger.keys import keyring_of
from remit.ledger.port import Prepare, Reader, Work
from remit.ledger.transaction import Store

__all__ = ["Keeper", "LedgerNotServed", "PublicKeys", "RemoteGovernor", "connect"]

_T = TypeVar("_T")

# What one event loop may have asked for and not been answered.
_MAX_OUTSTANDING: Final = 4096
_BATCH: Final = 4 * 1024 * 1024
_MAX_UNSENT: Final = 4 * MAX_FRAME
_RETRY_S: Final = 0.05
_MAX_DELAY_S: Final = 5.0
_LOOK_S: Final = 0.25
_GOODBYE_S: Final = 1.2
_LATE: Final = "the ledger process did not answer in time"
_BROKEN: Final = "the ledger process has ended, and it is not known whether this was recorded"
_ABSENT: Final = "the ledger process is not running; it is being started again"


class LedgerNotServed(Exception):
    """No process serves the ledger of the home just now: the caller waits, starts one, or raises an error of ours."""


class PublicKeys:
    """The keys that are believed, for a process that does not sign."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._keyring = keyring_of(reader.keys())

    def signing(self, kid: str) -> SigningKey:  # noqa: ARG002 - there is none
        """Raise `LedgerUnavailable`: only the ledger process signs."""
        raise LedgerUnavailable("this process holds no private keys")

    def keyring(self) -> Keyring:
        """Return the keys that are believed."""
        return self._keyring

    def refresh(self) -> Keyring:
        """Read again which keys are believed, and return them."""
        self._keyring = keyring_of(self._reader.keys())
        return self._keyring


def connect(home: Home, introduction: Introduction, timeout_s: float = DEADLINE_S) -> socket.socket:
    """Return a connection to the ledger process of a home, once each has proved itself to the other.

    `LedgerNotServed` if there is none, `LedgerInUse` if it is of another version. Its own refusals are raised as they
    are, such as of policies that cannot be read.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with home.folder("run", create=False) as folder:
            secret = load_secret(folder)
            connection.connect(folder.socket_address(SOCKET))
        check_peer(connection)
        _shake_hands(connection, secret, introduction)
    except (OSError, StateMissing):
        connection.close()
        raise LedgerNotServed(_ABSENT) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _shake_hands(connection: socket.socket, secret: bytes, introduction: Introduction) -> None:
    mine = new_hello()
    _send_handshake(connection, encode(mine))
    try:
        other = decode_hello(_receive_one(connection, MAX_HANDSHAKE))
    except InputError:
        raise LedgerUnavailable("what listens on the socket of the ledger is no ledger process") from None
    check_version(other)
    bare = Hello(other.magic, other.protocol, other.version, other.nonce)
    if not is_valid_proof(other.proof, "server", secret, mine, bare):
        raise LedgerUnavailable("what listens on the socket of the ledger does not know the secret of the home")
    _send_handshake(connection, encode(compute_proof("client", secret, mine, bare)))
    _send_handshake(connection, encode(introduction))
    [(_, kind, content)] = decode_messages(_receive_one(connection, MAX_FRAME))
    if kind == FAILURE:
        raise decode_failure(content)


def _send_handshake(connection: socket.socket, message: bytes) -> None:
    connection.sendall(len(message).to_bytes(HEADER_BYTES) + message)


def _receive_one(connection: socket.socket, most: int) -> bytes:
    """Return the next frame, and leave what follows it unread."""
    size = int.from_bytes(_receive_exactly(connection, HEADER_BYTES))
    if size > most:
        raise LedgerUnavailable("what listens on the socket of the ledger is no ledger process")
    return _receive_exactly(connection, size)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection has ended")
        data += part
    return bytes(data)


def _receive(connection: socket.socket, frames: Frames) -> bytes:
    """Return the next frame; what is between frames, or ends before one, is an error of the connection."""
    data = b""
    while True:
        for body in frames.feed(data):
            return body
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError("the connection has ended")


class _Prejudging(Protocol):
    """A use case that can be judged before it is sent."""

    async def prejudge(self, context: Means) -> Any:  # noqa: ANN401 - itself
        """Return the case with how it is judged here."""


class _Learning(Protocol):
    """A use case whose answer tells something that the next one needs."""

    def learn(self, context: Means, answer: Any) -> None:  # noqa: ANN401 - its answer
        """Remember it."""


# By type, because looking for the method on each value takes longer than sending it.
_REMOTE: Final = frozenset(USE_CASES.values())
_PREJUDGING: Final = frozenset(kind for kind in USE_CASES.values() if hasattr(kind, "prejudge"))
_LEARNING: Final = frozenset(kind for kind in USE_CASES.values() if hasattr(kind, "learn"))


class RemoteGovernor:
    """Gives use cases to the ledger process; it has what a `Governor` has."""

    def __init__(self, context: Means, connect: Callable[[], socket.socket], *, deadline_s: float = DEADLINE_S) -> None:
        """Work with the means of a front; `connect` returns a connection whose handshake is done."""
        self.means = context
        self._connect = connect
        self._deadline_s = deadline_s
        self._pools = Pools()
        self._blocking = _Blocking(self)
        self._on_loop = _OnLoop(self, self._pools)
        self._links: dict[int, _Link] = {}
        self._closed = False

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for link in self._links.values():
            link.forget()
        self._pools.close()

    async def disconnect(self) -> None:
        """Close the connection of the running loop, before the loop ends."""
        link = self._links.pop(id(asyncio.get_running_loop()), None)
        if link is not None:
            link.forget()
            await asyncio.sleep(0)

    def run(self, case: UseCase[_T]) -> _T:
        """Return the answer of a use case. Waits; for threads."""
        return run_sync(self._run(case, self.means.for_request(self._blocking)))

    async def _run(self, case: UseCase[_T], context: Means) -> _T:
        kind = type(case)
        if kind not in _REMOTE:
            return await case.run(context)
        sent = await cast("_Prejudging", case).prejudge(context) if kind in _PREJUDGING else case
        answer: _T = self.ask(sent)
        if kind in _LEARNING:
            cast("_Learning", case).learn(context, answer)
        return answer

    def arun(self, case: UseCase[_T]) -> Coroutine[Any, Any, _T]:
        """Return the answer of a use case. For an event loop, which it never keeps waiting."""
        return self.arun_with(case, self.means.for_request(self._on_loop))

    def arun_with(self, case: UseCase[_T], context: Means) -> Coroutine[Any, Any, _T]:
        """Return the answer of a use case that is, or is a part of, one request."""
        return self._arun_remote(case, context) if type(case) in _REMOTE else case.run(context)

    async def _arun_remote(self, case: UseCase[_T], context: Means) -> _T:
        kind = type(case)
        sent = await cast("_Prejudging", case).prejudge(context) if kind in _PREJUDGING else case
        link = self._link()
        if not link.is_ready:
            await link.open()
        answer: _T = await link.ask(sent)
        if kind in _LEARNING:
            cast("_Learning", case).learn(context, answer)
        return answer

    def ask(self, case: UseCase[_T]) -> _T:
        """Send a use case over a connection of its own, and return its answer."""
        message = encode_case(1, case)
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        with self._connected() as connection:
            connection.settimeout(self._deadline_s)
            try:
                connection.sendall(frame_of([message]))
                return _awaited(connection, type(case))
            except TimeoutError:
                raise LedgerUnavailable(_LATE) from None
            except OSError:
                raise LedgerUnavailable(_BROKEN) from None

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + self._deadline_s
        while True:
            try:
                return self._connect()
            except LedgerNotServed as error:
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
            link = self._links[id(loop)] = _Link(loop, self._connected, self._deadline_s)
        return link


def _awaited(connection: socket.socket, kind: type[UseCase[_T]]) -> _T:
    """Return the answer that arrives; each frame shows that the process is alive."""
    frames = Frames()
    while True:
        for _, what, content in decode_messages(_receive(connection, frames)):
            if what == FAILURE:
                raise decode_failure(content)
            if what == ANSWER:
                return _readable(kind, content)


def _readable(kind: type[UseCase[_T]], content: msgspec.Raw) -> _T:
    """Return an answer; one that cannot be read is a fault of ours, and nothing that the caller has done."""
    try:
        return decode_answer(kind, content)
    except FieldInvalid as error:
        raise LedgerUnavailable(f"the answer of the ledger process cannot be read: {error}") from None


class _Blocking:
    """Waiting for threads, in a front."""

    def __init__(self, governor: RemoteGovernor) -> None:
        self._governor = governor

    async def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:  # noqa: ARG002
        """Raise: a front does not write."""
        raise LedgerUnavailable("this process does not write the ledger")

    async def aside(self, compute: Callable[[], _T], *, limit_key: str = "") -> _T:  # noqa: ARG002 - nobody else waits
        """Compute it here."""
        return compute()

    async def to_quick_thread(self, compute: Callable[[], _T]) -> _T:
        """Compute it here."""
        return compute()

    def run(self, case: UseCase[_T], context: Means) -> Coroutine[Any, Any, _T]:
        """Have it run where it belongs."""
        return self._governor._run(case, context)  # noqa: SLF001 - a part of it


class _OnLoop:
    """Waiting for an event loop, in a front."""

    def __init__(self, governor: RemoteGovernor, pools: Pools) -> None:
        self.run: Final = governor.arun_with
        self.aside: Final = pools.run
        self.to_quick_thread: Final = pools.run_quick

    async def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:  # noqa: ARG002
        """Raise: a front does not write."""
        raise LedgerUnavailable("this process does not write the ledger")


class _Link(asyncio.Protocol):
    """The connection of one event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connect: Callable[[], socket.socket], deadline_s: float
    ) -> None:
        self.loop = loop
        self._connect = connect
        self._deadline_s = deadline_s
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._frames = Frames()
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[asyncio.Future[Any], type[Any]]] = {}
        self._out: list[bytes] = []
        self._heard = 0.0
        self._looking: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Tell whether there is a connection."""
        return self._transport is not None

    async def open(self) -> None:
        """Return when there is a connection, or raise `LedgerUnavailable` at the deadline."""
        if self._connecting is None or self._connecting.done():
            self._connecting = self.loop.create_task(self._connect_once())
        await asyncio.shield(self._connecting)

    async def _connect_once(self) -> None:
        connection = await self.loop.run_in_executor(None, self._connect)
        connection.setblocking(False)  # noqa: FBT003 - as sockets have it
        self._frames = Frames()
        await self.loop.create_unix_connection(lambda: self, sock=connection)

    def ask(self, case: UseCase[_T]) -> "asyncio.Future[_T]":
        """Send a use case; the future holds its answer."""
        transport = self._transport
        if transport is None:
            raise LedgerUnavailable(_ABSENT)
        if len(self._pending) >= _MAX_OUTSTANDING or transport.get_write_buffer_size() > _MAX_UNSENT:
            raise LedgerUnavailable("too much is asked of the ledger at once")
        number = next(self._numbers)
        message = encode_case(number, case)
        future: asyncio.Future[_T] = self.loop.create_future()
        if not self._pending:
            self._heard = self.loop.time()
            if self._looking is None:
                self._looking = self.loop.call_later(_LOOK_S, self._look)
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
            if size > _BATCH or index == len(out) - 1:
                self._transport.write(frame_of(out[start : index + 1]))
                start, size = index + 1, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Give each answer to who has asked for it; what cannot be read ends the connection."""
        self._heard = self.loop.time()
        try:
            for body in self._frames.feed_all(data):
                for number, kind, content in decode_messages(body):
                    self._settle(number, kind, content)
        except InputError:
            self.forget()

    def _settle(self, number: int, kind: int | str, content: msgspec.Raw) -> None:
        future, case = self._pending.pop(number, (None, None))
        if future is None or case is None or future.done():
            return
        if kind == FAILURE:
            future.set_exception(decode_failure(content))
            return
        try:
            future.set_result(_readable(case, content))
        except LedgerUnavailable as error:
            future.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        """Tell everyone who waits that nobody knows."""
        self._transport = None
        self._out.clear()
        self._fail(_BROKEN)

    def forget(self) -> None:
        """Close the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            with suppress(RuntimeError):  # its loop is closed
                transport.abort()

    def _fail(self, why: str) -> None:
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(LedgerUnavailable(why))

    def _look(self) -> None:
        """Give up a process that says nothing while it owes answers."""
        self._looking = None
        if not self._pending:
            return
        if self.loop.time() - self._heard > self._deadline_s:
            self._fail(_LATE)
            self.forget()
            return
        self._looking = self.loop.call_later(_LOOK_S, self._look)


class Keeper:
    """Keeps a ledger process running for a service, and starts it again when it has ended.

    It passes on to an observer what the writer does, and that nothing can be written while there is no process.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        restart: Callable[[], None],
        observer: Observer,
        *,
        told: Callable[[str, str], None] = lambda _event, _why: None,
    ) -> None:
        """Keep a process running that `restart` starts, unless someone else has done so."""
        self._connect = connect
        self._restart = restart
        self._observer = observer
        self._told = told
        self._closing = threading.Event()
        self._connection: socket.socket | None = None
        with suppress(LedgerNotServed):  # it has ended a moment ago
            self._connection = connect()
        self._thread = threading.Thread(target=self._keep, name="ledger-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the process go, and wait until it has closed the ledger if no other service needs it."""
        self._closing.set()
        connection = self._connection
        if connection is not None:
            _say_goodbye(connection)
        self._thread.join(_GOODBYE_S)
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _keep(self) -> None:
        while True:
            connection = self._connection
            if connection is not None:
                if self._closing.is_set():  # it was started again meanwhile, and would wait for a service
                    _say_goodbye(connection)
                connection.settimeout(_GOODBYE_S if self._closing.is_set() else None)
                self._listen(connection)
                self._connection = None
                connection.close()
            if self._closing.is_set():
                return
            self._told("ledger_process_lost", _BROKEN)
            with suppress(Exception):
                self._observer.failed(LedgerUnavailable(_ABSENT))
            self._bring_back()

    def _bring_back(self) -> None:
        """Start the process again, or find that someone else has, until there is one."""
        for attempt in itertools.count():
            try:
                self._connection = self._connect()
            except LedgerNotServed:
                pass
            except RemitError as error:
                self._told("ledger_process_refuses", str(error))
            else:
                self._told("ledger_process_found", "")
                return
            if attempt:
                self._closing.wait(min(_RETRY_S * 2**attempt, _MAX_DELAY_S))
            if self._closing.is_set():
                return
            try:
                self._restart()
            except RemitError as error:
                self._told("ledger_process_not_started", str(error))

    def _listen(self, connection: socket.socket) -> None:
        """Take what the ledger process tells, until it has ended."""
        frames = Frames()
        try:
            while True:
                for _, kind, content in decode_messages(_receive(connection, frames)):
                    if kind == EVENT:
                        self._pass_on(content)
        except (OSError, RemitError):
            return

    def _pass_on(self, content: msgspec.Raw) -> None:
        with suppress(Exception):  # an observer that fails must not end the thread
            for name, size, seconds, why in _events(content):
                if name == "committed":
                    # No observer of a front looks at the store.
                    self._observer.committed(cast("Store", None), size, seconds)
                elif name == "turned":
                    self._observer.turned()
                else:
                    self._observer.failed(LedgerUnavailable(why))


def _say_goodbye(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(frame_of([encode_message(0, BYE, None)]))


_events: Final = msgpack.Decoder(list[tuple[str, int, float, str]]).decode
