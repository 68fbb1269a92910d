"""Stopping the processes of an assistant whose protection was tampered with: SIGTERM, and SIGKILL after a grace period.

Keeps these invariants: only processes of this user are stopped, that run the program of the assistant and work in the
folder that is protected (in any folder where the protection covers them all); never this process or one that it
descends from. Where the system offers it, a process is held by a descriptor, so a number that is used again is not
mistaken for it. Where the folder of a process cannot be told, it is stopped only if every folder is covered.
"""

import errno
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from remit.assistants.doctor.processes import Process, ancestors, assistants_among, process_of, running_processes
from remit.assistants.records import Protection
from remit.assistants.registry import PLANNERS

__all__ = ["GRACE_S", "Stopped", "Stopper"]

GRACE_S: Final = 3.0
# How often to look for further processes of one protection.
_PAUSE_S: Final = 1.0
_UNKNOWN: Final = -1


class Stopped(NamedTuple):
    """A process that was told to end, and what became of it."""

    protection: Protection
    pid: int
    how: str
    is_over: bool


@dataclass(slots=True)
class _Ending:
    """A process that was told to end and has not yet."""

    protection: Protection
    pid: int
    # A descriptor that stays with the process, or `_UNKNOWN` where there is none.
    handle: int
    process: Process
    since: float
    killed: bool = False

    def send(self, number: signal.Signals) -> None:
        if self.handle != _UNKNOWN:
            signal.pidfd_send_signal(self.handle, number)
        elif process_of(self.pid) == self.process:
            os.kill(self.pid, number)

    def is_over(self) -> bool:
        if self.handle != _UNKNOWN:
            waiting = select.poll()
            waiting.register(self.handle, select.POLLIN)
            return bool(waiting.poll(0))
        return process_of(self.pid) != self.process


class Stopper:
    """Stops processes without waiting for them. For one thread."""

    def __init__(self) -> None:
        self._endings: dict[int, _Ending] = {}
        self._looked: dict[str, float] = {}

    def stop(self, protection: Protection, now: float) -> None:
        """Tell the processes of an assistant within reach of its protection to end."""
        planner = PLANNERS.get(protection.assistant)
        if planner is None or now - self._looked.get(protection.id, -_PAUSE_S) < _PAUSE_S:
            return
        self._looked[protection.id] = now
        ours = ancestors(os.getpid())
        for process in assistants_among(planner.program, running_processes(), protection.folder):
            if process.pid not in ours and process.pid not in self._endings:
                self._begin(protection, process, now)

    def proceed(self, now: float) -> list[Stopped]:
        """Return what has ended since; what has not by the end of its grace period is killed."""
        return [stopped for ending in list(self._endings.values()) for stopped in self._proceed(ending, now)]

    def _begin(self, protection: Protection, process: Process, now: float) -> None:
        try:
            handle = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else _UNKNOWN
        except OSError as error:
            if error.errno != errno.ENOSYS:
                return  # it has ended
            handle = _UNKNOWN
        ending = _Ending(protection, process.pid, handle, process, now)
        # The number may have gone to another process before it was opened.
        if process_of(process.pid) != process:
            self._close(ending)
            return
        self._endings[process.pid] = ending
        self._send(ending, signal.SIGTERM)

    def _proceed(self, ending: _Ending, now: float) -> Iterator[Stopped]:
        if ending.is_over():
            how = "was killed" if ending.killed else "was stopped"
        elif now - ending.since < GRACE_S:
            return
        elif not ending.killed:
            ending.killed, ending.since = True, now
            self._send(ending, signal.SIGKILL)
            return
        else:
            how = "could not be stopped"
        self._endings.pop(ending.pid)
        self._close(ending)
        yield Stopped(ending.protection, ending.pid, how, is_over=how != "could not be stopped")

    @staticmethod
    def _send(ending: _Ending, number: signal.Signals) -> None:
        try:
            ending.send(number)
        except OSError:
            return  # it has ended, or may not be stopped, which shows later

    @staticmethod
    def _close(ending: _Ending) -> None:
        if ending.handle != _UNKNOWN:
            os.close(ending.handle)
