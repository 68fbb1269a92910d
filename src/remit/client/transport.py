"""Sends calls over one connection pool, with retries and a deadline for the whole call.

Invariants: a call ends at its deadline, however slowly bytes arrive; only idempotent calls are retried; and
a response larger than the limit is not buffered. It uses httpx's transport without its client, so there are no
redirects, cookies, decompression or proxies from the environment.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar, final

import httpx

from remit.client.answers import MAX_ANSWER, read_answer, refusal
from remit.client.attempts import OK, NoResponse, Outcome, RawResponse, no_response_from, pause_s, read_retry_after
from remit.client.call import ServiceCall
from remit.client.response_checks import CheckContext, SeenReceipts
from remit.client.settings import ClientSettings
from remit.client.stream import GZIP, NOT_AN_EXPORT, StreamedBody, is_json
from remit.schemas.shared import Answer
from remit.version import __version__

__all__ = ["Transport"]

_Answer = TypeVar("_Answer", bound=Answer)
_LIMITS: Final = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=30.0)
_HEADERS: Final[Mapping[str, str]] = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"remit/{__version__}",
}
# The share of an attempt's time that connecting and the TLS handshake may each take, so that the error can say which.
_CONNECT_SHARE: Final = 0.45
_RANDOM: Final = secrets.SystemRandom()
_TOO_LARGE: Final = NoResponse(f"its answer has more than {MAX_ANSWER} bytes", may_retry=False)


@final
class Transport:
    """Connections to one service. Use it only in the event loop of its first call."""

    __slots__ = ("_http", "_is_closed", "_seen_receipts", "_settings")

    def __init__(self, settings: ClientSettings, seen_receipts: SeenReceipts) -> None:
        """Prepare the pool; nothing is connected yet. `seen_receipts` is shared by all transports of a client."""
        self._settings = settings
        self._seen_receipts = seen_receipts
        self._http = httpx.AsyncHTTPTransport(verify=settings.tls, trust_env=False, limits=_LIMITS)
        self._is_closed = False

    async def send(self, call: ServiceCall[_Answer]) -> _Answer:
        """Send a call and return its answer. Raises `ServiceUnavailable`, `HubUnavailable` or `ServiceRefused`."""
        settings = self._settings
        context = CheckContext(settings.keyring, time.time(), self._seen_receipts)
        outcome = NoResponse("the client is closed") if self._is_closed else await self._send_with_retries(call)
        if isinstance(outcome, NoResponse):
            raise settings.no_response(outcome.reason)
        return read_answer(call, outcome, settings, context)

    async def open(self, call: ServiceCall[_Answer]) -> StreamedBody:
        """Send a call once and return its response body as a stream, after the headers have arrived."""
        opened = NoResponse("the client is closed") if self._is_closed else await self._open_stream(call)
        if isinstance(opened, StreamedBody):
            return opened
        if isinstance(opened, NoResponse):
            raise self._settings.no_response(opened.reason)
        raise refusal(call, opened, self._settings)

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        await self._http.aclose()

    async def _send_with_retries(self, call: ServiceCall[_Answer]) -> Outcome:
        """Return the outcome of the last attempt. No attempt starts that could not finish before the deadline."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._settings.timeout_s
        last = self._settings.retries if call.may_repeat else 0
        attempt = 0
        while True:
            left = deadline - clock()
            # Half of the time that is left: if this connection is dead, there is time for another attempt.
            outcome = await self._attempt(call, left if attempt == last else left / 2)
            pause = pause_s(outcome, attempt, _RANDOM.random())
            if attempt == last or pause is None or clock() + pause >= deadline:
                return outcome
            await asyncio.sleep(pause)
            attempt += 1

    async def _open_stream(self, call: ServiceCall[_Answer]) -> StreamedBody | Outcome:
        limit_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._send_request(call, limit_s, accept_gzip=True)
                if response.status_code != OK:
                    return await _read(response)
                if is_json(response.headers):
                    return StreamedBody(response, limit_s)
                await response.aclose()
                return NOT_AN_EXPORT
        except TimeoutError:
            return NoResponse("it took too long")
        except (httpx.HTTPError, OSError) as error:
            return no_response_from(error)

    async def _attempt(self, call: ServiceCall[_Answer], limit_s: float) -> Outcome:
        """Send once. Errors are returned, not raised: the exceptions of httpx contain the request with its tokens."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._exchange(call, limit_s)
        except TimeoutError:
            return NoResponse("it took too long")
        except (httpx.HTTPError, OSError) as error:
            return no_response_from(error)

    async def _exchange(self, call: ServiceCall[_Answer], limit_s: float) -> Outcome:
        return await _read(await self._send_request(call, limit_s))

    async def _send_request(
        self, call: ServiceCall[_Answer], limit_s: float, *, accept_gzip: bool = False
    ) -> httpx.Response:
        """Send a request and return the response once its headers have arrived. The caller closes it."""
        headers = self._headers(call) | ({"Accept-Encoding": GZIP} if accept_gzip else {})
        handshake = _Handshake()
        request = httpx.Request(
            call.method,
            self._settings.origin + call.path,
            headers=headers,
            content=call.body or None,
            extensions={"timeout": {"connect": limit_s * _CONNECT_SHARE}, "trace": handshake.trace},
        )
        try:
            return await self._http.handle_async_request(request)
        except BaseException:
            await handshake.close()
            raise

    def _headers(self, call: ServiceCall[_Answer]) -> dict[str, str]:
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
        """Hold the connection from TCP connect until the handshake is done or the first request is sent."""
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event in {"connection.start_tls.complete", "http11.send_request_headers.started"}:
            self._stream = None

    async def close(self) -> None:
        """Close the connection if its handshake did not finish."""
        if self._stream is not None:
            await self._stream.aclose()


async def _read(response: httpx.Response) -> Outcome:
    """Read the whole response, up to the size limit."""
    try:
        if int(response.headers.get("content-length", "0")) > MAX_ANSWER:
            return _TOO_LARGE
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_ANSWER:
                return _TOO_LARGE
        return RawResponse(response.status_code, bytes(body), read_retry_after(response.headers.get("retry-after")))
    finally:
        await response.aclose()
