"""Servers to be measured, each over a home of its own and in a process of its own, as a user would start them.

A server says on one line of JSON where it listens. It is asked to end, and made to if it does not.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.governor import Bench, Groups, load, opened, start
from bench.load import Measured, Plan, apply_load
from remit.policy.call import ToolCall
from remit.wiring import build_service

__all__ = ["SESSIONS", "WARM_UP", "Home", "Kind", "Server", "Target", "launch", "new_home", "resident"]

SESSIONS: Final = 32
WARM_UP: Final = 500
PROXY: Final = (sys.executable, "-m", "remit", "proxy")
HELLO: Final = (sys.executable, "-m", "bench.hello")
# As many connections as any load opens, and some more: all of them come from one peer.
CONNECTIONS: Final = 512
PATIENCE_S: Final = 60.0


class Server(NamedTuple):
    """A server that listens."""

    url: str
    pid: int
    ca: str | None


@contextmanager
def _serving(command: tuple[str, ...], home: Path, *options: str) -> Iterator[Server]:
    """Give a server over a home, until it is no longer needed."""
    given = ("--port", "0", "--home", str(home), "--connections-per-peer", str(CONNECTIONS), "--json", *options)
    # Settings of whoever runs the benchmark are not measured.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REMIT_", "OTEL_"))}
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        # The working directory is where this project is: `bench` is a package only there.
        server = subprocess.Popen([*command, *given], stdout=printed, stderr=complaints, env=environment)
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


class Home(NamedTuple):
    """A home with sessions that may do anything often, and a file to ask for."""

    folder: Path
    sessions: tuple[str, ...]

    @property
    def file(self) -> str:
        """Return the file that every call reads."""
        return str(self.folder / "project" / "app.py")

    def body(self, session: str) -> str:
        """Return a request to evaluate a call."""
        call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": self.file}}
        return msgspec.json.encode(call).decode()

    def grow(self, count: int) -> None:
        """Make more receipts in the first session, without a server."""
        with closing(build_service(self.folder / "home")) as service:
            call = ToolCall("Read", {"file_path": self.file})
            load(Bench(service, self.sessions[0], call, Groups()), 128, count=count)


def new_home(root: Path) -> Home:
    """Return a fresh home with sessions."""
    folder = Path(tempfile.mkdtemp(dir=root))
    with opened(folder) as bench:
        more = [start(bench.service, folder / "project") for _ in range(SESSIONS - 1)]
        return Home(folder, (bench.session_id, *more))


class Target(NamedTuple):
    """A server, and what it is asked."""

    server: Server
    path: str
    bodies: list[str]
    expect: str

    def measure(self, connections: int, *, sessions: int = 1, seconds: float, count: int | None = None) -> Measured:
        """Return what a load measures."""
        plan = Plan(
            url=self.server.url,
            ca=self.server.ca,
            path=self.path,
            bodies=self.bodies[:sessions],
            expect=self.expect,
            connections=connections,
            seconds=seconds,
            count=count,
        )
        return apply_load(plan)


class Kind(NamedTuple):
    """How a server is started."""

    hello: bool = False
    options: tuple[str, ...] = ()


def launch(stack: ExitStack, kind: Kind, home: Home) -> Target:
    """Start a server, and let it do everything it does a few times."""
    command = HELLO if kind.hello else PROXY
    server = stack.enter_context(_serving(command, home.folder / "home", *kind.options))
    path, expect = ("/hello", '"ok":true') if kind.hello else ("/evaluate", '"decision":"PERMIT"')
    target = Target(server, path, [home.body(session) for session in home.sessions], expect)
    target.measure(8, sessions=len(home.sessions), seconds=60, count=WARM_UP)
    return target


def resident(pid: int) -> int:
    """Return the bytes of memory of a process and of those it has started."""
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,rss="], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listing.splitlines()]
    family, kibibytes = {pid}, 0
    for own, parent, size in sorted(rows):
        if own in family or parent in family:
            family.add(own)
            kibibytes += size
    return kibibytes * 1024
