"""Traces and receipts for a collector, by OpenTelemetry, where one is named.

Keeps these invariants: without an endpoint nothing of OpenTelemetry is even imported; what is sent is a closed list of
attributes, never arguments, targets, reasons or tokens; and nothing here can fail or delay a request. What is sent may
be lost: the evidence is the ledger's. How it is sent is for `otlp.py`.
"""

from types import TracebackType
from typing import ClassVar, Final, Self
from urllib.parse import urlsplit

from remit.claims.receipt import Receipt
from remit.errors import FieldInvalid, StateMissing

__all__ = ["NO_SPAN", "Span", "Telemetry", "start_telemetry"]


class Span:
    """One request on its way. This one goes nowhere, and costs nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End; an error that passes is marked, and not described."""

    def decided(self, session_id: str, verdict: str) -> None:
        """Note which session the request was for, and what came out."""

    def answered(self, route: str, status: int, request_id: str) -> None:
        """Note how the request was answered; `route` is the template that it turned out to be for."""


class Telemetry:
    """Where spans and receipts go. This one sends nothing."""

    __slots__ = ()

    # Whether anything is sent: without that, no request needs a span of its own.
    is_on: ClassVar[bool] = False

    def span(self, route: str, method: str, traceparent: str | None = None) -> Span:  # noqa: ARG002 - for others
        """Return the span of a request, as a context; `traceparent` is the header of W3C Trace Context."""
        return NO_SPAN

    def receipt(self, session_id: str, claims: Receipt, receipt_hash: str, decision: str) -> None:
        """Send what may be known of a receipt."""

    def close(self) -> None:
        """Send what is left, for two seconds at most."""


NO_SPAN: Final = Span()


def start_telemetry(endpoint: str | None, service_name: str, version: str) -> Telemetry:
    """Return what sends to the collector at `endpoint`, as in `http://localhost:4318`; without one, nothing does."""
    if not endpoint:
        return Telemetry()
    _check(endpoint)
    try:
        from remit.http.otlp import Otlp  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise StateMissing("OpenTelemetry is not installed: pip install 'remit[otel]'") from None
    return Otlp(endpoint.rstrip("/"), service_name, version)


def _check(endpoint: str) -> None:
    """Raise unless `endpoint` is a plain http or https URL; credentials do not belong into one."""
    try:
        url = urlsplit(endpoint)
        plain = endpoint.isascii() and endpoint.isprintable() and not {" ", "@", "?", "#"} & set(endpoint)
        valid = plain and url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise FieldInvalid("must be an http or https URL without credentials or query", place="$.endpoint")
