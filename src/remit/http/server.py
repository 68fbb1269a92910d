"""Runs an application: listens, watches over connections, takes new certificates, and stops without losing an answer.

Keeps these invariants: new certificates drop no connection; files that cannot be used leave the old ones in use; and a
stop lets what was asked come to its end, for so long and no longer. How connections come in is for `entrance.py`.
"""

import asyncio
import gc
import signal
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Final, TypeAlias

import uvloop
from uvicorn import Config
from uvicorn.server import ServerState

from remit.errors import AccessError, PortInUse
from remit.http.admission import Admission
from remit.http.entrance import Entrance
from remit.http.hosts import url_host
from remit.http.limits import Limits, most_connections
from remit.http.log import flush
from remit.http.protocol import AppState, StrictProtocol

__all__ = ["Server", "bind", "run_server", "url_of"]

_BACKLOG: Final = 1024
# Certificates run out while a service goes on for months; whoever renews them need not tell us.
_READ_AGAIN_S: Final = 12 * 3600.0
# New objects before the collector looks at them, and how often it goes on to older ones.
_COLLECT_AFTER: Final = (100_000, 50, 1000)

_Application: TypeAlias = Callable[..., Any]
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


class Server:
    """One application on one socket."""

    def __init__(
        self,
        application: _Application,
        listening: socket.socket,
        *,
        limits: Limits,
        tls: _Context | None = None,
        refused: Callable[[AccessError, str], None] = lambda *_: None,
        told: Callable[[str, BaseException | None], None] = lambda *_: None,
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve `application`; `tls` reads the certificates, `refused` and `told` hear what goes on.

        `renew` is called with every hang-up signal, for what else is to be read again.
        """
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._told = told
        self._renew = renew
        self._stopping = asyncio.Event()
        self._state = ServerState()
        self._shared = AppState(
            limits=limits,
            admission=Admission(most_connections(limits.connections), limits.connections_per_peer),
            refused=refused,
            holder="",
        )
        self._config = Config(
            application,
            http=StrictProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            forwarded_allow_ips="",
            server_header=False,
            timeout_keep_alive=int(limits.idle_s) + 1,  # ours is over before
            workers=1,
        )
        self._config.load()
        self._entrance: Entrance | None = None
        # Kept, because the loop keeps no task alive by itself.
        self._reloads: set[asyncio.Task[None]] = set()
        self._one_reload = asyncio.Lock()

    async def run(self, ready: Callable[[], None] = lambda: None, *, leash: int | None = None) -> None:
        """Serve until a signal, `stop`, or the end of what holds the leash (a descriptor) ends it."""
        loop = asyncio.get_running_loop()
        self._entrance = Entrance(self._listening, self._connection, self._limits, self._tls() if self._tls else None)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        if leash is not None:
            loop.add_reader(leash, self.stop)
        self._tick()
        self._entrance.open()
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
        await self._finish(self._entrance)

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
        if self._tls is None or self._entrance is None:
            return
        self._entrance.context = await loop.run_in_executor(None, self._tls)
        self._told("certificates_read", None)

    def _connection(self) -> StrictProtocol:
        return StrictProtocol(self._config, self._state, dict(self._shared), asyncio.get_running_loop())

    def _tick(self) -> None:
        """Set the date of answers, and look after slow clients."""
        self._state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode("ascii"))]
        now = asyncio.get_running_loop().time()
        for connection in list(self._state.connections):
            if isinstance(connection, StrictProtocol):
                connection.watch(now)

    async def _finish(self, entrance: Entrance) -> None:
        """Let what was asked come to its end."""
        entrance.close()
        self._listening.close()
        deadline = asyncio.get_running_loop().time() + self._limits.stop_s
        for connection in list(self._state.connections):
            connection.shutdown()
        while self._state.connections and asyncio.get_running_loop().time() < deadline:
            self._tick()
            await asyncio.sleep(0.02)
        for connection in list(self._state.connections):
            connection.transport.abort()


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
