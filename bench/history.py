"""What a call costs after a long history, next to a fresh home: both are measured in turns, in the same minutes.

The history is one session's, made without a server. A cost that grows with the past is a bug.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.load import Measured
from bench.results import MIB, History, spread
from bench.servers import Kind, Target, launch, new_home, resident

__all__ = ["histories"]

LENGTHS: Final = (10, 10_000, 100_000)
# Requests of a turn, by connections: few, so that the history hardly grows while it is measured.
TURNS: Final = {1: 300, 32: 1000}
PATIENCE_S: Final = 60.0

Pairs = list[tuple[Measured, Measured]]


def histories(root: Path, longest: int, rounds: int) -> Iterator[History]:
    """Yield what a call costs at each length of history up to the longest, next to a fresh home."""
    for length in (*(length for length in LENGTHS if length < longest), longest):
        print(f"history of {length:,} receipts", file=sys.stderr)
        long = new_home(root)
        long.grow(length)
        with ExitStack() as stack:
            target, fresh = (launch(stack, Kind(), home) for home in (long, new_home(root)))
            for connections, count in TURNS.items():
                pairs = _pairs(target, fresh, connections, count, rounds)
                memory = [resident(one.server.pid) / MIB for one in (target, fresh)]
                yield _history(length, connections, pairs, memory)


def _pairs(target: Target, fresh: Target, connections: int, count: int, rounds: int) -> Pairs:
    def turn(one: Target) -> Measured:
        return one.measure(connections, seconds=PATIENCE_S, count=count)

    pairs: Pairs = []
    for number in range(rounds):
        if number % 2 == 0:
            here = turn(target)
            pairs.append((here, turn(fresh)))
        else:
            there = turn(fresh)
            pairs.append((turn(target), there))
    return pairs


def _history(length: int, connections: int, pairs: Pairs, memory: Sequence[float]) -> History:
    long, fresh = ([pair[side] for pair in pairs] for side in (0, 1))
    return History(
        receipts=length,
        connections=connections,
        added=sum(each.count for each in long),
        per_second=spread(each.per_second for each in long),
        fresh_per_second=spread(each.per_second for each in fresh),
        of_fresh=spread(here.per_second / there.per_second for here, there in pairs),
        p50_ms=spread(each.p50_ms for each in long),
        p99_ms=spread(each.p99_ms for each in long),
        fresh_p50_ms=spread(each.p50_ms for each in fresh),
        fresh_p99_ms=spread(each.p99_ms for each in fresh),
        mebibytes=memory[0],
        fresh_mebibytes=memory[1],
    )
