"""What the background verifier costs, and how soon it finds an altered receipt: `python -m bench.verifier`.

First, evaluations over HTTPS at 32 connections, in turns with the verifier at work and with the verifier stopped by a
signal. Then a Hub is started over a ledger of many receipts: until everything is verified, and until an altered receipt
is reported, wherever it is. The exit code is 1 if a limit is missed.
"""

import argparse
import os
import shutil
import signal
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.request import Request, urlopen

import msgspec

from bench.governor import raw_rate
from bench.homes import Home, new_home, new_hub_home
from bench.results import Limit, spread
from bench.servers import HUB, PROXY, Server, Target, launch
from bench.tables import limits_table

__all__ = ["main"]

CONNECTIONS: Final = 32
OF_STOPPED: Final = 0.97
REPORTED_S: Final = 60.0
PATIENCE_S: Final = 600.0
_MODULE: Final = b"remit.governor.verifier_process"
# Where a receipt is altered: the share of the chain before it.
PLACES: Final = {"first": 0.0, "middle": 0.5, "last": 1.0}


class Settings(NamedTuple):
    """How much to measure."""

    receipts: int
    seconds: float
    rounds: int


def verifier_of(server: Server) -> int:
    """Return the process id of the verifier that a server runs, once it does."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        children = Path(f"/proc/{server.pid}/task").glob("*/children")
        for pid in (int(word) for child in children for word in child.read_text().split()):
            if _MODULE in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
        time.sleep(0.05)
    raise RuntimeError("the server runs no verifier")


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure_cost(settings: Settings, root: Path) -> tuple[list[str], list[Limit]]:
    """Return evaluations per second with the verifier at work and with it stopped, in turns."""
    home = new_home(root)
    home.grow(1000)
    rates: dict[bool, list[float]] = {True: [], False: []}
    shares: list[float] = []
    with ExitStack() as stack:
        target = launch(stack, PROXY, home)
        pid = verifier_of(target.server)
        time.sleep(2.0)  # the first pass is not measured here
        for number in range(settings.rounds):
            print(f"round {number + 1} of {settings.rounds}", file=sys.stderr)
            for working in (True, False) if number % 2 == 0 else (False, True):
                os.kill(pid, signal.SIGCONT if working else signal.SIGSTOP)
                before, begun = cpu_s(pid), time.monotonic()
                rates[working].append(target.measure(CONNECTIONS, seconds=settings.seconds).per_second)
                if working:
                    shares.append((cpu_s(pid) - before) / (time.monotonic() - begun))
        os.kill(pid, signal.SIGCONT)
    lines = [
        f"evaluate, {CONNECTIONS} connections, verifier at work: {spread(rates[True]).show()} per second",
        f"evaluate, {CONNECTIONS} connections, verifier stopped: {spread(rates[False]).show()} per second",
        f"processor time of the verifier meanwhile: {100 * statistics.median(shares):.1f} % of a core",
    ]
    ratio = spread(one / other for one, other in zip(rates[True], rates[False], strict=True))
    return lines, [
        Limit(
            name="evaluate with the verifier / without, 32 connections", figure=ratio, limit=OF_STOPPED, at_least=True
        )
    ]


def measure_latency(settings: Settings, root: Path) -> tuple[list[str], list[Limit]]:
    """Return how long after the start of the Hub everything is verified, and an altered receipt is reported."""
    home = new_hub_home(root)
    print(f"ledger of {settings.receipts:,} receipts", file=sys.stderr)
    home.grow(settings.receipts)
    lines, limits = [], []
    took = reported(home, "verified")
    lines.append(f"{settings.receipts:,} receipts verified by signature after the start: {took:.1f} s")
    for name, share in PLACES.items():
        print(f"altered: {name}", file=sys.stderr)
        copy = home._replace(folder=Path(shutil.copytree(home.folder, root / f"altered-{name}")))
        place = 1 + round(share * (settings.receipts - 1))
        alter(copy.folder / "ledger.db", place)
        took = reported(copy, "broken")
        lines.append(f"receipt {place:,} of {settings.receipts:,} altered: reported after {took:.1f} s")
        limits.append(
            Limit(
                name=f"seconds until the {name} receipt of {settings.receipts:,}, altered, is reported",
                figure=spread([took]),
                limit=REPORTED_S,
                at_least=False,
            )
        )
        shutil.rmtree(copy.folder)
    return lines, limits


def alter(ledger: Path, seq: int) -> None:
    """Change the signature of one receipt of the first session."""
    with closing(sqlite3.connect(ledger)) as database, database:
        where = "session = (SELECT min(session) FROM receipts) AND seq = ?"
        ((token,),) = database.execute(f"SELECT token FROM receipts WHERE {where}", (seq,))
        changed = token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:]
        database.execute(f"UPDATE receipts SET token = ? WHERE {where}", (changed, seq))


def reported(home: Home, state: str) -> float:
    """Return the seconds from the start of a Hub until its status says that the evidence is in this state."""
    begun = time.monotonic()
    with ExitStack() as stack:
        target: Target = launch(stack, HUB._replace(path="/v1/status"), home, warm_up=False)
        while status_of(target)["verification"]["state"] != state:
            if time.monotonic() - begun > PATIENCE_S:
                raise RuntimeError(f"the status never says {state}")
            time.sleep(0.1)
        return time.monotonic() - begun


def status_of(target: Target) -> dict[str, Any]:
    """Return the status of a Hub."""
    request = Request(f"{target.server.url}/v1/status", headers=dict(target.headers))
    with urlopen(request, timeout=30) as answer:
        return dict(msgspec.json.decode(answer.read()))


def main() -> int:
    """Measure, print the table, and tell whether all limits are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receipts", type=int, help="length of the ledger (100,000)")
    parser.add_argument("--seconds", type=float, help="of each turn (4)")
    parser.add_argument("--rounds", type=int, help="turns with and without (8)")
    parser.add_argument("--quick", action="store_true", help="see that it works: the figures mean nothing")
    chosen = parser.parse_args()
    usual = Settings(2000, 0.3, 2) if chosen.quick else Settings(100_000, 4.0, 8)
    settings = usual._replace(**{name: value for name in usual._fields if (value := getattr(chosen, name)) is not None})
    parts: Sequence[Callable[[Settings, Path], tuple[list[str], list[Limit]]]] = (measure_cost, measure_latency)
    with tempfile.TemporaryDirectory() as folder:
        done = [part(settings, Path(folder)) for part in parts]
    limits = [limit for _, found in done for limit in found]
    print(
        f"interpreter: {sys.version.split()[0]}, {sysconfig.get_config_var('CONFIG_ARGS') or 'built without options'}"
    )
    print(f"raw signatures per second of one core: {raw_rate():.0f}\n")
    print("\n".join(line for lines, _ in done for line in lines), end="\n\n")
    print(limits_table(limits))
    return 0 if all(limit.met for limit in limits if limit.decides) else 1


if __name__ == "__main__":
    sys.exit(main())
