"""All benchmarks, one after the other, and the page of what they measured: `python -m bench`, or `make bench`.

A script that misses a limit does not stop the others; the exit code is 1 in the end. With `--quick`, everything is run
once to see that it works, and no page is written unless `--into` names a folder for it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from bench.report import DOCS, write_report
from bench.results import HubRun, Part, ProxyRun, Run, machine, today, versions

FULL: Final = {
    "bench.claims": (),
    "bench.policy": (),
    "bench.governor": ("--receipts", "100000", "--soak", "20000"),
    "bench.hooks": (),
    "bench.verifier": (),
    "bench.path": (),
    "bench.proxy": (),
    "bench.hub": (),
}
QUICK: Final = {
    "bench.claims": (),
    "bench.policy": (),
    "bench.governor": ("--receipts", "2000", "--soak", "2000"),
    "bench.hooks": ("--quick",),
    "bench.verifier": ("--quick",),
    "bench.path": (),
    "bench.proxy": ("--quick",),
    "bench.hub": ("--quick",),
}


# These leave figures, from which the page is made; what the others print is shown as it is.
FIGURES: Final = {"bench.proxy": ProxyRun, "bench.hub": HubRun}


def run_part(name: str, options: tuple[str, ...], *hidden: str) -> Part:
    """Run one script, showing what it prints while it does; `hidden` options are not part of what it measures."""
    shown = " ".join(("python -m", name, *options))
    print(f"\n$ {shown}", flush=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", name, *options, *hidden], stdout=subprocess.PIPE, text=True, env=environment
    ) as script:
        for line in script.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if script.returncode not in (0, 1):
        raise SystemExit(f"{name} ended with {script.returncode}")
    return Part(name=name, command=shown, text="".join(lines), kept=script.returncode == 0)


def main() -> int:
    """Run everything, write the page, and tell whether all limits are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that it works: the figures mean nothing")
    parser.add_argument("--into", type=Path, help="the folder for the page and its plots (docs)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = {
            name: run_part(name, options, *(("--out", f"{folder}/{name}") if name in FIGURES else ()))
            for name, options in (QUICK if chosen.quick else FULL).items()
        }
        proxy, hub = (msgspec.json.decode(Path(folder, name).read_bytes(), type=kind) for name, kind in FIGURES.items())
    into = chosen.into or (None if chosen.quick else DOCS)
    if into is not None:
        run = Run(
            date=today(),
            machine=machine(),
            versions=versions(),
            parts=[part for name, part in parts.items() if name not in FIGURES],
            proxy_command=parts["bench.proxy"].command,
            proxy=proxy,
            hub_command=parts["bench.hub"].command,
            hub=hub,
        )
        write_report(run, into)
    return 0 if all(part.kept for part in parts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
