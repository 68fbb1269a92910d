"""What an evaluation costs with its durable receipt: `python -m bench.governor`, or `make bench`.

Throughput at 1, 8, 32 and 128 concurrent callers, as a share of the raw ES256 signatures that one core makes in the
same run; what a call costs after a long history, next to a short one in the same run; how long a restart takes; and
whether memory grows. `--receipts N` sets how long the long history is (a million by default takes half an hour).
"""

import argparse
import asyncio
import gc
import os
import resource
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from bench.units import raw_signature
from remit.claims.mission import Mission
from remit.governor.context import UseCase
from remit.governor.evaluate import Evaluate, Evaluation
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import StartSession
from remit.ledger.commit import CommitObserver
from remit.ledger.transaction import Store
from remit.policy.call import ToolCall
from remit.wiring import Service, build_service

CALLERS = (1, 8, 32, 128)
LIMIT_AT_32 = 0.40
LIMIT_OF_HISTORY = 1.10
COLUMNS = {"callers": 8, "per second": 12, "p50 ms": 9, "p95 ms": 9, "p99 ms": 9, "group": 7, "share of raw": 14}
ROUNDS = 5
SECONDS = 1.0
TURN = 1000


class Groups(CommitObserver):
    """Counts groups and what they hold."""

    def __init__(self) -> None:
        self.groups = self.work = 0

    def committed(self, store: Store, size: int, seconds: float) -> None:  # noqa: ARG002 - only the size counts here
        """Count one group."""
        self.groups += 1
        self.work += size

    def mean(self) -> float:
        """Return the mean size since the last time, and start anew."""
        mean = self.work / max(1, self.groups)
        self.groups = self.work = 0
        return mean


_Case = TypeVar("_Case", bound=UseCase[Evaluation])


class Bench(NamedTuple, Generic[_Case]):
    """A service, and what it is asked again and again."""

    service: Service
    case: _Case
    groups: Groups


@contextmanager
def opened(folder: Path) -> Iterator[Bench[Evaluate]]:
    """Give a service over a new home, with a session that may do anything often."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "app.py").write_text("print('hello')\n", encoding="utf-8")
    groups = Groups()
    service = build_service(folder / "home", observer=groups)
    try:
        call = ToolCall("Read", {"file_path": f"{project}/app.py"})
        yield Bench(service, Evaluate(start(service, project), call), groups)
    finally:
        service.close()


def start(service: Service, project: Path) -> str:
    """Start a session and return its id."""
    mission = Mission(
        agent_id="agent:benchmark",
        mission="Read the project",
        allowed_tools=("Bash", "Read"),
        resource_scope=(str(project),),
        max_tool_calls=10**9,
        max_duration_s=24 * 3600,
        cwd=str(project),
    )
    passport = service.governor.run(IssuePassport(PassportRequest(mission, f"pass:{secrets.token_hex(16)}")))
    return service.governor.run(StartSession(passport.token)).session.id


def load(bench: Bench[_Case], callers: int, *, count: int = 0, seconds: float = 0.0) -> tuple[int, float, list[float]]:
    """Let callers ask, each one call after the other; return how many, how long, and each call's time."""
    times: list[float] = []

    async def one(until: float) -> None:
        while (len(times) < count) if count else (time.perf_counter() < until):
            before = time.perf_counter()
            answer = await bench.service.governor.arun(bench.case)
            times.append(time.perf_counter() - before)
            if not answer.permits:
                raise RuntimeError(answer.receipt.claims.reason)

    async def everyone() -> float:
        before = time.perf_counter()
        await asyncio.gather(*(one(before + seconds) for _ in range(callers)))
        return time.perf_counter() - before

    took = asyncio.run(everyone())
    return len(times), took, times


def raw_rate(seconds: float = 0.3) -> float:
    """Return the raw signatures per second of one core."""
    sign, _ = raw_signature(bytes(1024))
    made, before = 0, time.perf_counter()
    while time.perf_counter() - before < seconds:
        for _ in range(50):
            sign()
        made += 50
    return made / (time.perf_counter() - before)


def said(*, within: bool) -> str:
    """Return what stands after a limit."""
    return "" if within else "  missed"


def throughput(bench: Bench[Evaluate]) -> bool:
    """Print evaluations per second, and tell whether the limit is kept."""
    print("".join(f"{name:>{width}}" for name, width in COLUMNS.items()) + "  limit")
    kept = True
    load(bench, 8, count=500)
    for callers in CALLERS:
        shares, rates, times = list[float](), list[float](), list[float]()
        bench.groups.mean()
        for _ in range(ROUNDS):
            raw = raw_rate()
            made, took, each = load(bench, callers, seconds=SECONDS)
            rates.append(made / took)
            shares.append(made / took / raw)
            times += each
        cuts = statistics.quantiles(times, n=100)
        share = statistics.median(shares)
        limit = LIMIT_AT_32 if callers == 32 else None
        within = limit is None or share >= limit
        kept = kept and within
        print(
            f"{callers:>8}{statistics.median(rates):>12.0f}{cuts[49] * 1e3:>9.2f}{cuts[94] * 1e3:>9.2f}"
            f"{cuts[98] * 1e3:>9.2f}{bench.groups.mean():>7.1f}{share:>14.3f}  {limit or ''}{said(within=within)}"
        )
    return kept


def history(short: Bench[Evaluate], long: Bench[Evaluate], lengths: tuple[int, ...]) -> bool:
    """Print what a call costs at each length of history, next to a session that begins; tell whether it stays."""
    print(f"\n{'receipts':>10}{'us a call':>12}{'us, short history':>20}{'ratio':>8}  limit")
    kept, made = True, 0
    for length in lengths:
        made += load(long, 128, count=max(1, length - made))[0]
        pairs = [(cost(long), cost(short)) for _ in range(2 * ROUNDS)]
        made += 2 * ROUNDS * TURN
        ratio = statistics.median(here / there for here, there in pairs)
        within = ratio <= LIMIT_OF_HISTORY
        kept = kept and within
        here, there = (statistics.median(costs) for costs in zip(*pairs, strict=True))
        print(f"{length:>10}{here:>12.0f}{there:>20.0f}{ratio:>8.2f}  {LIMIT_OF_HISTORY:.2f}{said(within=within)}")
    return kept


def cost(bench: Bench[Evaluate]) -> float:
    """Return the microseconds that one call of many takes."""
    made, took, _ = load(bench, 32, count=TURN)
    return took / made * 1e6


def restart(folder: Path) -> float:
    """Return how long it takes until a service with this home has answered a call."""
    before = time.perf_counter()
    service = build_service(folder / "home")
    try:
        start(service, folder / "project")
        return time.perf_counter() - before
    finally:
        service.close()


def memory(bench: Bench[Evaluate], count: int) -> float:
    """Return by how much memory has grown over `count` evaluations, after the first tenth of them."""
    load(bench, 32, count=count // 10)
    gc.collect()
    before = resident()
    load(bench, 32, count=count)
    gc.collect()
    return resident() / before - 1


def resident() -> int:
    """Return the bytes of memory in use."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    """Run all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receipts", type=int, default=1_000_000, help="length of the long history")
    parser.add_argument("--soak", type=int, default=100_000, help="evaluations while memory is watched; 0 for none")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        with opened(Path(one)) as short, opened(Path(two)) as long:
            kept = throughput(short)
            lengths = tuple(length for length in (10, 100_000) if length < chosen.receipts)
            kept = history(short, long, (*lengths, chosen.receipts)) and kept
            if chosen.soak:
                grown = memory(short, chosen.soak)
                kept = kept and grown < 0.05
                missed = said(within=grown < 0.05)
                print(f"\nmemory after {chosen.soak} more evaluations: {grown:+.1%} (limit +5 %){missed}")
        ready = restart(Path(two))
        kept = kept and ready < 2
        missed = said(within=ready < 2)
        print(f"restart with {chosen.receipts} receipts, until a session is started: {ready:.2f} s (limit 2){missed}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
