"""An event loop whose name lookups do not keep the process alive.

asyncio's own lookups run in threads that are joined at exit, so one that hangs delays the end of the process. Lookups
of the same name share one thread.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, TypeAlias, final

__all__ = ["ResolvingLoop"]

_Addresses: TypeAlias = "asyncio.Future[list[Any]]"


@final
class ResolvingLoop(asyncio.SelectorEventLoop):
    """An event loop that looks names up in daemon threads."""

    def __init__(self) -> None:
        """Start without lookups."""
        super().__init__()
        self._lookups: dict[tuple[Any, ...], _Addresses] = {}

    async def getaddrinfo(
        self,
        host: str | bytes | None,
        port: str | bytes | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name is the library's
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Return the addresses of a name. Cancelling one caller does not cancel the lookup for the others."""
        query = (host, port, family, type, proto, flags)
        pending = self._lookups.get(query)
        if pending is None:
            pending = self.create_future()
            threading.Thread(target=self._look_up, args=(query, pending), name="remit-lookup", daemon=True).start()
            self._lookups[query] = pending
        return await asyncio.shield(pending)

    def _look_up(self, query: tuple[Any, ...], pending: _Addresses) -> None:
        """Look a name up, in a thread. An error is raised in the callers that wait."""
        addresses: list[Any] = []
        failure: Exception | None = None
        try:
            addresses = socket.getaddrinfo(*query)
        except (OSError, ValueError) as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed, and nothing waits
            self.call_soon_threadsafe(self._resolve_pending, query, pending, addresses, failure)

    def _resolve_pending(
        self, query: tuple[Any, ...], pending: _Addresses, addresses: list[Any], failure: Exception | None
    ) -> None:
        del self._lookups[query]
        if failure is None:
            pending.set_result(addresses)
        else:
            pending.set_exception(failure)
            pending.exception()  # marks it as retrieved, even if nothing waits any more
