"""What the service counts, for Prometheus.

Keeps this invariant: labels come from closed lists, so nobody outside can make a series; what is not on its list is
`other`. Counting is cheap enough for every request, and gauges cost nothing until somebody asks. Several workers share
a folder, where `PROMETHEUS_MULTIPROC_DIR` names it before prometheus_client is imported: then every worker answers for
all. Who may ask is for the routes.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from remit.errors import StateMissing
from remit.ledger.commit import MAX_GROUP, Observer
from remit.ledger.transaction import Store
from remit.version import __version__

__all__ = ["OTHER", "STAGES", "LedgerMetrics", "Metrics", "mark_dead"]

OTHER: Final = "other"
STAGES: Final = ("decode", "decide", "answer")

_MICROSECOND: Final = 1e-6
_STEPS: Final = tuple(
    round(step * scale * _MICROSECOND, 6) for scale in (100, 1e3, 1e4, 1e5, 1e6) for step in (0.5, 1, 2.5)
)
_SECONDS: Final = (*_STEPS, 5.0)
_SIZES: Final = tuple(1 << power for power in range(MAX_GROUP.bit_length()))
_MAX_SERIES: Final = 200

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each, and nobody asks when a counter was born


class _Counter(Counter):
    """A counter whose increments skip the checks that cannot fail here."""

    def quick(self) -> Callable[[float], None]:
        """Return what adds to this series."""
        add: Callable[[float], None] = self._value.inc
        return add


class _Histogram(Histogram):
    """A histogram that finds its bucket by halves, and skips the checks that cannot fail here."""

    def quick(self) -> Callable[[float], None]:
        """Return what observes a value of this series."""
        add, bounds, steps = self._sum.inc, self._upper_bounds, [bucket.inc for bucket in self._buckets]

        def observe(amount: float) -> None:
            add(amount)
            steps[bisect_left(bounds, amount)](1)

        return observe


class _Standing(Collector):
    """How things stand at the moment somebody asks, as the worker that answers sees it."""

    def __init__(self) -> None:
        self.open_sessions: Callable[[], int] | None = None
        self.kill_switch: Callable[[], bool] | None = None
        self.broken_sessions: Callable[[], int] | None = None
        self.verified_at: Callable[[], float] | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges; one that cannot be told now is left out."""
        build = GaugeMetricFamily("remit_build_info", "Always 1; the label is the version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        for name, meaning, ask in (
            ("remit_open_sessions", "Sessions that are active.", self.open_sessions),
            ("remit_kill_switch", "1 while no session may start, else 0.", self.kill_switch),
            ("remit_broken_sessions", "Sessions whose chain was found broken.", self.broken_sessions),
            (
                "remit_verified_timestamp_seconds",
                "Everything recorded up to this time was verified; 0 while that is not known.",
                self.verified_at,
            ),
        ):
            if ask is not None:
                with suppress(Exception):
                    yield GaugeMetricFamily(name, meaning, value=float(ask()))


class LedgerMetrics(Observer):
    """Counts what the ledger's writer does. It is called on the writer's thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._size = _Histogram(
            "remit_ledger_group_size", "Requests that share a sync.", buckets=_SIZES, registry=registry
        ).quick()
        self._seconds = _Histogram(
            "remit_ledger_sync_seconds", "Time to make a group durable.", buckets=_SECONDS, registry=registry
        ).quick()
        self._syncs = _Counter("remit_ledger_syncs", "Groups made durable.", registry=registry).quick()
        self._failures = _Counter(
            "remit_evidence_write_failures", "Groups that were not, or not surely, made durable.", registry=registry
        ).quick()

    def committed(self, store: Store, size: int, seconds: float) -> None:  # noqa: ARG002 - as the ledger calls it
        """A group of `size` pieces of work is durable."""
        self._syncs(1)
        self._size(size)
        self._seconds(seconds)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 - as the ledger calls it
        """A group was not committed, or it is unknown whether it was."""
        self._failures(1)


class Metrics:
    """Everything that is counted. `ledger` is for the ledger to tell; the rest is told by the routes."""

    def __init__(self, directory: str | None = None) -> None:
        """Count alone, or with the other workers that share `directory`."""
        if directory is not None and not values.ValueClass._multiprocess:  # noqa: SLF001 - the only way to tell
            raise StateMissing("PROMETHEUS_MULTIPROC_DIR must be set before the worker starts")
        self._standing = _Standing()
        counted = CollectorRegistry()
        self._registry = CollectorRegistry() if directory is not None else counted
        self._registry.register(self._standing)
        ProcessCollector(registry=self._registry)
        if directory is not None:
            MultiProcessCollector(self._registry, path=directory)  # type: ignore[no-untyped-call]
        self.ledger = LedgerMetrics(counted)
        self._count(counted)

    def _count(self, registry: CollectorRegistry) -> None:
        labels = ["decision", "verdict", "reason"]
        self._decisions = _Counter("remit_decisions", "Decisions, by what came out and why.", labels, registry=registry)
        self._requests = _Counter("remit_http_requests", "Answers.", ["route", "status"], registry=registry)
        self._refusals = _Counter("remit_http_refused", "Refused at the door.", ["reason"], registry=registry)
        self._chains = _Counter("remit_chain_failures", "Chains that did not verify.", registry=registry).quick()
        stages = _Histogram(
            "remit_stage_seconds", "Time in a stage of a request.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self._stage = {stage: stages.labels(stage).quick() for stage in STAGES}
        self._decided: dict[tuple[str, str, str], Callable[[float], None]] = {}
        self._answered: dict[tuple[str, int], Callable[[float], None]] = {}
        self._refused: dict[str, Callable[[float], None]] = {}

    def watch(
        self,
        *,
        open_sessions: Callable[[], int],
        kill_switch: Callable[[], bool],
        broken_sessions: Callable[[], int] | None = None,
        verified_at: Callable[[], float] | None = None,
    ) -> None:
        """Ask these whenever the metrics are read."""
        self._standing.open_sessions, self._standing.kill_switch = open_sessions, kill_switch
        self._standing.broken_sessions, self._standing.verified_at = broken_sessions, verified_at

    def decided(self, decision: str, verdict: str, reason: str) -> None:
        """Count a decision; `reason` is the internal code of a denial, or `none`."""
        try:
            self._decided[decision, verdict, reason](1)
        except KeyError:
            known = reason if len(self._decided) < _MAX_SERIES else OTHER
            add = self._decided[decision, verdict, known] = self._decisions.labels(decision, verdict, known).quick()
            add(1)

    def stage(self, name: str, seconds: float) -> None:
        """Count how long one of the `STAGES` of a request took."""
        self._stage[name](seconds)

    def answered(self, route: str, status: int) -> None:
        """Count an answer; `route` is the template, never a path as it was sent."""
        try:
            self._answered[route, status](1)
        except KeyError:
            known = route if len(self._answered) < _MAX_SERIES else OTHER
            add = self._answered[known, status] = self._requests.labels(known, str(status)).quick()
            add(1)

    def refused(self, reason: str) -> None:
        """Count a connection or request that was not let in; `reason` is an error code."""
        try:
            self._refused[reason](1)
        except KeyError:
            known = reason if len(self._refused) < _MAX_SERIES else OTHER
            add = self._refused[known] = self._refusals.labels(known).quick()
            add(1)

    def chain_failed(self) -> None:
        """Count a chain that did not verify."""
        self._chains(1)

    def render(self) -> tuple[bytes, str]:
        """Return the page for Prometheus and its content type. It may wait for the ledger: call it on a thread."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def mark_dead(directory: str, pid: int) -> None:
    """Take a worker that is gone out of the gauges; what it has counted stays counted."""
    mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]
