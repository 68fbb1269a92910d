"""Group commit: one writer thread runs the transactions of all callers, and one sync makes a whole group durable.

Invariants: a result is returned only after its group is on disk. If a commit fails, the store is closed and all caches
are dropped, so that everything is read again before the next signature. One process writes a ledger
(`wiring/ledger_process.py` holds its lock). If something else has written to the database nevertheless, the caches are
dropped and the group is run again inside a write transaction.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from remit.errors import HeadMoved, LedgerUnavailable, StateCorrupt, StateError
from remit.ledger.records import LedgerState
from remit.ledger.store import LedgerReader, Prepare, Work
from remit.ledger.transaction import BufferedTransaction, SessionCache, Store, TransactionChanges
from remit.ledger.waiters import AsyncWaiter, Item, deliver_answers, wait_for

DEADLINE_S: Final = 1.5
MAX_GROUP: Final = 256
# The default number of items that an event loop submits at a time.
BATCH_SIZE: Final = 64
# The deadline of work that runs alone is longer by this factor, because it may have much to do.
_ALONE_FACTOR: Final = 40
_CLOSE_TIMEOUT_S: Final = 4.0
# After a slower commit, event loops do not block for the next one: the disk is the bottleneck. The value is well above
# the 5 milliseconds for which another thread can hold the interpreter lock, which are included in the measurement.
_SLOW_COMMIT_S: Final = 0.01

_T = TypeVar("_T")


class CommitObserver:
    """Callbacks of the writer thread, which do nothing by default."""

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """Called after a group of `size` items is durable; `seconds` is the duration of the commit with its sync."""

    def epoch_changed(self) -> None:
        """Called before `committed` if the group has changed the epoch; see `Changes.changes_epoch`."""

    def failed(self, error: BaseException) -> None:
        """Called when a group was not committed, or when it is unknown whether it was."""

    def stopping(self, store: Store) -> None:
        """Called when all work is done, before the store is closed."""


class GroupCommit:
    """A `Ledger` on any `Store`."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        reader: LedgerReader,
        *,
        deadline_s: float = DEADLINE_S,
        observer: CommitObserver | None = None,
        batch: int = BATCH_SIZE,
    ) -> None:
        self._open_store = open_store
        self._reader = reader
        self._deadline_s = deadline_s
        self._batch = batch
        self._observer = observer or CommitObserver()
        self._queue: SimpleQueue[Sequence[Item] | None] = SimpleQueue()
        self._waiters: dict[int, AsyncWaiter] = {}
        self._store: Store | None = None
        self._cache = SessionCache()
        self._ledger_state: LedgerState | None = None
        # Of the current group: the duration of its commits, and whether it changes the epoch.
        self._group_s = 0.0
        self._epoch_changed = False
        # The duration of the last commit.
        self._last_commit_s = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run_writer, name="ledger", daemon=True)
        self._thread.start()

    def run(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Run `work` in a transaction and return its result once it is durable."""
        answer: _T = wait_for(work, self._submit, self._deadline(alone=alone), alone=alone, prepare=prepare)
        return answer

    def arun(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> Awaitable[_T]:
        """Run `work` in a transaction and return its result once it is durable."""
        waiter = AsyncWaiter.of_running_loop(self._waiters, self._submit, self._batch)
        return waiter.send(work, self._deadline(alone=alone), alone=alone, prepare=prepare)

    def _deadline(self, *, alone: bool) -> float:
        """Return how long a caller waits for its result, in seconds."""
        return self._deadline_s * (_ALONE_FACTOR if alone else 1)

    def read(self) -> LedgerReader:
        """Return a reader."""
        return self._reader

    def close(self) -> None:
        """Finish the queued work and close the store. If the store hangs, return after a timeout."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _submit(self, items: Sequence[Item]) -> None:
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        self._queue.put(items)

    def _run_writer(self) -> None:
        """Run groups until the queue is closed. This is the writer thread."""
        waiting: list[Item] = []
        more = True
        while more or waiting:
            if not waiting:
                more = self._take(waiting, wait=True)
            while more and len(waiting) < MAX_GROUP and not self._queue.empty():
                more = self._take(waiting, wait=False)
            self._run_group(_next_group(waiting))
        if self._store is not None:
            try:
                self._observer.stopping(self._store)
            except Exception as error:  # noqa: BLE001 - top of the thread: there is no caller to raise it to
                with suppress(Exception):
                    self._observer.failed(error)
        self._reset()

    def _take(self, waiting: list[Item], *, wait: bool) -> bool:
        """Add the next items to `waiting`; return False once the queue is closed."""
        with suppress(Empty):
            items = self._queue.get(block=wait)
            if items is None:
                return False
            waiting += items
        return True

    def _run_group(self, group: list[Item]) -> None:
        """Run and commit a group, and deliver the result of each item."""
        store: Store | None = None
        wanted = group if not any(map(_is_abandoned, group)) else [item for item in group if not item.abandoned]
        try:
            store = self._commit(wanted) if wanted else None
        except BaseException as error:  # noqa: BLE001 - top of the thread: the writer must continue
            self._reset()
            with suppress(Exception):
                self._observer.failed(error)
            for item in wanted:
                item.failure = _store_error(error)
        deliver_answers(group)
        if store is not None:
            self._cache.trim()
            with suppress(Exception):  # a failing observer must not stop the writer
                if self._epoch_changed:
                    self._observer.epoch_changed()
                self._observer.committed(store, len(wanted), self._group_s)

    def _commit(self, group: list[Item]) -> Store:
        self._group_s, self._epoch_changed = 0.0, False
        store = self._store = self._store or self._open_store()
        if store.changed_by_others():
            self._clear_caches()
        self._prepare(store, group)
        try:
            # Work that runs alone is a group of its own.
            self._attempt(store, group, lock=group[0].alone)
        except HeadMoved:
            store.rollback()
            self._attempt_locked(store, group)
        return store

    def _attempt_locked(self, store: Store, group: list[Item]) -> None:
        """Run a group again inside a write transaction; if that fails, item by item, to find the failing one."""
        try:
            self._attempt(store, group, lock=True)
        except HeadMoved:
            store.rollback()
            if len(group) > 1:
                for item in group:
                    self._attempt_locked(store, [item])
            else:
                group[0].failure = LedgerUnavailable("the ledger rejected the write")

    def _prepare(self, store: Store, group: list[Item]) -> None:
        """Run the `prepare` functions of a group: running them together is faster than alternating with the work."""
        ledger_state = self._ledger_state = self._ledger_state or store.ledger_state()
        # They share one transaction, because none of them writes.
        buffer = BufferedTransaction(store, self._cache, ledger_state, TransactionChanges())
        for item in group:
            if item.prepare is not None and not item.abandoned:
                _prepare_one(item.prepare, item, buffer)

    def _attempt(self, store: Store, group: list[Item], *, lock: bool) -> None:
        if lock:
            store.begin()
            self._clear_caches()
        ledger_state = self._ledger_state = self._ledger_state or store.ledger_state()
        changes = TransactionChanges()
        buffer = BufferedTransaction(store, self._cache, ledger_state, changes)
        for item in group:
            item.failure = None
            if item.abandoned:
                item.failure = LedgerUnavailable("the caller is no longer waiting")
                continue
            if item.prepare_error is not None:
                item.failure = item.prepare_error
                continue
            try:
                item.answer = item.work(buffer)
                buffer.keep()
            except (LedgerUnavailable, StateCorrupt):
                raise  # the store failed: the whole group fails
            except BaseException as error:  # noqa: BLE001 - raised to the caller of this item only
                item.failure = _caller_error(error)
                buffer.discard()
        if not changes:
            return store.rollback()
        changes.sign(self._cache.sessions)
        if not lock:
            store.begin()
            if store.changed_by_others():
                raise HeadMoved("something else has written to the ledger")
        self._write(store, group, changes)
        return None

    def _write(self, store: Store, group: list[Item], changes: TransactionChanges) -> None:
        """Commit the changes, and cache the stored sessions for the next group."""
        if self._last_commit_s > _SLOW_COMMIT_S:
            for waiter in {item.waiter for item in group}:
                waiter.release()
        before = time.perf_counter()
        self._cache.sessions.update(store.commit(changes))
        self._last_commit_s = time.perf_counter() - before
        self._group_s += self._last_commit_s
        if changes.changes_epoch:
            self._epoch_changed = True
            self._cache.revoked.clear()
            self._ledger_state = None

    def _clear_caches(self) -> None:
        self._cache.clear()
        self._ledger_state = None

    def _reset(self) -> None:
        """Close the store and drop all caches: the next group reads everything from disk."""
        store, self._store = self._store, None
        self._clear_caches()
        if store is not None:
            with suppress(Exception):
                store.close()


_is_abandoned: Final = attrgetter("abandoned")


def _caller_error(error: BaseException) -> Exception:
    """Return the error to raise to the caller; exceptions such as `SystemExit` are wrapped."""
    return error if isinstance(error, Exception) else _store_error(error)


def _store_error(error: BaseException) -> Exception:
    """Return a new error for one caller: an exception raised in several threads would mix their tracebacks."""
    if isinstance(error, LedgerUnavailable | StateError):
        return type(error)(str(error))
    return LedgerUnavailable(f"unexpected error in the ledger ({type(error).__name__})")


def _next_group(waiting: list[Item]) -> list[Item]:
    """Remove the next group from `waiting`: as many items as can share a commit."""
    size = 0
    for item in waiting:
        if item.alone or size == MAX_GROUP:
            break
        size += 1
    group = waiting[: size or 1]
    del waiting[: len(group)]
    return group


def _prepare_one(prepare: Prepare, item: Item, buffer: BufferedTransaction) -> None:
    """Run the `prepare` function of an item; if it fails, the work is not run."""
    try:
        prepare(buffer)
    except (LedgerUnavailable, StateCorrupt):
        raise  # the store failed: the whole group fails
    except BaseException as error:  # noqa: BLE001 - raised to the caller of this item only
        item.prepare_error = _caller_error(error)
