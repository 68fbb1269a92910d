"""Stops the processes of an assistant whose protection was tampered with: SIGTERM, then SIGKILL after a grace period.

Invariants:

- Only processes of this user that run the assistant's program in the protected folder are stopped. If the protection
  covers every folder, the working directory does not matter; otherwise a process whose working directory is unknown is
  left alone.
- This process and its ancestors are never stopped.
- Where the system supports pidfds, signals are sent through one, so that a reused pid is never signalled.
"""

import errno
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from remit.assistants.doctor.processes import (
    Process,
    ancestors,
    find_assistant_processes,
    find_process,
    running_processes,
)
from remit.assistants.records import Protection
from remit.assistants.registry import PLANNERS

GRACE_S: Final = 3.0
# How often to look for new processes of one protection.
_INTERVAL_S: Final = 1.0
_NO_PIDFD: Final = -1


class StoppedProcess(NamedTuple):
    """A process that was signalled, and whether it has ended."""

    protection: Protection
    pid: int
    how: str
    is_over: bool


@dataclass(slots=True)
class _Stopping:
    """A process that was signalled and has not ended yet."""

    protection: Protection
    pid: int
    pidfd: int
    process: Process
    signalled_at: float
    killed: bool = False

    def send(self, signum: signal.Signals) -> None:
        if self.pidfd != _NO_PIDFD:
            signal.pidfd_send_signal(self.pidfd, signum)
        elif find_process(self.pid) == self.process:
            os.kill(self.pid, signum)

    def is_over(self) -> bool:
        if self.pidfd != _NO_PIDFD:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            return bool(poll.poll(0))
        return find_process(self.pid) != self.process


class ProcessStopper:
    """Stops processes without waiting for them. For one thread."""

    def __init__(self) -> None:
        self._stopping: dict[int, _Stopping] = {}
        self._last_search: dict[str, float] = {}

    def stop(self, protection: Protection, now: float) -> None:
        """Send SIGTERM to the processes that a protection covers. Looks for them at most once a second."""
        planner = PLANNERS.get(protection.assistant)
        if planner is None or now - self._last_search.get(protection.id, -_INTERVAL_S) < _INTERVAL_S:
            return
        self._last_search[protection.id] = now
        own_tree = ancestors(os.getpid())
        for process in find_assistant_processes(planner.program, running_processes(), protection.folder):
            if process.pid not in own_tree and process.pid not in self._stopping:
                self._terminate(protection, process, now)

    def poll(self, now: float) -> list[StoppedProcess]:
        """Return the processes that have ended, or could not be stopped. Kills those whose grace period is over."""
        return [stopped for stopping in list(self._stopping.values()) for stopped in self._poll_one(stopping, now)]

    def _terminate(self, protection: Protection, process: Process, now: float) -> None:
        try:
            pidfd = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else _NO_PIDFD
        except OSError as error:
            if error.errno != errno.ENOSYS:
                return  # it has ended
            pidfd = _NO_PIDFD
        stopping = _Stopping(protection, process.pid, pidfd, process, now)
        # The pid may have been reused before the pidfd was opened.
        if find_process(process.pid) != process:
            self._close(stopping)
            return
        self._stopping[process.pid] = stopping
        self._send(stopping, signal.SIGTERM)

    def _poll_one(self, stopping: _Stopping, now: float) -> Iterator[StoppedProcess]:
        if stopping.is_over():
            how = "was killed" if stopping.killed else "was stopped"
        elif now - stopping.signalled_at < GRACE_S:
            return
        elif not stopping.killed:
            stopping.killed, stopping.signalled_at = True, now
            self._send(stopping, signal.SIGKILL)
            return
        else:
            how = "could not be stopped"
        self._stopping.pop(stopping.pid)
        self._close(stopping)
        yield StoppedProcess(stopping.protection, stopping.pid, how, is_over=how != "could not be stopped")

    @staticmethod
    def _send(stopping: _Stopping, signum: signal.Signals) -> None:
        try:
            stopping.send(signum)
        except OSError:
            return  # it has ended, or cannot be signalled, which `poll` finds out

    @staticmethod
    def _close(stopping: _Stopping) -> None:
        if stopping.pidfd != _NO_PIDFD:
            os.close(stopping.pidfd)
