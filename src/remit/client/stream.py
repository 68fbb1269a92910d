"""An answer that is too long to be held: its parts, one after the other, unpacked as they come.

Keeps this invariant: the end is told only when all of it has come. What is cut off, what does not unpack, and what has
no end by which it could be told to be whole is a silence, like any other answer that did not arrive.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import Final, final

import httpx

from remit.client.attempts import Silence, silence_of

__all__ = ["PACKED", "Parts"]

PACKED: Final = "gzip"
_GZIP: Final = 16 + zlib.MAX_WBITS
_LARGEST: Final = 256 * 1024
_CUT_OFF: Final = Silence("the answer was cut off")
_ENDLESS: Final = Silence("it cannot be told whether the answer is whole")


@final
class Parts:
    """The parts of one answer. Belongs to the event loop that it was opened in."""

    __slots__ = ("_coming", "_loop", "_patience_s", "_response")

    def __init__(self, response: httpx.Response, patience_s: float) -> None:
        """Read from a response that has begun; each part is waited for so long."""
        self._response = response
        self._patience_s = patience_s
        self._coming = _unpacked(response)
        self._loop = asyncio.get_running_loop()

    async def next(self) -> bytes | Silence:
        """Return the next part; nothing at the end. Errors are returned: those of the library hold the request."""
        if asyncio.get_running_loop() is not self._loop:
            return Silence("the connection belongs to another process")
        try:
            async with asyncio.timeout(self._patience_s):
                return await anext(self._coming, b"")
        except TimeoutError:
            return Silence("it took too long")
        except (httpx.HTTPError, OSError) as error:
            return silence_of(error)
        except zlib.error:
            return _CUT_OFF

    async def close(self) -> None:
        """Let go of the connection; it cannot be used again if there was more to come."""
        if asyncio.get_running_loop() is self._loop:
            await self._coming.aclose()
            await self._response.aclose()


async def _unpacked(response: httpx.Response) -> AsyncGenerator[bytes | Silence, None]:
    if response.headers.get("content-encoding", "identity").lower() == "identity":
        async for raw in response.aiter_raw():
            if raw:
                yield raw
        if not _has_end(response.headers):
            yield _ENDLESS
        return
    # Packed otherwise than we asked for, it does not unpack.
    unpacking = zlib.decompressobj(_GZIP)
    async for raw in response.aiter_raw():
        for part in _inflated(unpacking, raw):
            yield part
    if not unpacking.eof or unpacking.unused_data:
        yield _CUT_OFF


def _inflated(unpacking: "zlib._Decompress", raw: bytes) -> Iterator[bytes]:
    """Unpack in parts that fit: a little that is packed may be very much."""
    while raw:
        part = unpacking.decompress(raw, _LARGEST)
        if part:
            yield part
        raw = unpacking.unconsumed_tail


def _has_end(headers: httpx.Headers) -> bool:
    """Tell whether the answer says where it ends; else a cut looks like the end."""
    return "content-length" in headers or headers.get("transfer-encoding", "").lower() == "chunked"
