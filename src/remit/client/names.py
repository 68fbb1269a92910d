"""An event loop whose lookups of names keep nobody waiting.

Keeps this invariant: a lookup that hangs does not keep the process from ending, as one in a thread of `asyncio` would.
At most one is under way for each name: those who ask for the same wait for the same.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, TypeAlias, final

__all__ = ["Loop"]

_Found: TypeAlias = "asyncio.Future[list[Any]]"


@final
class Loop(asyncio.SelectorEventLoop):
    """An event loop that looks names up in threads which end with the process."""

    def __init__(self) -> None:
        """Begin with no lookup."""
        super().__init__()
        self._lookups: dict[tuple[Any, ...], _Found] = {}

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
        """Return the addresses of a name. Whoever gives up waiting does not end the lookup for others."""
        asked = (host, port, family, type, proto, flags)
        found = self._lookups.get(asked)
        if found is None:
            found = self.create_future()
            threading.Thread(target=self._look_up, args=(asked, found), name="remit-lookup", daemon=True).start()
            self._lookups[asked] = found
        return await asyncio.shield(found)

    def _look_up(self, asked: tuple[Any, ...], found: _Found) -> None:
        """Look a name up, in a thread. Whatever is raised is raised where it is waited for."""
        addresses: list[Any] = []
        failure: Exception | None = None
        try:
            addresses = socket.getaddrinfo(*asked)
        except (OSError, ValueError) as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.call_soon_threadsafe(self._settle, asked, found, addresses, failure)

    def _settle(self, asked: tuple[Any, ...], found: _Found, addresses: list[Any], failure: Exception | None) -> None:
        del self._lookups[asked]
        if failure is None:
            found.set_result(addresses)
        else:
            found.set_exception(failure)
            found.exception()  # now it is known, even if nobody waits any more
