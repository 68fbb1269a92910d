"""Decisions: nothing found denies, deny overrides, and what cannot be read is never permitted."""

import pytest

from remit.policy.call import ToolCall
from remit.policy.decide import decide, judge, policy_decisions
from remit.policy.engines import DENIALS, Case, Finding, Remedy
from remit.policy.files import ResolvedPath, TextFiles
from remit.policy.native import NativeEngine
from tests.policy.judging import STANDING, action, judged, mission, still

FINE = Finding("first", "", "fine", eval_ms=1.5)
NOTHING = action("TodoWrite", {})


class Denying:
    """An engine that denies everything."""

    name = "denying"

    def judge(self, case: Case) -> Finding:
        """Return a denial."""
        return Finding("x", "engine_denied", f"not {case.action.tool}", Remedy((), "Ask."))


class BrokenFiles(TextFiles):
    """A file system that fails in a way nobody expected."""

    def resolve(self, path: str) -> ResolvedPath:
        """Raise."""
        raise ZeroDivisionError(path)


def test_without_any_engine_the_call_is_denied() -> None:
    decision = judged("Read", {"file_path": "a"}, engines=())
    assert (decision.decision, decision.code, decision.public_reason) == ("DENY", "engine_failed", "policy_denied")
    assert [finding.backend for finding in decision.findings] == ["none"]


def test_no_findings_deny() -> None:
    assert not decide((), NOTHING).permits


def test_when_all_permit_the_call_is_permitted() -> None:
    decision = decide((FINE, FINE._replace(backend="second", reason="too")), NOTHING)
    assert (decision.decision, decision.verdict, decision.reason) == ("PERMIT", "compliant", "fine")
    assert (decision.code, decision.public_reason, decision.remedy) == (None, None, None)


@pytest.mark.parametrize("code", DENIALS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_denial_overrides_wherever_it_stands(code: str, place: int) -> None:
    findings = [FINE, FINE]
    findings.insert(place, Finding("other", code, "no"))
    decision = decide(findings, NOTHING)
    assert (decision.decision, decision.code, decision.reason) == ("DENY", code, "no")
    assert (decision.public_reason, decision.verdict) == DENIALS[code]
    assert len(decision.findings) == 3


def test_the_first_of_two_denials_is_the_answer() -> None:
    findings = (Finding("a", "out_of_scope", "one"), Finding("b", "engine_denied", "two"))
    assert decide(findings, NOTHING).reason == "one"


def test_a_second_engine_can_deny_what_the_passport_permits() -> None:
    decision = judged("Read", {"file_path": "a"}, engines=(NativeEngine(), Denying()))
    assert (decision.code, decision.reason) == ("engine_denied", "not Read")
    assert [finding.permits for finding in decision.findings] == [True, False]


def test_a_call_that_cannot_be_read_is_denied() -> None:
    decision = judged("Read", {"file_path": "a"}, files=BrokenFiles())
    assert (decision.decision, decision.code) == ("DENY", "target_unknown")
    assert decision.action.doubts[0].unbounded
    assert decision.action.side_effects == {"internal_write", "state_change", "external_send"}


def test_a_call_that_cannot_be_read_may_do_anything() -> None:
    narrow = mission(resource_scope=("**",), allowed_side_effect_classes=("none",))
    assert judged("Read", {"file_path": "a"}, under=narrow, files=BrokenFiles()).code == "side_effect_not_allowed"


def test_permission_to_run_project_code_says_what_was_not_looked_at() -> None:
    decision = judged("Bash", {"command": "./build.sh"})
    assert decision.permits
    assert decision.action.runs_code
    assert "sandbox" in decision.reason


def test_findings_are_written_as_a_receipt_holds_them() -> None:
    decision = decide((FINE, Finding("other", "engine_denied", "x" * 2000, eval_ms=2.0)), NOTHING)
    first, second = policy_decisions(decision)
    assert (first.backend, first.decision, first.reason, first.eval_ms) == ("first", "permit", "fine", 1.5)
    assert (second.decision, second.reason) == ("deny", "x" * 1024)


def test_relative_paths_start_at_the_mission_unless_the_call_says_otherwise() -> None:
    call = ToolCall("Read", {"file_path": "a"}, cwd="sub")
    decision = judge(call, mission(), STANDING, engines=(NativeEngine(),), files=TextFiles(), clock=still)
    assert "/work/app/sub/a" in [effect.resource for effect in decision.action.effects]
    assert judged("Read", {"file_path": "a"}, cwd="/etc").code == "out_of_scope"
    assert judged("Read", {"file_path": "a"}, cwd="~").code == "target_unknown"


def test_without_any_directory_relative_paths_are_unknown() -> None:
    assert judged("Read", {"file_path": "a"}, under=mission(resource_scope=(), cwd=None)).code == "target_unknown"
    assert judged("Read", {"file_path": "a"}, under=mission(cwd=None)).permits
