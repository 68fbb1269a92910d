"""Whether anything can be recorded: since when the ledger's commits fail, for the dashboard to say.

Keeps this invariant: what fails is forgotten only when something was written again. Whoever else observes the writer is
told of everything as before. Nothing is tried here: the next event, or call, tries.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from remit.errors import RemitError
from remit.ledger.commit import Observer
from remit.ledger.transaction import Store

__all__ = ["Failing", "Recording"]


class Failing(NamedTuple):
    """Since which second of the wall every commit has failed, and why the last one did."""

    since: int
    why: str


class Recording(Observer):
    """Notes since when commits fail. It is told on the writer's thread, and asked on any."""

    def __init__(self, other: Observer, *, wall: Callable[[], float] = time.time) -> None:
        self._other = other
        self._wall = wall
        self._failing: Failing | None = None

    @property
    def failing(self) -> Failing | None:
        """Return since when nothing can be recorded; None while all is well."""
        return self._failing

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """Forget what failed before; but a group that only reads takes no time to commit, and shows nothing."""
        if seconds:
            self._failing = None
        self._other.committed(store, size, seconds)

    def turned(self) -> None:
        """Pass it on."""
        self._other.turned()

    def failed(self, error: BaseException) -> None:
        """Note that nothing could be written, from the first time on."""
        since = self._failing.since if self._failing else int(self._wall())
        self._failing = Failing(since, str(error) if isinstance(error, RemitError) else type(error).__name__)
        self._other.failed(error)

    def stopping(self, store: Store) -> None:
        """Pass it on."""
        self._other.stopping(store)
