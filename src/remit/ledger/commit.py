"""Group commit: one thread runs the work of all callers, and one sync makes a whole group durable.

Keeps these invariants. Nobody gets an answer before the group that holds it is on disk. A commit that fails leaves
nothing behind in memory: the store is closed, and everything is read again before the next signature. One process
writes a ledger (`wiring/ledger_process.py` holds its lock). If something else has written to the database all the same,
nothing that was read before counts: the group is run again with the database held.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from remit.errors import HeadMoved, LedgerUnavailable, StateCorrupt, StateError
from remit.ledger.port import Prepare, Reader, Work
from remit.ledger.records import Switches
from remit.ledger.transaction import BufferedTransaction, Changes, SessionCache, Store
from remit.ledger.waiters import AsyncWaiter, Item, deliver_answers, wait_for

__all__ = ["BUNDLE", "DEADLINE_S", "MAX_GROUP", "GroupCommit", "Observer"]

DEADLINE_S: Final = 1.5
MAX_GROUP: Final = 256
# What an event loop hands over at a time, if nothing else is said.
BUNDLE: Final = 64
_PATIENCE: Final = 40
_CLOSING_S: Final = 4.0
# After a commit that took longer, event loops are not blocked for the next one: it waits for the disk. This is well
# above the 5 milliseconds for which another thread can keep the interpreter lock, which are part of what is measured.
_SLOW_COMMIT_S: Final = 0.01

_T = TypeVar("_T")


class Observer:
    """What wants to know of the writer's doings: how large groups are, and that a commit failed."""

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """A group of `size` pieces of work is durable; the store took so long to commit it, with its sync."""

    def turned(self) -> None:
        """The group that is durable now, of which `committed` tells next, has changed what receipts do not count."""

    def failed(self, error: BaseException) -> None:
        """A group was not committed, or it is unknown whether it was."""

    def stopping(self, store: Store) -> None:
        """Everything that was asked for is done, and the store is let go of."""


class GroupCommit:
    """A ledger over any store."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        reader: Reader,
        *,
        deadline_s: float = DEADLINE_S,
        observer: Observer | None = None,
        bundle: int = BUNDLE,
    ) -> None:
        self._open_store = open_store
        self._reader = reader
        self._deadline_s = deadline_s
        self._bundle = bundle
        self._observer = observer or Observer()
        self._queue: SimpleQueue[Sequence[Item] | None] = SimpleQueue()
        self._waiters: dict[int, AsyncWaiter] = {}
        self._store: Store | None = None
        self._known = SessionCache()
        self._switches: Switches | None = None
        # Of the group that is under way: how long the store took to commit it, and whether it marks an epoch.
        self._seconds = 0.0
        self._turned = False
        # How long the last commit took.
        self._last_s = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._work_through, name="ledger", daemon=True)
        self._thread.start()

    def run(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Return what `work` answers, once everything it wrote is durable."""
        answer: _T = wait_for(work, self._submit, self._deadline(alone=alone), alone=alone, prepare=prepare)
        return answer

    def arun(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Return what `work` answers, once everything it wrote is durable."""
        waiter = AsyncWaiter.of_running_loop(self._waiters, self._submit, self._bundle)
        return waiter.send(work, self._deadline(alone=alone), alone=alone, prepare=prepare)

    def _deadline(self, *, alone: bool) -> float:
        """Return how long to wait: what needs the ledger for itself may have much to do."""
        return self._deadline_s * (_PATIENCE if alone else 1)

    def read(self) -> Reader:
        """Return a reader."""
        return self._reader

    def close(self) -> None:
        """Finish what was asked for and let go of the store; one that hangs is left to itself."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join(_CLOSING_S)

    def _submit(self, items: Sequence[Item]) -> None:
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        self._queue.put(items)

    def _work_through(self) -> None:
        """Take groups until there is nothing more to come. This is the writer's thread."""
        waiting: list[Item] = []
        more = True
        while more or waiting:
            if not waiting:
                more = self._take(waiting, wait=True)
            while more and len(waiting) < MAX_GROUP and not self._queue.empty():
                more = self._take(waiting, wait=False)
            self._settle(_next_group(waiting))
        if self._store is not None:
            try:
                self._observer.stopping(self._store)
            except Exception as error:  # noqa: BLE001 - the edge of the thread: nobody waits for an answer
                with suppress(Exception):
                    self._observer.failed(error)
        self._forget()

    def _take(self, waiting: list[Item], *, wait: bool) -> bool:
        """Add the next items to `waiting`; tell whether more may come."""
        with suppress(Empty):
            items = self._queue.get(block=wait)
            if items is None:
                return False
            waiting += items
        return True

    def _settle(self, group: list[Item]) -> None:
        """Run a group and answer each of its callers."""
        store: Store | None = None
        wanted = group if not any(map(_is_abandoned, group)) else [item for item in group if not item.abandoned]
        try:
            store = self._commit(wanted) if wanted else None
        except BaseException as error:  # noqa: BLE001 - the edge of the thread: whatever happens, it goes on
            self._forget()
            with suppress(Exception):
                self._observer.failed(error)
            for item in wanted:
                item.failure = _failure(error)
        deliver_answers(group)
        if store is not None:
            self._known.trim()
            with suppress(Exception):  # an observer that fails must not stop the writer
                if self._turned:
                    self._observer.turned()
                self._observer.committed(store, len(wanted), self._seconds)

    def _commit(self, group: list[Item]) -> Store:
        self._seconds, self._turned = 0.0, False
        store = self._store = self._store or self._open_store()
        if store.changed_by_others():
            self._unlearn()
        self._prepare(store, group)
        try:
            # Work that runs alone is a group of its own.
            self._attempt(store, group, hold=group[0].alone)
        except HeadMoved:
            store.rollback()
            self._attempt_held(store, group)
        return store

    def _attempt_held(self, store: Store, group: list[Item]) -> None:
        """Run a group again while the store is held; if it still refuses, one by one, to find out whose work it is."""
        try:
            self._attempt(store, group, hold=True)
        except HeadMoved:
            store.rollback()
            if len(group) > 1:
                for item in group:
                    self._attempt_held(store, [item])
            else:
                group[0].failure = LedgerUnavailable("the ledger refuses what would be written")

    def _prepare(self, store: Store, group: list[Item]) -> None:
        """Do what can be done beforehand, for all: one kind of thing after the other is quicker than by turns."""
        switches = self._switches = self._switches or store.switches()
        # One buffer serves all, because none of them writes.
        buffer = BufferedTransaction(store, self._known, switches, Changes())
        for item in group:
            if item.prepare is not None and not item.abandoned:
                _prepare_one(item.prepare, item, buffer)

    def _attempt(self, store: Store, group: list[Item], *, hold: bool) -> None:
        if hold:
            store.begin()
            self._unlearn()
        switches = self._switches = self._switches or store.switches()
        changes = Changes()
        buffer = BufferedTransaction(store, self._known, switches, changes)
        for item in group:
            item.failure = None
            if item.abandoned:
                item.failure = LedgerUnavailable("nobody waits for it any more")
                continue
            if item.prepare_error is not None:
                item.failure = item.prepare_error
                continue
            try:
                item.answer = item.work(buffer)
                buffer.keep()
            except (LedgerUnavailable, StateCorrupt):
                raise  # the store failed, and with it the group
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, not to the group
                item.failure = _own(error)
                buffer.discard()
        if not changes:
            return store.rollback()
        changes.sign(self._known.sessions)
        if not hold:
            store.begin()
            if store.changed_by_others():
                raise HeadMoved("something else has written to the ledger")
        self._write(store, group, changes)
        return None

    def _write(self, store: Store, group: list[Item], changes: Changes) -> None:
        """Make changes durable, and keep what is durable then, so that the next group need not read it."""
        if self._last_s > _SLOW_COMMIT_S:
            for waiter in {item.waiter for item in group}:
                waiter.release()
        before = time.perf_counter()
        self._known.sessions.update(store.commit(changes))
        self._last_s = time.perf_counter() - before
        self._seconds += self._last_s
        if changes.changes_epoch:
            self._turned = True
            self._known.revoked.clear()
            self._switches = None

    def _unlearn(self) -> None:
        self._known.clear()
        self._switches = None

    def _forget(self) -> None:
        """Let go of everything that is known: the next group starts from what is on disk."""
        store, self._store = self._store, None
        self._unlearn()
        if store is not None:
            with suppress(Exception):
                store.close()


_is_abandoned: Final = attrgetter("abandoned")


def _own(error: BaseException) -> Exception:
    """Return what the caller of a piece of work is told; what would end a thread does not."""
    return error if isinstance(error, Exception) else _failure(error)


def _failure(error: BaseException) -> Exception:
    """Return what one caller is told: an error of its own, because each will add its own way to it."""
    if isinstance(error, LedgerUnavailable | StateError):
        return type(error)(str(error))
    return LedgerUnavailable(f"the ledger failed in a way that is not foreseen ({type(error).__name__})")


def _next_group(waiting: list[Item]) -> list[Item]:
    """Take the next group off what waits: as much as can share a commit."""
    size = 0
    for item in waiting:
        if item.alone or size == MAX_GROUP:
            break
        size += 1
    group = waiting[: size or 1]
    del waiting[: len(group)]
    return group


def _prepare_one(prepare: Prepare, item: Item, buffer: BufferedTransaction) -> None:
    """Run what comes before the work; if that fails, there is no work."""
    try:
        prepare(buffer)
    except (LedgerUnavailable, StateCorrupt):
        raise  # the store failed, and with it the group
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller, not to the group
        item.prepare_error = _own(error)
