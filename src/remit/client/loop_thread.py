"""An event loop in a thread of its own, for those who wait without one.

So there is one way to the service, not two: waiting in a thread can be given up at a deadline only where each single
step can, and looking up a name, for one, cannot.
"""

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar, final

from remit.client.names import Loop

__all__ = ["LoopThread"]

_Result = TypeVar("_Result")
_LONGEST_STOP_S: Final = 5.0


@final
class LoopThread:
    """A running loop. `finish` is awaited in it, last of all."""

    __slots__ = ("_finish", "_loop", "_stopped", "_submitted", "_thread")

    def __init__(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Start the thread. It does not keep the process from ending."""
        self._finish = finish
        self._loop = Loop()
        self._stopped = asyncio.Event()
        self._submitted = weakref.WeakSet[Coroutine[Any, Any, Any]]()
        self._thread = threading.Thread(target=self._run, name="remit-client", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Tell whether the loop runs; after a fork, it runs in the parent only."""
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, _Result]) -> "Future[_Result]":
        """Start work in the loop. Nothing is to be submitted after `stop`."""
        self._submitted.add(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Let the thread cancel what is under way, and end."""
        if self.is_alive:
            with suppress(RuntimeError):  # the loop was closed since, by another stop: the thread is about to end
                self._loop.call_soon_threadsafe(self._stopped.set)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(_LONGEST_STOP_S)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        await self._stopped.wait()
        # Only what was submitted is cancelled. It cancels the tasks that it started itself: a task of anyio that is
        # cancelled from outside before it has begun leaves a coroutine that nobody awaits.
        for task in asyncio.all_tasks():
            if task.get_coro() in self._submitted:
                task.cancel()
        while under_way := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(under_way)
        await self._finish()
        await self._loop.shutdown_asyncgens()
