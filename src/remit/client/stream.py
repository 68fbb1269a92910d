"""Response bodies that are too large to buffer: read, decompressed and checked chunk by chunk.

Invariant: the stream ends normally only if the body is complete. A body that is truncated, does not
decompress, has neither a length nor chunked encoding, or does not begin and end like an export yields `NoResponse`.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final, final

import httpx

from remit.client.attempts import NoResponse, no_response_from

__all__ = ["GZIP", "NOT_AN_EXPORT", "StreamedBody", "is_json"]

GZIP: Final = "gzip"
NOT_AN_EXPORT: Final = NoResponse("what came is not an export", may_retry=False)
_PREFIX: Final = b'{"ok":true'
_SUFFIX: Final = b"}"
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAX_CHUNK: Final = 256 * 1024
_TRUNCATED: Final = NoResponse("the answer was cut off")
_UNDELIMITED: Final = NoResponse("it is unknown whether the answer is complete")


@final
class StreamedBody:
    """The body of one response as chunks. Use it only in the event loop that opened it."""

    __slots__ = ("_chunks", "_lock", "_loop", "_response", "_timeout_s")

    def __init__(self, response: httpx.Response, timeout_s: float) -> None:
        """Read from a response whose headers have arrived; `timeout_s` applies to each chunk."""
        self._response = response
        self._timeout_s = timeout_s
        self._chunks = _check_export(_decompress(response))
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()

    async def next(self) -> bytes | NoResponse:
        """Return the next chunk; b"" at the end. Errors are returned: the exceptions of httpx contain the request."""
        if asyncio.get_running_loop() is not self._loop:
            return NoResponse("the connection belongs to another process")
        try:
            async with self._lock, asyncio.timeout(self._timeout_s):
                return await anext(self._chunks, b"")
        except TimeoutError:
            return NoResponse("it took too long")
        except (httpx.HTTPError, OSError) as error:
            return no_response_from(error)
        except zlib.error:
            return _TRUNCATED

    async def close(self) -> None:
        """Close the response. Its connection is not reused if the body was not read to the end."""
        if asyncio.get_running_loop() is self._loop:
            async with self._lock:  # a cancelled `next` may still be closing the generator
                await self._chunks.aclose()
                await self._response.aclose()


def is_json(headers: httpx.Headers) -> bool:
    """Return whether the content type is JSON."""
    kind: str = headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "application/json"


async def _check_export(parts: AsyncGenerator[bytes | NoResponse, None]) -> AsyncGenerator[bytes | NoResponse, None]:
    """Yield the chunks of an export once its prefix is checked; yield `NoResponse` for anything else."""
    buffered, has_prefix, last = b"", False, b""
    async with aclosing(parts):
        async for part in parts:
            if isinstance(part, NoResponse):
                yield part
                return
            buffered += part
            if not (has_prefix or buffered.startswith(_PREFIX[: len(buffered)])):
                break
            has_prefix = has_prefix or len(buffered) >= len(_PREFIX)
            last = buffered.rstrip()[-1:] or last
            if has_prefix:
                yield buffered
                buffered = b""
    if not has_prefix or last != _SUFFIX:
        yield NOT_AN_EXPORT


async def _decompress(response: httpx.Response) -> AsyncGenerator[bytes | NoResponse, None]:
    if response.headers.get("content-encoding", "identity").lower() == "identity":
        async for raw in response.aiter_raw():
            if raw:
                yield raw
        if not _is_delimited(response.headers):
            yield _UNDELIMITED
        return
    # The server may only use the encoding that was requested; any other one fails to decompress.
    decompressor = zlib.decompressobj(_GZIP)
    async for raw in response.aiter_raw():
        for part in _inflate(decompressor, raw):
            yield part
    if not decompressor.eof or decompressor.unused_data:
        yield _TRUNCATED


def _inflate(decompressor: "zlib._Decompress", raw: bytes) -> Iterator[bytes]:
    """Decompress in chunks of bounded size: a small input can expand to a very large one."""
    while raw:
        part = decompressor.decompress(raw, _MAX_CHUNK)
        if part:
            yield part
        raw = decompressor.unconsumed_tail


def _is_delimited(headers: httpx.Headers) -> bool:
    """Return whether the headers say where the body ends. Without that, a cut connection looks like the end."""
    return "content-length" in headers or headers.get("transfer-encoding", "").lower() == "chunked"
