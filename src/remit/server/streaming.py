"""An answer that is made while it goes out: in threads, piece by piece, in constant memory.

Keeps these invariants: parts are only asked for in turns that do not overlap, and no turn begins before the piece of
the one before was taken; and the parts are closed at last, whatever happens. Sending is for `application.py`.
"""

import asyncio
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor
from threading import Lock
from typing import Final, final

from remit.server.headers import HeaderList

__all__ = ["PIECE_BYTES", "Stream"]

# So much is gathered in a turn, before it is compressed.
PIECE_BYTES: Final = 64 * 1024
# The wire is short, and it is our processor that works: the fastest will do.
_LEVEL: Final = 1
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


@final
class Stream:
    """The pieces of one answer."""

    def __init__(self, parts: Iterator[bytes], threads: Executor, *, is_packed: bool) -> None:
        """Take parts, which may read a disk, so `threads` wait for them; packed, they go out by gzip."""
        self.piece = b""
        self.is_over = False
        self._parts = parts
        self._threads = threads
        self._packer = zlib.compressobj(_LEVEL, wbits=_GZIP_WINDOW) if is_packed else None
        self._turn = Lock()

    @property
    def headers(self) -> HeaderList:
        """Return what a client must know to read the pieces."""
        return [(b"content-encoding", b"gzip")] if self._packer else []

    async def advance(self) -> None:
        """Make the next piece; it may be empty, and the last one if `is_over`."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._take_turn)

    def close(self) -> None:
        """Let go of the parts once the turn that is under way has ended. Nobody waits for it."""
        asyncio.get_running_loop().run_in_executor(self._threads, self._let_go)

    def _take_turn(self) -> None:
        with self._turn:
            data, is_last = self._gather()
            if self._packer:
                data = self._packer.compress(data) + (self._packer.flush() if is_last else b"")
            self.piece, self.is_over = data, is_last

    def _gather(self) -> tuple[bytes, bool]:
        """Return what the next parts come to, and whether they were the last."""
        gathered, size = [], 0
        for part in self._parts:
            gathered.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                return b"".join(gathered), False
        return b"".join(gathered), True

    def _let_go(self) -> None:
        with self._turn:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
