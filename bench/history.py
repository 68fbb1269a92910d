"""What a call costs after a long history, next to a fresh home: both are measured in turns, in the same minutes.

The history is one session's, made without a server. A cost that grows with the past is a bug.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from bench.homes import new_home
from bench.load import Measured
from bench.results import MIB, History, Limit, number_of, spread
from bench.servers import PROXY, Target, launch, resident

__all__ = ["Pairs", "beside_fresh", "histories", "in_pairs", "limits_of_history"]

LENGTHS: Final = (10, 10_000, 100_000)
# Requests of a turn, by connections: few, so that the history hardly grows while it is measured.
TURNS: Final = {1: 300, 32: 1000}
PATIENCE_S: Final = 60.0
OF_FRESH: Final = 0.90

Pairs: TypeAlias = list[tuple[Measured, Measured]]


def histories(root: Path, longest: int, rounds: int) -> Iterator[History]:
    """Yield what a call costs at each length of history up to the longest, next to a fresh home."""
    for length in (*(length for length in LENGTHS if length < longest), longest):
        print(f"history of {length:,} receipts", file=sys.stderr)
        long = new_home(root)
        long.grow(length)
        with ExitStack() as stack:
            target, fresh = (launch(stack, PROXY, home) for home in (long, new_home(root)))
            yield from beside_fresh(length, target, fresh, rounds)


def beside_fresh(length: int, target: Target, fresh: Target, rounds: int) -> Iterator[History]:
    """Yield what a call costs a server with so long a history, next to one over a fresh home."""
    for connections, count in TURNS.items():
        pairs = in_pairs(partial(_turn, connections, count), target, fresh, rounds)
        memory = [resident(one.server.pid) / MIB for one in (target, fresh)]
        yield _history(length, connections, pairs, memory)


def _turn(connections: int, count: int, target: Target) -> Measured:
    return target.measure(connections, seconds=PATIENCE_S, count=count)


def in_pairs(turn: Callable[[Target], Measured], one: Target, other: Target, rounds: int) -> Pairs:
    """Return what two servers measure side by side; in every second round, the other one begins."""
    pairs: Pairs = []
    for number in range(rounds):
        if number % 2 == 0:
            here = turn(one)
            pairs.append((here, turn(other)))
        else:
            there = turn(other)
            pairs.append((turn(one), there))
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


def limits_of_history(history: Sequence[History]) -> list[Limit]:
    """Return how much of a fresh home's speed is left after the longest history."""
    longest = max(each.receipts for each in history)
    return [
        Limit(
            name=f"history of {each.receipts:,} receipts / fresh home, {number_of(each.connections, 'connection')}",
            figure=each.of_fresh,
            limit=OF_FRESH,
            at_least=True,
        )
        for each in history
        if each.receipts == longest
    ]
