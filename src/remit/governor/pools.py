"""Threads for what takes long: one pool for judging on account of a session, another for reading.

Keeps this invariant: a session has two calls judged aside at a time, and no more, so its slow calls keep its own calls
waiting and leave threads for others; and nobody who only reads waits behind them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["Pools"]

_T = TypeVar("_T")

_JUDGES: Final = 16
_READERS: Final = 8
_AT_A_TIME: Final = 2


class _Gate:
    """Lets so many of one session through at a time; `users` are those inside and before it."""

    __slots__ = ("turns", "users")

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(_AT_A_TIME)
        self.users = 0


class Pools:
    """The threads, made when they are needed."""

    def __init__(self) -> None:
        self._judges = ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        self._gates: dict[tuple[int, str], _Gate] = {}

    async def run(self, compute: Callable[[], _T], *, fair_to: str = "") -> _T:
        """Return what was computed, once it is the turn of the session that it is `fair_to`."""
        loop = asyncio.get_running_loop()
        if not fair_to:
            return await loop.run_in_executor(self._readers, compute)
        place = id(loop), fair_to
        gate = self._gates.setdefault(place, _Gate())
        gate.users += 1
        try:
            async with gate.turns:
                return await loop.run_in_executor(self._judges, compute)
        finally:
            gate.users -= 1
            if not gate.users:
                self._gates.pop(place, None)

    def close(self) -> None:
        """Begin nothing more; what is under way is left to its end."""
        for pool in (self._judges, self._readers):
            pool.shutdown(wait=False, cancel_futures=True)
