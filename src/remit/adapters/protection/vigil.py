"""The thread that has the keeper look, a few times a second, and has signed what it found.

Keeps these invariants: nothing waits for it, and whatever fails in it is logged once and ends neither it nor the Hub;
what was found is signed as soon as the ledger takes it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from remit.adapters.protection.keeping import Gap, Keeper
from remit.adapters.protection.records import Protection, Protections
from remit.governor.statements import Declare, Declared
from remit.http.log import logger

__all__ = ["KEEPER", "Signer", "Vigil", "statement_of"]

# The name of the check in receipts.
KEEPER: Final = "remit.keeper"
_GAP: Final = "enforcement_gap"
# Claude Code takes about three seconds to notice a change of its settings.
_PAUSE_S: Final = 0.2
_PATIENCE_S: Final = 0.5
_MAX_WAITING: Final = 100


class Signer(Protocol):
    """Who signs statements."""

    def run(self, case: Declare, /) -> Declared:
        """Return the statement once it is kept."""


@final
class Vigil:
    """Looks after the protections of a home until it is closed."""

    def __init__(self, protections: Protections, obstacle: Callable[[Protection], str], signer: Signer) -> None:
        """Begin, and return after the first look, or soon where that takes its time.

        Where no thread can be started, that is logged and nothing is looked after.
        """
        self._keeper = Keeper(protections, obstacle, self._failed)
        self._signer = signer
        self._waiting: deque[Gap] = deque(maxlen=_MAX_WAITING)
        self._logged: set[str] = set()
        self._looked, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="keeper", daemon=True)
        try:
            self._thread.start()
            self._looked.wait(_PATIENCE_S)
        except RuntimeError as error:
            self._ended.set()
            self._failed(error)

    def close(self) -> None:
        """End it; a look that waits for the lock or the disk is left to itself."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(_PATIENCE_S)

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                self._waiting.extend(self._keeper.look(time.monotonic()))
                self._looked.set()
                self._sign()
            except Exception as error:  # noqa: BLE001 - the Hub runs on, and so does this
                self._failed(error)
            self._ended.wait(_PAUSE_S)

    def _sign(self) -> None:
        while self._waiting:
            self._signer.run(statement_of(self._waiting[0]))
            gap = self._waiting.popleft()
            logger().warning("protection_gap", protection=gap.protection.id, put_back=gap.put_back, why=gap.why)

    def _failed(self, error: Exception) -> None:
        name = f"{type(error).__name__} {getattr(error, 'code', '')}"
        if name not in self._logged:
            self._logged.add(name)
            logger().error("keeper_failed", exc_info=error)


def statement_of(gap: Gap) -> Declare:
    """Return what is signed about something that was not in force."""
    protection, missing = gap.protection, ", ".join(gap.missing)
    became = "it was put back" if gap.put_back else f"it was not put back: {gap.why}"
    return Declare(
        tool=KEEPER,
        target=gap.path,
        report={
            "protection": protection.id,
            "assistant": protection.assistant,
            "file": gap.path,
            "missing": list(gap.missing),
            "put_back": gap.put_back,
            "why": gap.why,
        },
        code=_GAP,
        reason=f"what protects {protection.assistant} was not in force ({missing}); {became}",
        counted=f"{protection.assistant} {protection.id}: {missing}; {became}",
    )
