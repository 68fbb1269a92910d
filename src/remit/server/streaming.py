"""Reads the pieces of a streamed response in threads, in constant memory.

Invariants: pieces are read one after the other, the next one only when the one before was taken; and the iterator is
closed at the end, whatever happens. `application.py` sends the pieces.
"""

import asyncio
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor
from threading import Lock
from typing import Final, final

from remit.server.headers import HeaderList

# The size of a piece before compression.
PIECE_BYTES: Final = 64 * 1024
# The fastest: clients are near, and compression costs time of the service.
_LEVEL: Final = 1
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


@final
class Stream:
    """The pieces of one response."""

    def __init__(self, parts: Iterator[bytes], threads: Executor, *, compress: bool) -> None:
        """Read `parts`, which may wait for a disk, in `threads`; with `compress`, as gzip."""
        self.piece = b""
        self.is_over = False
        self._parts = parts
        self._threads = threads
        self._compressor = zlib.compressobj(_LEVEL, wbits=_GZIP_WINDOW) if compress else None
        self._lock = Lock()

    @property
    def headers(self) -> HeaderList:
        """Return the headers that describe the encoding."""
        return [(b"content-encoding", b"gzip")] if self._compressor else []

    async def advance(self) -> None:
        """Read the next piece into `piece`. It may be empty. `is_over`: whether it is the last one."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._read_piece)

    def close(self) -> None:
        """Close the iterator in a thread, after the piece that is being read. Does not wait for it."""
        asyncio.get_running_loop().run_in_executor(self._threads, self._close_parts)

    def _read_piece(self) -> None:
        with self._lock:
            data, is_last = self._join_parts()
            if self._compressor:
                data = self._compressor.compress(data) + (self._compressor.flush() if is_last else b"")
            self.piece, self.is_over = data, is_last

    def _join_parts(self) -> tuple[bytes, bool]:
        """Join parts up to the size of a piece; return whether they were the last."""
        joined, size = [], 0
        for part in self._parts:
            joined.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                return b"".join(joined), False
        return b"".join(joined), True

    def _close_parts(self) -> None:
        with self._lock:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
