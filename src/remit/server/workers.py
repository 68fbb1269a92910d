"""Several processes behind one socket: started together, watched, told together, stopped together.

Keeps these invariants: a worker that dies is replaced, one that cannot live ends the service, and no worker outlives
the one who watches over it. What a worker does is not known here.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any, Final

from remit.errors import ServiceUnavailable
from remit.server.log import flush

__all__ = ["Workers"]

_START_S: Final = 60.0
_STOP_S: Final = 6.0
# A worker that dies younger than this, or before it is ready, has not really lived; so many of these in a row, and
# nothing is gained by more.
_YOUNG_S: Final = 5.0
_LIVES: Final = 5
_LOOK_S: Final = 0.5


@dataclass
class _Worker:
    """One process; it says once that it is ready, and nothing else."""

    running: SpawnProcess
    said: Connection
    begun: float
    # How many hang-up signals there were before it began: it reads everything after them.
    hang_ups: int
    is_ready: bool = False

    @property
    def is_starting(self) -> bool:
        return not self.said.closed

    def listen(self) -> None:
        """Hear that it is ready, or that it will never be."""
        try:
            self.is_ready = bool(self.said.recv())
        except EOFError:
            self.is_ready = False
        self.said.close()

    def died_young(self) -> bool:
        """Tell whether it had not really lived; how long a start takes is up to the machine."""
        return not self.is_ready or time.monotonic() - self.begun < _YOUNG_S


class Workers:
    """The processes of a service."""

    def __init__(
        self, count: int, target: Callable[..., None], arguments: tuple[Any, ...], *, lost: Callable[[int], None]
    ) -> None:
        """Run `target` so many times; it gets the arguments, and a connection to say on that it is ready."""
        self._context = multiprocessing.get_context("spawn")
        self._count = count
        self._target = target
        self._arguments = arguments
        self._lost = lost
        self._workers: list[_Worker] = []
        self._stopping = False
        self._hang_ups = 0

    def run(self, ready: Callable[[], None], stopping: Callable[[], None] = lambda: None) -> None:
        """Start, watch, and stop upon a signal; `stopping` lets go of what nobody needs from then on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        try:
            for _ in range(self._count):
                self._workers.append(self._begin())
            self._await_ready()
            if not self._stopping:
                ready()
            self._watch()
        finally:
            stopping()
            self._end()
            flush()

    def _begin(self) -> _Worker:
        hang_ups = self._hang_ups
        here, there = self._context.Pipe(duplex=False)
        running = self._context.Process(target=self._target, args=(*self._arguments, there))
        running.start()
        there.close()
        return _Worker(running, here, time.monotonic(), hang_ups)

    def _await_ready(self) -> None:
        """Wait until all are ready; one that ends instead has said why itself."""
        deadline = time.monotonic() + _START_S
        while not self._stopping and not all(worker.is_ready for worker in self._workers):
            self._look()
            gone = [worker for worker in self._workers if not worker.is_ready and not worker.is_starting]
            if gone or time.monotonic() > deadline:
                raise ServiceUnavailable("a worker did not start: the log says why")

    def _look(self) -> None:
        """Wait a moment for anything that workers say, or for the end of one."""
        starting = [worker for worker in self._workers if worker.is_starting]
        heard = wait(
            [*(worker.said for worker in starting), *(worker.running.sentinel for worker in self._workers)],
            timeout=_LOOK_S,
        )
        for worker in starting:
            if worker.said in heard:
                worker.listen()
                if worker.is_ready and worker.hang_ups < self._hang_ups:
                    _tell(worker.running, signal.SIGHUP)

    def _watch(self) -> None:
        young = 0
        while not self._stopping:
            self._look()
            for index, worker in enumerate(self._workers):
                if worker.running.is_alive() or self._stopping:
                    continue
                self._lost(worker.running.pid or 0)
                young = young + 1 if worker.died_young() else 1
                if young > _LIVES:
                    raise ServiceUnavailable("the workers do not stay alive: the log says why")
                self._workers[index] = self._begin()

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signals have it
        self._stopping = True

    def _pass_on(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._hang_ups += 1
        for worker in self._workers:
            if worker.is_ready:  # one that is starting would die of it, and is told when it is ready
                _tell(worker.running, number)

    def _end(self) -> None:
        """Ask all to stop, wait, and end those that do not."""
        self._stopping = True
        for worker in self._workers:
            _tell(worker.running, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for worker in self._workers:
            worker.running.join(max(0.0, deadline - time.monotonic()))
            if worker.running.is_alive():
                worker.running.kill()
                worker.running.join()


def _tell(running: SpawnProcess, number: int) -> None:
    if running.pid is not None and running.is_alive():  # it is not waited for yet, so the number is still its own
        with suppress(ProcessLookupError):
            os.kill(running.pid, number)
