"""Runs use cases: for threads, and for event loops.

A use case is the same for both; only the waiting differs. The clock is read once for each use case.
"""

import copy
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from remit.errors import RemitError
from remit.governor.means import Means, UseCase
from remit.governor.pools import Pools
from remit.governor.rate import ReportSkipped
from remit.ledger.port import Ledger, Prepare, Work

__all__ = ["Governor", "finish"]

_T = TypeVar("_T")


class _Blocking:
    """Waiting for threads: every coroutine here comes to its end without giving way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def transact(self, work: Work[_T], *, alone: bool = False, prepare: Prepare | None = None) -> _T:
        """Return what `work` answers."""
        return self._ledger.run(work, alone=alone, prepare=prepare)

    async def aside(self, compute: Callable[[], _T], *, fair_to: str = "") -> _T:  # noqa: ARG002 - nobody else waits
        """Compute it here."""
        return compute()

    async def quickly(self, compute: Callable[[], _T]) -> _T:
        """Compute it here."""
        return compute()

    def run(self, case: UseCase[_T], means: Means) -> Coroutine[Any, Any, _T]:
        """Run it here."""
        return case.run(means)


class _OnLoop:
    """Waiting for an event loop, which is never kept waiting."""

    def __init__(self, ledger: Ledger, pools: Pools) -> None:
        self.transact: Final = ledger.arun
        self.aside: Final = pools.run
        self.quickly: Final = pools.run_quickly

    def run(self, case: UseCase[_T], means: Means) -> Coroutine[Any, Any, _T]:
        """Run it here."""
        return case.run(means)


def finish(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return what a coroutine returns that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: _T = end.value
        return answer
    coroutine.close()
    raise RuntimeError("a use case has waited for something else than its means")


class Governor:
    """The service: give it a use case, and get its answer once that is durable."""

    def __init__(self, ledger: Ledger, means: Means) -> None:
        self.means = means
        self._pools = Pools()
        self._blocking = _Blocking(ledger)
        self._on_loop = _OnLoop(ledger, self._pools)

    def judging_as(self, means: Means) -> "Governor":
        """Return a governor over the same ledger that judges by other means, and shares all else with this one.

        It is not closed by itself.
        """
        other = copy.copy(self)
        other.means = copy.copy(self.means)
        other.means.engines, other.means.observers, other.means.files = means.engines, means.observers, means.files
        return other

    def close(self) -> None:
        """Report what was counted and not yet recorded, and stop the threads. The ledger is closed by its owner."""
        if self.means.refused.unreported():
            with suppress(RemitError):
                self.run(ReportSkipped())
        self._pools.close()

    def run(self, case: UseCase[_T]) -> _T:
        """Return the answer of a use case. Waits; for threads."""
        return finish(case.run(self.means.at_one_moment(self._blocking)))

    def arun(self, case: UseCase[_T]) -> Coroutine[Any, Any, _T]:
        """Return the answer of a use case. For an event loop, which it never keeps waiting."""
        return case.run(self.means.at_one_moment(self._on_loop))
