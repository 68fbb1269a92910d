"""Takes connections from a socket that listens, and agrees on TLS with them.

Keeps these invariants: a connection counts from its first moment, so that one that never gets on with TLS is in
nobody's way; and new certificates are for the next connection, while those that are open go on.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from remit.http.limits import Limits
from remit.http.protocol import StrictProtocol

__all__ = ["Entrance"]

# So many are taken before others have their turn.
_AT_ONCE: Final = 64
# Where there are no files left for a connection, it is tried again after this: often enough to get through to those who
# are still there, behind many that have gone.
_PAUSE_S: Final = 0.02
_SHUTDOWN_S: Final = 1.0


class Entrance:
    """The way in, for one loop."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], StrictProtocol],
        limits: Limits,
        context: ssl.SSLContext | None,
    ) -> None:
        """Give each connection a protocol from `make`; without a context there is no TLS, for good."""
        self.context = context
        self._listening = listening
        self._make = make
        self._handshake_s = limits.handshake_s if context else None
        self._shutdown_s = _SHUTDOWN_S if context else None
        self._loop = asyncio.get_running_loop()
        self._arriving: dict[asyncio.Task[None], StrictProtocol] = {}
        self._pause: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to take connections."""
        self._pause = None
        self._listening.setblocking(False)  # noqa: FBT003 - the library's way
        self._loop.add_reader(self._listening, self._take)

    def close(self) -> None:
        """Take no more, and let go of those that have not come in yet."""
        self._loop.remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()
        for arriving, protocol in self._arriving.items():
            # One that has its transport may have been asked something already, which is to be answered.
            transport: asyncio.BaseTransport | None = protocol.transport
            if transport is None or isinstance(transport, _Arriving):
                arriving.cancel()

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                taken, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_S, self.open)
                return
            protocol = self._make()
            arriving = self._loop.create_task(self._let_in(protocol, taken, address[:2]))
            self._arriving[arriving] = protocol
            arriving.add_done_callback(self._arriving.pop)

    async def _let_in(self, protocol: StrictProtocol, taken: socket.socket, address: tuple[str, int]) -> None:
        taken.setblocking(False)  # noqa: FBT003 - the library's way
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not protocol.arrive(address, _Arriving(taken)) and self.context is not None:
            taken.close()  # there is no telling why without TLS
            return
        came = False
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                taken,
                ssl=self.context,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )
            came = True
        except OSError:
            taken.close()
        finally:
            if not came:
                protocol.depart()


class _Arriving(asyncio.Transport):
    """A connection as long as it has no transport: it can be cut off, and nothing else."""

    def __init__(self, taken: socket.socket) -> None:
        super().__init__()
        self._taken = taken

    def abort(self) -> None:
        """Cut it off. The socket is closed by whoever is about to agree on TLS with it."""
        try:
            self._taken.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is gone already
