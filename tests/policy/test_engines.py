"""Engines: whatever goes wrong in one denies, and every code is known to the outside."""

from collections.abc import Callable, Iterator
from threading import Event

import pytest

from remit.policy.decide import judge_all
from remit.policy.engines import DENIALS, Case, Engine, Finding, SessionStatus, TimedEngine
from tests.policy.judging import STANDING, case, still

# The codes of the page on decisions, by the reason that outsiders get.
PAGE = {
    "policy_denied": "tool_forbidden tool_not_allowed out_of_scope side_effect_not_allowed engine_denied engine_failed",
    "budget_exhausted": "tool_calls_exhausted duration_exceeded lineage_budget_exhausted",
    "revoked": "passport_revoked session_revoked kill_switch",
    "chain_invalid": "chain_broken",
    "insufficient_evidence": "provider_side_activity target_unknown shell_unparsed",
}
# Codes may grow. These did, after the page was written.
GROWN = {
    "session_ended": "revoked",
    "dangerous_effect": "policy_denied",
    "secret_target": "policy_denied",
    "governance_guarded": "policy_denied",
    "denied_but_run": "policy_denied",
    "run_unasked": "policy_denied",
    "coverage_gap": "policy_denied",
    "enforcement_gap": "policy_denied",
    "rate_limited": "insufficient_evidence",
    "protection_tampered": "revoked",
    "coverage_unproven": "insufficient_evidence",
}


class Answering:
    """An engine made of one function."""

    def __init__(self, answer: Callable[[Case], Finding], name: str = "other") -> None:
        self.name = name
        self.asked = 0
        self._answer = answer

    def judge(self, case: Case) -> Finding:
        """Return what the function returns, and count."""
        self.asked += 1
        return self._answer(case)


def permits(_: Case) -> Finding:
    return Finding("whoever", "", "fine")


def denies(_: Case) -> Finding:
    return Finding("whoever", "engine_denied", "no")


def fails(_: Case) -> Finding:
    raise ZeroDivisionError


def asked(*engines: Engine, deadline_s: float = 1.0) -> tuple[Finding, ...]:
    return judge_all(engines, case(), still, deadline_s)


def test_every_code_of_the_page_is_known_and_no_other() -> None:
    page = {code: public for public, codes in PAGE.items() for code in codes.split()}
    assert {code: public for code, (public, _) in DENIALS.items()} == page | GROWN


def test_only_missing_evidence_is_no_violation() -> None:
    for public, verdict in DENIALS.values():
        assert (verdict == "insufficient_evidence") == (public == "insufficient_evidence")
        assert verdict != "compliant"


def test_an_engine_that_permits_is_named_by_its_own_name() -> None:
    (finding,) = asked(Answering(permits, "mine"))
    assert finding.permits
    assert (finding.backend, finding.reason, finding.eval_ms) == ("mine", "fine", 0.0)


def test_an_engine_that_raises_denies() -> None:
    (finding,) = asked(Answering(fails))
    assert (finding.backend, finding.code) == ("other", "engine_failed")
    assert finding.remedy is not None
    assert finding.remedy.changes == ()


@pytest.mark.parametrize("code", ["nonsense", " ", "OUT_OF_SCOPE", "permit"])
def test_an_engine_with_a_code_that_nobody_knows_denies(code: str) -> None:
    (finding,) = asked(Answering(lambda _: Finding("x", code, "?")))
    assert finding.code == "engine_failed"


@pytest.mark.parametrize("garbage", [None, "permit", True, (), 0], ids=repr)
def test_an_engine_that_answers_with_garbage_denies(garbage: object) -> None:
    (finding,) = asked(Answering(lambda _: garbage))  # type: ignore[arg-type, return-value]
    assert finding.code == "engine_failed"


def ticking(*moments: float) -> Callable[[], float]:
    times: Iterator[float] = iter(moments)
    return lambda: next(times)


def test_an_engine_that_answers_too_late_denies() -> None:
    (finding,) = judge_all([Answering(permits)], case(), ticking(0.0, 1.5), 1.0)
    assert (finding.code, finding.eval_ms) == ("engine_failed", 1500.0)


def test_an_engine_that_answers_in_time_is_believed() -> None:
    (finding,) = judge_all([Answering(permits)], case(), ticking(10.0, 11.0), 1.0)
    assert (finding.code, finding.eval_ms) == ("", 1000.0)


def test_a_late_denial_keeps_its_own_reason() -> None:
    (finding,) = judge_all([Answering(denies)], case(), ticking(0.0, 9.0), 1.0)
    assert finding.code == "engine_denied"


def test_the_first_denial_ends_the_asking() -> None:
    last = Answering(permits, "last")
    findings = asked(Answering(permits, "first"), Answering(denies, "second"), last)
    assert [finding.backend for finding in findings] == ["first", "second"]
    assert last.asked == 0


def test_no_engine_gives_no_finding() -> None:
    assert asked() == ()


def test_a_watched_engine_answers_as_before() -> None:
    watched = TimedEngine(Answering(denies, "slow"), deadline_s=30)
    assert watched.name == "slow"
    assert [watched.judge(case()).code for _ in range(3)] == ["engine_denied"] * 3


def test_a_watched_engine_that_raises_denies_and_goes_on() -> None:
    watched = TimedEngine(
        Answering(lambda given: fails(given) if given.standing.refusal else permits(given)), deadline_s=30
    )
    assert watched.judge(case(standing=SessionStatus("s", STANDING.budget, "kill_switch"))).code == "engine_failed"
    assert watched.judge(case()).permits


def test_a_watched_engine_that_hangs_denies_until_it_comes_back() -> None:
    let_go, back = Event(), Event()

    def hangs(given: Case) -> Finding:
        if given.standing.refusal:
            let_go.wait(60)
            back.set()
        return permits(given)

    watched = TimedEngine(Answering(hangs), deadline_s=0.05)
    assert watched.judge(case(standing=SessionStatus("s", STANDING.budget, "kill_switch"))).code == "engine_failed"
    assert watched.judge(case()).code == "engine_failed"
    let_go.set()
    assert back.wait(60)
    assert any(watched.judge(case()).permits for _ in range(200))


def test_a_watched_engine_with_garbage_still_denies() -> None:
    (finding,) = asked(TimedEngine(Answering(lambda _: Finding("x", "nonsense", "?")), deadline_s=30))
    assert finding.code == "engine_failed"
