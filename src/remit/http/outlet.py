"""What answers go out by: the transport of a connection, which is closed by the connection's own rules.

Whoever writes an answer closes after the last one; here that asks, and does nothing by itself. An answer that cannot be
brought to its end is cut off here.
"""

import asyncio
from collections.abc import Callable
from typing import Any, final

__all__ = ["Outlet"]


@final
class Outlet(asyncio.Transport):
    """A transport as far as answers need one."""

    def __init__(
        self, transport: asyncio.Transport, *, hang_up: Callable[[], None], cut_off: Callable[[], None]
    ) -> None:
        """Write to `transport`; `hang_up` is called in place of closing it, `cut_off` in place of aborting it.

        `is_authenticated` is set once a request of the connection was authorized.
        """
        super().__init__()
        self._transport = transport
        self._hang_up = hang_up
        self._cut_off = cut_off
        self.is_authenticated = False

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Tell whether nothing can be sent any more."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Say that this was all."""
        self._hang_up()

    def abort(self) -> None:
        """End it here: what was begun has no end that a client could take for one."""
        self._cut_off()
