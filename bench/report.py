"""The page of figures: `python -m bench.report` makes docs/operate/benchmarks.md and its plots.

It makes them from docs/operate/benchmarks/results.json, which a run of all benchmarks writes. The same results make the
same page.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Final

import msgspec

from bench.plot import Axis, Chart, Line, draw
from bench.results import History, HubRun, Limit, ProxyRun, Row, Run, number_of
from bench.tables import exports_table, history_table, limits_table, memory_table, pages_table, rows_table, table

__all__ = ["RESULTS", "write_report"]

DOCS: Final = Path(__file__).parent.parent / "docs" / "operate"
RESULTS: Final = "benchmarks/results.json"
PAGE: Final = "benchmarks.md"
THROUGHPUT: Final = "benchmarks/throughput.svg"
LATENCY: Final = "benchmarks/latency.svg"


def write_report(run: Run, folder: Path) -> None:
    """Write the results, the plots and the page below a folder."""
    (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
    results = msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n"
    (folder / RESULTS).write_bytes(results)
    (folder / THROUGHPUT).write_text(draw(throughput_chart(run.proxy)), encoding="utf-8")
    (folder / LATENCY).write_text(draw(latency_chart(run.proxy.history)), encoding="utf-8")
    (folder / PAGE).write_text(page(run), encoding="utf-8")


def throughput_chart(run: ProxyRun) -> Chart:
    """Return answers per second against connections."""
    lines = [
        _rates("hello", run.rows, "hello", 1),
        _rates("evaluate, 1 session", run.rows, "evaluate", 1),
        _rates("evaluate, 32 sessions", run.rows, "evaluate", 32),
    ]
    connections = [x for x, _ in lines[0].points]
    raw = run.raw_per_second.median
    lines.append(Line("raw signatures", [(connections[0], raw), (connections[-1], raw)], marks=False))
    return Chart(
        title="Answers per second over HTTPS, each receipt durable",
        description=_spoken(lines, "connections", "per second"),
        across=Axis("connections (log scale)", connections, log=True),
        up=Axis("answers per second", _steps(max(y for line in lines for _, y in line.points))),
        lines=lines,
    )


def _rates(name: str, rows: Iterable[Row], server: str, sessions: int) -> Line:
    chosen = (row for row in rows if (row.server, row.sessions) == (server, sessions))
    return Line(name, [(row.connections, row.per_second.median) for row in chosen])


def latency_chart(history: Sequence[History]) -> Chart:
    """Return how long a call takes against the receipts before it."""
    lines = [
        Line(f"{name}, {number_of(connections, 'connection')}", _latencies(history, connections, name))
        for connections in sorted({each.connections for each in history})
        for name in ("p50", "p99")
    ]
    lengths = sorted({each.receipts for each in history})
    heights = [y for line in lines for _, y in line.points]
    return Chart(
        title="Latency of an evaluation by length of history",
        description=_spoken(lines, "receipts", "milliseconds"),
        across=Axis("receipts in the session before (log scale)", lengths, log=True),
        up=Axis("milliseconds (log scale)", _powers(min(heights), max(heights)), log=True),
        lines=lines,
    )


def _latencies(history: Iterable[History], connections: int, name: str) -> list[tuple[float, float]]:
    chosen = (each for each in history if each.connections == connections)
    return [(each.receipts, (each.p50_ms if name == "p50" else each.p99_ms).median) for each in chosen]


def _spoken(lines: Iterable[Line], across: str, up: str) -> str:
    told = (f"{line.name}: {', '.join(f'{_figure(y)} at {x:,.10g}' for x, y in line.points)}" for line in lines)
    return f"In {up}, by {across}. {'. '.join(told)}."


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _steps(highest: float) -> list[float]:
    """Return from four to eight even ticks, from zero to above the highest."""
    unit = 10 ** math.floor(math.log10(highest))
    step = next(unit * part for part in (0.2, 0.5, 1, 2) if highest / (unit * part) <= 8)
    return [step * number for number in range(math.ceil(highest / step) + 1)]


def _powers(lowest: float, highest: float) -> list[float]:
    """Return ticks at 1, 2 and 5 of every power of ten, around what is given."""
    powers = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    ticks = [part * 10.0**power for power in powers for part in (1, 2, 5)]
    return [low for low, high in pairwise([*ticks, math.inf]) if high > lowest and low < highest] + [
        next(tick for tick in ticks if tick >= highest)
    ]


def page(run: Run) -> str:
    """Return the page."""
    proxy = run.proxy
    made = [
        "# Benchmarks",
        f"Measured on {run.date}. This page is made by `make bench`, from [these results](benchmarks/results.json); "
        "[what is measured and how](../../bench/README.md). Figures of other machines differ; the **ratios** are what "
        "Remit is held to. Each is between things that were measured in turns in the same run.",
        *(["**This was a quick run: its figures mean nothing.**"] if proxy.quick else []),
        "## Machine",
        machine_table(run),
        "The load came from a process of its own on the same machine.",
        *_proxy_parts(proxy, run.proxy_command),
        *_hub_parts(run.hub, run.hub_command),
    ]
    for part in run.parts:
        made += [
            f"## `{part.name}`",
            f"Its limits are {'met' if part.kept else '**missed**'}.",
            _block(part.command, part.text),
        ]
    return "\n\n".join(_wrapped(paragraph) for paragraph in made) + "\n"


def _proxy_parts(proxy: ProxyRun, command: str) -> list[str]:
    return [
        "## Limits of the proxy",
        _said_of(proxy.limits),
        limits_table(proxy.limits),
        "## The proxy over the wire",
        f"![Answers per second against connections]({THROUGHPUT})",
        f"Measured by `{command}`: {proxy.rounds} rounds, each case {proxy.seconds:g} seconds in each round, "
        "there and back again. Connections are kept; every receipt is on disk before its answer. `hello` is the same "
        "server software with a constant answer. `of raw` is the share of the raw ES256 signatures that one core made "
        f"right before: {proxy.raw_per_second.show()} per second. One disk sync took {proxy.sync_us.show()} "
        "microseconds. `load` is the share of one core that the load itself took.",
        rows_table(proxy.rows),
        "## Long histories",
        f"![Latency against length of history]({LATENCY})",
        "All receipts are of one session. A proxy over that home and one over a fresh home were measured in turns. "
        "Measuring adds receipts to both, which counts only for the short ones.",
        history_table(proxy.history),
        "## Memory of the proxy at the end",
        memory_table(proxy.memory),
    ]


def _hub_parts(hub: HubRun, command: str) -> list[str]:
    raw = hub.raw_per_second
    return [
        "## Limits of the Hub",
        f"{_said_of(hub.limits)} What is only shown depends on the machine as much as on the Hub: within this run, "
        f"the speed of one core went from {raw.low:.0f} to {raw.high:.0f} raw signatures per second.",
        limits_table(hub.limits),
        "## The Hub over the wire",
        f"Measured by `{command}`: {hub.rounds} rounds, each case {hub.seconds:g} seconds in each round, there and "
        "back again, over plain HTTP and with durable receipts. An event that is observed does more than a call that "
        "is evaluated: a token is checked, a note is kept, and its answer holds the review of the session.",
        rows_table(hub.rows),
        "The same after a long history, all of one session, beside a fresh home:",
        history_table(hub.history),
        "The dashboard, one page after the other. While somebody looks, the Hub verifies the chains that are shown, "
        "and a long one takes it minutes; that is part of these times.",
        pages_table(hub.pages),
        "Everything that the Hub holds, read to its end and dropped as it came, while its memory was watched:",
        exports_table(hub.exports),
    ]


def _said_of(limits: Sequence[Limit]) -> str:
    held = [limit for limit in limits if limit.decides]
    return (
        f"{sum(limit.met for limit in held)} of {len(held)} are met. "
        "Shown is the median of the rounds, with the lowest and the highest."
    )


def _wrapped(paragraph: str) -> str:
    return paragraph if paragraph[0] in "|`!#" else fill(paragraph, 116, break_long_words=False, break_on_hyphens=False)


def machine_table(run: Run) -> str:
    """Return what the figures depend on."""
    machine = run.machine
    facts = {
        "processor": f"{machine.cores} cores, {machine.architecture}",
        "memory": f"{machine.memory_gib:g} GiB",
        "system": machine.system,
        **run.versions,
    }
    return table(("", ""), facts.items())


def _block(command: str, text: str) -> str:
    printed = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    return f"```text\n$ {command}\n{printed}\n```"


def main() -> int:
    """Make the page again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=DOCS, help="the folder with the results, the page and the plots")
    folder: Path = parser.parse_args().into
    write_report(msgspec.json.decode((folder / RESULTS).read_bytes(), type=Run), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
