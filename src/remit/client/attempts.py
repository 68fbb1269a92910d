"""What one attempt came to, and whether another one is worth it.

Pure: the caller measures time, draws the jitter and waits.
"""

import re
import ssl
from typing import Final, NamedTuple, TypeAlias

import httpx

from remit.errors import quote

__all__ = ["OK", "Outcome", "Reply", "Silence", "pause_s", "read_retry_after", "silence_of"]

OK: Final = 200
# The service says that it has not got to it, or may get to it later.
_REPEATED: Final = frozenset((429, 503))
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


class Reply(NamedTuple):
    """A whole answer, as it came; `retry_after_s` is when the service wants to be asked again."""

    status: int
    body: bytes
    retry_after_s: float | None = None


class Silence(NamedTuple):
    """No answer, or none that may be read on; `may_pass` if another attempt could get one."""

    why: str
    may_pass: bool = True


Outcome: TypeAlias = Reply | Silence


def pause_s(outcome: Outcome, attempt: int, jitter: float) -> float | None:
    """Return how long to wait before the next attempt; None if there is to be none.

    `attempt` counts from 0; `jitter` is between 0 and 1 and spreads clients that failed together.
    """
    if isinstance(outcome, Silence):
        return _backoff_s(attempt, jitter) if outcome.may_pass else None
    if outcome.status not in _REPEATED:
        return None
    return (outcome.retry_after_s or 0.0) + _backoff_s(attempt, jitter)


def _backoff_s(attempt: int, jitter: float) -> float:
    return min(_FIRST_PAUSE_S * (1 << attempt), _LONGEST_PAUSE_S) * (0.5 + jitter / 2)


def read_retry_after(text: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header; a date, which hangs on two clocks, is passed over."""
    return float(text) if text is not None and _SECONDS.fullmatch(text) else None


def silence_of(error: BaseException) -> Silence:
    """Return what an error of the connection means, in words that hold nothing of the request."""
    cause: BaseException | None = error
    # What OpenSSL has to say is not there if Python raised the error itself.
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Silence(
                f"its certificate is not trusted: {quote(getattr(cause, 'verify_message', ''))}", may_pass=False
            )
        if isinstance(cause, ssl.SSLError):
            return Silence(f"TLS failed: {quote(str(getattr(cause, 'reason', None)))}")
        cause = cause.__cause__ or cause.__context__
    return Silence(next(why for kind, why in _REASONS.items() if isinstance(error, kind)))


_REASONS: Final[dict[type[BaseException], str]] = {
    httpx.ConnectError: "cannot connect",
    httpx.TimeoutException: "it took too long to connect",
    httpx.ProtocolError: "the connection was cut, or what came is not HTTP",
    BaseException: "the connection was cut",
}
