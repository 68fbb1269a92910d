"""What the Personal Hub costs over the wire: `python -m bench.hub`, or `make bench`.

Events that are observed, next to evaluations of the proxy over plain HTTP, in turns: a Hub does more for each, and may
not cost much more. Then the same after a long history, next to a fresh home; the dashboard of that history, next to a
short one's; and its export, while the memory of the Hub is watched. What counts are the ratios of one round, and that
memory. The exit code is 1 if one misses its limit.
"""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from bench.exports import exported
from bench.history import Pairs, beside_fresh, in_pairs, limits_of_history
from bench.homes import new_home, new_hub_home
from bench.load import Measured
from bench.results import Export, History, HubRun, Limit, Page, number_of, spread
from bench.servers import HUB, PROXY, WARM_UP, Target, launch
from bench.tables import hub_tables
from bench.turns import Case, Held, Settings, Turns, limits_of, raw_of, rows_of, settings_of, take_turns, to_each_other

__all__ = ["main"]

CONNECTIONS: Final = (1, 8, 32)
OBSERVE: Final = "observe"
EVALUATE: Final = "evaluate, plain HTTP"
CASES: Final = tuple(Case(server, connections) for connections in CONNECTIONS for server in (OBSERVE, EVALUATE))
HELD: Final = tuple(
    Held(
        f"observe / evaluate, {number_of(connections, 'connection')}",
        Case(OBSERVE, connections),
        Case(EVALUATE, connections),
        to_each_other,
        0.80,
    )
    for connections in CONNECTIONS
)
# How long the history of the short dashboard is; how much longer a page of the long one may take, and how long at all.
SHORT: Final = 1000
OF_SHORT: Final = 1.5
PAGE_P99_MS: Final = 100.0
EXPORT_MIB: Final = 30.0
FORMS: Final = ("identity", "gzip")


def in_turns(settings: Settings, root: Path) -> Turns:
    """Return what all cases measured."""
    with ExitStack() as stack:
        targets = {
            OBSERVE: launch(stack, HUB, new_hub_home(root)),
            EVALUATE: launch(stack, PROXY.with_options("--insecure-http"), new_home(root)),
        }
        return take_turns(targets, CASES, settings, root)


def after_long(settings: Settings, root: Path) -> tuple[list[History], list[Export], Pairs]:
    """Return what events, exports and pages cost after a long history; the pages each beside one of a short history."""
    length, rounds = settings.receipts, 2 * settings.rounds
    print(f"history of {length:,} receipts", file=sys.stderr)
    homes = [new_hub_home(root) for _ in range(3)]
    for home, receipts in zip(homes, (length, SHORT), strict=False):
        home.grow(max(1, receipts - WARM_UP))
    with ExitStack() as stack:
        long, short, fresh = (launch(stack, HUB, home) for home in homes)
        history = list(beside_fresh(length, long, fresh, rounds))
        print("exports", file=sys.stderr)
        exports = [exported(long, form, length + sum(each.added for each in history)) for form in FORMS]
        print("dashboards", file=sys.stderr)
        pages = in_pairs(lambda one: _page(one, settings.seconds), long, short, rounds)
    return history, exports, pages


def _page(target: Target, seconds: float) -> Measured:
    page = target._replace(method="GET", path="/dashboard", bodies=[""], expect="</html>")
    return page.measure(1, seconds=seconds)


def pages_of(pairs: Pairs, lengths: Sequence[int]) -> list[Page]:
    """Return what a dashboard costs at each length of history."""
    return [
        Page(
            receipts=length,
            per_second=spread(each.per_second for each in seen),
            p50_ms=spread(each.p50_ms for each in seen),
            p99_ms=spread(each.p99_ms for each in seen),
            max_ms=max(each.max_ms for each in seen),
        )
        for length, seen in zip(lengths, zip(*pairs, strict=True), strict=True)
    ]


def limits_of_pages(pairs: Pairs, receipts: int) -> list[Limit]:
    """Return how much longer a dashboard takes after a long history, and how long that is."""
    return [
        Limit(
            name=f"dashboard of {receipts:,} receipts / of {SHORT:,}, time",
            figure=spread(short.per_second / long.per_second for long, short in pairs),
            limit=OF_SHORT,
            at_least=False,
        ),
        Limit(
            name=f"dashboard of {receipts:,} receipts, p99 in milliseconds",
            figure=spread(long.p99_ms for long, _ in pairs),
            limit=PAGE_P99_MS,
            at_least=False,
            decides=False,
        ),
    ]


def limits_of_exports(exports: Sequence[Export]) -> list[Limit]:
    """Return by how much exports make the Hub grow."""
    return [
        Limit(
            name=f"memory for an export of {each.receipts:,} receipts, {each.form}, MiB",
            figure=spread([each.mebibytes_grown]),
            limit=EXPORT_MIB,
            at_least=False,
        )
        for each in exports
    ]


def measure(settings: Settings) -> HubRun:
    """Run everything."""
    with tempfile.TemporaryDirectory() as folder:
        samples, syncs = in_turns(settings, Path(folder))
        history, exports, pages = after_long(settings, Path(folder))
    return HubRun(
        seconds=settings.seconds,
        rounds=settings.rounds,
        quick=settings.quick,
        raw_per_second=raw_of(samples),
        sync_us=spread(syncs),
        rows=rows_of(samples),
        history=history,
        pages=pages_of(pages, (settings.receipts, SHORT)),
        exports=exports,
        limits=[
            *limits_of(HELD, samples),
            *limits_of_history(history),
            *limits_of_pages(pages, settings.receipts),
            *limits_of_exports(exports),
        ],
    )


def main() -> int:
    """Measure, print the tables, and tell whether all limits are met."""
    settings, out = settings_of(__doc__, sys.argv[1:])
    run = measure(settings)
    if out is not None:
        out.write_bytes(msgspec.json.encode(run))
    print(hub_tables(run))
    return 0 if all(limit.met for limit in run.limits if limit.decides) else 1


if __name__ == "__main__":
    sys.exit(main())
