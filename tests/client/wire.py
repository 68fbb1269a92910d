"""A network that fails on demand: a TCP relay that delays, drops, cuts or dribbles after so many bytes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Literal, NamedTuple

__all__ = ["Fault", "Kind", "Way", "relay"]

Kind = Literal["none", "delay", "drop", "cut", "dribble"]
Way = Literal["up", "down"]
_DELAY_S = 0.2


class Fault(NamedTuple):
    """What happens to a connection after `at` bytes, on the way up to the service or down from it."""

    kind: Kind = "none"
    way: Way = "down"
    at: int = 0


class _Relay:
    def __init__(self, port: int, faults: Iterator[Fault]) -> None:
        self._port = port
        self._faults = faults

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection both ways, until one of them ends or the fault ends both."""
        fault = next(self._faults, Fault())
        above, up = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [_pump(reader, up, fault, "up"), _pump(above, writer, fault, "down")]
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            up.transport.abort()
            writer.transport.abort() if fault.kind == "cut" else writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault, way: Way) -> None:
    """Relay one way. What comes after the fault's place meets the fault."""
    left = fault.at if fault.way == way and fault.kind != "none" else None
    if fault.kind == "cut" and left == 0:
        return
    with suppress(OSError):
        while data := await reader.read(65536):
            if left is None or len(data) < left:
                writer.write(data)
                left = None if left is None else left - len(data)
            else:
                writer.write(data[:left])
                if await _strike(fault.kind, writer, data[left:]):
                    return
                left = None if fault.kind == "delay" else 0
            await writer.drain()


async def _strike(kind: Kind, writer: asyncio.StreamWriter, rest: bytes) -> bool:
    """Do to the rest what the fault does; tell whether the connection is over."""
    await writer.drain()
    if kind == "delay":
        await asyncio.sleep(_DELAY_S)
        writer.write(rest)
    for number in rest if kind == "dribble" else b"":
        await asyncio.sleep(1)
        writer.write(bytes([number]))
        await writer.drain()
    return kind == "cut"


@contextmanager
def relay(port: int, fault: Fault, *, times: int | None = None) -> Iterator[int]:
    """Relay to a port: the first connections, or all of them, have the fault."""
    loop, started, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    ports: list[int] = []

    async def run() -> None:
        faults = repeat(fault) if times is None else repeat(fault, times)
        server = await asyncio.start_server(_Relay(port, faults).connected, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await stop.wait()
        server.close()
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await asyncio.sleep(0.01)  # what was aborted is closed in the next turns of the loop

    thread = threading.Thread(target=lambda: (loop.run_until_complete(run()), loop.close()))
    thread.start()
    started.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
