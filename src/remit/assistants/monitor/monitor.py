"""The settings monitor of the Hub: keeps protections in force, and acts where they cannot be.

One thread looks at the settings a few times a second, and puts them back. Another one has signed what was found, so a
slow ledger does not delay the first. Where a protection was tampered with, its sessions are ended, and with the option
`--on-tamper stop` the processes of the assistant are too; each of these steps is signed. Whatever fails here is logged
once and ends neither the monitor nor the Hub.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, final

from remit.assistants.monitor.keeping import Gap, Keeper, Tampering
from remit.assistants.monitor.stop import Stopped, Stopper
from remit.assistants.records import Protection, Protections
from remit.governor.statements import Declare
from remit.governor.tampering import EndTampered
from remit.server.log import logger

__all__ = ["KEEPER", "Runner", "SettingsMonitor", "ending_of", "statement_of", "stopping_of"]

# The name of the check in receipts.
KEEPER: Final = "remit.keeper"
_GAP: Final = "enforcement_gap"
# Claude Code takes about three seconds to notice a change of its settings.
_PAUSE_S: Final = 0.2
_PATIENCE_S: Final = 0.5
_MAX_WAITING: Final = 100


class Runner(Protocol):
    """Who runs use cases: a governor."""

    def run(self, case: Any, /) -> Any:  # noqa: ANN401 - each has an answer of its own
        """Return the answer of a use case once it is durable."""


@final
class SettingsMonitor:
    """Looks after the protections of a home until it is closed."""

    def __init__(
        self,
        protections: Protections,
        obstacle: Callable[[Protection], str],
        reads: Callable[[Protection], Iterable[str]],
        governor: Runner,
    ) -> None:
        """Begin, and return after the first look, or soon where that takes its time.

        Where no thread can be started, that is logged and nothing is looked after.
        """
        self._keeper = Keeper(protections, obstacle, self._failed, reads)
        self._stopper = Stopper()
        self._governor = governor
        self._statements: deque[Declare] = deque(maxlen=_MAX_WAITING)
        # Protections whose sessions are to be ended, in order, and those whose tampering was acted on already.
        self._endings: dict[str, Tampering] = {}
        self._acted: set[str] = set()
        self._logged: set[str] = set()
        self._looked, self._ended, self._waiting = threading.Event(), threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, name="keeper", daemon=True),
            threading.Thread(target=self._record, name="keeper-signing", daemon=True),
        ]
        try:
            for thread in self._threads:
                thread.start()
            self._looked.wait(_PATIENCE_S)
        except RuntimeError as error:
            self._ended.set()
            self._failed(error)

    def is_tampered(self, protection: Protection) -> bool:
        """Tell whether a protection was tampered with, and was not made anew since. For any thread."""
        known = self._keeper.tampered().get(protection.id)
        return known is not None and known.protection == protection

    def close(self) -> None:
        """End it; a look that waits for the disk, or a statement that waits for the ledger, is left to itself."""
        if not self._ended.is_set():
            self._ended.set()
            self._waiting.set()
            for thread in self._threads:
                thread.join(_PATIENCE_S)

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                now = time.monotonic()
                for gap in self._keeper.look(now):
                    logger().warning("protection_gap", protection=gap.protection.id, put_back=gap.put_back, why=gap.why)
                    self._statements.append(statement_of(gap))
                self._act(now)
                if self._statements or self._endings:
                    self._waiting.set()
                self._looked.set()
            except Exception as error:  # noqa: BLE001 - the Hub runs on, and so does this
                self._failed(error)
            self._ended.wait(_PAUSE_S)

    def _act(self, now: float) -> None:
        """End sessions and stop processes where a protection was tampered with."""
        tampered = self._keeper.tampered()
        self._acted &= tampered.keys()
        for name, one in tampered.items():
            is_new = name not in self._acted
            if is_new:
                self._acted.add(name)
                self._endings[name] = one
            if one.protection.on_tamper == "stop" and (is_new or not one.in_force):
                self._stopper.stop(one.protection, now)
        self._statements.extend(stopping_of(stopped) for stopped in self._stopper.proceed(now))

    def _record(self) -> None:
        """Run what waits for the ledger, the endings first; what fails is tried again."""
        while not self._ended.is_set():
            self._waiting.wait()
            self._waiting.clear()
            try:
                while self._endings:
                    name, tampering = next(iter(self._endings.items()))
                    sessions = self._governor.run(EndTampered(name, tampering.protection.generation))
                    self._endings.pop(name)
                    self._statements.append(ending_of(tampering, sessions))
                while self._statements:
                    self._sign(self._statements.popleft())
            except Exception as error:  # noqa: BLE001 - the ledger may take it later
                self._failed(error)
                self._ended.wait(_PATIENCE_S)

    def _sign(self, statement: Declare) -> None:
        try:
            self._governor.run(statement)
        except Exception:
            self._statements.appendleft(statement)
            raise

    def _failed(self, error: Exception) -> None:
        name = f"{type(error).__name__} {getattr(error, 'code', '')}"
        if name not in self._logged:
            self._logged.add(name)
            logger().error("keeper_failed", exc_info=error)


def statement_of(gap: Gap) -> Declare:
    """Return what is signed about something that was not in force: that it was put back, or that it was not."""
    protection, missing = gap.protection, ", ".join(gap.missing)
    became = "it was put back" if gap.put_back else f"it was not put back: {gap.why}"
    stood = f"; in its place was {'; '.join(gap.displaced)}" if gap.displaced else ""
    return Declare(
        tool=KEEPER,
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
        reason=f"what protects {protection.assistant} was not in force ({missing}); {became}{stood}",
        counted=f"{protection.assistant} {protection.id}: {missing}; {became}{stood}",
    )


def ending_of(tampering: Tampering, sessions: tuple[str, ...]) -> Declare:
    """Return what is signed about sessions that were ended because their protection was tampered with."""
    protection = tampering.protection
    what = f"its sessions were ended ({len(sessions)}), and it gets no new one"
    return Declare(
        tool=KEEPER,
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


def stopping_of(stopped: Stopped) -> Declare:
    """Return what is signed about a process that was stopped, or could not be."""
    protection = stopped.protection
    what = f"process {stopped.pid} of {protection.assistant} {stopped.how}"
    return Declare(
        tool=KEEPER,
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
