"""A client of the governance proxy: `Proxy` for threads, `AsyncProxy` for event loops.

Keeps this invariant: whatever goes wrong raises, and nothing that raises reads as PERMIT. Each thing that can be asked
is written once, in `calls.py`; the two clients have the same methods and differ only in how they wait.
"""

import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from inspect import Parameter, signature
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, final, get_args

from remit.claims.keys import Keyring
from remit.client import calls
from remit.client.beliefs import Given
from remit.client.calls import Call
from remit.client.loop_thread import LoopThread
from remit.client.settings import ClientCert, FilePath, read_settings
from remit.client.wire import Wire
from remit.errors import ServiceUnavailable
from remit.messages.shared import Answer

__all__ = ["AsyncProxy", "Proxy"]

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer", bound=Answer)


class _Client:
    """What both clients are told. `ca` and `client_cert` are PEM files.

    With a `keyring`, what is signed in an answer is verified, and that it is about what was asked.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: FilePath | None = None,
        client_cert: ClientCert | None = None,
        token: str | None = None,
        admin_token: str | None = None,
        timeout_s: float = 10.0,
        retries: int = 3,
        keyring: Keyring | None = None,
    ) -> None:
        """Check the settings. Nothing is connected yet."""
        self._settings = read_settings(
            url,
            ca=ca,
            client_cert=client_cert,
            token=token,
            admin_token=admin_token,
            timeout_s=timeout_s,
            retries=retries,
            keyring=keyring,
        )
        self._given = Given()
        self._prepare()

    def _prepare(self) -> None:
        """Make what waiting needs."""

    def __repr__(self) -> str:
        """Show where the service is, and no token."""
        return f"{type(self).__name__}({self._settings.origin!r})"


def _awaiting(
    build: Callable[_P, Call[_Answer]],
) -> Callable[Concatenate["AsyncProxy", _P], Coroutine[Any, Any, _Answer]]:
    """Return the method that asks what `build` builds, and is awaited."""

    @wraps(build)
    async def method(self: "AsyncProxy", /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        return await self.ask(build(*args, **kwargs))

    return _as_method(method)


def _waiting(build: Callable[_P, Call[_Answer]]) -> Callable[Concatenate["Proxy", _P], _Answer]:
    """Return the method that asks what `build` builds, and waits."""

    @wraps(build)
    def method(self: "Proxy", /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
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


@final
class AsyncProxy(_Client):
    """The governance proxy, for code that awaits. Use it in one event loop."""

    start = _awaiting(calls.start)
    evaluate = _awaiting(calls.evaluate)
    result = _awaiting(calls.result)
    end = _awaiting(calls.end)
    attest = _awaiting(calls.attest)
    delegate = _awaiting(calls.delegate)
    revoke = _awaiting(calls.revoke)
    kill_switch = _awaiting(calls.kill_switch)
    health = _awaiting(calls.health)
    keys = _awaiting(calls.keys)

    def _prepare(self) -> None:
        self._wire = Wire(self._settings, self._given)

    async def ask(self, call: Call[_Answer]) -> _Answer:
        """Return the answer to a call, or raise."""
        return await self._wire.ask(call)

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


@final
class Proxy(_Client):
    """The governance proxy, for code that waits. Any number of threads may share one."""

    start = _waiting(calls.start)
    evaluate = _waiting(calls.evaluate)
    result = _waiting(calls.result)
    end = _waiting(calls.end)
    attest = _waiting(calls.attest)
    delegate = _waiting(calls.delegate)
    revoke = _waiting(calls.revoke)
    kill_switch = _waiting(calls.kill_switch)
    health = _waiting(calls.health)
    keys = _waiting(calls.keys)

    def _prepare(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        self._running: tuple[Wire, LoopThread] | None = None
        self._is_closed = False

    def _lock(self) -> threading.Lock:
        """Return the lock of this process: one that somebody held at a fork stays held in the child."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def ask(self, call: Call[_Answer]) -> _Answer:
        """Return the answer to a call, or raise."""
        future = self._submit(call)
        try:
            return future.result()
        except CancelledError:
            raise self._closed() from None
        finally:
            future.cancel()  # whoever is interrupted does not want it any more

    def _submit(self, call: Call[_Answer]) -> "Future[_Answer]":
        # Under the lock, so that nothing comes to a loop that is told to stop.
        with self._lock():
            if self._is_closed:
                raise self._closed()
            if self._running is None or not self._running[1].is_alive:
                self._running = self._begin()
            wire, thread = self._running
            return thread.submit(wire.ask(call))

    def _begin(self) -> tuple[Wire, LoopThread]:
        """Start the loop, for the first time or after a fork: connections of the parent are the parent's."""
        wire = Wire(self._settings, self._given)
        thread = LoopThread(wire.close)
        weakref.finalize(self, thread.stop)
        return wire, thread

    def _closed(self) -> ServiceUnavailable:
        return ServiceUnavailable(f"no answer from {self._settings.place}: the client is closed")

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
