"""Load from a process of its own: `python -m bench.load < plan.json` prints one JSON document.

Each connection is opened and verified before the clock starts, is kept, and carries one request after the other. The
load ends when its time or its count is used up. An answer that is not the expected one is an error, not a sample.
What this process costs itself is told too, because it shares the machine with the server.
"""

import asyncio
import gc
import itertools
import math
import re
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

__all__ = ["Measured", "Plan", "apply_load"]

GRACE_S: Final = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send, how, and for how long; the bodies are taken in turns."""

    url: str
    method: str
    path: str
    headers: Mapping[str, str]
    bodies: Sequence[str]
    expect: str
    connections: int
    seconds: float
    count: int | None = None
    ca: str | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Latencies are those of expected answers, from the request's first byte to the answer's last."""

    count: int
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    errors: dict[str, int]
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Return the expected answers per second."""
        return self.count / self.seconds


class _Tally:
    """What all connections share: what to send next and when to stop, the samples and the errors."""

    def __init__(self, plan: Plan) -> None:
        self.requests = itertools.cycle(_request(plan, body) for body in plan.bodies)
        self.expected = plan.expect.encode()
        self.left = math.inf if plan.count is None else plan.count
        self.until = 0.0
        self.last = 0.0
        self.times: list[float] = []
        self.errors: Counter[str] = Counter()

    def next_request(self) -> bytes | None:
        if self.left <= 0 or time.perf_counter() >= self.until:
            return None
        self.left -= 1
        return next(self.requests)

    def answered(self, answer: bytes, sent: float) -> None:
        self.last = time.perf_counter()
        if answer.startswith(b"HTTP/1.1 200 ") and self.expected in answer:
            self.times.append(self.last - sent)
        else:
            self.errors[f"answer {answer[9:12].decode('ascii', 'replace')!r}"] += 1


def _request(plan: Plan, body: str) -> bytes:
    content = body.encode()
    of_body = {"content-type": "application/json", "content-length": str(len(content))} if content else {}
    headers = {"host": urlsplit(plan.url).netloc, **plan.headers, **of_body}
    lines = (f"{plan.method} {plan.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()))
    return "\r\n".join((*lines, "", "")).encode() + content


class _Connection(asyncio.Protocol):
    """One kept connection."""

    def __init__(self, tally: _Tally) -> None:
        self.tally = tally
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = b""
        self.needed = 0
        self.sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loop's own transports do not derive from asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        """Send the next request, or let go of the connection."""
        request = self.tally.next_request()
        if request is None:
            self._end(None)
            return
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.needed and not self._read_head():
            return
        if len(self.received) >= self.needed:
            self.tally.answered(self.received, self.sent)
            self.received, self.needed = b"", 0
            self.send()

    def _read_head(self) -> bool:
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _LENGTH.search(self.received, 0, end + 2)
        if length is None:
            self._end("answer without a length")
            return False
        self.needed = end + 4 + int(length[1])
        return True

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - an end without reason is lost too
        self._end("connection lost")

    def _end(self, error: str | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.tally.errors[error] += 1
        self.done.set_result(None)
        self.transport.close()


async def _connect(plan: Plan, tally: _Tally) -> list[_Connection]:
    address = urlsplit(plan.url)
    host, _, port = address.netloc.partition(":")
    context = ssl.create_default_context(cafile=plan.ca) if address.scheme == "https" else None
    connect = asyncio.get_running_loop().create_connection
    return [
        (await connect(lambda: _Connection(tally), host, int(port), ssl=context))[1] for _ in range(plan.connections)
    ]


async def _load(plan: Plan) -> Measured:
    tally = _Tally(plan)
    async with asyncio.timeout(GRACE_S):
        connections = await _connect(plan, tally)
    cpu, begun = time.process_time(), time.perf_counter()
    tally.until = begun + plan.seconds
    for connection in connections:
        connection.send()
    _, waiting = await asyncio.wait([each.done for each in connections], timeout=plan.seconds + GRACE_S)
    tally.errors["no answer in time"] += len(waiting)
    return _measured(tally, max(tally.last - begun, 1e-9), time.process_time() - cpu)


def _measured(tally: _Tally, seconds: float, cpu_seconds: float) -> Measured:
    times = sorted(tally.times) or [0.0]
    p50, p95, p99, longest = (times[math.ceil(share * len(times)) - 1] * 1e3 for share in (0.50, 0.95, 0.99, 1.0))
    return Measured(
        count=len(tally.times),
        seconds=seconds,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=longest,
        errors={error: count for error, count in tally.errors.items() if count},
        cpu_seconds=cpu_seconds,
    )


def apply_load(plan: Plan) -> Measured:
    """Return what another process measured; a load with any error measures nothing, and raises."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.json.encode(plan),
        stdout=subprocess.PIPE,
        timeout=plan.seconds + 3 * GRACE_S,
        check=True,
    )
    measured = msgspec.json.decode(ran.stdout, type=Measured)
    if measured.errors:
        raise RuntimeError(f"{plan.path} at {plan.connections} connections: {measured.errors}")
    return measured


def main() -> None:
    """Read the plan, apply the load, print what was measured."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    # A pause of this process must not be taken for one of the server.
    gc.disable()
    measured = uvloop.run(_load(plan))
    print(msgspec.json.encode(measured).decode())


if __name__ == "__main__":
    main()
