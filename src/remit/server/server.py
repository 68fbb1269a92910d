"""Runs an HTTP server: listens, accepts connections, agrees on TLS, closes slow clients, reloads, and stops.

Invariants: a connection counts from the moment it is accepted, so one that never agrees on TLS is bounded too; new
certificates are for the next connection and drop none, and files that cannot be used leave the old ones in use; and a
stop drains the requests that were read in full, for so long and no longer.
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

__all__ = ["Acceptor", "Server", "bind", "run_server", "url_of"]

_BACKLOG: Final = 1024
# So many connections are accepted before others have their turn.
_AT_ONCE: Final = 64
# Where there are no files left for a connection, it is tried again after this: often enough to get through to clients
# that are still there, behind many that have gone.
_PAUSE_S: Final = 0.02
_TLS_SHUTDOWN_S: Final = 1.0
# Certificates run out while a service goes on for months; whoever renews them need not tell us.
_READ_AGAIN_S: Final = 12 * 3600.0
# New objects before the collector looks at them, and how often it goes on to older ones.
_COLLECT_AFTER: Final = (100_000, 50, 1000)

_Context: TypeAlias = Callable[[], ssl.SSLContext]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; 0 lets the system choose the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)  # noqa: FBT003 - the library's way
    except (OSError, OverflowError) as error:
        listening.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a port"
        raise PortInUse(f"cannot listen on {url_host(host)}:{port}: {reason.lower()}") from None
    return listening


def url_of(listening: socket.socket, *, tls: bool) -> str:
    """Return where a socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{url_host(host)}:{port}"


class Acceptor:
    """Accepts connections from a listening socket, and agrees on TLS with them."""

    def __init__(self, listening: socket.socket, state: ServerState, context: ssl.SSLContext | None) -> None:
        """Begin with `context`, which may be replaced for the next connections; without one there is no TLS."""
        self.context = context
        self._listening = listening
        self._state = state
        self._handshake_s = state.limits.handshake_s if context else None
        self._shutdown_s = _TLS_SHUTDOWN_S if context else None
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[asyncio.Task[None], Connection] = {}
        self._pause: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to accept connections."""
        self._pause = None
        self._listening.setblocking(False)  # noqa: FBT003 - the library's way
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more, and drop the connections that are not made yet."""
        self._loop.remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()
        for connecting, connection in self._connecting.items():
            # From one that is made, a request may have been read already, which is to be answered.
            if not connection.is_connected:
                connecting.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_S, self.open)
                return
            connection = Connection(self._state, address[0], accepted)
            connecting = self._loop.create_task(self._connect(connection, accepted))
            self._connecting[connecting] = connection
            connecting.add_done_callback(self._connecting.pop)

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        accepted.setblocking(False)  # noqa: FBT003 - the library's way
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not connection.admit() and self.context is not None:
            accepted.close()  # without TLS there is no way to say why
            return
        is_made = False
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )
            is_made = True
        except OSError:
            accepted.close()
        finally:
            if not is_made:
                connection.leave()


class Server:
    """One handler of requests on one socket."""

    def __init__(
        self,
        handler: Handler,
        listening: socket.socket,
        *,
        limits: Limits,
        tls: _Context | None = None,
        refused: Callable[[AccessError, str], None] = lambda *_: None,
        told: Callable[[str, BaseException | None], None] = lambda *_: None,
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve `handler`; `tls` reads the certificates, `refused` and `told` are called with what happens.

        `renew` is called with every hang-up signal, for what else is to be read again.
        """
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._told = told
        self._renew = renew
        self._stopping = asyncio.Event()
        limiter = ConnectionLimiter(most_connections(limits.connections), limits.connections_per_peer)
        self._state = ServerState(handler, limits, limiter, refused)
        self._acceptor: Acceptor | None = None
        # Kept, because the loop keeps no task alive by itself.
        self._reloads: set[asyncio.Task[None]] = set()
        self._one_reload = asyncio.Lock()

    async def run(self, ready: Callable[[], None] = lambda: None, *, leash: int | None = None) -> None:
        """Serve until a signal, `stop`, or the end of what holds the leash (a descriptor) ends it."""
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
        due = loop.time() + _READ_AGAIN_S
        while not self._stopping.is_set():
            self._tick()
            if loop.time() > due:
                due = loop.time() + _READ_AGAIN_S
                self._reload_soon()
            try:
                await asyncio.wait_for(self._stopping.wait(), self._limits.watch_s)
            except TimeoutError:
                continue
        if leash is not None:
            loop.remove_reader(leash)
        await self._finish(self._acceptor)

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def _reload_soon(self) -> None:
        reload = asyncio.get_running_loop().create_task(self.reload())
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)

    async def reload(self) -> None:
        """Read certificates and tokens again; if they cannot be used, those from before stay.

        One after the other: what was read first must not come last.
        """
        async with self._one_reload:
            try:
                await self._read_again()
            except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on with what it has
                self._told("settings_kept", error)

    async def _read_again(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._renew)
        if self._tls is None or self._acceptor is None:
            return
        self._acceptor.context = await loop.run_in_executor(None, self._tls)
        self._told("certificates_read", None)

    def _tick(self) -> None:
        """Set the date of responses, and close the connections of slow clients."""
        self._state.date_line = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode("ascii")
        now = asyncio.get_running_loop().time()
        for connection in list(self._state.connections):
            connection.watch(now)

    async def _finish(self, acceptor: Acceptor) -> None:
        """Drain the requests that were read in full, and close all connections."""
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
    """Run the server that `build` makes, on a loop of its own, until it is stopped."""

    async def serve() -> None:
        server = build()
        # What is there by now stays until the end, and requests leave nothing in a cycle: the collector looks seldom.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        await server.run(ready, leash=leash)

    try:
        uvloop.run(serve())
    finally:
        flush()
