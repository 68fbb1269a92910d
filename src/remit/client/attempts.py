"""The outcome of one attempt, and whether to retry.

Pure: the caller measures time, draws the jitter and sleeps.
"""

import re
import ssl
from typing import Final, NamedTuple, TypeAlias

import httpx

from remit.errors import quote

__all__ = ["OK", "NoResponse", "Outcome", "RawResponse", "no_response_from", "pause_s", "read_retry_after"]

OK: Final = 200
# Statuses after which the same request may succeed later.
_RETRIED_STATUSES: Final = frozenset((429, 503))
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


class RawResponse(NamedTuple):
    """A complete response, not decoded yet. `retry_after_s` is its `Retry-After` header."""

    status: int
    body: bytes
    retry_after_s: float | None = None


class NoResponse(NamedTuple):
    """No response, or one that must not be read further. `may_retry` if another attempt could succeed."""

    reason: str
    may_retry: bool = True


Outcome: TypeAlias = RawResponse | NoResponse


def pause_s(outcome: Outcome, attempt: int, jitter: float) -> float | None:
    """Return how long to wait before the next attempt; None if there must not be one.

    `attempt` counts from 0; `jitter` is between 0 and 1 and spreads clients that failed together.
    """
    if isinstance(outcome, NoResponse):
        return _backoff_s(attempt, jitter) if outcome.may_retry else None
    if outcome.status not in _RETRIED_STATUSES:
        return None
    return (outcome.retry_after_s or 0.0) + _backoff_s(attempt, jitter)


def _backoff_s(attempt: int, jitter: float) -> float:
    return min(_FIRST_PAUSE_S * (1 << attempt), _LONGEST_PAUSE_S) * (0.5 + jitter / 2)


def read_retry_after(text: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header. A date is ignored: it depends on two clocks."""
    return float(text) if text is not None and _SECONDS.fullmatch(text) else None


def no_response_from(error: BaseException) -> NoResponse:
    """Describe a connection error without quoting anything of the request."""
    cause: BaseException | None = error
    # `verify_message` and `reason` are missing if Python and not OpenSSL raised the error.
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return NoResponse(
                f"its certificate is not trusted: {quote(getattr(cause, 'verify_message', ''))}", may_retry=False
            )
        if isinstance(cause, ssl.SSLError):
            return NoResponse(f"TLS failed: {quote(str(getattr(cause, 'reason', None)))}")
        cause = cause.__cause__ or cause.__context__
    return NoResponse(next(reason for kind, reason in _REASONS.items() if isinstance(error, kind)))


_REASONS: Final[dict[type[BaseException], str]] = {
    httpx.ConnectError: "cannot connect",
    httpx.TimeoutException: "it took too long to connect",
    httpx.ProtocolError: "the connection was cut, or what came is not HTTP",
    BaseException: "the connection was cut",
}
