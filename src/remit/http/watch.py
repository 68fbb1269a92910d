"""What those who run a service get to know: metrics, log lines, traces. Decisions wait for none of them."""

import time
from collections.abc import Callable
from typing import Any, Final, final

from remit.errors import AccessError, InputError, RemitError
from remit.governor.evaluate import Answer
from remit.http.log import logger
from remit.http.metrics import Metrics
from remit.http.statuses import INTERNAL, status_of
from remit.http.telemetry import Telemetry

__all__ = ["STRANGERS_PER_S", "Ration", "Watch"]

# Lines in a second about requests that were refused: who sends them may be anyone, and disks are finite.
STRANGERS_PER_S: Final = 20
_PERMITTED: Final = "none"
_CLIENTS_FAULT: Final = range(400, 500)


@final
class Ration:
    """So many in a second; those beyond are counted."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._begun = clock()
        self._count = 0

    def allows(self) -> bool:
        """Tell whether there may be one more, and count it."""
        self._count += 1
        return self._count <= self._most

    @property
    def is_used(self) -> bool:
        """Tell whether there was one since the count began."""
        return self._count > 0

    def left_out(self) -> int:
        """Return how many were too many in the second before, once it is over; 0 until then, and after that."""
        if self._clock() - self._begun < 1.0:
            return 0
        over = max(0, self._count - self._most)
        self._begun, self._count = self._clock(), 0
        return over


class Watch:
    """Passes on what goes on: to whom it may concern, and no more than they may know."""

    def __init__(self, metrics: Metrics, telemetry: Telemetry) -> None:
        self._metrics = metrics
        self._telemetry = telemetry
        self._log = logger()
        self._ration = Ration(STRANGERS_PER_S, time.monotonic)
        self.stage = metrics.stage
        self.chain_failed = metrics.chain_failed

    def decided(self, session_id: str, answer: Answer) -> None:
        """Count a decision, and hand its receipt to whoever collects them."""
        claims = answer.receipt.claims
        code = answer.refusal or claims.internal_denial_code or _PERMITTED
        decision = "PERMIT" if answer.permits else "DENY"
        self._metrics.decided(decision, claims.verdict, code)
        if self._telemetry.is_on:
            self._telemetry.receipt(session_id, claims, answer.receipt.hash, decision)

    def answered(self, route: str, status: int, request_id: str, error: BaseException | None) -> None:
        """Count an answer; what went wrong has a line in the log.

        What is wrong with a request is told to its client in full. The line has the code alone: names of members are
        the client's own words.
        """
        self._metrics.answered(route, status)
        if self._ration.is_used:
            self._tell_left_out()
        if error is None:
            self._log.debug("answered", route=route, status=status, request_id=request_id)
        elif status == INTERNAL.status:
            self._log.error("failed", route=route, status=status, request_id=request_id, exc_info=error)
        elif status not in _CLIENTS_FAULT or self._ration.allows():
            said = {} if isinstance(error, InputError | AccessError) else {"why": str(error)}
            code = error.code if isinstance(error, RemitError) else ""
            self._log.info("refused", route=route, status=status, request_id=request_id, code=code, **said)

    def cut_off(self, route: str, request_id: str, error: BaseException) -> None:
        """Write down that an answer could not be brought to its end; its client knows no more than that."""
        self._log.error("cut_off", route=route, request_id=request_id, exc_info=error)

    def refused(self, error: AccessError, request_id: str) -> None:
        """Count what was turned away at the door."""
        self._metrics.refused(error.code)
        self._tell_left_out()
        if self._ration.allows():
            self._log.info("turned_away", status=status_of(error).status, request_id=request_id, code=error.code)

    def told(self, event: str, error: BaseException | None) -> None:
        """Write down what happened to the service itself."""
        if error is None:
            self._log.info(event)
        elif isinstance(error, RemitError):
            self._log.error(event, why=str(error))
        else:
            self._log.error(event, exc_info=error)

    def log(self, event: str, **members: Any) -> None:  # noqa: ANN401 - whatever a log line holds
        """Write down something that those who run the service have to look at."""
        self._log.error(event, **members)

    def _tell_left_out(self) -> None:
        count = self._ration.left_out()
        if count:
            self._log.info("refusals_left_out", count=count)
