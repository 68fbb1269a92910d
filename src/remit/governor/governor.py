"""Runs use cases in the process that has the ledger, on threads and on event loops.

The clock is read once for each use case.
"""

import copy
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from remit.errors import RemitError
from remit.governor.context import Context, UseCase
from remit.governor.pools import Pools
from remit.governor.rate import ReportSkipped
from remit.ledger.store import Ledger, Prepare, Work

_T = TypeVar("_T")


class _BlockingRuntime:
    """The runtime for threads: its coroutines block and never suspend."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Run `work` and block until it is durable."""
        return self._ledger.run(work, alone=alone, prepare=prepare)

    async def to_thread(self, compute: Callable[[], _T], *, limit_key: str = "") -> _T:  # noqa: ARG002 - there is no pool to limit
        """Compute in the calling thread."""
        return compute()

    async def to_quick_thread(self, compute: Callable[[], _T]) -> _T:
        """Compute in the calling thread."""
        return compute()

    def run(self, case: UseCase[_T], context: Context) -> Coroutine[Any, Any, _T]:
        """Run the use case in this process."""
        return case.run(context)


class _LoopRuntime:
    """The runtime for an event loop: slow work runs in threads."""

    def __init__(self, ledger: Ledger, pools: Pools) -> None:
        self.transact: Final = ledger.arun
        self.to_thread: Final = pools.run
        self.to_quick_thread: Final = pools.run_quick

    def run(self, case: UseCase[_T], context: Context) -> Coroutine[Any, Any, _T]:
        """Run the use case in this process."""
        return case.run(context)


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: _T = end.value
        return answer
    coroutine.close()
    raise RuntimeError("a use case awaited something other than its context")


class Governor:
    """Runs use cases on a ledger, and returns each result once it is durable."""

    def __init__(self, ledger: Ledger, context: Context) -> None:
        self.context = context
        self._pools = Pools()
        self._blocking = _BlockingRuntime(ledger)
        self._on_loop = _LoopRuntime(ledger, self._pools)

    def with_policy_of(self, context: Context) -> "Governor":
        """Return a governor on the same ledger that judges with the engines and files of another context.

        It shares everything else with this governor and must not be closed separately.
        """
        other = copy.copy(self)
        other.context = copy.copy(self.context)
        other.context.engines, other.context.observers, other.context.files = (
            context.engines,
            context.observers,
            context.files,
        )
        return other

    def close(self) -> None:
        """Record the counts of skipped calls, and stop the threads. The caller closes the ledger."""
        if self.context.refused.unreported():
            with suppress(RemitError):
                self.run(ReportSkipped())
        self._pools.close()

    def run(self, case: UseCase[_T]) -> _T:
        """Run a use case and return its result. Blocks the calling thread."""
        return run_sync(case.run(self.context.for_request(self._blocking)))

    def arun(self, case: UseCase[_T]) -> Coroutine[Any, Any, _T]:
        """Run a use case on an event loop, without blocking it."""
        return case.run(self.context.for_request(self._on_loop))
