"""The policy engine protocol: the input that an engine gets and the finding it returns.

`decide.py` runs the engines and combines their findings. `TimedEngine` runs one that may hang; no answer in time is a
denial with `engine_failed`.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.mission import Mission
from remit.claims.receipt import PublicDenialReason, Verdict
from remit.policy.budget import Budget
from remit.policy.call import Action, ToolCall

__all__ = [
    "DENIALS",
    "Case",
    "Change",
    "Clock",
    "Engine",
    "Finding",
    "Remedy",
    "SessionStatus",
    "TimedEngine",
    "engine_failed",
]

# Every denial code, with the reason shown to clients and the verdict.
DENIALS: Final[dict[str, tuple[PublicDenialReason, Verdict]]] = {
    "tool_forbidden": ("policy_denied", "violation"),
    "tool_not_allowed": ("policy_denied", "violation"),
    "out_of_scope": ("policy_denied", "violation"),
    "side_effect_not_allowed": ("policy_denied", "violation"),
    "engine_denied": ("policy_denied", "violation"),
    "engine_failed": ("policy_denied", "violation"),
    "dangerous_effect": ("policy_denied", "violation"),
    "secret_target": ("policy_denied", "violation"),
    "governance_guarded": ("policy_denied", "violation"),
    "denied_but_run": ("policy_denied", "violation"),
    "run_unasked": ("policy_denied", "violation"),
    "coverage_gap": ("policy_denied", "violation"),
    "coverage_unproven": ("insufficient_evidence", "insufficient_evidence"),
    "enforcement_gap": ("policy_denied", "violation"),
    "tool_calls_exhausted": ("budget_exhausted", "violation"),
    "duration_exceeded": ("budget_exhausted", "violation"),
    "lineage_budget_exhausted": ("budget_exhausted", "violation"),
    "passport_revoked": ("revoked", "violation"),
    "session_revoked": ("revoked", "violation"),
    "session_ended": ("revoked", "violation"),
    "kill_switch": ("revoked", "violation"),
    "protection_tampered": ("revoked", "violation"),
    "chain_broken": ("chain_invalid", "violation"),
    "provider_side_activity": ("insufficient_evidence", "insufficient_evidence"),
    "target_unknown": ("insufficient_evidence", "insufficient_evidence"),
    "shell_unparsed": ("insufficient_evidence", "insufficient_evidence"),
    "rate_limited": ("insufficient_evidence", "insufficient_evidence"),
}

Clock: TypeAlias = Callable[[], float]


class SessionStatus(NamedTuple):
    """The status of a session. `refusal` is the code that denies every call, or empty while the session is active."""

    session_id: str
    budget: Budget
    refusal: str = ""


class Case(NamedTuple):
    """The input of an engine."""

    mission: Mission
    call: ToolCall
    action: Action
    standing: SessionStatus


class Change(NamedTuple):
    """One change to a passport: values to add to or remove from a list, or a new value for a limit."""

    member: str
    operation: Literal["add", "remove", "raise"]
    values: tuple[str | int, ...]


class Remedy(NamedTuple):
    """The smallest change that would have permitted a call, as data and as one sentence.

    `changes` is empty if no passport permits the call; the sentence then says what to do instead.
    """

    changes: tuple[Change, ...]
    sentence: str


class Finding(NamedTuple):
    """The answer of one engine. `code` is empty for a permit and a key of `DENIALS` for a denial."""

    backend: str
    code: str
    reason: str
    remedy: Remedy | None = None
    eval_ms: float = 0.0

    @property
    def permits(self) -> bool:
        """Return whether the engine permits the call."""
        return not self.code


class Engine(Protocol):
    """A policy engine. An exception in `judge` counts as a denial."""

    @property
    def name(self) -> str:
        """Return the name that receipts record."""

    def judge(self, case: Case) -> Finding:
        """Return the finding for one case."""


def engine_failed(name: str, problem: str) -> Finding:
    """Return the denial for an engine that failed to answer."""
    remedy = Remedy((), f"No passport permits this: ask the operator of Remit to repair the policy engine {name}.")
    return Finding(name, "engine_failed", f"the policy engine {name} {problem}, so the call is denied", remedy)


class TimedEngine:
    """Runs an engine on a thread of its own and denies if it does not answer before the deadline.

    While a call is overdue, further calls are denied at once, so that callers do not queue up behind it.
    """

    def __init__(self, engine: Engine, deadline_s: float) -> None:
        self._engine = engine
        self._deadline_s = deadline_s
        self._cases: SimpleQueue[tuple[Case, SimpleQueue[Finding]]] = SimpleQueue()
        # Calls that timed out and whose answers are still outstanding.
        self._overdue = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name=f"engine-{engine.name}", daemon=True).start()

    @property
    def name(self) -> str:
        """Return the name of the wrapped engine."""
        return self._engine.name

    def judge(self, case: Case) -> Finding:
        """Return the engine's finding, or a denial after the deadline."""
        with self._lock:
            if self._overdue:
                return engine_failed(self.name, "still hangs on an earlier call")
        answers: SimpleQueue[Finding] = SimpleQueue()
        self._cases.put((case, answers))
        try:
            return answers.get(timeout=self._deadline_s)
        except Empty:
            with self._lock:
                self._overdue += 1
            return engine_failed(self.name, "did not answer in time")

    def _work(self) -> None:
        while True:
            case, answers = self._cases.get()
            try:
                finding = self._engine.judge(case)
            except BaseException as error:  # noqa: BLE001 - any exception in an engine is a denial
                finding = engine_failed(self.name, f"failed ({type(error).__name__})")
            answers.put(finding)
            self._discard_overdue(answers)

    def _discard_overdue(self, answers: "SimpleQueue[Finding]") -> None:
        """Decrement the overdue count if this answer is still in its queue, because its caller timed out."""
        with self._lock:
            if self._overdue and not answers.empty():
                self._overdue -= 1
