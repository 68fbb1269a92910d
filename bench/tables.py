"""Figures as Markdown tables: good to read on a terminal, and on a page."""

import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from bench.results import Export, History, HubRun, Limit, Memory, Page, ProxyRun, Row, Spread, build

__all__ = [
    "exports_table",
    "history_table",
    "hub_tables",
    "limits_table",
    "memory_table",
    "pages_table",
    "proxy_tables",
    "rows_table",
    "table",
]

T = TypeVar("T")
Columns = Sequence[tuple[str, Callable[[T], str]]]

ROWS: Final[Columns[Row]] = (
    ("server", lambda row: row.server),
    ("connections", lambda row: f"{row.connections}"),
    ("sessions", lambda row: f"{row.sessions}" if "hello" not in row.server else ""),
    ("per second", lambda row: row.per_second.show()),
    ("of raw", lambda row: f"{row.of_raw.median:.2f}"),
    ("p50 ms", lambda row: f"{row.p50_ms.median:.2f}"),
    ("p95 ms", lambda row: f"{row.p95_ms.median:.2f}"),
    ("p99 ms", lambda row: f"{row.p99_ms.median:.2f}"),
    ("max ms", lambda row: f"{row.max_ms:.1f}"),
    ("server us", lambda row: f"{row.server_us.median:.0f}" if row.server_us else ""),
    ("load", lambda row: f"{row.load_cpu_share:.0%}"),
)
HISTORY: Final[Columns[History]] = (
    ("receipts before", lambda row: f"{row.receipts:,}"),
    ("added", lambda row: f"{row.added:,}"),
    ("connections", lambda row: f"{row.connections}"),
    ("per second", lambda row: f"{row.per_second.median:.0f}"),
    ("fresh", lambda row: f"{row.fresh_per_second.median:.0f}"),
    ("of fresh", lambda row: row.of_fresh.show(2)),
    ("p50 ms", lambda row: f"{row.p50_ms.median:.2f}"),
    ("fresh", lambda row: f"{row.fresh_p50_ms.median:.2f}"),
    ("p99 ms", lambda row: f"{row.p99_ms.median:.2f}"),
    ("fresh", lambda row: f"{row.fresh_p99_ms.median:.2f}"),
    ("MiB", lambda row: f"{row.mebibytes:.0f}"),
    ("fresh", lambda row: f"{row.fresh_mebibytes:.0f}"),
)
MEMORY: Final[Columns[Memory]] = (
    ("server", lambda row: row.server),
    ("after evaluations", lambda row: f"{row.evaluations:,}"),
    ("MiB", lambda row: f"{row.mebibytes:.0f}"),
)
PAGES: Final[Columns[Page]] = (
    ("receipts", lambda row: f"{row.receipts:,}"),
    ("per second", lambda row: row.per_second.show()),
    ("p50 ms", lambda row: row.p50_ms.show(1)),
    ("p99 ms", lambda row: row.p99_ms.show(1)),
    ("max ms", lambda row: f"{row.max_ms:.1f}"),
)
EXPORTS: Final[Columns[Export]] = (
    ("form", lambda row: row.form),
    ("receipts", lambda row: f"{row.receipts:,}"),
    ("MB", lambda row: f"{row.megabytes:,.0f}"),
    ("seconds", lambda row: f"{row.seconds:.1f}"),
    ("MB a second", lambda row: f"{row.megabytes / row.seconds:.0f}"),
    ("receipts a second", lambda row: f"{row.receipts / row.seconds:,.0f}"),
    ("MiB before", lambda row: f"{row.mebibytes_before:.0f}"),
    ("grown by", lambda row: f"{row.mebibytes_grown:.1f}"),
)
LIMITS: Final[Columns[Limit]] = (
    ("ratio", lambda limit: limit.name),
    ("measured", lambda limit: limit.figure.show(2)),
    ("limit", lambda limit: limit.bound),
    ("", lambda limit: limit.verdict),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with the first column to the left, the others to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(head))]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(line, widths) for line in (lines[0], ruler, *lines[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    others = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return f"| {' | '.join((cells[0].ljust(widths[0]), *others))} |"


def _shown(columns: Columns[T], rows: Iterable[T]) -> str:
    return table([name for name, _ in columns], ([cell(row) for _, cell in columns] for row in rows))


def rows_table(rows: Iterable[Row]) -> str:
    """Return throughput and latency of every case."""
    return _shown(ROWS, rows)


def history_table(rows: Iterable[History]) -> str:
    """Return what a call costs at each length of history, next to a fresh home."""
    return _shown(HISTORY, rows)


def memory_table(rows: Iterable[Memory]) -> str:
    """Return what the servers hold in memory at the end."""
    return _shown(MEMORY, rows)


def limits_table(limits: Iterable[Limit]) -> str:
    """Return what is held to a limit, and how it went."""
    return _shown(LIMITS, limits)


def pages_table(rows: Iterable[Page]) -> str:
    """Return what a dashboard costs at each length of history."""
    return _shown(PAGES, rows)


def exports_table(rows: Iterable[Export]) -> str:
    """Return what exports cost."""
    return _shown(EXPORTS, rows)


def proxy_tables(run: ProxyRun) -> str:
    """Return all tables of a run of the proxy."""
    tables = (rows_table(run.rows), history_table(run.history), memory_table(run.memory), limits_table(run.limits))
    return "\n\n".join((_units(run.raw_per_second, run.sync_us), *tables))


def hub_tables(run: HubRun) -> str:
    """Return all tables of a run of the Hub."""
    long = history_table(run.history), pages_table(run.pages), exports_table(run.exports)
    return "\n\n".join((_units(run.raw_per_second, run.sync_us), rows_table(run.rows), *long, limits_table(run.limits)))


def _units(raw: Spread, sync_us: Spread) -> str:
    noise = (raw.high - raw.low) / raw.median
    return (
        f"Python {platform.python_version()}, {build()}\n"
        f"raw ES256 signatures of one core: {raw.show()} per second; this machine's noise: {noise:.0%}\n"
        f"one disk sync: {sync_us.show()} us"
    )
