"""Between callers and the thread that works for them: hand over work, wait for the answer, give up in time.

A caller never waits longer than the deadline, even if a disk hangs. Work that nobody waits for any more is not begun;
of work that was begun, it is unknown whether it counts.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from remit.errors import LedgerUnavailable
from remit.ledger.port import Prepare, Work

__all__ = ["AsyncWaiter", "Item", "Submit", "Waiter", "deliver_answers", "wait_for"]

_T = TypeVar("_T")

_LATE: Final = "the ledger did not answer in time"
_GIVEN_UP: Final = (None, 0.0)
# How long an event loop is blocked for the answers of a bundle, and how long it is not after that was in vain.
_BLOCK_S: Final = 0.02
_UNBLOCKED_S: Final = 1.0


class Waiter(Protocol):
    """Receives answers. Its methods are called on the thread that has done the work."""

    def deliver(self, items: "list[Item]") -> None:
        """Receive items that have their answers."""

    def release(self) -> None:
        """Stop blocking: the answers will take longer."""


class Item:
    """One piece of work, and its answer or failure."""

    __slots__ = ("abandoned", "alone", "answer", "failure", "prepare", "prepare_error", "waiter", "work")

    def __init__(self, work: Work[Any], waiter: Waiter, *, alone: bool, prepare: Prepare | None) -> None:
        self.work = work
        self.prepare = prepare
        self.waiter = waiter
        self.alone = alone
        self.answer: Any = None
        self.failure: Exception | None = None
        # Why there is no work to be done: its preparation has failed.
        self.prepare_error: Exception | None = None
        self.abandoned = False


Submit: TypeAlias = Callable[[Sequence[Item]], None]
_is_alone: Final = attrgetter("alone")


def deliver_answers(items: Sequence[Item]) -> None:
    """Give items that have their answers back to their waiters, those of one waiter together."""
    waiters: dict[Waiter, list[Item]] = {}
    for item in items:
        waiters.setdefault(item.waiter, []).append(item)
    for waiter, answered in waiters.items():
        waiter.deliver(answered)


class _SyncWaiter:
    """Waits for one answer, in a thread."""

    __slots__ = ("_answered",)

    def __init__(self) -> None:
        self._answered = threading.Lock()
        self._answered.acquire()

    def deliver(self, items: list[Item]) -> None:  # noqa: ARG002 - it is the one that was sent
        """Let the thread go on."""
        self._answered.release()

    def release(self) -> None:
        """Do nothing: the thread has nothing else to do."""

    def wait(self, seconds: float) -> bool:
        """Return whether the answer arrived in time."""
        return self._answered.acquire(timeout=seconds)


def wait_for(work: Work[_T], submit: Submit, deadline_s: float, *, alone: bool, prepare: Prepare | None) -> _T:
    """Hand over work and wait for its answer."""
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
    """Waits for the answers of one event loop: items go out in bundles, and one timer watches over all.

    The loop and the thread that works for it need the same interpreter lock. If both ran, they would take it from each
    other many times for each item, and both would become slower: so the loop is blocked while the thread works, though
    never for long. A call costs a sixth less in this way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Submit, bundle: int, late: str = _LATE) -> None:
        """Hand over up to `bundle` items at a time by `submit`."""
        self.loop = loop
        self._submit = submit
        self._bundle = bundle
        self._late = late
        self._out: list[Item] = []
        # With the time when they are given up.
        self._pending: dict[Item, tuple[asyncio.Future[Any], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Items that are handed over and have not come back.
        self._unanswered = 0
        self._answers: SimpleQueue[list[Item]] = SimpleQueue()
        self._is_blocked = False
        self._block_after = 0.0

    @classmethod
    def of_running_loop(
        cls, waiters: dict[int, "AsyncWaiter"], submit: Submit, bundle: int, late: str = _LATE
    ) -> "AsyncWaiter":
        """Return the waiter of the loop that is running, out of `waiters`."""
        loop = asyncio.get_running_loop()
        waiter = waiters.get(id(loop))
        if waiter is None or waiter.loop is not loop:
            for number in [number for number, other in waiters.items() if other.loop.is_closed()]:
                del waiters[number]
            waiter = waiters[id(loop)] = cls(loop, submit, bundle, late)
        return waiter

    def send(self, work: Work[_T], deadline_s: float, *, alone: bool, prepare: Prepare | None) -> "asyncio.Future[_T]":
        """Hand over work; the future holds its answer."""
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
        """Hand over a bundle and block for its answers, or hand over all if the thread is busy with another one."""
        is_only = not self._unanswered
        size = self._bundle if is_only else len(self._out)
        bundle, self._out = self._out[:size], self._out[size:]
        self._unanswered += len(bundle)
        try:
            self._submit(bundle)
        except LedgerUnavailable as error:
            for item in bundle:
                item.failure = error
            self._resolve(bundle)
        else:
            if is_only and not any(map(_is_alone, bundle)):
                self._block()
        if self._out:  # called after what waits for the answers that have come
            self.loop.call_soon(self._flush)

    def _block(self) -> None:
        now = self.loop.time()
        if now < self._block_after:
            return
        self._is_blocked = True
        try:
            self._resolve(self._answers.get(timeout=_BLOCK_S))
        except Empty:
            self._block_after = now + _UNBLOCKED_S
        finally:
            self._is_blocked = False
        if not self._answers.empty():  # what came between the end of the wait and the line before
            self._receive()

    def deliver(self, items: list[Item]) -> None:
        """Receive items that have their answers. Called on the thread that has done the work."""
        self._answers.put(items)
        if not self._is_blocked:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._receive)

    def release(self) -> None:
        """Let the loop go on. Called on the thread that does the work."""
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

    def _give_up(self) -> None:
        """Give up what has waited too long, and look again when the next one is due."""
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
        self._timer = self.loop.call_at(due, self._give_up)
