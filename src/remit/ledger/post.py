"""Between callers and the writer's thread: hand over work, wait for the answer, give up in time.

A caller never waits longer than the deadline, even if a disk hangs. Work that nobody waits for any more is not begun;
of work that was begun, it is unknown whether it counts.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from remit.errors import LedgerUnavailable
from remit.ledger.port import Prepare, Work

__all__ = ["Item", "LoopPost", "Post", "Submit", "settle", "wait_for"]

_T = TypeVar("_T")

_LATE: Final = "the ledger did not answer in time"
_GIVEN_UP: Final = (None, 0.0)
# Handed over together: enough that the writer has something to group, few enough that it starts while more are made.
_BUNDLE: Final = 64


class Post(Protocol):
    """Where answers go."""

    def deliver(self, items: "list[Item]") -> "threading.Lock | None":
        """Take the answers of a group; return a lock that is let go of when they were passed on, if that takes time.

        This runs on the writer's thread.
        """


class Item:
    """One piece of work, and what becomes of it."""

    __slots__ = ("alone", "answer", "failure", "post", "prepare", "spoilt", "withdrawn", "work")

    def __init__(self, work: Work[Any], post: Post, *, alone: bool, prepare: Prepare | None) -> None:
        self.work = work
        self.prepare = prepare
        self.post = post
        self.alone = alone
        self.answer: Any = None
        self.failure: Exception | None = None
        # Why there is no work to be done: its preparation has failed.
        self.spoilt: Exception | None = None
        self.withdrawn = False


Submit: TypeAlias = Callable[[Sequence[Item]], None]


def settle(group: Sequence[Item]) -> list[threading.Lock]:
    """Send a group its answers, all of one post together; return what is let go of when they were passed on."""
    posts: dict[Post, list[Item]] = {}
    for item in group:
        posts.setdefault(item.post, []).append(item)
    passing = [post.deliver(items) for post, items in posts.items()]
    return [lock for lock in passing if lock is not None]


class _Doorstep:
    """The post of a thread, which waits for one answer."""

    __slots__ = ("_closed",)

    def __init__(self) -> None:
        self._closed = _held()

    def deliver(self, items: list[Item]) -> None:  # noqa: ARG002 - it is the one that was sent
        """Let the thread go on."""
        self._closed.release()

    def wait(self, seconds: float) -> bool:
        """Tell whether the answer has come."""
        return self._closed.acquire(timeout=seconds)


def _held() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def wait_for(work: Work[_T], submit: Submit, deadline_s: float, *, alone: bool, prepare: Prepare | None) -> _T:
    """Hand over work and wait for its answer."""
    post = _Doorstep()
    item = Item(work, post, alone=alone, prepare=prepare)
    submit([item])
    if not post.wait(deadline_s):
        item.withdrawn = True
        raise LedgerUnavailable(_LATE)
    if item.failure is not None:
        raise item.failure
    answer: _T = item.answer
    return answer


class LoopPost:
    """The post of one event loop: bundles go out, answers come back together, one alarm watches over all."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Submit, late: str = _LATE) -> None:
        self.loop = loop
        self._submit = submit
        self._late = late
        self._out: list[Item] = []
        # With the time when they are given up.
        self._pending: dict[Item, tuple[asyncio.Future[Any], float]] = {}
        self._alarm: asyncio.TimerHandle | None = None

    @classmethod
    def of_running_loop(cls, posts: dict[int, "LoopPost"], submit: Submit, late: str = _LATE) -> "LoopPost":
        """Return the post of the loop that is running, out of `posts`."""
        loop = asyncio.get_running_loop()
        post = posts.get(id(loop))
        if post is None or post.loop is not loop:
            for number in [number for number, other in posts.items() if other.loop.is_closed()]:
                del posts[number]
            post = posts[id(loop)] = cls(loop, submit, late)
        return post

    def send(self, work: Work[_T], deadline_s: float, *, alone: bool, prepare: Prepare | None) -> "asyncio.Future[_T]":
        """Hand over work; the future holds its answer."""
        item = Item(work, self, alone=alone, prepare=prepare)
        future: asyncio.Future[_T] = self.loop.create_future()
        due = self.loop.time() + deadline_s
        self._pending[item] = future, due
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
            self._take(out)

    def deliver(self, items: list[Item]) -> "threading.Lock | None":
        """Take the answers of a group. This runs on the writer's thread."""
        passing = _held()
        try:
            self.loop.call_soon_threadsafe(self._pass_on, items, passing)
        except RuntimeError:  # the loop is closed: nobody waits
            return None
        return passing

    def _pass_on(self, items: list[Item], passing: threading.Lock) -> None:
        self._take(items)
        # After those who wait for these answers: they are called in the order in which they were told.
        self.loop.call_soon(passing.release)

    def _take(self, items: list[Item]) -> None:
        for item in items:
            future, _ = self._pending.pop(item, _GIVEN_UP)
            if future is None or future.done():
                continue
            if item.failure is not None:
                future.set_exception(item.failure)
            else:
                future.set_result(item.answer)

    def _sweep(self) -> None:
        """Give up what has waited too long, and look again when the next one is due."""
        self._alarm = None
        now = self.loop.time()
        for item, (future, due) in list(self._pending.items()):
            if due <= now:
                del self._pending[item]
                item.withdrawn = True
                if not future.done():
                    future.set_exception(LedgerUnavailable(self._late))
        if self._pending:
            self._set_alarm(min(due for _, due in self._pending.values()))

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.loop.call_at(due, self._sweep)
