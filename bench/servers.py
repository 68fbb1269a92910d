"""Servers to be measured, each over a home of its own and in a process of its own, as a user would start them.

A server says on one line of JSON where it listens. It is asked to end, and made to if it does not.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.homes import Home
from bench.load import Measured, Plan, apply_load

__all__ = ["HELLO", "HUB", "PROXY", "WARM_UP", "Kind", "Server", "Target", "launch", "processor_s", "resident"]

WARM_UP: Final = 500
PATIENCE_S: Final = 60.0
# As many connections as any load opens, and some more: all of them come from one peer.
PER_PEER: Final = ("--connections-per-peer", "512")


class Kind(NamedTuple):
    """How a server is started, what it is asked, and what its answer must hold."""

    command: tuple[str, ...]
    path: str
    expect: str

    def with_options(self, *options: str) -> "Kind":
        """Return the same, started with some options."""
        return self._replace(command=(*self.command, *options))


PROXY: Final = Kind(("remit", "proxy", *PER_PEER), "/evaluate", '"decision":"PERMIT"')
HELLO: Final = Kind(("bench.hello", *PER_PEER), "/hello", '"ok":true')
HUB: Final = Kind(("remit", "hub"), "/v1/events/observe", '"decision":"PERMIT"')


class Server(NamedTuple):
    """A server that listens."""

    url: str
    pid: int
    ca: str | None


@contextmanager
def _serving(command: tuple[str, ...], home: Path) -> Iterator[Server]:
    """Give a server over a home, until it is no longer needed."""
    whole = (sys.executable, "-m", *command, "--port", "0", "--home", str(home), "--json")
    # Settings of whoever runs the benchmark are not measured.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REMIT_", "OTEL_"))}
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        # The working directory is where this project is: `bench` is a package only there.
        server = subprocess.Popen(whole, stdout=printed, stderr=complaints, env=environment)
        try:
            url = _listening(server, printed.fileno(), complaints.fileno())
            ca = str(home / "tls" / "ca.pem") if url.startswith("https:") else None
            yield Server(url, server.pid, ca)
        finally:
            _end(server)


class _Ready(msgspec.Struct):
    listening: str


def _listening(server: "subprocess.Popen[bytes]", printed: int, complaints: int) -> str:
    until = time.monotonic() + PATIENCE_S
    while server.poll() is None and time.monotonic() < until:
        line, end, _ = os.pread(printed, 65536, 0).partition(b"\n")
        if end:
            return msgspec.json.decode(line, type=_Ready).listening
        time.sleep(0.02)
    raise RuntimeError(f"the server does not listen:\n{os.pread(complaints, 65536, 0).decode(errors='replace')}")


def _end(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


class Target(NamedTuple):
    """A server, and what it is asked."""

    server: Server
    path: str
    headers: Mapping[str, str]
    bodies: Sequence[str]
    expect: str
    method: str = "POST"

    def measure(self, connections: int, *, sessions: int = 1, seconds: float, count: int | None = None) -> Measured:
        """Return what a load measures."""
        plan = Plan(
            url=self.server.url,
            ca=self.server.ca,
            method=self.method,
            path=self.path,
            headers=self.headers,
            bodies=self.bodies[:sessions],
            expect=self.expect,
            connections=connections,
            seconds=seconds,
            count=count,
        )
        return apply_load(plan)


def launch(stack: ExitStack, kind: Kind, home: Home, *, warm_up: bool = True) -> Target:
    """Start a server, and let it do everything it does a few times."""
    server = stack.enter_context(_serving(kind.command, home.folder))
    target = Target(server, kind.path, home.headers, home.bodies, kind.expect)
    if warm_up:
        target.measure(8, sessions=len(home.bodies), seconds=PATIENCE_S, count=WARM_UP)
    return target


def resident(pid: int) -> int:
    """Return the bytes of memory of a process and of those it has started."""
    return sum(int(size) for size in _of_family(pid, "rss")) * 1024


def processor_s(pid: int) -> float:
    """Return the processor time, in seconds, of a process and of those it has started.

    `ps` counts whole seconds, so this needs the process table of Linux; elsewhere it is 0.
    """
    total = 0
    for own in _of_family(pid, "pid"):
        with suppress(OSError):
            fields = Path(f"/proc/{own}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _of_family(pid: int, member: str) -> list[str]:
    """Return one member of the process table for a process and for those it has started."""
    command = ["ps", "-axo", f"pid=,ppid=,{member}="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    family, found = {pid}, list[str]()
    rows = [(int(own), int(parent), value) for own, parent, value in map(str.split, listing.splitlines())]
    for own, parent, value in sorted(rows):
        if own in family or parent in family:
            family.add(own)
            found.append(value)
    return found
