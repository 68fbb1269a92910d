"""The settings monitor of the Hub: restores the settings that protect assistants, and reacts to tampering.

One thread checks the settings files several times a second and restores them. A second thread signs receipts about what
the first one found, so that a slow ledger does not delay restoring. If a protection was tampered with, its sessions are
ended; with `--on-tamper stop`, the processes of the assistant are stopped too. A receipt is signed for each of these
steps. Errors are logged once for each kind of error, and stop neither the monitor nor the Hub.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, final

from remit.assistants.monitor.restorer import Gap, SettingsRestorer, Tampering
from remit.assistants.monitor.stop import ProcessStopper, StoppedProcess
from remit.assistants.records import Protection, Protections
from remit.governor.statements import RecordStatement
from remit.governor.tampering import RevokeTamperedSessions
from remit.server.log import logger

# The tool name in the receipts that the monitor signs.
_TOOL: Final = "remit.keeper"
_GAP: Final = "enforcement_gap"
# Claude Code takes about three seconds to notice a change of its settings.
_INTERVAL_S: Final = 0.2
# How long to wait for the first check, for a thread to end, and before a failed ledger write is repeated.
_WAIT_S: Final = 0.5
_MAX_STATEMENTS: Final = 100


class GovernorRunner(Protocol):
    """Runs use cases of the governor."""

    def run(self, case: Any, /) -> Any:  # noqa: ANN401 - each use case has its own result type
        """Run a use case and return its result once it is durable."""


@final
class SettingsMonitor:
    """Monitors the settings of all protections of a home until it is closed."""

    def __init__(
        self,
        protections: Protections,
        obstacle: Callable[[Protection], str],
        reads: Callable[[Protection], Iterable[str]],
        governor: GovernorRunner,
    ) -> None:
        """Start the threads, and return after the first check or half a second.

        `obstacle` and `reads` are those of `SettingsRestorer`. If no thread can be started, the error is logged and
        nothing is monitored.
        """
        self._restorer = SettingsRestorer(protections, obstacle, self._log_once, reads)
        self._stopper = ProcessStopper()
        self._governor = governor
        self._statements: deque[RecordStatement] = deque(maxlen=_MAX_STATEMENTS)
        # Tampering whose sessions are still to be ended, by protection id.
        self._to_end: dict[str, Tampering] = {}
        # The ids of protections whose tampering was handled already.
        self._handled: set[str] = set()
        self._logged: set[str] = set()
        self._first_check_done, self._closed, self._has_work = threading.Event(), threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._monitor, name="settings-monitor", daemon=True),
            threading.Thread(target=self._sign, name="settings-monitor-signing", daemon=True),
        ]
        try:
            for thread in self._threads:
                thread.start()
            self._first_check_done.wait(_WAIT_S)
        except RuntimeError as error:
            self._closed.set()
            self._log_once(error)

    def is_tampered(self, protection: Protection) -> bool:
        """Return whether a protection was tampered with and has not been renewed since. Thread-safe."""
        tampering = self._restorer.tampered().get(protection.id)
        return tampering is not None and tampering.protection == protection

    def close(self) -> None:
        """Stop the threads. A thread that is blocked by the disk or the ledger is not waited for."""
        if not self._closed.is_set():
            self._closed.set()
            self._has_work.set()
            for thread in self._threads:
                thread.join(_WAIT_S)

    def _monitor(self) -> None:
        while not self._closed.is_set():
            try:
                now = time.monotonic()
                for gap in self._restorer.check(now):
                    logger().warning("protection_gap", protection=gap.protection.id, put_back=gap.put_back, why=gap.why)
                    self._statements.append(_gap_statement(gap))
                self._handle_tampering(now)
                if self._statements or self._to_end:
                    self._has_work.set()
                self._first_check_done.set()
            except Exception as error:  # noqa: BLE001 - no error may end the monitor
                self._log_once(error)
            self._closed.wait(_INTERVAL_S)

    def _handle_tampering(self, now: float) -> None:
        """Have the sessions of newly tampered protections ended, and stop processes where that is configured."""
        tampered = self._restorer.tampered()
        self._handled &= tampered.keys()
        for protection_id, tampering in tampered.items():
            is_new = protection_id not in self._handled
            if is_new:
                self._handled.add(protection_id)
                self._to_end[protection_id] = tampering
            if tampering.protection.on_tamper == "stop" and (is_new or not tampering.in_force):
                self._stopper.stop(tampering.protection, now)
        self._statements.extend(_process_statement(stopped) for stopped in self._stopper.poll(now))

    def _sign(self) -> None:
        """End sessions and sign statements. What fails is tried again."""
        while not self._closed.is_set():
            self._has_work.wait()
            self._has_work.clear()
            try:
                while self._to_end:
                    protection_id, tampering = next(iter(self._to_end.items()))
                    sessions = self._governor.run(
                        RevokeTamperedSessions(protection_id, tampering.protection.generation)
                    )
                    self._to_end.pop(protection_id)
                    self._statements.append(_sessions_ended_statement(tampering, sessions))
                while self._statements:
                    self._sign_one(self._statements.popleft())
            except Exception as error:  # noqa: BLE001 - the ledger may be available again later
                self._log_once(error)
                self._closed.wait(_WAIT_S)

    def _sign_one(self, statement: RecordStatement) -> None:
        try:
            self._governor.run(statement)
        except Exception:
            self._statements.appendleft(statement)
            raise

    def _log_once(self, error: Exception) -> None:
        name = f"{type(error).__name__} {getattr(error, 'code', '')}"
        if name not in self._logged:
            self._logged.add(name)
            logger().error("keeper_failed", exc_info=error)


def _gap_statement(gap: Gap) -> RecordStatement:
    """Return the statement about settings that were missing, and whether they were restored."""
    protection, missing = gap.protection, ", ".join(gap.missing)
    result = "it was put back" if gap.put_back else f"it was not put back: {gap.why}"
    replaced = f"; in its place was {'; '.join(gap.displaced)}" if gap.displaced else ""
    return RecordStatement(
        tool=_TOOL,
        target=gap.path,
        report={
            "step": "restored" if gap.put_back else "restore_failed",
            "protection": protection.id,
            "assistant": protection.assistant,
            "file": gap.path,
            "missing": list(gap.missing),
            "put_back": gap.put_back,
            "why": gap.why,
            "displaced": list(gap.displaced),
        },
        code=_GAP,
        reason=f"what protects {protection.assistant} was not in force ({missing}); {result}{replaced}",
        counted=f"{protection.assistant} {protection.id}: {missing}; {result}{replaced}",
    )


def _sessions_ended_statement(tampering: Tampering, sessions: tuple[str, ...]) -> RecordStatement:
    """Return the statement about sessions that were ended because their protection was tampered with."""
    protection = tampering.protection
    what = f"its sessions were ended ({len(sessions)}), and it gets no new one"
    return RecordStatement(
        tool=_TOOL,
        target=protection.id,
        report={
            "step": "sessions_ended",
            "protection": protection.id,
            "assistant": protection.assistant,
            "why": tampering.why,
            "sessions": list(sessions),
        },
        code=_GAP,
        reason=f"what protects {protection.assistant} was tampered with ({tampering.why}); {what}",
        counted=f"{protection.assistant} {protection.id}: sessions ended: {len(sessions)}",
    )


def _process_statement(stopped: StoppedProcess) -> RecordStatement:
    """Return the statement about a process that was stopped or could not be stopped."""
    protection = stopped.protection
    what = f"process {stopped.pid} of {protection.assistant} {stopped.how}"
    return RecordStatement(
        tool=_TOOL,
        target=f"process {stopped.pid}",
        report={
            "step": "process_stopped" if stopped.is_over else "process_not_stopped",
            "protection": protection.id,
            "assistant": protection.assistant,
            "pid": stopped.pid,
            "how": stopped.how,
        },
        code=_GAP,
        reason=f"what protects {protection.assistant} was tampered with; {what}",
        counted=f"{protection.assistant} {protection.id}: {what}",
    )
