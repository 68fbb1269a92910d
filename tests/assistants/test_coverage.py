"""Calls held against receipts: what is covered, what is not, and that doubt counts against coverage."""

from collections.abc import Iterator
from typing import Any

import pytest

from remit.assistants.reconcile.calls import Outcome, TranscriptCall
from remit.assistants.reconcile.coverage import (
    Coverage,
    MismatchedReceipt,
    SignedDecision,
    build_report,
    compare,
    find_decisions,
    summarize,
)
from remit.claims.canonical import canonicalize
from remit.claims.chain import walk_chain
from remit.claims.receipt import SignedReceipt
from remit.governor.assistants import Actor, EvaluateAssistantCall
from remit.governor.conclude import RecordAssistantResult
from remit.governor.sources import Reporter
from remit.policy.call import ToolCall
from tests.governor.results import DIGEST
from tests.governor.world import ALLOWED, FORBIDDEN, MISSION, Service

ACTOR = Actor(Reporter("hook:one", '{"app":"claude-code","id":"s"}', MISSION))


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as built:
        yield built


def call(outcome: Outcome = "ran", name: str = "c1", **changes: Any) -> TranscriptCall:
    return TranscriptCall(name, "Bash", "s", at="2026-11-15T18:00:00.000Z", outcome=outcome)._replace(**changes)


def decided(name: str = "c1", **changes: Any) -> SignedDecision:
    return SignedDecision(name, f"rcpt:{name}", "s", "Bash", "", permitted=True)._replace(**changes)


PERMITTED, DENIED = decided(), decided(permitted=False, arguments="0" * 64)
# As our hook refuses it, with the receipt that says so.
REFUSED = call("refused_by_hook", hook_tool="Bash", hook_arguments="0" * 64, by_words=True, receipts=("rcpt:c1",))


@pytest.mark.parametrize(
    ("outcome", "decision", "found"),
    [
        ("ran", PERMITTED, {"receipted": 1, "run": 1}),
        ("failed", PERMITTED, {"receipted": 1, "run": 1}),
        ("pending", PERMITTED, {"receipted": 1}),
        ("not_run", PERMITTED, {"receipted": 1}),
        ("ran", PERMITTED._replace(bound=True), {"receipted": 1, "run": 1, "bound": 1}),
        ("not_run", DENIED, {"receipted": 1, "refused": 1}),
        ("pending", DENIED, {"receipted": 1, "refused": 1}),
        ("not_run", None, {"not_run": 1}),
    ],
)
def test_what_is_covered(outcome: Outcome, decision: SignedDecision | None, found: dict[str, int]) -> None:
    coverage = compare([call(outcome)], [decision] if decision else [])
    assert coverage == Coverage(calls=1, **found)  # type: ignore[arg-type]
    assert coverage.is_full


def test_a_refusal_that_names_its_receipt_is_covered() -> None:
    coverage = compare([REFUSED], [DENIED])
    assert (coverage, coverage.is_full) == (Coverage(calls=1, receipted=1, refused=1), True)


@pytest.mark.parametrize(
    ("refused", "decision"),
    [
        (REFUSED, None),
        (REFUSED._replace(outcome="not_run"), None),
        (REFUSED._replace(receipts=()), DENIED),
        (REFUSED._replace(receipts=("rcpt:another",)), DENIED),
        (REFUSED._replace(hook_tool="Read"), DENIED),
        (REFUSED._replace(hook_arguments="1" * 64), DENIED),
    ],
    ids=["no receipt", "not run", "unnamed", "another", "other tool", "other arguments"],
)
def test_a_text_alone_proves_no_refusal(refused: TranscriptCall, decision: SignedDecision | None) -> None:
    coverage = compare([refused], [decision] if decision else [])
    assert (coverage.unproven, coverage.is_full, coverage.has_gaps) == ((refused,), False, False)
    assert build_report(coverage)["unproven"] == [
        {"call": "c1", "tool": "Bash", "session": "s", "agent": "", "at": refused.at, "outcome": refused.outcome}
    ]


def test_a_text_from_before_the_protection_is_only_counted() -> None:
    coverage = compare([REFUSED], [], {"s": "2027-01-01T00:00:00Z"})
    assert (coverage.before, coverage.is_full) == (1, True)


@pytest.mark.parametrize("outcome", ["ran", "failed", "pending"])
def test_what_may_have_run_without_a_receipt_is_a_gap(outcome: Outcome) -> None:
    coverage = compare([call(outcome)], [decided("another")])
    assert coverage.unreceipted == (call(outcome),)
    assert not coverage.is_full


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"session": "other"}, "session"),
        ({"tool": "Read"}, "tool"),
        ({"arguments": "1" * 64}, "arguments"),
        ({"at": "2026-11-15T18:00:05.001Z"}, "late"),
        ({"at": "2026-11-15T18:00:06Z"}, "late"),
    ],
)
@pytest.mark.parametrize("outcome", ["ran", "failed", "pending"])
@pytest.mark.parametrize("permitted", [True, False])
def test_a_decision_on_something_else_covers_no_call(
    outcome: Outcome, changes: dict[str, str], differs: str, permitted: bool
) -> None:
    own = call(outcome, hook_tool="Bash", hook_arguments="0" * 64, ended="2026-11-15T18:00:05.000Z")
    right = decided(arguments="0" * 64, at="2026-11-15T18:00:04.999Z")
    other = right._replace(permitted=permitted, receipt_id="rcpt:other", **changes)  # type: ignore[arg-type]
    coverage = compare([own], [other])
    assert coverage.mismatched == (MismatchedReceipt(own, "rcpt:other", (differs,)),)  # type: ignore[arg-type]
    assert (coverage.receipted, coverage.is_full, coverage.has_gaps) == (0, False, True)
    # Whichever comes last, the decision on the call itself counts.
    assert compare([own], [right, other]).is_full
    assert compare([own], [other, right]).is_full


def test_a_decision_of_the_second_of_the_result_is_not_late_where_one_tells_no_more() -> None:
    ended = call(ended="2026-11-15T18:00:05Z")
    assert compare([ended], [decided(at="2026-11-15T18:00:05.900Z")]).is_full
    assert compare([call(ended="soon")], [decided(at="2026-11-15T18:00:05.900Z")]).is_full


def test_arguments_with_absolute_paths_are_those_of_the_call() -> None:
    own = call(hook_arguments="0" * 64, absolute_arguments="1" * 64)
    assert [compare([own], [decided(arguments=digit * 64)]).is_full for digit in "012"] == [True, True, False]


@pytest.mark.parametrize("outcome", ["ran", "failed"])
def test_what_was_refused_and_run_is_a_gap(outcome: Outcome) -> None:
    coverage = compare([call(outcome)], [DENIED])
    assert (coverage.refused_but_run, coverage.receipted, coverage.is_full) == ((call(outcome),), 0, False)


@pytest.mark.parametrize(
    ("since", "before"),
    [("2026-11-15T18:00:00Z", 0), ("2026-11-15T18:00:01.000Z", 1), ("2026-11-15T17:59:59.999Z", 0), ("", 0)],
)
def test_calls_from_before_the_protection_are_only_counted(since: str, before: int) -> None:
    coverage = compare([call()], [], {"s": since})
    assert (coverage.before, len(coverage.unreceipted)) == (before, 1 - before)


def test_a_call_without_a_time_is_never_from_before() -> None:
    assert compare([call(at="")], [], {"s": "2030-01-01T00:00:00Z"}).unreceipted


def test_a_call_that_two_transcripts_tell_of_is_one_and_ran_if_one_says_so() -> None:
    coverage = compare([call("not_run"), call("ran", session="fork"), call("pending")], [])
    assert coverage.calls == 1
    assert [one.outcome for one in coverage.unreceipted] == ["ran"]


def test_receipts_that_no_transcript_tells_of_are_named_for_sessions_that_were_read() -> None:
    others = [decided("c2"), decided("c3", permitted=False), decided("c4", session="elsewhere")]
    coverage = compare([call()], [PERMITTED, *others])
    assert [one.call_id for one in coverage.permitted_not_seen] == ["c2"]
    assert coverage.is_full


def test_the_report_names_what_is_in_question_and_has_a_canonical_form() -> None:
    coverage = compare([call(), call(name="c2", tool="?x")], [DENIED, decided("c9")])
    report = build_report(coverage)
    canonicalize(report)
    assert [one["call"] for one in report["unreceipted"]] == ["c2"]  # type: ignore[index,union-attr,call-overload]
    assert report["calls"] == 2
    assert "1 without a receipt, 1 refused and run" in summarize(coverage)


def govern(service: Service, name: str, tool: ToolCall, agent: str = "") -> str:
    envelope = f"claude-code {name}" + (f" agent={agent}" if agent else "") + " mode=acceptEdits"
    return service.run(EvaluateAssistantCall(ACTOR._replace(agent=agent), tool, name, envelope)).session_id


def chain(service: Service, name: str) -> list[SignedReceipt]:
    return [receipt for receipt, _ in walk_chain(service.tokens(name), service.keyring())]


def test_decisions_are_read_from_receipts_with_what_became_of_them(service: Service) -> None:
    name = govern(service, "c1", ALLOWED)
    govern(service, "c2", FORBIDDEN)
    service.run(RecordAssistantResult(ACTOR, ALLOWED, "c1", "claude-code c1", DIGEST))
    found = find_decisions(chain(service, name), "claude-code", "s")
    assert [(one.call_id, one.permitted, one.bound, one.mode) for one in found] == [
        ("c1", True, True, "acceptEdits"),
        ("c2", False, False, "acceptEdits"),
    ]


def test_a_finding_is_no_decision(service: Service) -> None:
    name = govern(service, "c1", ALLOWED)
    service.run(RecordAssistantResult(ACTOR, ALLOWED, "c9", "claude-code c9", DIGEST))
    assert [one.call_id for one in find_decisions(chain(service, name), "claude-code", "s")] == ["c1"]


def test_decisions_on_calls_of_another_assistant_do_not_count(service: Service) -> None:
    name = govern(service, "c1", ALLOWED)
    assert find_decisions(chain(service, name), "codex", "s") == []
