"""The supervisor of worker processes that share one listening socket.

Invariants: a worker that dies is replaced; if workers keep dying soon after their start, the service ends; and no
worker outlives the supervisor.
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

_START_S: Final = 60.0
_STOP_S: Final = 6.0
# A worker that dies within this time, or before it is ready, has failed to start; after so many of these in a row, the
# service ends.
_YOUNG_S: Final = 5.0
_MAX_FAILED_STARTS: Final = 5
_POLL_S: Final = 0.5


@dataclass
class _Worker:
    """One process. It sends one message: that it is ready."""

    process: SpawnProcess
    messages: Connection
    begun: float
    # How many SIGHUP there were before it was started; it has read the settings after these.
    hang_ups: int
    is_ready: bool = False

    @property
    def is_starting(self) -> bool:
        return not self.messages.closed

    def receive(self) -> None:
        """Receive the message that it is ready, or the end of the pipe if it has failed."""
        try:
            self.is_ready = bool(self.messages.recv())
        except EOFError:
            self.is_ready = False
        self.messages.close()

    def failed_to_start(self) -> bool:
        """Return whether it died before it was ready, or soon after its start."""
        return not self.is_ready or time.monotonic() - self.begun < _YOUNG_S


class Workers:
    """Starts, supervises and stops worker processes."""

    def __init__(
        self, count: int, target: Callable[..., None], arguments: tuple[Any, ...], *, on_lost: Callable[[int], None]
    ) -> None:
        """Run `target` in `count` processes, with `arguments` and a connection on which it reports that it is ready.

        `on_lost` is called with the process id of each worker that has died.
        """
        self._context = multiprocessing.get_context("spawn")
        self._count = count
        self._target = target
        self._arguments = arguments
        self._on_lost = on_lost
        self._workers: list[_Worker] = []
        self._stopping = False
        self._hang_ups = 0

    def run(self, ready: Callable[[], None], stopping: Callable[[], None] = lambda: None) -> None:
        """Run until SIGINT or SIGTERM. `ready` is called when all workers are ready, `stopping` before they stop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._forward)
        try:
            for _ in range(self._count):
                self._workers.append(self._start())
            self._await_ready()
            if not self._stopping:
                ready()
            self._supervise()
        finally:
            stopping()
            self._stop_all()
            flush()

    def _start(self) -> _Worker:
        hang_ups = self._hang_ups
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._target, args=(*self._arguments, sender))
        process.start()
        sender.close()
        return _Worker(process, receiver, time.monotonic(), hang_ups)

    def _await_ready(self) -> None:
        """Wait until all are ready. Raise if one ends, which has logged why, or if it takes too long."""
        deadline = time.monotonic() + _START_S
        while not self._stopping and not all(worker.is_ready for worker in self._workers):
            self._poll()
            gone = [worker for worker in self._workers if not worker.is_ready and not worker.is_starting]
            if gone or time.monotonic() > deadline:
                raise ServiceUnavailable("a worker did not start; the log has the reason")

    def _poll(self) -> None:
        """Wait for messages of workers that are starting, or for the end of a worker, for `_POLL_S` at most."""
        starting = [worker for worker in self._workers if worker.is_starting]
        readable = wait(
            [*(worker.messages for worker in starting), *(worker.process.sentinel for worker in self._workers)],
            timeout=_POLL_S,
        )
        for worker in starting:
            if worker.messages in readable:
                worker.receive()
                if worker.is_ready and worker.hang_ups < self._hang_ups:
                    _send_signal(worker.process, signal.SIGHUP)

    def _supervise(self) -> None:
        failed_starts = 0
        while not self._stopping:
            self._poll()
            for index, worker in enumerate(self._workers):
                if worker.process.is_alive() or self._stopping:
                    continue
                self._on_lost(worker.process.pid or 0)
                failed_starts = failed_starts + 1 if worker.failed_to_start() else 1
                if failed_starts > _MAX_FAILED_STARTS:
                    raise ServiceUnavailable("the workers keep dying; the log has the reason")
                self._workers[index] = self._start()

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of signal handlers
        self._stopping = True

    def _forward(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._hang_ups += 1
        for worker in self._workers:
            if worker.is_ready:  # SIGHUP would kill one that is starting: it gets the signal when it is ready
                _send_signal(worker.process, number)

    def _stop_all(self) -> None:
        """Terminate all workers, wait for them, and kill those that do not end."""
        self._stopping = True
        for worker in self._workers:
            _send_signal(worker.process, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _send_signal(process: SpawnProcess, number: int) -> None:
    if process.pid is not None and process.is_alive():  # not reaped yet, so the process id is still its own
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
