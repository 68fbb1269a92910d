"""A service of several processes that prints what happens to it: `python -m tests.server.crew TARGET N`.

Each line goes out by itself:
`late PID`, `begun PID`, `told PID`, `ready`, `lost PID`, `stopping`, `error CODE`, `over`.
"""

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from types import FrameType

from remit.errors import RemitError
from remit.server.workers import Workers


def say(*words: object) -> None:
    """Write one line, at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def steady(said: Connection) -> None:
    """Live until told to stop."""

    def told(number: int, frame: FrameType | None) -> None:
        say("told", os.getpid())

    signal.signal(signal.SIGHUP, told)
    say("begun", os.getpid())
    said.send("ready")
    while True:
        signal.pause()


def late(said: Connection) -> None:
    """Be ready only when SIGUSR1 comes, and from then on as a steady one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    say("late", os.getpid())
    signal.sigwait({signal.SIGUSR1})
    steady(said)


def failing(said: Connection) -> None:
    """End before it is ready."""
    say("begun", os.getpid())
    said.close()
    raise SystemExit(1)


def brief(said: Connection) -> None:
    """End as soon as it is ready."""
    said.send("ready")
    failing(said)


def sleepy(said: Connection) -> None:
    """Never be ready."""
    say("begun", os.getpid())
    time.sleep(60)
    said.send("ready")


def main() -> None:
    """Run it to its end."""
    target = {kind.__name__: kind for kind in (steady, late, failing, brief, sleepy)}[sys.argv[1]]
    workers = Workers(int(sys.argv[2]), target, (), on_lost=lambda pid: say("lost", pid))
    try:
        workers.run(lambda: say("ready"), lambda: say("stopping"))
    except RemitError as error:
        say("error", error.code)
    say("over")


if __name__ == "__main__":
    main()
