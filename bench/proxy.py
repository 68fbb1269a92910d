"""What an evaluation costs over the wire: `python -m bench.proxy`, or `make bench`.

The proxy runs in one process and its load in another, over HTTPS with kept connections, and each receipt is durable
before its answer. Next to it, in the same run and in turns: the same server software with a constant answer ("hello"),
and the raw ES256 signatures that one core makes while nothing else runs. What counts are the ratios of one round. The
exit code is 1 if one misses its limit.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.governor import raw_rate
from bench.history import histories
from bench.load import Measured
from bench.results import MIB, History, Limit, Memory, ProxyRun, Row, number_of, spread
from bench.servers import SESSIONS, WARM_UP, Kind, launch, new_home, resident
from bench.tables import proxy_tables

__all__ = ["main"]

CONNECTIONS: Final = (1, 8, 32, 128)
SETTLE_S: Final = 0.2
SYNCS: Final = 50

EVALUATE: Final = "evaluate"
HELLO: Final = "hello"
TWO_WORKERS: Final = "evaluate, two workers"
PLAIN: Final = "evaluate, plain HTTP"
PLAIN_HELLO: Final = "hello, plain HTTP"


class Settings(NamedTuple):
    """How long to measure."""

    receipts: int
    seconds: float
    rounds: int
    quick: bool


class Case(NamedTuple):
    """One way to load one server."""

    server: str
    connections: int
    sessions: int


class Sample(NamedTuple):
    """One turn of a case, and the raw signatures per second right before it."""

    raw: float
    measured: Measured


Samples = dict[Case, list[Sample]]


class Turns(NamedTuple):
    """The samples of all cases, what a disk sync took in each round, and what memory the proxies hold at the end."""

    samples: Samples
    syncs: list[float]
    memory: list[Memory]


KINDS: Final = {
    EVALUATE: Kind(),
    HELLO: Kind(hello=True),
    TWO_WORKERS: Kind(options=("--workers", "2")),
    PLAIN: Kind(options=("--insecure-http",)),
    PLAIN_HELLO: Kind(hello=True, options=("--insecure-http",)),
}

CASES: Final = (
    *(Case(EVALUATE, connections, sessions) for sessions in (1, SESSIONS) for connections in CONNECTIONS),
    *(Case(HELLO, connections, 1) for connections in CONNECTIONS),
    *(Case(TWO_WORKERS, 32, sessions) for sessions in (1, SESSIONS)),
    Case(PLAIN, 32, 1),
    Case(PLAIN_HELLO, 32, 1),
)


def take_turns(settings: Settings, root: Path) -> Turns:
    """Measure every case once in every round."""
    turns = Turns({case: [] for case in CASES}, [], [])
    with ExitStack() as stack:
        targets = {name: launch(stack, kind, new_home(root)) for name, kind in KINDS.items()}
        for number in range(settings.rounds):
            print(f"round {number + 1} of {settings.rounds}", file=sys.stderr)
            turns.syncs.append(sync_us(root))
            # There and back again: no case is always the one after the heaviest.
            for case in CASES if number % 2 == 0 else reversed(CASES):
                time.sleep(SETTLE_S)
                raw = raw_rate()
                target = targets[case.server]
                measured = target.measure(case.connections, sessions=case.sessions, seconds=settings.seconds)
                turns.samples[case].append(Sample(raw, measured))
        for name in (EVALUATE, TWO_WORKERS):
            held = resident(targets[name].server.pid) / MIB
            turns.memory.append(Memory(server=name, evaluations=_made(turns.samples, name), mebibytes=held))
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


def _made(samples: Samples, server: str) -> int:
    counts = [sample.measured.count for case in CASES if case.server == server for sample in samples[case]]
    return WARM_UP + sum(counts)


def row(case: Case, samples: Sequence[Sample]) -> Row:
    """Return a line of the table."""
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
        load_cpu_share=spread(each.cpu_seconds / each.seconds for each in seen).median,
    )


Ratio = Callable[[Sample, Sample], float]


def _to_each_other(one: Sample, other: Sample) -> float:
    return one.measured.per_second / other.measured.per_second


def _to_raw(one: Sample, other: Sample) -> float:  # noqa: ARG001 - the unit was measured right before
    return one.measured.per_second / one.raw


def _in_signatures(one: Sample, other: Sample) -> float:  # noqa: ARG001 - the unit was measured right before
    return one.measured.p99_ms / 1e3 * one.raw


class Held(NamedTuple):
    """A ratio between two cases of one round, and its limit."""

    name: str
    case: Case
    other: Case
    ratio: Ratio
    limit: float
    at_least: bool = True


_ONE, _MANY, _HELLO = Case(EVALUATE, 32, 1), Case(EVALUATE, 32, SESSIONS), Case(HELLO, 32, 1)
HELD: Final = (
    Held("evaluate / hello, 32 connections, 1 session", _ONE, _HELLO, _to_each_other, 0.40),
    Held("evaluate / hello, 32 connections, 32 sessions", _MANY, _HELLO, _to_each_other, 0.40),
    Held("evaluate / raw signatures, 32 connections, 1 session", _ONE, _ONE, _to_raw, 0.18),
    Held("evaluate / raw signatures, 32 connections, 32 sessions", _MANY, _MANY, _to_raw, 0.18),
    Held(
        "p99 at one connection, in raw signatures",
        Case(EVALUATE, 1, 1),
        Case(EVALUATE, 1, 1),
        _in_signatures,
        20.0,
        at_least=False,
    ),
    Held(
        "two workers / one worker, 32 connections, 32 sessions",
        Case(TWO_WORKERS, 32, SESSIONS),
        _MANY,
        _to_each_other,
        1.35,
    ),
)
OF_FRESH: Final = 0.90


def limits(samples: Samples, history: Sequence[History]) -> list[Limit]:
    """Return every ratio that is held to a limit."""
    held = [
        Limit(
            name=each.name,
            figure=spread(each.ratio(*pair) for pair in zip(samples[each.case], samples[each.other], strict=True)),
            limit=each.limit,
            at_least=each.at_least,
        )
        for each in HELD
    ]
    longest = max(each.receipts for each in history)
    past = [
        Limit(
            name=f"history of {each.receipts:,} receipts / fresh home, {number_of(each.connections, 'connection')}",
            figure=each.of_fresh,
            limit=OF_FRESH,
            at_least=True,
        )
        for each in history
        if each.receipts == longest
    ]
    return [*held, *past]


def measure(settings: Settings) -> ProxyRun:
    """Run everything."""
    with tempfile.TemporaryDirectory() as folder:
        samples, syncs, memory = take_turns(settings, Path(folder))
        history = list(histories(Path(folder), settings.receipts, 2 * settings.rounds))
    return ProxyRun(
        seconds=settings.seconds,
        rounds=settings.rounds,
        quick=settings.quick,
        raw_per_second=spread(sample.raw for turns in samples.values() for sample in turns),
        sync_us=spread(syncs),
        rows=[row(case, turns) for case, turns in samples.items()],
        history=history,
        memory=memory,
        limits=limits(samples, history),
    )


def settings_of(arguments: Sequence[str]) -> tuple[Settings, Path | None]:
    """Return how long to measure, and where the figures go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receipts", type=int, help="length of the long history (a million)")
    parser.add_argument("--seconds", type=float, help="of each turn (2)")
    parser.add_argument("--rounds", type=int, help="turns of each case (5)")
    parser.add_argument("--quick", action="store_true", help="see that it works: the figures mean nothing")
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    chosen = parser.parse_args(arguments)
    usual = Settings(2000, 0.3, 2, quick=True) if chosen.quick else Settings(1_000_000, 2.0, 5, quick=False)
    given = {name: value for name in ("receipts", "seconds", "rounds") if (value := getattr(chosen, name)) is not None}
    return usual._replace(**given), chosen.out


def main() -> int:
    """Measure, print the tables, and tell whether all limits are met."""
    settings, out = settings_of(sys.argv[1:])
    run = measure(settings)
    if out is not None:
        out.write_bytes(msgspec.json.encode(run))
    print(proxy_tables(run))
    return 0 if all(limit.met for limit in run.limits) else 1


if __name__ == "__main__":
    sys.exit(main())
