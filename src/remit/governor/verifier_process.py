"""The process that verifies the ledger of a home: `python -m remit.governor.verifier_process HOME`.

It prints its reports on stdout, one JSON object per line, and ends when stdin is closed, so it does not outlive the
service that started it. It opens the ledger for reading only and never opens a private key.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw
import msgspec

from remit.claims.keys import Keyring
from remit.errors import BrokenChain, RemitError
from remit.governor.verification import Message, VerifierProblem
from remit.governor.verifier import Verifier
from remit.ledger.check_session import SessionCheck
from remit.ledger.embedded import open_rows
from remit.ledger.findings import FindingRecorder
from remit.ledger.home import open_home
from remit.ledger.keys import KeyPeriods
from remit.ledger.rows import LedgerQueries, translate_errors

_NICE: Final = 19
# Work between two pauses, in seconds of processor time.
_SLICE_S: Final = 0.01
# The ratio of pauses to work: 5 % of a core.
_REST: Final = 19
# The clock is read once in this many receipts.
_EVERY: Final = 8


class ProcessPace:
    """Uses at most 5 % of a core, and less while the machine is busy; ends the process when stdin is closed."""

    def __init__(self, stdin: int, *, rest: float = _REST) -> None:
        """Wait on `stdin`; each pause is a multiple of the time worked."""
        self._stdin = stdin
        self._rest = rest
        self._mark = time.process_time()
        self._steps = 0
        self._idle_priority = False

    def wall(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time()

    def due(self) -> bool:
        """Return whether a pause is due."""
        self._steps += 1
        return self._steps % _EVERY == 0 and time.process_time() - self._mark >= _SLICE_S

    def pause(self, *, full_speed: bool) -> None:
        """Pause long enough to stay within the share of the processor; at full speed, only check stdin."""
        if full_speed:
            return self.sleep(0.0)
        if not self._idle_priority:
            self._idle_priority = True
            _yield_to_all()
        worked = time.process_time() - self._mark
        busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        return self.sleep(worked * self._rest * (2 if busy else 1))

    def sleep(self, seconds: float) -> None:
        """Wait, and end the process if stdin is closed."""
        ready, _, _ = select.select([self._stdin], [], [], seconds)
        if ready:
            raise SystemExit(0)
        self._mark = time.process_time()


def _yield_to_all() -> None:
    """Lower the CPU and disk priority, so that other processes go first."""
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class LedgerCheck:
    """The check of one session, as `remit ledger check` makes it."""

    def __init__(self, connection: apsw.Connection, rows: LedgerQueries) -> None:
        """Read over `connection`."""
        self._connection = connection
        self._rows = rows
        self._periods = KeyPeriods(rows)

    def __call__(self, session_id: str, keyring: Keyring, step: Callable[[], None]) -> BrokenChain | None:
        """Return the fault of a session, or None."""
        notes = _Notes(step)
        notes.keyring = keyring
        notes.limits = {kid: list(limits) for kid, limits in self._periods.limits().items()}
        with translate_errors():
            self._connection.execute("BEGIN")
        try:
            session = self._rows.session(session_id)
            walk = None if session is None else SessionCheck(notes, self._connection, self._rows, session)
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if walk is None:
            return None
        walk.check()
        if not notes.findings:
            return None
        first = min(notes.findings, key=lambda finding: finding.receipt or sys.maxsize)
        length = session.length if session else 0
        index = max(0, first.receipt - 1 if first.receipt else length - 1)
        return BrokenChain(index, first.fault, first.sentence)


class _Notes(FindingRecorder):
    """Records the findings of one session, and pauses after a receipt if that is due."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(map, lambda _done, _total: None)
        self._pause = step

    def step(self) -> None:
        """Count one more receipt."""
        super().step()
        self._pause()


def _tell(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def main(home: str) -> None:
    """Verify the ledger of a home until stdin is closed."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the service decides when it ends
    with suppress(OSError):
        os.nice(_NICE)
    pace = ProcessPace(sys.stdin.fileno())
    try:
        with open_home(Path(home), create=False) as opened, open_rows(opened) as (connection, rows):
            Verifier(rows, LedgerCheck(connection, rows), _tell, pace).run()
    except RemitError as error:
        _tell(VerifierProblem(str(error)[:1000]))
        raise SystemExit(1) from None
    except BrokenPipeError:
        os._exit(0)  # the service is gone


if __name__ == "__main__":
    main(sys.argv[1])
