"""Runs an HTTP server: listens, accepts connections, does TLS handshakes, closes slow clients, reloads, and stops.

Invariants: a connection counts against the limits from the moment it is accepted, so that clients which never finish
the TLS handshake are bounded too. New certificates are used for new connections and close none; if the files cannot be
used, the old ones stay in use. A stop drains the requests that were read in full, for `stop_s` seconds at most.
"""

import asyncio
import gc
import signal
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, TypeAlias

import uvloop

from remit.errors import AccessError, PortInUse
from remit.server.connection import Connection, Handler, ServerState
from remit.server.hosts import url_host
from remit.server.limits import ConnectionLimiter, Limits, most_connections
from remit.server.log import flush

_BACKLOG: Final = 1024
# Connections that are accepted in one turn of the event loop.
_ACCEPTED_AT_ONCE: Final = 64
# How long to wait after `accept` has failed for want of file descriptors. The backlog can be full of clients that have
# gone, so a longer wait would keep others from being reached.
_ACCEPT_AGAIN_S: Final = 0.02
_TLS_SHUTDOWN_S: Final = 1.0
# Certificates are read again without a signal too: they expire while a service runs for months.
_RELOAD_S: Final = 12 * 3600.0
# The thresholds of the garbage collector.
_COLLECT_AFTER: Final = (100_000, 50, 1000)

_LoadContext: TypeAlias = Callable[[], ssl.SSLContext]


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. With port 0, the system chooses the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)  # noqa: FBT003 - the library's way
    except (OSError, OverflowError) as error:
        listening.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid port"
        raise PortInUse(f"cannot listen on {url_host(host)}:{port}: {reason.lower()}") from None
    return listening


def listening_url(listening: socket.socket, *, tls: bool) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{url_host(host)}:{port}"


class Acceptor:
    """Accepts connections from a listening socket, and does the TLS handshake."""

    def __init__(self, listening: socket.socket, state: ServerState, context: ssl.SSLContext | None) -> None:
        """Use TLS if a `context` is given. It can be replaced later, for new connections."""
        self.context = context
        self._listening = listening
        self._state = state
        self._handshake_s = state.limits.handshake_s if context else None
        self._shutdown_s = _TLS_SHUTDOWN_S if context else None
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[asyncio.Task[None], Connection] = {}
        self._retry: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start to accept connections."""
        self._retry = None
        self._listening.setblocking(False)  # noqa: FBT003 - the library's way
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Stop accepting, and drop the connections that are still in the handshake."""
        self._loop.remove_reader(self._listening)
        if self._retry is not None:
            self._retry.cancel()
        for connecting, connection in self._connecting.items():
            # A request of an established connection may have been read already, and is answered.
            if not connection.is_connected:
                connecting.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening)
                self._retry = self._loop.call_later(_ACCEPT_AGAIN_S, self.open)
                return
            connection = Connection(self._state, address[0], accepted)
            connecting = self._loop.create_task(self._connect(connection, accepted))
            self._connecting[connecting] = connection
            connecting.add_done_callback(self._connecting.pop)

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        accepted.setblocking(False)  # noqa: FBT003 - the library's way
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not connection.admit() and self.context is not None:
            accepted.close()  # an error response would need the handshake
            return
        is_established = False
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )
            is_established = True
        except OSError:
            accepted.close()
        finally:
            if not is_established:
                connection.leave()


class Server:
    """Serves one handler on one listening socket."""

    def __init__(
        self,
        handler: Handler,
        listening: socket.socket,
        *,
        limits: Limits,
        tls: _LoadContext | None = None,
        on_refused: Callable[[AccessError, str], None] = lambda *_: None,
        on_event: Callable[[str, BaseException | None], None] = lambda *_: None,
        on_reload: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve `handler`. `tls` loads the certificates into a new context, at the start and at every reload.

        `on_refused` is called with each request or connection that is refused before it has a handler, and its request
        id; `on_event` with the outcome of a reload; `on_reload` at every reload, in a thread, before `tls`.
        """
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._on_event = on_event
        self._on_reload = on_reload
        self._stopping = asyncio.Event()
        limiter = ConnectionLimiter(most_connections(limits.connections), limits.connections_per_peer)
        self._state = ServerState(handler, limits, limiter, on_refused)
        self._acceptor: Acceptor | None = None
        # References, because the event loop has only weak references to tasks.
        self._reloads: set[asyncio.Task[None]] = set()
        self._reload_lock = asyncio.Lock()

    async def run(self, ready: Callable[[], None] = lambda: None, *, leash: int | None = None) -> None:
        """Serve until SIGINT, SIGTERM or `stop`, or until the descriptor `leash` becomes readable. SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(self._listening, self._state, self._tls() if self._tls else None)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        if leash is not None:
            loop.add_reader(leash, self.stop)
        self._tick()
        self._acceptor.open()
        ready()
        due = loop.time() + _RELOAD_S
        while not self._stopping.is_set():
            self._tick()
            if loop.time() > due:
                due = loop.time() + _RELOAD_S
                self._reload_soon()
            try:
                await asyncio.wait_for(self._stopping.wait(), self._limits.watch_s)
            except TimeoutError:
                continue
        if leash is not None:
            loop.remove_reader(leash)
        await self._drain(self._acceptor)

    def stop(self) -> None:
        """Stop the server; `run` returns when it has stopped."""
        self._stopping.set()

    def _reload_soon(self) -> None:
        reload = asyncio.get_running_loop().create_task(self.reload())
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)

    async def reload(self) -> None:
        """Read certificates and tokens again. If they cannot be used, the old ones stay in use.

        Reloads do not overlap: an earlier one that finished last would bring old values back.
        """
        async with self._reload_lock:
            try:
                await self._load()
            except Exception as error:  # noqa: BLE001 - whatever it is, the server continues with the old values
                self._on_event("settings_kept", error)

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._on_reload)
        if self._tls is None or self._acceptor is None:
            return
        self._acceptor.context = await loop.run_in_executor(None, self._tls)
        self._on_event("certificates_read", None)

    def _tick(self) -> None:
        """Update the `Date` of responses, and close the connections of slow clients."""
        self._state.date_line = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode("ascii")
        now = asyncio.get_running_loop().time()
        for connection in list(self._state.connections):
            connection.check_timeouts(now)

    async def _drain(self, acceptor: Acceptor) -> None:
        """Answer the requests that were read in full, and close all connections."""
        acceptor.close()
        self._listening.close()
        deadline = asyncio.get_running_loop().time() + self._limits.stop_s
        for connection in list(self._state.connections):
            connection.shutdown()
        while self._state.connections and asyncio.get_running_loop().time() < deadline:
            self._tick()
            await asyncio.sleep(0.02)
        for connection in list(self._state.connections):
            connection.abort()


def run_server(build: Callable[[], Server], ready: Callable[[], None], *, leash: int | None = None) -> None:
    """Run the server that `build` returns on a new event loop until it is stopped."""

    async def serve() -> None:
        server = build()
        # Objects that exist now live until the end, and requests leave no reference cycles: collections can be rare.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        await server.run(ready, leash=leash)

    try:
        uvloop.run(serve())
    finally:
        flush()
