"""The engine protocol: what a judge is given, and what it answers.

One that hangs denies with `engine_failed`: a missing answer must not read as permission. Asking all engines and
combining their answers is for `decide.py`.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.mission import Mission
from remit.claims.receipt import PublicDenialReason, Verdict
from remit.policy.budget import Budget
from remit.policy.call import Action, ToolCall

__all__ = ["DENIALS", "Case", "Change", "Clock", "Engine", "Finding", "Remedy", "Standing", "Watched", "engine_failed"]

# Every internal code, with the reason that outsiders get and the verdict it stands for.
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


class Standing(NamedTuple):
    """How the session stands: `refusal` is the code that ends every call, or nothing while it is active."""

    session_id: str
    budget: Budget
    refusal: str = ""


class Case(NamedTuple):
    """Everything that a judge may look at."""

    mission: Mission
    call: ToolCall
    action: Action
    standing: Standing


class Change(NamedTuple):
    """One change to a passport: values added to or removed from a list, or a limit raised to a value."""

    member: str
    operation: Literal["add", "remove", "raise"]
    values: tuple[str | int, ...]


class Remedy(NamedTuple):
    """The smallest change that would have permitted a call, as data and as one sentence.

    Without changes no passport would have permitted it, and the sentence says what to do instead.
    """

    changes: tuple[Change, ...]
    sentence: str


class Finding(NamedTuple):
    """One engine's answer. A denial has a code of `DENIALS`."""

    backend: str
    code: str
    reason: str
    remedy: Remedy | None = None
    eval_ms: float = 0.0

    @property
    def permits(self) -> bool:
        """Tell whether the engine has no objection."""
        return not self.code


class Engine(Protocol):
    """A judge. It answers, or raises and thereby denies."""

    @property
    def name(self) -> str:
        """Return the name that receipts give it."""

    def judge(self, case: Case) -> Finding:
        """Return the answer to one case."""


def engine_failed(name: str, what: str) -> Finding:
    """Return the denial of an engine that has not answered as it should."""
    remedy = Remedy((), f"Ask whoever runs Remit to repair the policy engine {name}; no passport helps here.")
    return Finding(name, "engine_failed", f"the policy engine {name} {what}, which denies", remedy)


class Watched:
    """An engine that may hang, watched from outside: it runs on a thread of its own and is given up at its deadline.

    While a call hangs, every further one is denied at once, so that callers do not pile up behind it.
    """

    def __init__(self, engine: Engine, deadline_s: float) -> None:
        self._engine = engine
        self._deadline_s = deadline_s
        self._cases: SimpleQueue[tuple[Case, SimpleQueue[Finding]]] = SimpleQueue()
        # Answers that are still to come although nobody waits for them any more.
        self._overdue = 0
        self._count = threading.Lock()
        threading.Thread(target=self._work, name=f"engine-{engine.name}", daemon=True).start()

    @property
    def name(self) -> str:
        """Return the name of the engine that is watched."""
        return self._engine.name

    def judge(self, case: Case) -> Finding:
        """Return the engine's answer, or a denial when it does not come in time."""
        with self._count:
            if self._overdue:
                return engine_failed(self.name, "still hangs on an earlier call")
        answers: SimpleQueue[Finding] = SimpleQueue()
        self._cases.put((case, answers))
        try:
            return answers.get(timeout=self._deadline_s)
        except Empty:
            with self._count:
                self._overdue += 1
            return engine_failed(self.name, "did not answer in time")

    def _work(self) -> None:
        while True:
            case, answers = self._cases.get()
            try:
                finding = self._engine.judge(case)
            except BaseException as error:  # noqa: BLE001 - whatever goes wrong in an engine is a denial
                finding = engine_failed(self.name, f"failed ({type(error).__name__})")
            answers.put(finding)
            self._settle(answers)

    def _settle(self, answers: "SimpleQueue[Finding]") -> None:
        """Take one overdue answer off the count, if this was one: its caller has left it in the queue."""
        with self._count:
            if self._overdue and not answers.empty():
                self._overdue -= 1
