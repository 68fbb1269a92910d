"""An event loop in its own thread, for clients that block.

So there is only one implementation of sending. Blocking calls could not keep a deadline: not every step of them, such
as a name lookup, can be interrupted.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, final

from remit.client.resolver import ResolvingLoop

__all__ = ["LoopThread", "Submitted"]

_Result = TypeVar("_Result")
_MAX_STOP_S: Final = 5.0


@final
class Submitted(Generic[_Result]):
    """A coroutine in a loop whose result another thread waits for.

    Not a future of `concurrent.futures`: those have a lock in Python code. An exception that a signal handler raises
    while it is being taken leaves it locked, and the loop would wait for it without end. A `SimpleQueue` has none.
    """

    __slots__ = ("_ended", "_loop", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare to run a coroutine in the loop; `start` runs it."""
        self._loop = loop
        self._ended = SimpleQueue[asyncio.Task[_Result]]()
        self._task: asyncio.Task[_Result] | None = None

    def start(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> "asyncio.Task[_Result]":
        """Start the coroutine. Only the thread of the loop may call this."""
        self._task = self._loop.create_task(work())
        self._task.add_done_callback(self._end)
        return self._task

    def _end(self, task: "asyncio.Task[_Result]") -> None:
        if not task.cancelled():
            # Marks the exception as retrieved: if the waiting thread was interrupted, nothing else retrieves it.
            task.exception()
        self._ended.put(task)

    def result(self, timeout_s: float | None = None) -> _Result:
        """Wait for the result, once. Raises what the coroutine raised, or `asyncio.CancelledError`."""
        return self._ended.get(timeout=timeout_s).result()

    def cancel(self) -> None:
        """Cancel the coroutine if it is still running."""
        with suppress(RuntimeError):  # the loop is closed, and its tasks have ended
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


@final
class LoopThread:
    """A running loop. Before it stops, it awaits `finish`."""

    __slots__ = ("_finish", "_loop", "_process", "_stopped", "_tasks", "_thread")

    def __init__(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Start the thread. It is a daemon: it does not keep the process alive."""
        self._finish = finish
        self._loop = ResolvingLoop()
        self._process = os.getpid()
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="remit-client", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Return whether the loop runs; after a fork, it runs in the parent only."""
        # Not `Thread.is_alive`: if a signal handler raises during that call, Python marks the thread as ended.
        return self._process == os.getpid() and not self._loop.is_closed()

    def submit(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> Submitted[_Result]:
        """Start a coroutine in the loop. Must not be called after `stop`."""
        submitted = Submitted[_Result](self._loop)
        self._loop.call_soon_threadsafe(self._start, submitted, work)
        return submitted

    def _start(self, submitted: Submitted[_Result], work: Callable[[], Coroutine[Any, Any, _Result]]) -> None:
        task = submitted.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Make the thread cancel running requests, and end."""
        if self.is_alive:
            with suppress(RuntimeError):  # another `stop` has closed the loop: the thread is about to end
                self._loop.call_soon_threadsafe(self._stopped.set)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(_MAX_STOP_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        await self._stopped.wait()
        # Only submitted tasks are cancelled. Each cancels the tasks it started itself: a task of anyio that is
        # cancelled from outside before it has started leaves a coroutine that is never awaited.
        for task in self._tasks:
            task.cancel()
        while under_way := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(under_way)
        await self._finish()
        await self._loop.shutdown_asyncgens()
