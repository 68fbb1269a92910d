"""Tracks whether commits to the ledger fail, for the dashboard to report.

A failure is forgotten only when a later commit has written something. Nothing is retried here. All events are passed on
to another observer.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from remit.errors import RemitError
from remit.ledger.commit import CommitObserver
from remit.ledger.transaction import Store


class CommitFailure(NamedTuple):
    """When commits began to fail, in seconds since 1970, and why the last one did."""

    since: int
    reason: str


class CommitFailureTracker(CommitObserver):
    """Observes the writer of the ledger. It is called on the writer's thread; `failure` is read from any thread."""

    def __init__(self, other: CommitObserver, *, wall: Callable[[], float] = time.time) -> None:
        self._other = other
        self._wall = wall
        self._failure: CommitFailure | None = None

    @property
    def failure(self) -> CommitFailure | None:
        """Return the current failure; None if the last commit that wrote something has succeeded."""
        return self._failure

    def committed(self, store: Store, size: int, seconds: float) -> None:
        """Clear the failure, unless the commit took no time: then it only read, which proves nothing."""
        if seconds:
            self._failure = None
        self._other.committed(store, size, seconds)

    def epoch_changed(self) -> None:
        """Pass the event on."""
        self._other.epoch_changed()

    def failed(self, error: BaseException) -> None:
        """Record the failure; the time of the first one is kept."""
        since = self._failure.since if self._failure else int(self._wall())
        self._failure = CommitFailure(since, str(error) if isinstance(error, RemitError) else type(error).__name__)
        self._other.failed(error)

    def stopping(self, store: Store) -> None:
        """Pass the event on."""
        self._other.stopping(store)
