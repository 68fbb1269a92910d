"""Cedar policies: what none permits is denied, and a policy that fails denies too."""

from pathlib import Path

import pytest

from remit.errors import PolicyInvalid
from remit.policy.budget import Budget
from remit.policy.call import Effect
from remit.policy.cedar import CedarEngine, cedar_schema
from remit.policy.decide import judge_all
from remit.policy.engines import Finding, SessionStatus
from remit.policy.files import load_policies
from remit.policy.native import NativeEngine
from tests.policy.judging import action, case, judged, mission, still

ALL = "permit(principal, action, resource);"
READ = action("Read", {"file_path": "a/b"})
WRITE = action("Write", {"file_path": "a/b", "content": "x"})


def test_what_a_policy_permits_is_permitted() -> None:
    finding = CedarEngine(ALL).judge(case(READ))
    assert (finding.backend, finding.code) == ("cedar", "")


def test_what_no_policy_permits_is_denied() -> None:
    engine = CedarEngine('permit(principal, action == Remit::Action::"read", resource);')
    assert engine.judge(case(READ)).permits
    assert engine.judge(case(WRITE)).code == "engine_denied"


def test_forbidding_overrides_permitting_and_is_named() -> None:
    engine = CedarEngine(f'{ALL} @id("no-writes") forbid(principal, action == Remit::Action::"write", resource);')
    assert engine.judge(case(READ)).permits
    finding = engine.judge(case(WRITE))
    assert finding.code == "engine_denied"
    assert "no-writes" in finding.reason
    assert finding.remedy is not None
    assert finding.remedy.changes == ()


@pytest.mark.parametrize(
    "condition",
    [
        'principal == Remit::Agent::"agent:one"',
        'resource == Remit::Target::"/work/app/a/b"',
        'context.tool == "Read"',
        'context.resource_family == "file"',
        'context.paths.contains("/work/app/a/b")',
        'context.effects.contains({"verb": "read", "resource": "/work/app/a/b", "beneath": false})',
        'context.side_effects.contains("none")',
        "!context.runs_code",
        'context.mission.text == "Tidy up."',
        'context.mission.allowed_tools.contains("*")',
        'context.mission.resource_scope.contains("/work/app")',
        "context.session.tool_calls == 10",
        'context.session.id == "grant:00000001" && context.session.duration_s > 500',
    ],
)
def test_a_policy_can_look_at_the_whole_call(condition: str) -> None:
    assert CedarEngine(f"permit(principal, action, resource) when {{ {condition} }};").judge(case(READ)).permits
    assert not CedarEngine(f"permit(principal, action, resource) unless {{ {condition} }};").judge(case(READ)).permits


def test_hosts_are_told_from_paths() -> None:
    engine = CedarEngine('permit(principal, action, resource) when { context.hosts.contains("https://a.example/") };')
    assert engine.judge(case(action("WebFetch", {"url": "https://a.example", "prompt": "p"}))).permits
    assert not engine.judge(case(READ)).permits


def test_a_policy_that_fails_while_it_is_asked_denies() -> None:
    overflow = "forbid(principal, action, resource) when { context.session.tool_calls + 9223372036854775807 > 0 };"
    finding = CedarEngine(ALL + overflow).judge(case(READ))
    assert finding.code == "engine_failed"


def test_a_spent_budget_is_nothing_and_not_less() -> None:
    engine = CedarEngine("permit(principal, action, resource) when { context.session.tool_calls == 0 };")
    assert engine.judge(case(READ, standing=SessionStatus("s", Budget(-4, -4)))).permits


def test_more_effects_than_a_policy_is_shown_deny() -> None:
    many = READ._replace(effects=tuple(Effect("read", f"/{number}", "x") for number in range(257)))
    (finding,) = judge_all([CedarEngine(ALL)], case(many), still, 1.0)
    assert finding.code == "engine_failed"


@pytest.mark.parametrize(
    "policies",
    [
        "",
        "  \n",
        "permit",
        "permit(principal, action, resource)",
        "allow(principal, action, resource);",
        'permit(principal == User::"x", action, resource);',
        'permit(principal, action == Remit::Action::"fly", resource);',
        "permit(principal, action, resource) when { context.colour == 1 };",
        'permit(principal, action, resource) when { context.tool == 1 || context.tool < "x" };',
        "permit(principal, action, resource) when { principal.age > 3 };",
        "\0",
    ],
)
def test_policies_that_cannot_be_used_are_refused_at_once(policies: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        CedarEngine(policies)
    assert caught.value.code == "policy_invalid"


def test_cedar_cannot_widen_the_passport() -> None:
    engines = (NativeEngine(), CedarEngine(ALL))
    assert judged("Read", {"file_path": "a"}, engines=engines).permits
    assert judged("Read", {"file_path": "/etc/passwd"}, engines=engines).code == "out_of_scope"
    assert judged("Read", {}, engines=engines, under=mission(allowed_tools=())).code == "tool_not_allowed"


def test_the_schema_knows_every_class_of_action() -> None:
    for name in ("search", "read", "write", "query", "delegate", "send", "summarize", "observe"):
        assert f'"{name}"' in cedar_schema()


def test_an_answer_says_which_policy_it_comes_from() -> None:
    answer: Finding = CedarEngine(f'@id("everything") {ALL}').judge(case(READ))
    assert "everything" in answer.reason


def test_policies_come_from_a_file_or_from_all_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.cedar").write_text("permit(principal, action, resource);", encoding="utf-8")
    (tmp_path / "a.cedar").write_text("// first", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a policy", encoding="utf-8")
    assert load_policies(str(tmp_path)) == "// first\npermit(principal, action, resource);"
    assert load_policies(str(tmp_path / "a.cedar")) == "// first"


@pytest.mark.parametrize("name", ["missing", "empty", "binary.cedar"])
def test_policies_that_cannot_be_read_are_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.cedar").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyInvalid) as caught:
        load_policies(str(tmp_path / name))
    assert caught.value.code == "policy_invalid"
