"""Between callers and the writer's thread: hand over work, wait for the answer, give up in time.

A caller never waits longer than the deadline, even if a disk hangs. Work that nobody waits for any more is not begun;
of work that was begun, it is unknown whether it counts.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from remit.errors import LedgerUnavailable
from remit.ledger.port import Prepare, Work

__all__ = ["Item", "LoopPost", "Submit", "wait_for"]

_T = TypeVar("_T")

_LATE: Final = "the ledger did not answer in time"
# Handed over together: enough that the writer has something to group, few enough that it starts while more are made.
_BUNDLE: Final = 64


class Item:
    """One piece of work, and what becomes of it."""

    __slots__ = ("alone", "answer", "done", "failure", "prepare", "spoilt", "withdrawn", "work")

    def __init__(self, work: Work[Any], done: Callable[[], None], *, alone: bool, prepare: Prepare | None) -> None:
        self.work = work
        self.prepare = prepare
        self.done = done
        self.alone = alone
        self.answer: Any = None
        self.failure: Exception | None = None
        # Its preparation has failed.
        self.spoilt = False
        self.withdrawn = False


Submit: TypeAlias = Callable[[Sequence[Item]], None]


def wait_for(work: Work[_T], submit: Submit, deadline_s: float, *, alone: bool, prepare: Prepare | None) -> _T:
    """Hand over work and wait for its answer."""
    ready = threading.Lock()
    ready.acquire()
    item = Item(work, ready.release, alone=alone, prepare=prepare)
    submit([item])
    if not ready.acquire(timeout=deadline_s):
        item.withdrawn = True
        raise LedgerUnavailable(_LATE)
    if item.failure is not None:
        raise item.failure
    answer: _T = item.answer
    return answer


class LoopPost:
    """The post of one event loop: bundles go out, answers come back together, one alarm watches over all."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Submit) -> None:
        self.loop = loop
        self._submit = submit
        self._out: list[Item] = []
        self._back: deque[tuple[Item, asyncio.Future[Any]]] = deque()
        self._waking = False
        # With the time when they are given up.
        self._pending: dict[asyncio.Future[Any], tuple[Item, float]] = {}
        self._alarm: asyncio.TimerHandle | None = None

    @classmethod
    def of_running_loop(cls, posts: dict[int, "LoopPost"], submit: Submit) -> "LoopPost":
        """Return the post of the loop that is running, out of `posts`."""
        loop = asyncio.get_running_loop()
        post = posts.get(id(loop))
        if post is None or post.loop is not loop:
            for number in [number for number, other in posts.items() if other.loop.is_closed()]:
                del posts[number]
            post = posts[id(loop)] = cls(loop, submit)
        return post

    def send(self, work: Work[_T], deadline_s: float, *, alone: bool, prepare: Prepare | None) -> "asyncio.Future[_T]":
        """Hand over work; the future holds its answer."""
        future: asyncio.Future[_T] = self.loop.create_future()
        item = Item(work, lambda: self._arrive(item, future), alone=alone, prepare=prepare)
        due = self.loop.time() + deadline_s
        self._pending[future] = item, due
        if self._alarm is None or self._alarm.when() > due:
            self._set_alarm(due)
        self._out.append(item)
        if len(self._out) == 1:
            self.loop.call_soon(self._flush)
        elif len(self._out) >= _BUNDLE:
            self._flush()
        return future

    def _flush(self) -> None:
        out, self._out = self._out, []
        try:
            if out:
                self._submit(out)
        except LedgerUnavailable as error:
            for item in out:
                item.failure = error
                item.done()

    def _arrive(self, item: Item, future: "asyncio.Future[Any]") -> None:
        """Take an answer. This runs on the writer's thread."""
        self._back.append((item, future))
        if not self._waking:
            self._waking = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody waits
                self._waking = False

    def _deliver(self) -> None:
        self._waking = False
        while self._back:
            item, future = self._back.popleft()
            self._pending.pop(future, None)
            if future.done():
                continue
            if item.failure is not None:
                future.set_exception(item.failure)
            else:
                future.set_result(item.answer)

    def _sweep(self) -> None:
        """Give up what has waited too long, and look again when the next one is due."""
        self._alarm = None
        now = self.loop.time()
        for future, (item, due) in list(self._pending.items()):
            if due <= now:
                del self._pending[future]
                item.withdrawn = True
                if not future.done():
                    future.set_exception(LedgerUnavailable(_LATE))
        if self._pending:
            self._set_alarm(min(due for _, due in self._pending.values()))

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.loop.call_at(due, self._sweep)
