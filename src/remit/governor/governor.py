"""Runs use cases: for threads, and for event loops.

The steps of a use case are the same for both; only the waiting differs. The clock is read once for each use case.
"""

from contextlib import suppress
from typing import Any, TypeVar

from remit.errors import RemitError
from remit.governor.means import Aside, Commit, Means, UseCase
from remit.governor.pools import Pools
from remit.governor.rate import ReportSkipped
from remit.ledger.port import Ledger

__all__ = ["Governor"]

_T = TypeVar("_T")


class Governor:
    """The service: give it a use case, and get its answer once that is durable."""

    def __init__(self, ledger: Ledger, means: Means) -> None:
        self.means = means
        self._ledger = ledger
        self._pools = Pools()

    def close(self) -> None:
        """Report what was counted and not yet recorded, and stop the threads. The ledger is closed by its owner."""
        if self.means.refused.unreported():
            with suppress(RemitError):
                self.run(ReportSkipped())
        self._pools.close()

    def run(self, case: UseCase[_T]) -> _T:
        """Return the answer of a use case. Waits; for threads."""
        steps = case.steps(self.means.at_one_moment())
        answer, resume = None, steps.send
        while True:
            try:
                asked = resume(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            try:
                answer, resume = self._done(asked), steps.send
            except Exception as error:  # noqa: BLE001 - belongs to the use case
                answer, resume = error, steps.throw

    def _done(self, asked: Commit | Aside) -> Any:  # noqa: ANN401
        if isinstance(asked, Aside):
            return asked.compute()
        return self._ledger.run(asked.work, alone=asked.alone, prepare=asked.prepare)

    async def arun(self, case: UseCase[_T]) -> _T:
        """Return the answer of a use case. For an event loop, which it never keeps waiting."""
        steps = case.steps(self.means.at_one_moment())
        answer, resume = None, steps.send
        while True:
            try:
                asked = resume(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            try:
                if isinstance(asked, Aside):
                    answer = await self._pools.run(asked)
                else:
                    answer = await self._ledger.arun(asked.work, alone=asked.alone, prepare=asked.prepare)
                resume = steps.send
            except Exception as error:  # noqa: BLE001 - belongs to the use case
                answer, resume = error, steps.throw
