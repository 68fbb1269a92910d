"""Waiting for results of a worker thread, in threads and on event loops, with a deadline.

A caller never waits longer than its deadline, even if a disk hangs. Work whose caller has given up is not started; if
it had started before, it is unknown whether it was committed.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from remit.errors import LedgerUnavailable
from remit.ledger.store import Prepare, Work

_T = TypeVar("_T")

_LATE: Final = "the ledger did not answer in time"
_GIVEN_UP: Final = (None, 0.0)
# How long an event loop blocks for the results of a batch, and for how long it does not block after a timeout.
_BLOCK_S: Final = 0.02
_NO_BLOCK_S: Final = 1.0


class Waiter(Protocol):
    """Receives results. Its methods are called on the worker thread."""

    def deliver(self, items: "list[Item]") -> None:
        """Receive completed items."""

    def release(self) -> None:
        """Stop blocking: the results will take longer."""


class Item:
    """A piece of work, and its result or error."""

    __slots__ = ("abandoned", "alone", "answer", "failure", "prepare", "prepare_error", "waiter", "work")

    def __init__(self, work: Work[Any], waiter: Waiter, *, alone: bool, prepare: Prepare | None) -> None:
        self.work = work
        self.prepare = prepare
        self.waiter = waiter
        self.alone = alone
        self.answer: Any = None
        self.failure: Exception | None = None
        # The error of `prepare`; the work is not run then.
        self.prepare_error: Exception | None = None
        self.abandoned = False


Submit: TypeAlias = Callable[[Sequence[Item]], None]
_is_alone: Final = attrgetter("alone")


def deliver_answers(items: Sequence[Item]) -> None:
    """Deliver completed items to their waiters, all items of one waiter together."""
    waiters: dict[Waiter, list[Item]] = {}
    for item in items:
        waiters.setdefault(item.waiter, []).append(item)
    for waiter, answered in waiters.items():
        waiter.deliver(answered)


class _SyncWaiter:
    """Waits for one result, in a thread."""

    __slots__ = ("_answered",)

    def __init__(self) -> None:
        self._answered = threading.Lock()
        self._answered.acquire()

    def deliver(self, items: list[Item]) -> None:  # noqa: ARG002 - there is only one item
        """Wake the thread."""
        self._answered.release()

    def release(self) -> None:
        """Do nothing: the thread keeps waiting."""

    def wait(self, seconds: float) -> bool:
        """Wait for the result; return False after a timeout."""
        return self._answered.acquire(timeout=seconds)


def wait_for(work: Work[_T], submit: Submit, deadline_s: float, *, alone: bool, prepare: Prepare | None) -> _T:
    """Submit work and wait for its result."""
    waiter = _SyncWaiter()
    item = Item(work, waiter, alone=alone, prepare=prepare)
    submit([item])
    if not waiter.wait(deadline_s):
        item.abandoned = True
        raise LedgerUnavailable(_LATE)
    if item.failure is not None:
        raise item.failure
    answer: _T = item.answer
    return answer


class AsyncWaiter:
    """Waits for the results of one event loop: items are submitted in batches, with one timer for all deadlines.

    The loop and the worker thread compete for the interpreter lock, and would slow each other down by switching many
    times for each item. So the loop blocks while the worker runs a batch, but only briefly. This makes a call cost a
    sixth less.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Submit, batch: int, late: str = _LATE) -> None:
        """Submit up to `batch` items at a time. `late` is the error message after a deadline."""
        self.loop = loop
        self._submit = submit
        self._batch = batch
        self._late = late
        self._out: list[Item] = []
        # With the deadline of each, in loop time.
        self._pending: dict[Item, tuple[asyncio.Future[Any], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The number of submitted items without a result.
        self._unanswered = 0
        self._answers: SimpleQueue[list[Item]] = SimpleQueue()
        self._is_blocked = False
        self._block_after = 0.0

    @classmethod
    def of_running_loop(
        cls, waiters: dict[int, "AsyncWaiter"], submit: Submit, batch: int, late: str = _LATE
    ) -> "AsyncWaiter":
        """Return the waiter of the running loop from `waiters`, creating it if necessary."""
        loop = asyncio.get_running_loop()
        waiter = waiters.get(id(loop))
        if waiter is None or waiter.loop is not loop:
            for number in [number for number, other in waiters.items() if other.loop.is_closed()]:
                del waiters[number]
            waiter = waiters[id(loop)] = cls(loop, submit, batch, late)
        return waiter

    def send(self, work: Work[_T], deadline_s: float, *, alone: bool, prepare: Prepare | None) -> "asyncio.Future[_T]":
        """Queue work for submission, and return a future of its result."""
        item = Item(work, self, alone=alone, prepare=prepare)
        future: asyncio.Future[_T] = self.loop.create_future()
        due = self.loop.time() + deadline_s
        self._pending[item] = future, due
        if self._timer is None or self._timer.when() > due:
            self._set_timer(due)
        self._out.append(item)
        if len(self._out) == 1:
            self.loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        """Submit a batch and block for its results, or submit everything if the worker is busy."""
        is_only = not self._unanswered
        size = self._batch if is_only else len(self._out)
        batch, self._out = self._out[:size], self._out[size:]
        self._unanswered += len(batch)
        try:
            self._submit(batch)
        except LedgerUnavailable as error:
            for item in batch:
                item.failure = error
            self._resolve(batch)
        else:
            if is_only and not any(map(_is_alone, batch)):
                self._block()
        if self._out:  # after the callbacks of the futures that were just resolved
            self.loop.call_soon(self._flush)

    def _block(self) -> None:
        now = self.loop.time()
        if now < self._block_after:
            return
        self._is_blocked = True
        try:
            self._resolve(self._answers.get(timeout=_BLOCK_S))
        except Empty:
            self._block_after = now + _NO_BLOCK_S
        finally:
            self._is_blocked = False
        if not self._answers.empty():  # results delivered after the wait, while `_is_blocked` was still set
            self._receive()

    def deliver(self, items: list[Item]) -> None:
        """Receive completed items. Called on the worker thread."""
        self._answers.put(items)
        if not self._is_blocked:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._receive)

    def release(self) -> None:
        """Unblock the loop. Called on the worker thread."""
        if self._is_blocked:
            self._answers.put([])

    def _receive(self) -> None:
        while not self._answers.empty():
            self._resolve(self._answers.get())

    def _resolve(self, items: list[Item]) -> None:
        self._unanswered -= len(items)
        for item in items:
            future, _ = self._pending.pop(item, _GIVEN_UP)
            if future is None or future.done():
                continue
            if item.failure is not None:
                future.set_exception(item.failure)
            else:
                future.set_result(item.answer)

    def _expire(self) -> None:
        """Fail the futures whose deadline has passed, and set the timer for the next deadline."""
        self._timer = None
        now = self.loop.time()
        for item, (future, due) in list(self._pending.items()):
            if due <= now:
                del self._pending[item]
                item.abandoned = True
                if not future.done():
                    future.set_exception(LedgerUnavailable(self._late))
        if self._pending:
            self._set_timer(min(due for _, due in self._pending.values()))

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._expire)
