"""An answer that is too long to be held: its parts, one after the other, unpacked as they come.

Keeps this invariant: the end is told only when all of it has come. What is cut off, what does not unpack, what has no
end by which it could be told to be whole, and what is not one JSON document of ours by how it begins and ends is a
silence, like any other answer that did not arrive.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final, final

import httpx

from remit.client.attempts import Silence, silence_of

__all__ = ["NOT_OURS", "PACKED", "Parts", "is_json"]

PACKED: Final = "gzip"
NOT_OURS: Final = Silence("what came is not an export", may_pass=False)
_BEGINNING: Final = b'{"ok":true'
_END: Final = b"}"
_GZIP: Final = 16 + zlib.MAX_WBITS
_LARGEST: Final = 256 * 1024
_CUT_OFF: Final = Silence("the answer was cut off")
_ENDLESS: Final = Silence("it cannot be told whether the answer is whole")


@final
class Parts:
    """The parts of one answer. Belongs to the event loop that it was opened in."""

    __slots__ = ("_coming", "_loop", "_patience_s", "_response", "_turn")

    def __init__(self, response: httpx.Response, patience_s: float) -> None:
        """Read from a response that has begun; each part is waited for so long."""
        self._response = response
        self._patience_s = patience_s
        self._coming = _ours(_unpacked(response))
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def next(self) -> bytes | Silence:
        """Return the next part; nothing at the end. Errors are returned: those of the library hold the request."""
        if asyncio.get_running_loop() is not self._loop:
            return Silence("the connection belongs to another process")
        try:
            async with self._turn, asyncio.timeout(self._patience_s):
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
            async with self._turn:  # whoever was interrupted while waiting for a part may still be letting go of it
                await self._coming.aclose()
                await self._response.aclose()


def is_json(headers: httpx.Headers) -> bool:
    """Tell whether an answer says that it is JSON."""
    kind: str = headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "application/json"


async def _ours(parts: AsyncGenerator[bytes | Silence, None]) -> AsyncGenerator[bytes | Silence, None]:
    """Give the parts of a document, the first one once it can be told by it; what is not ours ends in a silence."""
    held, begun, last = b"", False, b""
    async with aclosing(parts):
        async for part in parts:
            if isinstance(part, Silence):
                yield part
                return
            held += part
            if not (begun or held.startswith(_BEGINNING[: len(held)])):
                break
            begun = begun or len(held) >= len(_BEGINNING)
            last = held.rstrip()[-1:] or last
            if begun:
                yield held
                held = b""
    if not begun or last != _END:
        yield NOT_OURS


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
