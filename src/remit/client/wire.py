"""The way to the service and back: one pool of connections, and a deadline for the whole of a call.

Keeps these invariants: a call is over when its time is, however slowly bytes come or go; it is repeated only where that
comes to the same; and no more of an answer is held than may be read. It uses the transport of httpx and not its client,
so there are no redirects, no cookies, no decompression, and no proxies that the environment names.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar, final

import httpx

from remit.client.answers import MAX_ANSWER, read_answer, refusal
from remit.client.attempts import OK, Outcome, Reply, Silence, pause_s, read_retry_after, silence_of
from remit.client.beliefs import Given, Grounds
from remit.client.call import Call
from remit.client.settings import Settings
from remit.client.stream import NOT_OURS, PACKED, Parts, is_json
from remit.schemas.shared import Answer
from remit.version import __version__

__all__ = ["Wire"]

_Answer = TypeVar("_Answer", bound=Answer)
_LIMITS: Final = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=30.0)
_HEADERS: Final[Mapping[str, str]] = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"remit/{__version__}",
}
# Of an attempt, for connecting and for TLS each, so that an error can tell that it was connecting that took too long.
_CONNECT_SHARE: Final = 0.45
_RANDOM: Final = secrets.SystemRandom()
_TOO_LARGE: Final = Silence(f"its answer has more than {MAX_ANSWER} bytes", may_pass=False)


@final
class Wire:
    """Connections to one service. Belongs to the event loop that it is first used in."""

    __slots__ = ("_given", "_is_closed", "_settings", "_transport")

    def __init__(self, settings: Settings, given: Given) -> None:
        """Connect to nothing yet. `given` is what the client remembers of answers."""
        self._settings = settings
        self._given = given
        self._transport = httpx.AsyncHTTPTransport(verify=settings.tls, trust_env=False, limits=_LIMITS)
        self._is_closed = False

    async def ask(self, call: Call[_Answer]) -> _Answer:
        """Return the answer to a call, or raise `ServiceUnavailable` or `ServiceRefused`."""
        settings = self._settings
        grounds = Grounds(settings.keyring, time.time(), self._given)
        outcome = Silence("the client is closed") if self._is_closed else await self._outcome(call)
        if isinstance(outcome, Silence):
            raise settings.no_answer(outcome.why)
        return read_answer(call, outcome, settings, grounds)

    async def open(self, call: Call[_Answer]) -> Parts:
        """Return the parts of an answer that is too long to be held, once it has begun; it is asked for once."""
        opened = Silence("the client is closed") if self._is_closed else await self._opened(call)
        if isinstance(opened, Parts):
            return opened
        if isinstance(opened, Silence):
            raise self._settings.no_answer(opened.why)
        raise refusal(call, opened, self._settings)

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        await self._transport.aclose()

    async def _outcome(self, call: Call[_Answer]) -> Outcome:
        """Return what the last attempt came to; there is no other once another one could not end in time."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._settings.timeout_s
        last = self._settings.retries if call.may_repeat else 0
        attempt = 0
        while True:
            left = deadline - clock()
            # Half of what is left, so that a connection that is dead and does not know it leaves time for another.
            outcome = await self._attempt(call, left if attempt == last else left / 2)
            pause = pause_s(outcome, attempt, _RANDOM.random())
            if attempt == last or pause is None or clock() + pause >= deadline:
                return outcome
            await asyncio.sleep(pause)
            attempt += 1

    async def _opened(self, call: Call[_Answer]) -> Parts | Outcome:
        limit_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._send(call, limit_s, packed=True)
                if response.status_code != OK:
                    return await _read(response)
                if is_json(response.headers):
                    return Parts(response, limit_s)
                await response.aclose()
                return NOT_OURS
        except TimeoutError:
            return Silence("it took too long")
        except (httpx.HTTPError, OSError) as error:
            return silence_of(error)

    async def _attempt(self, call: Call[_Answer], limit_s: float) -> Outcome:
        """Ask once. Errors are returned, not raised: those of the library hold the request, tokens and all."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._exchange(call, limit_s)
        except TimeoutError:
            return Silence("it took too long")
        except (httpx.HTTPError, OSError) as error:
            return silence_of(error)

    async def _exchange(self, call: Call[_Answer], limit_s: float) -> Outcome:
        return await _read(await self._send(call, limit_s))

    async def _send(self, call: Call[_Answer], limit_s: float, *, packed: bool = False) -> httpx.Response:
        """Return the answer as far as its headers; whoever gets it closes it."""
        headers = self._headers(call) | ({"Accept-Encoding": PACKED} if packed else {})
        handshake = _Handshake()
        request = httpx.Request(
            call.method,
            self._settings.origin + call.path,
            headers=headers,
            content=call.body or None,
            extensions={"timeout": {"connect": limit_s * _CONNECT_SHARE}, "trace": handshake.trace},
        )
        try:
            return await self._transport.handle_async_request(request)
        except BaseException:
            await handshake.close()
            raise

    def _headers(self, call: Call[_Answer]) -> dict[str, str]:
        headers = dict(_HEADERS)
        if call.body:
            headers["Content-Type"] = "application/json"
        bearer = (call.is_admin and self._settings.admin_token) or self._settings.token
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        return headers


@final
class _Handshake:
    """Closes a connection whose TLS handshake is cancelled: httpcore closes it only where the handshake fails."""

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream: Any = None  # an httpcore.AsyncNetworkStream

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep the connection from when it is made to when its handshake is done, or its first request is sent."""
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event in {"connection.start_tls.complete", "http11.send_request_headers.started"}:
            self._stream = None

    async def close(self) -> None:
        """Close a connection that is left."""
        if self._stream is not None:
            await self._stream.aclose()


async def _read(response: httpx.Response) -> Outcome:
    """Return an answer as it came, if it is no larger than may be read."""
    try:
        if int(response.headers.get("content-length", "0")) > MAX_ANSWER:
            return _TOO_LARGE
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_ANSWER:
                return _TOO_LARGE
        return Reply(response.status_code, bytes(body), read_retry_after(response.headers.get("retry-after")))
    finally:
        await response.aclose()
