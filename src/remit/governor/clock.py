"""Clocks: wall-clock and monotonic time, read together.

Durations are measured with the monotonic clock, and with the wall clock only across a reboot. Receipts carry wall-clock
time, which never decreases within a chain.
"""

import secrets
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Moment(NamedTuple):
    """A reading of the wall clock and the monotonic clock, with the id of the boot that the latter counts from."""

    wall_ms: int
    mono_ms: int
    boot: str

    @property
    def wall_s(self) -> int:
        """Return the wall-clock time in whole seconds."""
        return self.wall_ms // 1000


class Clock(Protocol):
    """A source of time."""

    def now(self) -> Moment:
        """Return the current time."""


class SystemClock:
    """The clocks of this machine."""

    def __init__(self) -> None:
        try:
            self._boot = _BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            # Without a boot id, monotonic times of other processes cannot be compared with ours.
            self._boot = secrets.token_hex(16)

    def now(self) -> Moment:
        """Return the current time."""
        return Moment(time.time_ns() // 1_000_000, _monotonic_ns() // 1_000_000, self._boot)


# The monotonic clock; if available, the one that includes the time the machine is suspended.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
_monotonic_ns: Final = time.monotonic_ns if _CLOCK is None else partial(time.clock_gettime_ns, _CLOCK)


def elapsed_between(boot: str, mono_ms: int, wall_ms: int, now: Moment) -> int:
    """Return the milliseconds from an earlier moment to `now`, at least 0."""
    if boot == now.boot:
        return max(0, now.mono_ms - mono_ms)
    return max(0, now.wall_ms - wall_ms)


def format_timestamp(wall_ms: int) -> str:
    """Format wall-clock milliseconds as an RFC 3339 timestamp in UTC, as used in receipts."""
    return f"{_second(wall_ms // 1000)}.{wall_ms % 1000:03d}Z"


def parse_timestamp(text: str) -> int:
    """Return the milliseconds since 1970 of an RFC 3339 date-time; `ValueError` for a year out of range.

    A leap second equals the following second, as in POSIX time.
    """
    leaps = text[17:19] == "60"
    moment = datetime.fromisoformat((text[:17] + "59" + text[19:] if leaps else text).upper())
    return (moment - _EPOCH) // _MILLISECOND + (1000 if leaps else 0)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@lru_cache(maxsize=64)
def _second(wall_s: int) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
