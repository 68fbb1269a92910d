"""Threads for what takes long: one pool for judging on account of a session, another for reading.

Keeps these invariants: a session has two calls judged aside at a time, and no more, so its slow calls keep its own
calls waiting and leave threads for others; nobody who only reads waits behind them; and no event loop waits for a file
system. What is quick has one thread, which gets everything that is asked in one turn of a loop together.
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

__all__ = ["QUICK_BUNDLE", "Pools"]

_T = TypeVar("_T")

_JUDGES: Final = 16
_READERS: Final = 8
_AT_A_TIME: Final = 2
# What an event loop hands over at a time: few enough that the ledger process is not kept waiting for them.
QUICK_BUNDLE: Final = 16
_LATE: Final = "a file system did not answer in time, so the call was not judged"


class _Gate:
    """Lets so many of one session through at a time; `users` are those inside and before it."""

    __slots__ = ("turns", "users")

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(_AT_A_TIME)
        self.users = 0


class Pools:
    """The threads, made when they are needed."""

    def __init__(self) -> None:
        self._judges = ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        self._gates: dict[tuple[int, str], _Gate] = {}
        self._quick: SimpleQueue[Sequence[Item] | None] = SimpleQueue()
        self._waiters: dict[int, AsyncWaiter] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run_quick(self, compute: Callable[[], _T]) -> Awaitable[_T]:
        """Return what is quick to compute; `LedgerUnavailable` if it is not, because a file system hangs."""
        waiter = AsyncWaiter.of_running_loop(self._waiters, self._submit, QUICK_BUNDLE, late=_LATE)
        # What is handed over is called with a transaction by the writer of a ledger; here, with nothing.
        return waiter.send(lambda _nothing: compute(), DEADLINE_S, alone=False, prepare=None)

    def _submit(self, items: Sequence[Item]) -> None:
        if self._is_closed:
            raise LedgerUnavailable("the service is stopping")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="quick", daemon=True)
            self._thread.start()
        self._quick.put(items)

    def _work(self) -> None:
        while (items := self._quick.get()) is not None:
            for item in items:
                try:
                    if not item.abandoned:
                        item.answer = item.work(None)  # type: ignore[arg-type]  # see `run_quickly`
                except Exception as error:  # noqa: BLE001 - it belongs to who has asked
                    item.failure = error
            deliver_answers(items)

    async def run(self, compute: Callable[[], _T], *, limit_key: str = "") -> _T:
        """Return what was computed, once it is the turn of the session that it is `fair_to`."""
        loop = asyncio.get_running_loop()
        if not limit_key:
            return await loop.run_in_executor(self._readers, compute)
        place = id(loop), limit_key
        gate = self._gates.setdefault(place, _Gate())
        gate.users += 1
        try:
            async with gate.turns:
                return await loop.run_in_executor(self._judges, compute)
        finally:
            gate.users -= 1
            if not gate.users:
                self._gates.pop(place, None)

    def close(self) -> None:
        """Begin nothing more; what is under way is left to its end."""
        self._is_closed = True
        self._quick.put(None)
        for pool in (self._judges, self._readers):
            pool.shutdown(wait=False, cancel_futures=True)
