"""The clock is a port: a moment on the wall, and on the clock that nobody can set.

Durations follow the monotonic clock while the machine runs, and the wall only across a reboot. Receipts carry the time
on the wall, which never runs backwards within a chain.
"""

import secrets
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

__all__ = ["Clock", "Moment", "SystemClock", "elapsed_between", "parse_timestamp", "timestamp"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Moment(NamedTuple):
    """Now: on the wall, on the monotonic clock, and which boot the latter counts from."""

    wall_ms: int
    mono_ms: int
    boot: str

    @property
    def wall_s(self) -> int:
        """Return the whole seconds on the wall."""
        return self.wall_ms // 1000


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> Moment:
        """Return this moment."""


class SystemClock:
    """The clocks of this machine."""

    def __init__(self) -> None:
        try:
            self._boot = _BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            # Without a name for the boot, readings of other processes cannot be compared with ours.
            self._boot = secrets.token_hex(16)

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(time.time_ns() // 1_000_000, _monotonic_ns() // 1_000_000, self._boot)


# The clock that nobody can set; where there is a choice, the one that goes on while the machine sleeps.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
_monotonic_ns: Final = time.monotonic_ns if _CLOCK is None else partial(time.clock_gettime_ns, _CLOCK)


def elapsed_between(boot: str, mono_ms: int, wall_ms: int, now: Moment) -> int:
    """Return the milliseconds from an earlier moment to `now`; never less than none."""
    if boot == now.boot:
        return max(0, now.mono_ms - mono_ms)
    return max(0, now.wall_ms - wall_ms)


def timestamp(wall_ms: int) -> str:
    """Return a moment on the wall as receipts write it."""
    return f"{_second(wall_ms // 1000)}.{wall_ms % 1000:03d}Z"


def parse_timestamp(text: str) -> int:
    """Return the milliseconds since 1970 of an RFC 3339 date-time; `ValueError` for a year that no calendar here has.

    A leap second is the second after it, as POSIX time counts.
    """
    leaps = text[17:19] == "60"
    moment = datetime.fromisoformat((text[:17] + "59" + text[19:] if leaps else text).upper())
    return (moment - _EPOCH) // _MILLISECOND + (1000 if leaps else 0)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@lru_cache(maxsize=64)
def _second(wall_s: int) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
