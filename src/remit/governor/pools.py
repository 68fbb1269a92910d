"""Thread pools for slow computations: one for judging calls, one for reading.

Invariants: at most two calls of a session are judged in threads at a time, so the slow calls of a session delay its own
calls and leave threads for others. Reads never wait for judging, and no event loop waits for a file system. Quick
computations run in one thread, in batches of what a loop iteration has submitted.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, TypeVar

from remit.errors import LedgerUnavailable
from remit.ledger.commit import DEADLINE_S
from remit.ledger.waiters import AsyncWaiter, Item, deliver_answers

_T = TypeVar("_T")

_JUDGE_THREADS: Final = 16
_READER_THREADS: Final = 8
_MAX_PER_SESSION: Final = 2
# The number of items submitted at a time: small enough that the ledger process is not left idle.
QUICK_BATCH_SIZE: Final = 16
_LATE: Final = "a file system did not answer in time, so the call was not judged"


class _SessionLimit:
    """Limits the concurrent computations of one session; `users` counts those running and waiting."""

    __slots__ = ("semaphore", "users")

    def __init__(self) -> None:
        self.semaphore = asyncio.Semaphore(_MAX_PER_SESSION)
        self.users = 0


class Pools:
    """The thread pools. Threads are started when they are needed."""

    def __init__(self) -> None:
        self._judges = ThreadPoolExecutor(_JUDGE_THREADS, thread_name_prefix="judge")
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="reader")
        self._limits: dict[tuple[int, str], _SessionLimit] = {}
        self._quick: SimpleQueue[Sequence[Item] | None] = SimpleQueue()
        self._waiters: dict[int, AsyncWaiter] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run_quick(self, compute: Callable[[], _T]) -> Awaitable[_T]:
        """Run a quick computation; raise `LedgerUnavailable` after a deadline, such as when a file system hangs."""
        waiter = AsyncWaiter.of_running_loop(self._waiters, self._submit, QUICK_BATCH_SIZE, late=_LATE)
        # The writer of a ledger calls items with a transaction; here they are called with None.
        return waiter.send(lambda _nothing: compute(), DEADLINE_S, alone=False, prepare=None)

    def _submit(self, items: Sequence[Item]) -> None:
        if self._is_closed:
            raise LedgerUnavailable("the service is stopping")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_quick_items, name="quick", daemon=True)
            self._thread.start()
        self._quick.put(items)

    def _run_quick_items(self) -> None:
        while (items := self._quick.get()) is not None:
            for item in items:
                try:
                    if not item.abandoned:
                        item.answer = item.work(None)  # type: ignore[arg-type]  # see `run_quickly`
                except Exception as error:  # noqa: BLE001 - raised to the caller of this item
                    item.failure = error
            deliver_answers(items)

    async def run(self, compute: Callable[[], _T], *, limit_key: str = "") -> _T:
        """Run a computation in a thread; with `limit_key`, at most two with the same key at a time."""
        loop = asyncio.get_running_loop()
        if not limit_key:
            return await loop.run_in_executor(self._readers, compute)
        key = id(loop), limit_key
        limit = self._limits.setdefault(key, _SessionLimit())
        limit.users += 1
        try:
            async with limit.semaphore:
                return await loop.run_in_executor(self._judges, compute)
        finally:
            limit.users -= 1
            if not limit.users:
                self._limits.pop(key, None)

    def close(self) -> None:
        """Start no further computations. Running ones are not interrupted."""
        self._is_closed = True
        self._quick.put(None)
        for pool in (self._judges, self._readers):
            pool.shutdown(wait=False, cancel_futures=True)
