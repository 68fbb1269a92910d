"""When another attempt is worth it, and how long to wait for it."""

import ssl

import httpx
import pytest

from remit.client.attempts import NoResponse, Outcome, RawResponse, no_response_from, pause_s, read_retry_after


@pytest.mark.parametrize("outcome", [NoResponse("cut"), RawResponse(429, b""), RawResponse(503, b"")])
def test_pauses_grow_spread_and_have_an_end(outcome: Outcome) -> None:
    shortest = [pause_s(outcome, attempt, 0.0) or 0 for attempt in range(12)]
    longest = [pause_s(outcome, attempt, 1.0) or 0 for attempt in range(12)]
    assert shortest == sorted(shortest)
    assert all(2 * short == long for short, long in zip(shortest, longest, strict=True))
    assert (longest[0], longest[-1]) == (0.05, 2.0)


def test_no_other_status_is_repeated() -> None:
    repeated = [status for status in range(100, 1000) if pause_s(RawResponse(status, b"", 0.0), 0, 0.5) is not None]
    assert repeated == [429, 503]


def test_what_cannot_pass_is_not_repeated() -> None:
    assert pause_s(NoResponse("not trusted", may_retry=False), 0, 0.5) is None


def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    untrusted, broken = httpx.ConnectError("TLS"), httpx.ConnectError("TLS")
    untrusted.__cause__, broken.__cause__ = ssl.SSLCertVerificationError(), ssl.SSLEOFError()
    assert [no_response_from(error).may_retry for error in (untrusted, broken, OSError())] == [False, True, True]


def test_the_service_may_ask_for_time() -> None:
    assert (pause_s(RawResponse(503, b"", 7.0), 0, 0.5) or 0) > 7.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("12", 12.0), ("-1", None), ("1.5", None), ("inf", None), ("", None), (None, None),
     ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("9" * 400, None), ("\u0661", None)],
)  # fmt: skip
def test_retry_after_is_whole_seconds_or_nothing(text: str | None, seconds: float | None) -> None:
    assert read_retry_after(text) == seconds
