"""Sends spans and receipts to a collector, by OTLP over HTTP.

Invariants: queues are bounded, and the oldest entries are dropped first. A collector that is down or hangs is logged
once a minute and delays nothing. All settings are given here, and not taken from the environment, except headers and
certificates for the collector (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE` and similar) and
`OTEL_SDK_DISABLED`.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Token
from threading import Thread
from types import TracebackType
from typing import Final, Self, final

import requests
from msgspec import UNSET
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, LogRecordLimits
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from remit.claims.receipt import Receipt
from remit.server.log import logger

EVENT: Final = "remit.receipt"
QUEUE: Final = 2_048
_BATCH: Final = 256
_DELAY_MS: Final = 1_000
_TIMEOUT_S: Final = 5.0
_CLOSING_S: Final = 1.8
_QUIET_S: Final = 60.0
_MAX_ATTRIBUTES: Final = 16
_MAX_TEXT: Final = 256
_SERVER_ERROR: Final = 500
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_OTHER_METHOD: Final = "_OTHER"

# The claims of a receipt that are sent, besides its hash, its session and the decision.
_MEMBERS: Final = (
    "receipt_id",
    "tool",
    "action_class",
    "side_effect_class",
    "verdict",
    "public_denial_reason",
    "internal_denial_code",
)
_W3C: Final = TraceContextTextMapPropagator()


class _SdkWarnings(logging.Handler):
    """Handles warnings of the SDK: logs once a minute that there are some, without their text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._quiet_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Log a warning, unless one was logged within the last minute."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            logger().warning("telemetry_not_sent", source=record.name)


def _handle_sdk_warnings() -> None:
    """Handle all log records of the SDK. This is never undone, because threads of the SDK can outlive the exporter."""
    sdk = logging.getLogger("opentelemetry")
    sdk.handlers[:] = [_SdkWarnings()]
    sdk.propagate = False


@final
class Span:
    """The span of a request, as a context manager. Its attributes are those of the HTTP conventions, and three more."""

    __slots__ = ("_is_ended", "_method", "_span", "_token")

    def __init__(self, span: SdkSpan, method: str) -> None:
        self._span = span
        self._method = method
        self._is_ended = False
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        """Make this the current span."""
        self._token = attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the span if it was not ended. With an error, set its status, but not the message of the error."""
        if self._token is not None:
            detach(self._token)
        if not self._is_ended:
            if error is not None:
                self._span.set_status(Status(StatusCode.ERROR))
            self._end()

    def decided(self, session_id: str, verdict: str) -> None:
        """Set the session and the verdict."""
        self._span.set_attributes({"session_id": session_id, "verdict": verdict})

    def answered(self, route: str, status: int, request_id: str) -> None:
        """Set the route and the status, and end the span. Sending the response is not part of it.

        `route` is the path template of the route.
        """
        self._span.update_name(f"{self._method} {route}")
        self._span.set_attributes(
            {"http.route": route, "http.response.status_code": status, "request_id": request_id},
        )
        if status >= _SERVER_ERROR:
            self._span.set_status(Status(StatusCode.ERROR))
        self._end()

    def _end(self) -> None:
        self._is_ended = True
        with suppress(Exception):
            self._span.end()


@final
class OtlpExporter:
    """Queues spans and receipts, and sends them in batches in the background."""

    __slots__ = ("_exporters", "_log", "_logs", "_tracer", "_traces")

    def __init__(self, endpoint: str, service_name: str, version: str) -> None:
        """Send to the collector at `endpoint`, to which the paths of the signals are appended."""
        _handle_sdk_warnings()
        # Not by `Resource.create`, which would add attributes from the environment.
        resource = Resource({"service.name": service_name, "service.version": version})
        self._traces = TracerProvider(
            sampler=ALWAYS_ON,  # a client must not be able to turn tracing off
            resource=resource,
            shutdown_on_exit=False,
            span_limits=_span_limits(),
        )
        spans = OTLPSpanExporter(
            f"{endpoint}/v1/traces",
            timeout=_TIMEOUT_S,
            compression=Compression.NoCompression,
            session=_session(),
        )
        self._traces.add_span_processor(BatchSpanProcessor(spans, QUEUE, _DELAY_MS, _BATCH, _TIMEOUT_S * 1_000))
        self._logs = LoggerProvider(resource, shutdown_on_exit=False, log_record_limits=_record_limits())
        records = OTLPLogExporter(
            f"{endpoint}/v1/logs",
            timeout=_TIMEOUT_S,
            compression=Compression.NoCompression,
            session=_session(),
        )
        self._logs.add_log_record_processor(
            BatchLogRecordProcessor(records, _DELAY_MS, _BATCH, _TIMEOUT_S * 1_000, QUEUE)
        )
        self._exporters = spans, records
        self._tracer = self._traces.get_tracer("remit", version)
        self._log = self._logs.get_logger("remit", version)

    def span(self, route: str, method: str, traceparent: str | None = None) -> Span:
        """Start the span of a request; `traceparent` is the header of W3C Trace Context."""
        known = method if method in _METHODS else _OTHER_METHOD
        parent = _W3C.extract({"traceparent": traceparent}) if traceparent else Context()
        attributes = {"http.route": route, "http.request.method": known}
        return Span(self._tracer.start_span(f"{known} {route}", parent, SpanKind.SERVER, attributes), known)

    def receipt(self, session_id: str, claims: Receipt, receipt_hash: str, decision: str) -> None:
        """Send a fixed list of claims of a receipt, without arguments, targets and reasons."""
        with suppress(Exception):
            attributes = {"session_id": session_id, "receipt_hash": receipt_hash, "decision": decision}
            for name in _MEMBERS:
                value = getattr(claims, name)
                if value is not UNSET:
                    attributes[name] = value
            severity = SeverityNumber.INFO if decision == "PERMIT" else SeverityNumber.WARN
            self._log.emit(timestamp=time.time_ns(), severity_number=severity, attributes=attributes, event_name=EVENT)

    def close(self) -> None:
        """Send what is queued, for two seconds at most."""
        closing = [Thread(target=_quietly(end), daemon=True) for end in (self._traces.shutdown, self._logs.shutdown)]
        deadline = time.monotonic() + _CLOSING_S
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))
        # Stops the retries of the threads that are still sending.
        for exporter in self._exporters:
            _quietly(exporter.shutdown)()


def _quietly(end: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with suppress(Exception):
            end()

    return run


def _session() -> requests.Session:
    """Return a session that uses no proxies and credentials from the environment or from `.netrc`."""
    session = requests.Session()
    session.trust_env = False
    return session


def _span_limits() -> SpanLimits:
    return SpanLimits(
        max_attributes=_MAX_ATTRIBUTES,
        max_events=0,
        max_links=0,
        max_span_attributes=_MAX_ATTRIBUTES,
        max_event_attributes=0,
        max_link_attributes=0,
        max_attribute_length=_MAX_TEXT,
        max_span_attribute_length=_MAX_TEXT,
    )


def _record_limits() -> LogRecordLimits:
    return LogRecordLimits(
        max_attributes=_MAX_ATTRIBUTES,
        max_attribute_length=_MAX_TEXT,
        max_log_record_attributes=_MAX_ATTRIBUTES,
        max_log_record_attribute_length=_MAX_TEXT,
    )
