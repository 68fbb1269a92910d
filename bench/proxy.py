"""What an evaluation costs over the wire: `python -m bench.proxy`, or `make bench`.

The proxy runs in one process and its load in another, over HTTPS with kept connections, and each receipt is durable
before its answer. Next to it, in the same run and in turns: the same server software with a constant answer ("hello"),
and the raw ES256 signatures that one core makes while nothing else runs. What counts are the ratios of one round. The
exit code is 1 if one misses its limit.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from bench import servers
from bench.history import histories, limits_of_history
from bench.homes import SESSIONS, new_home
from bench.results import MIB, Limit, Memory, ProxyRun, spread
from bench.servers import WARM_UP, launch, resident
from bench.tables import proxy_tables
from bench.turns import (
    Case,
    Held,
    Sample,
    Samples,
    Settings,
    Turns,
    limits_of,
    raw_of,
    rows_of,
    settings_of,
    take_turns,
    to_each_other,
)

__all__ = ["main"]

CONNECTIONS: Final = (1, 8, 32, 128)

EVALUATE: Final = "evaluate"
HELLO: Final = "hello"
ONE_PROCESS: Final = "evaluate, one process"
PLAIN: Final = "evaluate, plain HTTP"
PLAIN_HELLO: Final = "hello, plain HTTP"

KINDS: Final = {
    EVALUATE: servers.PROXY,
    HELLO: servers.HELLO,
    ONE_PROCESS: servers.PROXY.with_options("--processes", "1"),
    PLAIN: servers.PROXY.with_options("--insecure-http"),
    PLAIN_HELLO: servers.HELLO.with_options("--insecure-http"),
}

CASES: Final = (
    *(Case(EVALUATE, connections, sessions) for sessions in (1, SESSIONS) for connections in CONNECTIONS),
    *(Case(HELLO, connections) for connections in CONNECTIONS),
    *(Case(ONE_PROCESS, connections) for connections in (1, 32)),
    Case(PLAIN, 32),
    Case(PLAIN_HELLO, 32),
)


def in_turns(settings: Settings, root: Path) -> tuple[Turns, list[Memory]]:
    """Return what all cases measured, and what memory the proxies hold at the end."""
    with ExitStack() as stack:
        targets = {name: launch(stack, kind, new_home(root)) for name, kind in KINDS.items()}
        turns = take_turns(targets, CASES, settings, root)
        memory = [
            Memory(
                server=name,
                evaluations=_made(turns.samples, name),
                mebibytes=resident(targets[name].server.pid) / MIB,
            )
            for name in (EVALUATE, ONE_PROCESS)
        ]
    return turns, memory


def _made(samples: Samples, server: str) -> int:
    counts = [sample.measured.count for case in CASES if case.server == server for sample in samples[case]]
    return WARM_UP + sum(counts)


def _to_raw(one: Sample, other: Sample) -> float:  # noqa: ARG001 - the unit was measured right before
    return one.measured.per_second / one.raw


def _p50_in_signatures(one: Sample, other: Sample) -> float:  # noqa: ARG001 - the unit was measured right before
    return one.measured.p50_ms / 1e3 * one.raw


def _p99_in_signatures(one: Sample, other: Sample) -> float:  # noqa: ARG001 - the unit was measured right before
    return one.measured.p99_ms / 1e3 * one.raw


def _cost_in_signatures(one: Sample, other: Sample) -> float:  # noqa: ARG001 - the unit was measured right before
    return one.server_us / 1e6 * one.raw


_ONE, _MANY, _HELLO = Case(EVALUATE, 32, 1), Case(EVALUATE, 32, SESSIONS), Case(HELLO, 32)
_ALONE: Final = Case(ONE_PROCESS, 1)
MOST_MIB: Final = 220.0
HELD: Final = (
    Held("evaluate / hello, 32 connections, 1 session", _ONE, _HELLO, to_each_other, 0.30),
    Held("evaluate / hello, 32 connections, 32 sessions", _MANY, _HELLO, to_each_other, 0.30),
    Held("evaluate / raw signatures, 32 connections, 1 session", _ONE, _ONE, _to_raw, 0.20),
    Held("evaluate / raw signatures, 32 connections, 32 sessions", _MANY, _MANY, _to_raw, 0.20),
    Held("processor time of a call, in raw signatures", _ONE, _ONE, _cost_in_signatures, 7.5, at_least=False),
    Held(
        "p50 at one connection, one process, in raw signatures",
        _ALONE,
        _ALONE,
        _p50_in_signatures,
        16.0,
        at_least=False,
    ),
    Held(
        "p99 at one connection, one process, in raw signatures",
        _ALONE,
        _ALONE,
        _p99_in_signatures,
        25.0,
        at_least=False,
    ),
)


def measure(settings: Settings) -> ProxyRun:
    """Run everything."""
    with tempfile.TemporaryDirectory() as folder:
        (samples, syncs), memory = in_turns(settings, Path(folder))
        history = list(histories(Path(folder), settings.receipts, 2 * settings.rounds))
    return ProxyRun(
        seconds=settings.seconds,
        rounds=settings.rounds,
        quick=settings.quick,
        raw_per_second=raw_of(samples),
        sync_us=spread(syncs),
        rows=rows_of(samples),
        history=history,
        memory=memory,
        limits=[*limits_of(HELD, samples), *limits_of_history(history), *map(_limit_of_memory, memory)],
    )


def _limit_of_memory(memory: Memory) -> Limit:
    return Limit(
        name=f"MiB of all processes at the end, {memory.server}",
        figure=spread([memory.mebibytes]),
        limit=MOST_MIB,
        at_least=False,
    )


def main() -> int:
    """Measure, print the tables, and tell whether all limits are met."""
    settings, out = settings_of(__doc__, sys.argv[1:])
    run = measure(settings)
    if out is not None:
        out.write_bytes(msgspec.json.encode(run))
    print(proxy_tables(run))
    return 0 if all(limit.met for limit in run.limits) else 1


if __name__ == "__main__":
    sys.exit(main())
