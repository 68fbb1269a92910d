"""What those who run a proxy get to know: metrics, log lines, traces. Decisions wait for none of them."""

from remit.errors import AccessError, InputError, RemitError
from remit.governor.evaluate import Answer
from remit.http.log import logger
from remit.http.metrics import Metrics
from remit.http.statuses import INTERNAL, status_of
from remit.http.telemetry import Telemetry

__all__ = ["Watch"]

_PERMITTED = "none"


class Watch:
    """Passes on what goes on: to whom it may concern, and no more than they may know."""

    def __init__(self, metrics: Metrics, telemetry: Telemetry) -> None:
        self._metrics = metrics
        self._telemetry = telemetry
        self._log = logger()
        self.stage = metrics.stage
        self.chain_failed = metrics.chain_failed

    def decided(self, session_id: str, answer: Answer) -> None:
        """Count a decision, and hand its receipt to whoever collects them."""
        claims = answer.receipt.claims
        code = answer.refusal or claims.internal_denial_code or _PERMITTED
        decision = "PERMIT" if answer.permits else "DENY"
        self._metrics.decided(decision, claims.verdict, code)
        self._telemetry.receipt(session_id, claims, answer.receipt.hash, decision)

    def answered(self, route: str, status: int, request_id: str, error: BaseException | None) -> None:
        """Count an answer; what went wrong has a line in the log.

        What is wrong with a request is told to its client in full. The line has the code alone: names of members are
        the client's own words.
        """
        self._metrics.answered(route, status)
        if error is None:
            self._log.debug("answered", route=route, status=status, request_id=request_id)
        elif status == INTERNAL.status:
            self._log.error("failed", route=route, status=status, request_id=request_id, exc_info=error)
        else:
            said = {} if isinstance(error, InputError | AccessError) else {"why": str(error)}
            code = error.code if isinstance(error, RemitError) else ""
            self._log.info("refused", route=route, status=status, request_id=request_id, code=code, **said)

    def refused(self, error: AccessError, request_id: str) -> None:
        """Count what was turned away at the door."""
        self._metrics.refused(error.code)
        self._log.info("turned_away", status=status_of(error).status, request_id=request_id, code=error.code)

    def told(self, event: str, error: BaseException | None) -> None:
        """Write down what happened to the service itself."""
        if error is None:
            self._log.info(event)
        else:
            self._log.error(event, why=str(error))
