"""A TCP relay that delays, drops, cuts or dribbles after so many bytes.

It uses plain sockets and tasks of its own: a stream server of asyncio reports a handler that is cancelled as an error,
and closes its transports only in later turns of the loop.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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


async def _serve(listener: socket.socket, port: int, faults: Iterator[Fault]) -> None:
    """Relay each connection that comes, until cancelled; the connections end with it."""
    loop = asyncio.get_running_loop()
    with ExitStack() as sockets:
        async with asyncio.TaskGroup() as connections:

            def accept() -> None:
                accepted = sockets.enter_context(listener.accept()[0])
                accepted.settimeout(0)
                connections.create_task(_relay(accepted, port, next(faults, Fault())))

            loop.add_reader(listener, accept)
            try:
                await loop.create_future()
            finally:
                loop.remove_reader(listener)


async def _relay(accepted: socket.socket, port: int, fault: Fault) -> None:
    """Relay one connection both ways, until one of them ends or the fault ends both."""
    with accepted, socket.socket() as above:
        above.settimeout(0)
        try:
            await asyncio.get_running_loop().sock_connect(above, ("127.0.0.1", port))
        except OSError:
            return
        ways = [_pump(accepted, above, fault, "up"), _pump(above, accepted, fault, "down")]
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # Before the sockets are closed, because the loop still watches them for the other task.
            await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: socket.socket, sink: socket.socket, fault: Fault, way: Way) -> None:
    """Relay one way. What comes after the fault's place meets the fault."""
    loop = asyncio.get_running_loop()
    left = fault.at if fault.way == way and fault.kind != "none" else None
    if fault.kind == "cut" and left == 0:
        return
    with suppress(OSError):
        while data := await loop.sock_recv(source, 65536):
            if left is None or len(data) < left:
                await loop.sock_sendall(sink, data)
                left = None if left is None else left - len(data)
            else:
                await loop.sock_sendall(sink, data[:left])
                if fault.kind == "cut":
                    return
                await _hold_up(fault.kind, sink, data[left:])
                left = None if fault.kind == "delay" else 0


async def _hold_up(kind: Kind, sink: socket.socket, rest: bytes) -> None:
    """Send the rest later, or byte by byte, or never."""
    loop = asyncio.get_running_loop()
    if kind == "delay":
        await asyncio.sleep(_DELAY_S)
        await loop.sock_sendall(sink, rest)
    for number in rest if kind == "dribble" else b"":
        await asyncio.sleep(1)
        await loop.sock_sendall(sink, bytes([number]))


@contextmanager
def relay(port: int, fault: Fault, *, times: int | None = None) -> Iterator[int]:
    """Relay to a port: the first connections, or all of them, have the fault."""
    faults = repeat(fault) if times is None else repeat(fault, times)
    loop = asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.settimeout(0)
        serving = loop.create_task(_serve(listener, port, faults))

        def run() -> None:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(serving)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            loop.call_soon_threadsafe(serving.cancel)
            thread.join()
            loop.close()
