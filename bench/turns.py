"""Servers measured in turns: every case once in every round, and ratios between cases of the same round.

Machines are shared and noisy: what counts is a ratio of two things that were measured within seconds of each other. The
raw signatures that one core makes right before a turn are its unit, and tell how noisy the machine is.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from bench.governor import raw_rate
from bench.load import Measured
from bench.results import Limit, Row, Spread, spread
from bench.servers import Target, processor_s

__all__ = [
    "Case",
    "Held",
    "Sample",
    "Samples",
    "Settings",
    "Turns",
    "limits_of",
    "raw_of",
    "rows_of",
    "settings_of",
    "sync_us",
    "take_turns",
    "to_each_other",
]

SETTLE_S: Final = 0.2
SYNCS: Final = 50


class Settings(NamedTuple):
    """How long to measure."""

    receipts: int
    seconds: float
    rounds: int
    quick: bool


def settings_of(about: str | None, arguments: Sequence[str]) -> tuple[Settings, Path | None]:
    """Return how long to measure, and where the figures go."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--receipts", type=int, help="length of the long history (a million)")
    parser.add_argument("--seconds", type=float, help="of each turn (2)")
    parser.add_argument("--rounds", type=int, help="turns of each case (5)")
    parser.add_argument("--quick", action="store_true", help="see that it works: the figures mean nothing")
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    chosen = parser.parse_args(arguments)
    usual = Settings(2000, 0.3, 2, quick=True) if chosen.quick else Settings(1_000_000, 2.0, 5, quick=False)
    given = {name: value for name in ("receipts", "seconds", "rounds") if (value := getattr(chosen, name)) is not None}
    return usual._replace(**given), chosen.out


class Case(NamedTuple):
    """One way to load one server."""

    server: str
    connections: int
    sessions: int = 1


class Sample(NamedTuple):
    """One turn of a case, the raw signatures per second right before it, and the processor time of the server."""

    raw: float
    measured: Measured
    server_s: float = 0.0

    @property
    def server_us(self) -> float:
        """Return the processor time of one request, over all processes of the server, in microseconds."""
        return self.server_s / self.measured.count * 1e6


Samples: TypeAlias = Mapping[Case, list[Sample]]


class Turns(NamedTuple):
    """The samples of all cases, and what a disk sync took in each round."""

    samples: Samples
    syncs: list[float]


def take_turns(targets: Mapping[str, Target], cases: Sequence[Case], settings: Settings, root: Path) -> Turns:
    """Measure every case once in every round."""
    turns = Turns({case: [] for case in cases}, [])
    for number in range(settings.rounds):
        print(f"round {number + 1} of {settings.rounds}", file=sys.stderr)
        turns.syncs.append(sync_us(root))
        # There and back again: no case is always the one after the heaviest.
        for case in cases if number % 2 == 0 else reversed(cases):
            time.sleep(SETTLE_S)
            raw = raw_rate()
            target = targets[case.server]
            before = processor_s(target.server.pid)
            measured = target.measure(case.connections, sessions=case.sessions, seconds=settings.seconds)
            turns.samples[case].append(Sample(raw, measured, processor_s(target.server.pid) - before))
    return turns


def sync_us(folder: Path) -> float:
    """Return the microseconds until a page is on the disk that the homes are on."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            before = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e6


def raw_of(samples: Samples) -> Spread:
    """Return the raw signatures per second, over the whole run."""
    return spread(sample.raw for turns in samples.values() for sample in turns)


def rows_of(samples: Samples) -> list[Row]:
    """Return the lines of the table."""
    return [_row(case, turns) for case, turns in samples.items()]


def _row(case: Case, samples: Sequence[Sample]) -> Row:
    seen = [sample.measured for sample in samples]
    return Row(
        server=case.server,
        connections=case.connections,
        sessions=case.sessions,
        per_second=spread(each.per_second for each in seen),
        of_raw=spread(sample.measured.per_second / sample.raw for sample in samples),
        p50_ms=spread(each.p50_ms for each in seen),
        p95_ms=spread(each.p95_ms for each in seen),
        p99_ms=spread(each.p99_ms for each in seen),
        max_ms=max(each.max_ms for each in seen),
        server_us=spread(sample.server_us for sample in samples),
        load_cpu_share=spread(each.cpu_seconds / each.seconds for each in seen).median,
    )


Ratio: TypeAlias = Callable[[Sample, Sample], float]


def to_each_other(one: Sample, other: Sample) -> float:
    """Return how many answers one case gives for each of the other."""
    return one.measured.per_second / other.measured.per_second


class Held(NamedTuple):
    """A ratio between two cases of one round, and its limit."""

    name: str
    case: Case
    other: Case
    ratio: Ratio
    limit: float
    at_least: bool = True


def limits_of(held: Iterable[Held], samples: Samples) -> list[Limit]:
    """Return every ratio that is held to a limit."""
    return [
        Limit(
            name=each.name,
            figure=spread(each.ratio(*pair) for pair in zip(samples[each.case], samples[each.other], strict=True)),
            limit=each.limit,
            at_least=each.at_least,
        )
        for each in held
    ]
