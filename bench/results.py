"""What a run of the benchmarks leaves behind, as one JSON document: the page and its plots are made from it.

It names the machine by what it can do, never by its name or its folders.
"""

import os
import platform
import statistics
import sysconfig
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from typing import Final

import apsw
import msgspec

__all__ = [
    "MIB",
    "Export",
    "History",
    "HubRun",
    "Limit",
    "Machine",
    "Memory",
    "Page",
    "Part",
    "ProxyRun",
    "Row",
    "Run",
    "Spread",
    "build",
    "machine",
    "number_of",
    "spread",
    "today",
    "versions",
]

PACKAGES: Final = ("uvloop", "httptools", "cryptography", "apsw")
MIB: Final = 2**20


class Spread(msgspec.Struct, frozen=True):
    """The median over the rounds, with the lowest and the highest of them."""

    median: float
    low: float
    high: float

    def show(self, digits: int = 0) -> str:
        """Return it for people."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def spread(values: Iterable[float]) -> Spread:
    """Return the spread of at least one value."""
    given = list(values)
    return Spread(statistics.median(given), min(given), max(given))


def number_of(count: int, thing: str) -> str:
    """Return so many things, in words: one of them is not many."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One way to load one server."""

    server: str
    connections: int
    sessions: int
    per_second: Spread
    of_raw: Spread
    p50_ms: Spread
    p95_ms: Spread
    p99_ms: Spread
    max_ms: float
    load_cpu_share: float
    # Processor time of one request, over all processes of the server.
    server_us: Spread | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A history of so many receipts beside a fresh home, measured in turns; both get longer by what is `added`."""

    receipts: int
    connections: int
    added: int
    per_second: Spread
    fresh_per_second: Spread
    of_fresh: Spread
    p50_ms: Spread
    p99_ms: Spread
    fresh_p50_ms: Spread
    fresh_p99_ms: Spread
    mebibytes: float
    fresh_mebibytes: float


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a server and its workers hold in memory, after so many evaluations of its own."""

    server: str
    evaluations: int
    mebibytes: float


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is held to a limit; one that says as much of the machine as of us is shown, and does not decide."""

    name: str
    figure: Spread
    limit: float
    at_least: bool
    decides: bool = True

    @property
    def met(self) -> bool:
        """Tell whether the median keeps the limit."""
        return self.figure.median >= self.limit if self.at_least else self.figure.median <= self.limit

    @property
    def verdict(self) -> str:
        """Return how it went, in a word."""
        return ("met" if self.met else "missed") + ("" if self.decides else ", shown only")

    @property
    def bound(self) -> str:
        """Return the limit for people."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:.2f}"


class ProxyRun(msgspec.Struct, frozen=True, kw_only=True):
    """What `bench.proxy` measured."""

    seconds: float
    rounds: int
    quick: bool
    raw_per_second: Spread
    sync_us: Spread
    rows: list[Row]
    history: list[History]
    memory: list[Memory]
    limits: list[Limit]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a dashboard costs after so many receipts."""

    receipts: int
    per_second: Spread
    p50_ms: Spread
    p99_ms: Spread
    max_ms: float


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """What an export of so many receipts costs, as it was sent, and by how much the server grew meanwhile."""

    form: str
    receipts: int
    megabytes: float
    seconds: float
    mebibytes_before: float
    mebibytes_grown: float


class HubRun(msgspec.Struct, frozen=True, kw_only=True):
    """What `bench.hub` measured."""

    seconds: float
    rounds: int
    quick: bool
    raw_per_second: Spread
    sync_us: Spread
    rows: list[Row]
    history: list[History]
    pages: list[Page]
    exports: list[Export]
    limits: list[Limit]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One script: how it was called, what it printed, and whether it kept its limits."""

    name: str
    command: str
    text: str
    kept: bool


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine can do."""

    cores: int
    architecture: str
    memory_gib: float
    system: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured in one go."""

    date: str
    machine: Machine
    versions: dict[str, str]
    parts: list[Part]
    proxy_command: str
    proxy: ProxyRun
    hub_command: str
    hub: HubRun


def machine() -> Machine:
    """Return what this machine can do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    with suppress(OSError):
        system = f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {system}"
    return Machine(
        cores=cores, architecture=platform.machine(), memory_gib=round(memory / MIB / 1024, 1), system=system
    )


def versions() -> dict[str, str]:
    """Return the versions that the figures depend on."""
    return {
        "Python": f"{platform.python_version()} ({build()})",
        **{package: version(package) for package in PACKAGES},
        "SQLite": apsw.sqlite_lib_version(),
    }


def build() -> str:
    """Return how this interpreter was built: without optimisation, everything takes longer by an eighth."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return "built with optimisation" if "--enable-optimizations" in options else "built without optimisation"


def today() -> str:
    """Return the date, the same everywhere on earth."""
    return time.strftime("%Y-%m-%d", time.gmtime())
