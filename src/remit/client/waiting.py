"""Two ways to wait for an answer of any service of ours: `Awaiting` in an event loop, `Waiting` in a thread.

Each thing that can be asked is written once, as what builds its `Call`; `awaiting` and `waiting` make a method of it.
So clients of both kinds have the same methods, and differ only in how they wait.
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

from remit.client.attempts import Silence
from remit.client.beliefs import Given
from remit.client.call import Call
from remit.client.loop_thread import LoopThread, Submitted
from remit.client.settings import Settings
from remit.client.wire import Wire
from remit.errors import ServiceError
from remit.schemas.shared import Answer

__all__ = ["Awaiting", "Client", "Waiting", "awaiting", "waiting"]

_CLOSED: Final = "the client is closed"
_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", bound=Answer)


class Client:
    """What every client holds."""

    def __init__(self, settings: Settings) -> None:
        """Keep settings that were checked. Nothing is connected yet."""
        self._settings = settings
        self._given = Given()
        self._prepare()

    def _prepare(self) -> None:
        """Make what waiting needs."""

    def __repr__(self) -> str:
        """Show where the service is, and no token."""
        return f"{type(self).__name__}({self._settings.origin!r})"


def awaiting(build: Callable[_P, Call[_Answer]]) -> Callable[Concatenate["Awaiting", _P], Coroutine[Any, Any, _Answer]]:
    """Return the method that asks what `build` builds, and is awaited."""

    @wraps(build)
    async def method(self: "Awaiting", /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        return await self.ask(build(*args, **kwargs))

    return _as_method(method)


def waiting(build: Callable[_P, Call[_Answer]]) -> Callable[Concatenate["Waiting", _P], _Answer]:
    """Return the method that asks what `build` builds, and waits."""

    @wraps(build)
    def method(self: "Waiting", /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        return self.ask(build(*args, **kwargs))

    return _as_method(method)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _as_method(method: _Method) -> _Method:
    """Let `help` show what the method takes and returns, and not what was wrapped."""
    built = signature(method)
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *built.parameters.values()]
    (answer,) = get_args(built.return_annotation)
    method.__signature__ = built.replace(parameters=parameters, return_annotation=answer)  # type: ignore[attr-defined]
    return method


class Awaiting(Client):
    """A client for code that awaits. Use it in one event loop."""

    def _prepare(self) -> None:
        self._wire = Wire(self._settings, self._given)

    async def ask(self, call: Call[_Answer]) -> _Answer:
        """Return the answer to a call, or raise."""
        return await self._wire.ask(call)

    async def stream(self, call: Call[_Answer]) -> AsyncIterator[bytes]:
        """Give the parts of an answer, or raise: at the beginning, or where the rest of it does not come."""
        parts = await self._wire.open(call)
        try:
            while part := await parts.next():
                if isinstance(part, Silence):
                    raise self._settings.no_answer(part.why)
                yield part
        finally:
            await parts.close()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        """Give the client for a block, after which it is closed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()


class Waiting(Client):
    """A client for code that waits. Any number of threads may share one."""

    def _prepare(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        self._running: tuple[Wire, LoopThread] | None = None
        self._is_closed = False

    def _lock(self) -> threading.Lock:
        """Return the lock of this process: one that somebody held at a fork stays held in the child."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def ask(self, call: Call[_Answer]) -> _Answer:
        """Return the answer to a call, or raise."""
        return self._result(lambda wire: wire.ask(call))

    def stream(self, call: Call[_Answer]) -> Iterator[bytes]:
        """Give the parts of an answer, or raise: at the beginning, or where the rest of it does not come."""
        parts = self._result(lambda wire: wire.open(call))
        try:
            while part := self._result(lambda _wire: parts.next()):
                if isinstance(part, Silence):
                    raise self._settings.no_answer(part.why)
                yield part
        finally:
            with suppress(ServiceError):  # a client that is closed has closed it too
                self._result(lambda _wire: parts.close())

    def _result(self, work: Callable[[Wire], Coroutine[Any, Any, _Result]]) -> _Result:
        submitted = self._submit(work)
        try:
            return submitted.result()
        except CancelledError:
            raise self._settings.no_answer(_CLOSED) from None
        except BaseException:
            submitted.cancel()  # the caller was interrupted, so nothing waits for the answer
            raise

    def _submit(self, work: Callable[[Wire], Coroutine[Any, Any, _Result]]) -> Submitted[_Result]:
        # Under the lock, so that nothing comes to a loop that is told to stop.
        with self._lock():
            if self._is_closed:
                raise self._settings.no_answer(_CLOSED)
            if self._running is None or not self._running[1].is_alive:
                self._running = self._begin()
            wire, thread = self._running
            submitted = thread.submit(partial(work, wire))
        return submitted  # noqa: RET504 - a return in the block could leave the lock locked where it is interrupted

    def _begin(self) -> tuple[Wire, LoopThread]:
        """Start the loop, for the first time or after a fork: connections of the parent are the parent's."""
        wire = Wire(self._settings, self._given)
        thread = LoopThread(wire.close)
        weakref.finalize(self, thread.stop)
        return wire, thread

    def close(self) -> None:
        """Close the connections. What is under way is given up."""
        with self._lock():
            self._is_closed = True
        if self._running is not None:
            self._running[1].stop()
            self._running[1].join()

    def __enter__(self) -> Self:
        """Give the client for a block, after which it is closed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()
