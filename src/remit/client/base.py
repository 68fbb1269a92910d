"""The clients that all services share: `AsyncClient` for event loops, `SyncClient` for threads.

Each request is defined once, by a function that builds its `ServiceCall`; `async_method` and `sync_method` turn that
function into a method. So both clients have the same methods.
"""

import os
import threading
import weakref
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial, wraps
from inspect import Parameter, signature
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, get_args

from remit.client.attempts import NoResponse
from remit.client.call import ServiceCall
from remit.client.loop_thread import LoopThread, Submitted
from remit.client.response_checks import SeenReceipts
from remit.client.settings import ClientSettings
from remit.client.transport import Transport
from remit.errors import ServiceError
from remit.schemas.shared import Answer

__all__ = ["AsyncClient", "Client", "SyncClient", "async_method", "sync_method"]

_CLOSED: Final = "the client is closed"
_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", bound=Answer)


class Client:
    """What both kinds of client have in common."""

    def __init__(self, settings: ClientSettings) -> None:
        """Store checked settings. Nothing is connected yet."""
        self._settings = settings
        self._seen_receipts = SeenReceipts()
        self._prepare()

    def _prepare(self) -> None:
        """Create the state that the kind of client needs."""

    def __repr__(self) -> str:
        """Show the address of the service, and no token."""
        return f"{type(self).__name__}({self._settings.origin!r})"


def async_method(
    build: Callable[_P, ServiceCall[_Answer]],
) -> Callable[Concatenate["AsyncClient", _P], Coroutine[Any, Any, _Answer]]:
    """Return an async method that sends the call that `build` returns."""

    @wraps(build)
    async def method(self: "AsyncClient", /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        return await self.send(build(*args, **kwargs))

    return _as_method(method)


def sync_method(build: Callable[_P, ServiceCall[_Answer]]) -> Callable[Concatenate["SyncClient", _P], _Answer]:
    """Return a blocking method that sends the call that `build` returns."""

    @wraps(build)
    def method(self: "SyncClient", /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        return self.send(build(*args, **kwargs))

    return _as_method(method)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _as_method(method: _Method) -> _Method:
    """Set a signature that `help` shows with `self` and with the answer as the return type."""
    built = signature(method)
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *built.parameters.values()]
    (answer,) = get_args(built.return_annotation)
    method.__signature__ = built.replace(parameters=parameters, return_annotation=answer)  # type: ignore[attr-defined]
    return method


class AsyncClient(Client):
    """A client for async code. Use it in one event loop."""

    def _prepare(self) -> None:
        self._transport = Transport(self._settings, self._seen_receipts)

    async def send(self, call: ServiceCall[_Answer]) -> _Answer:
        """Send a call and return its answer. Raises an error if there is none."""
        return await self._transport.send(call)

    async def stream(self, call: ServiceCall[_Answer]) -> AsyncIterator[bytes]:
        """Send a call and yield its response body in chunks. Raises at the start, or where the body is cut off."""
        body = await self._transport.open(call)
        try:
            while chunk := await body.next():
                if isinstance(chunk, NoResponse):
                    raise self._settings.no_response(chunk.reason)
                yield chunk
        finally:
            await body.close()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        """Return the client; it is closed at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()


class SyncClient(Client):
    """A client for blocking code. Any number of threads may share one."""

    def _prepare(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        self._running: tuple[Transport, LoopThread] | None = None
        self._is_closed = False

    def _lock(self) -> threading.Lock:
        """Return the lock of this process: a lock that is held during a fork stays locked in the child."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def send(self, call: ServiceCall[_Answer]) -> _Answer:
        """Send a call and return its answer. Raises an error if there is none."""
        return self._run(lambda transport: transport.send(call))

    def stream(self, call: ServiceCall[_Answer]) -> Iterator[bytes]:
        """Send a call and yield its response body in chunks. Raises at the start, or where the body is cut off."""
        body = self._run(lambda transport: transport.open(call))
        try:
            while chunk := self._run(lambda _transport: body.next()):
                if isinstance(chunk, NoResponse):
                    raise self._settings.no_response(chunk.reason)
                yield chunk
        finally:
            with suppress(ServiceError):  # closing the client has closed the body too
                self._run(lambda _transport: body.close())

    def _run(self, work: Callable[[Transport], Coroutine[Any, Any, _Result]]) -> _Result:
        submitted = self._submit(work)
        try:
            return submitted.result()
        except CancelledError:
            raise self._settings.no_response(_CLOSED) from None
        except BaseException:
            submitted.cancel()  # the caller was interrupted, so nothing waits for the answer
            raise

    def _submit(self, work: Callable[[Transport], Coroutine[Any, Any, _Result]]) -> Submitted[_Result]:
        # Under the lock, so that nothing is submitted to a loop that is about to stop.
        with self._lock():
            if self._is_closed:
                raise self._settings.no_response(_CLOSED)
            if self._running is None or not self._running[1].is_alive:
                self._running = self._start_loop()
            transport, thread = self._running
            submitted = thread.submit(partial(work, transport))
        return submitted  # noqa: RET504 - an interrupt during a return inside the block could leave the lock locked

    def _start_loop(self) -> tuple[Transport, LoopThread]:
        """Start the event loop, for the first time or after a fork: a child cannot use connections of its parent."""
        transport = Transport(self._settings, self._seen_receipts)
        thread = LoopThread(transport.close)
        weakref.finalize(self, thread.stop)
        return transport, thread

    def close(self) -> None:
        """Close the connections and cancel calls in progress."""
        with self._lock():
            self._is_closed = True
        if self._running is not None:
            self._running[1].stop()
            self._running[1].join()

    def __enter__(self) -> Self:
        """Return the client; it is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()
