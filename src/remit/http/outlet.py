"""What answers go out by: the transport of a connection, which is closed by the connection's own rules.

Whoever writes an answer closes after the last one; here that asks, and does nothing by itself.
"""

import asyncio
from collections.abc import Callable
from typing import Any, final

__all__ = ["Outlet"]


@final
class Outlet(asyncio.Transport):
    """A transport as far as answers need one."""

    def __init__(self, transport: asyncio.Transport, hang_up: Callable[[], None]) -> None:
        """Write to `transport`; `hang_up` is called in place of closing it."""
        super().__init__()
        self._transport = transport
        self._hang_up = hang_up

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Tell whether nothing can be sent any more."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Say that this was all."""
        self._hang_up()
