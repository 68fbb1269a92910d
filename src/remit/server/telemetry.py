"""Metrics, log lines and traces of a service.

Each request is reported once, by `Telemetry.answered`, before its response is written. Invariants: labels of metrics
come from closed lists, so no client can create a series (what is not on its list is `other`); a log line about a
refused request has its error code and none of the client's text, and there are at most `REFUSALS_PER_S` of them;
without an endpoint nothing of OpenTelemetry is imported; and recording cannot fail or delay a request. What is sent to
a collector may be lost: the evidence is in the ledger. `log.py` writes the lines, `otlp.py` sends the spans.

Several workers share a folder, where `PROMETHEUS_MULTIPROC_DIR` names it before prometheus_client is imported: then the
metrics page of each worker counts for all.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.parse import urlsplit

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

from remit.errors import AccessError, FieldInvalid, InputError, RemitError, StateMissing
from remit.ledger.commit import MAX_GROUP, CommitObserver
from remit.ledger.transaction import Store
from remit.server.log import LEVELS, logger
from remit.server.routes import Request
from remit.server.statuses import INTERNAL, get_status
from remit.version import __version__

if TYPE_CHECKING:
    from remit.server.otlp import OtlpExporter, Span

OTHER: Final = "other"
# The stages of a request that are timed.
STAGES: Final = ("decode", "decide", "answer")
# Log lines in a second about requests that were refused: anyone can send those, and disks are finite.
REFUSALS_PER_S: Final = 20

_MICROSECOND: Final = 1e-6
_STEPS: Final = tuple(
    round(step * scale * _MICROSECOND, 6) for scale in (100, 1e3, 1e4, 1e5, 1e6) for step in (0.5, 1, 2.5)
)
_SECONDS: Final = (*_STEPS, 5.0)
_SIZES: Final = tuple(1 << power for power in range(MAX_GROUP.bit_length()))
_MAX_SERIES: Final = 200
_PERMITTED: Final = "none"
_CLIENT_ERRORS: Final = range(400, 500)
_DEBUG: Final = LEVELS["debug"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the series, and are of no use here


class _Counter(Counter):
    """A counter whose increments skip the checks that cannot fail here."""

    def series(self) -> Callable[[float], None]:
        """Return the function that adds to this series."""
        add: Callable[[float], None] = self._value.inc
        return add


class _HistogramSeries(NamedTuple):
    """Adds to a series of a histogram: the sum, and one of the buckets, the last of which has no bound."""

    add: Callable[[float], None]
    buckets: list[Callable[[float], None]]


class _Histogram(Histogram):
    """A histogram whose observations find their bucket by bisection, and skip the checks that cannot fail here."""

    def series(self) -> _HistogramSeries:
        """Return the functions that add to this series."""
        return _HistogramSeries(self._sum.inc, [bucket.inc for bucket in self._buckets])


class _Gauges(Collector):
    """The state of the service when the metrics are read, as the worker that answers sees it."""

    def __init__(self) -> None:
        self.open_sessions: Callable[[], int] | None = None
        self.kill_switch: Callable[[], bool] | None = None
        self.broken_sessions: Callable[[], int] | None = None
        self.verified_at: Callable[[], float] | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges; one that cannot be read now is left out."""
        build = GaugeMetricFamily("remit_build_info", "Always 1; the label is the version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        for name, meaning, read in (
            ("remit_open_sessions", "Sessions that are active.", self.open_sessions),
            ("remit_kill_switch", "1 while no session may start, else 0.", self.kill_switch),
            ("remit_broken_sessions", "Sessions whose chain was found broken.", self.broken_sessions),
            (
                "remit_verified_timestamp_seconds",
                "Everything recorded up to this time was verified; 0 while that is not known.",
                self.verified_at,
            ),
        ):
            if read is not None:
                with suppress(Exception):
                    yield GaugeMetricFamily(name, meaning, value=float(read()))


class LedgerMetrics(CommitObserver):
    """Metrics of the ledger's writer, recorded on its thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._size = _Histogram(
            "remit_ledger_group_size", "Requests that share a sync.", buckets=_SIZES, registry=registry
        ).series()
        self._seconds = _Histogram(
            "remit_ledger_sync_seconds", "Time to make a group durable.", buckets=_SECONDS, registry=registry
        ).series()
        self._syncs = _Counter("remit_ledger_syncs", "Groups made durable.", registry=registry).series()
        self._failures = _Counter(
            "remit_evidence_write_failures", "Groups that were not, or not surely, made durable.", registry=registry
        ).series()

    def committed(self, store: Store, size: int, seconds: float) -> None:  # noqa: ARG002 - as the ledger calls it
        """Count a group of `size` pieces of work that is durable."""
        self._syncs(1)
        self._size.add(size)
        self._size.buckets[bisect_left(_SIZES, size)](1)
        self._seconds.add(seconds)
        self._seconds.buckets[bisect_left(_SECONDS, seconds)](1)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 - as the ledger calls it
        """Count a group that was not committed, or of which it is unknown whether it was."""
        self._failures(1)


class Metrics:
    """The metrics of a service. `ledger` is the observer of its ledger."""

    def __init__(self, directory: str | None = None) -> None:
        """Count for this process; with `directory`, for all workers that share it."""
        if directory is not None and not values.ValueClass._multiprocess:  # noqa: SLF001 - the only way to tell
            raise StateMissing("PROMETHEUS_MULTIPROC_DIR must be set before the worker starts")
        self._gauges = _Gauges()
        counters = CollectorRegistry()
        self._registry = CollectorRegistry() if directory is not None else counters
        self._registry.register(self._gauges)
        ProcessCollector(registry=self._registry)
        if directory is not None:
            MultiProcessCollector(self._registry, path=directory)  # type: ignore[no-untyped-call]
        self.ledger = LedgerMetrics(counters)
        self._add_counters(counters)

    def _add_counters(self, registry: CollectorRegistry) -> None:
        labels = ["decision", "verdict", "reason"]
        self._decisions = _Counter("remit_decisions", "Decisions, by what came out and why.", labels, registry=registry)
        self._requests = _Counter("remit_http_requests", "Answers.", ["route", "status"], registry=registry)
        self._refusals = _Counter("remit_http_refused", "Refused at the door.", ["reason"], registry=registry)
        self._chains = _Counter("remit_chain_failures", "Chains that did not verify.", registry=registry).series()
        stages = _Histogram(
            "remit_stage_seconds", "Time in a stage of a request.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self._stage = {stage: stages.labels(stage).series() for stage in STAGES}
        self._decided: dict[tuple[str, str, str], Callable[[float], None]] = {}
        self._answered: dict[tuple[str, int], Callable[[float], None]] = {}
        self._refused: dict[str, Callable[[float], None]] = {}

    def set_gauges(
        self,
        *,
        open_sessions: Callable[[], int],
        kill_switch: Callable[[], bool],
        broken_sessions: Callable[[], int] | None = None,
        verified_at: Callable[[], float] | None = None,
    ) -> None:
        """Set the functions that return the gauges; they are called whenever the metrics are read."""
        self._gauges.open_sessions, self._gauges.kill_switch = open_sessions, kill_switch
        self._gauges.broken_sessions, self._gauges.verified_at = broken_sessions, verified_at

    def decided(self, decision: str, verdict: str, reason: str) -> None:
        """Count a decision; `reason` is the internal code of a denial, or `none`."""
        try:
            self._decided[decision, verdict, reason](1)
        except KeyError:
            known = reason if len(self._decided) < _MAX_SERIES else OTHER
            add = self._decided[decision, verdict, known] = self._decisions.labels(decision, verdict, known).series()
            add(1)

    def observe_stages(self, stages: Mapping[str, float]) -> None:
        """Record the seconds that each of the `STAGES` of a request took, as far as it got."""
        for name, seconds in stages.items():
            add, buckets = self._stage[name]
            add(seconds)
            buckets[bisect_left(_SECONDS, seconds)](1)

    def answered(self, route: str, status: int) -> None:
        """Count an answer; `route` is the template, never a path as it was sent."""
        try:
            self._answered[route, status](1)
        except KeyError:
            known = route if len(self._answered) < _MAX_SERIES else OTHER
            add = self._answered[known, status] = self._requests.labels(known, str(status)).series()
            add(1)

    def refused(self, reason: str) -> None:
        """Count a connection or request that was refused before it had a handler; `reason` is an error code."""
        try:
            self._refused[reason](1)
        except KeyError:
            known = reason if len(self._refused) < _MAX_SERIES else OTHER
            add = self._refused[known] = self._refusals.labels(known).series()
            add(1)

    def chain_failed(self) -> None:
        """Count a chain that did not verify."""
        self._chains(1)

    def render(self) -> tuple[bytes, str]:
        """Return the page for Prometheus and its content type. It may wait for the ledger: call it on a thread."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


@final
class LineLimiter:
    """Limits log lines to `most` in a second, and counts those beyond."""

    __slots__ = ("_begun", "_clock", "_most", "count")

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._begun = clock()
        # Lines since the second began.
        self.count = 0

    def allows(self) -> bool:
        """Count a line, and return whether it may be written."""
        self.count += 1
        return self.count <= self._most

    def left_out(self) -> int:
        """Return how many lines were left out in the second before, once it is over; 0 until then, and after that."""
        if self._clock() - self._begun < 1.0:
            return 0
        over = max(0, self.count - self._most)
        self._begun, self.count = self._clock(), 0
        return over


class Telemetry:
    """Records metrics, log lines and traces."""

    def __init__(self, metrics: Metrics, exporter: "OtlpExporter | None" = None) -> None:
        """Send spans and receipts by `exporter`; without one, nothing is sent."""
        self.exporter = exporter
        self.chain_failed = metrics.chain_failed
        self._metrics = metrics
        self._log = logger()
        self._output = self._log.output
        self._refusals = LineLimiter(REFUSALS_PER_S, time.monotonic)

    def answered(
        self,
        request: Request,
        route: str,
        status: int,
        *,
        stages: Mapping[str, float],
        error: BaseException | None,
        span: "Span | None",
    ) -> None:
        """Record a request whose response is about to be sent: its status, the seconds of its stages, its decision.

        The client gets the full message of an error. The log line has its code only, because a message can quote
        member names, which are text of the client.
        """
        metrics, request_id = self._metrics, request.request_id
        metrics.answered(route, status)
        metrics.observe_stages(stages)
        if request.decision is not None:
            session_id, answer = request.decision
            claims = answer.receipt.claims
            decision = "PERMIT" if answer.permits else "DENY"
            metrics.decided(decision, claims.verdict, answer.refusal or claims.internal_denial_code or _PERMITTED)
            if self.exporter is not None:
                self.exporter.receipt(session_id, claims, answer.receipt.hash, decision)
            if span is not None:
                span.decided(session_id, claims.verdict)
        if request.chain_is_broken:
            metrics.chain_failed()
        if span is not None:
            span.answered(route, status, request_id)
        if self._refusals.count:
            self._log_left_out()
        if error is None:
            if self._output.threshold <= _DEBUG:
                self._log.debug("answered", route=route, status=status, request_id=request_id)
        else:
            self._log_failed(error, route=route, status=status, request_id=request_id)

    def cut_off(self, route: str, request_id: str, error: BaseException) -> None:
        """Record that the rest of a streamed response could not be sent."""
        self._log.error("cut_off", route=route, request_id=request_id, exc_info=error)

    def refused(self, error: AccessError, request_id: str) -> None:
        """Record a request or a connection that was refused before it had a handler."""
        self._metrics.refused(error.code)
        self._log_left_out()
        if self._refusals.allows():
            self._log.info("turned_away", status=get_status(error).status, request_id=request_id, code=error.code)

    def log_event(self, event: str, error: BaseException | None) -> None:
        """Log an event of the service itself, such as a reload."""
        if error is None:
            self._log.info(event)
        elif isinstance(error, RemitError):
            self._log.error(event, why=str(error))
        else:
            self._log.error(event, exc_info=error)

    def log(self, event: str, **members: Any) -> None:  # noqa: ANN401 - whatever a log line holds
        """Log an error that an operator has to look at."""
        self._log.error(event, **members)

    def close(self) -> None:
        """Send the spans that are left, for two seconds at most."""
        if self.exporter is not None:
            self.exporter.close()

    def _log_failed(self, error: BaseException, *, route: str, status: int, request_id: str) -> None:
        if status == INTERNAL.status:
            self._log.error("failed", route=route, status=status, request_id=request_id, exc_info=error)
        elif status not in _CLIENT_ERRORS or self._refusals.allows():
            why = {} if isinstance(error, InputError | AccessError) else {"why": str(error)}
            code = error.code if isinstance(error, RemitError) else ""
            self._log.info("refused", route=route, status=status, request_id=request_id, code=code, **why)

    def _log_left_out(self) -> None:
        count = self._refusals.left_out()
        if count:
            self._log.info("refusals_left_out", count=count)


def mark_dead(directory: str, pid: int) -> None:
    """Remove a worker that has ended from the gauges. Its counts stay in the totals."""
    mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]


def start_exporter(endpoint: str | None, service_name: str, version: str) -> "OtlpExporter | None":
    """Return an exporter to the collector at `endpoint`, as in `http://localhost:4318`; None without an endpoint."""
    if not endpoint:
        return None
    _check_endpoint(endpoint)
    try:
        from remit.server.otlp import OtlpExporter  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise StateMissing("OpenTelemetry is not installed: pip install 'remit[otel]'") from None
    return OtlpExporter(endpoint.rstrip("/"), service_name, version)


def _check_endpoint(endpoint: str) -> None:
    """Raise unless `endpoint` is an http or https URL without credentials and query."""
    try:
        url = urlsplit(endpoint)
        plain = endpoint.isascii() and endpoint.isprintable() and not {" ", "@", "?", "#"} & set(endpoint)
        valid = plain and url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise FieldInvalid("must be an http or https URL without credentials or query", place="$.endpoint")
