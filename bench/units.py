"""The units that benchmarks count in, and how to measure side by side.

Machines are shared and noisy, so nothing is compared with a number from another run: every case is measured in turns
with its unit, in processor time of the thread, and the median over many turns is reported with the spread.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

Work = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Microseconds for one run of a case: the median over the turns, and the middle half of them."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:9.1f}  ({self.low:.1f} to {self.high:.1f})"


def measure(cases: dict[str, Work], *, turns: int = 41, seconds_per_turn: float = 0.01) -> dict[str, Timing]:
    """Return the timing of each case, all measured in turns."""
    repeats = {name: _repeats(work, seconds_per_turn) for name, work in cases.items()}
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(turns):
        for name, work in cases.items():
            samples[name].append(_once(work, repeats[name]))
    return {name: _timing(values) for name, values in samples.items()}


def _repeats(work: Work, seconds: float) -> int:
    work()
    return max(1, int(seconds / max(_once(work, 3) / 1e6, 1e-7)))


def _once(work: Work, repeats: int) -> float:
    start = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - start) / repeats * 1e6


def _timing(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4)
    return Timing(median, low, high)


def raw_signature(message: bytes) -> tuple[Work, Work]:
    """Return one ES256 signature and one verification, by the library alone, over `message`."""
    key = ec.derive_private_key(12345, ec.SECP256R1())
    public, algorithm = key.public_key(), ec.ECDSA(hashes.SHA256())
    signature = key.sign(message, algorithm)
    return lambda: key.sign(message, algorithm), lambda: public.verify(signature, message, algorithm)
