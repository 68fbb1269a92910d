"""Calls after the end of a session: each denied with a receipt up to a rate, beyond it counted and not evaluated."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.receipt import Receipt
from remit.errors import LedgerUnavailable, RateLimited
from remit.governor.assistants import Actor, EvaluateAssistantCall
from remit.governor.conclude import RecordAssistantResult
from remit.governor.evaluate import Evaluate
from remit.governor.observe import ObserveEvent, ReportEvent
from remit.governor.refused import MAX_PER_S
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession
from remit.governor.sources import Reporter
from tests.governor.results import DIGEST
from tests.governor.world import ALLOWED, MISSION, Service, mission

pytestmark = pytest.mark.slow

REPORTER = Reporter("test:hook", '{"title":"a test","type":"cli"}', MISSION)
ENDINGS: dict[str, Callable[[Service, str], object]] = {
    "ended": lambda service, name: service.run(EndSession(name)),
    "revoked": lambda service, name: service.run(RevokeSession(name)),
    "passport revoked": lambda service, name: service.run(RevokePassport(name)),
    "killed": lambda service, _name: service.run(KillSwitch(on=True)),
    "expired": lambda service, _name: service.clock.pass_s(900),
}


def _flood(service: Service, name: str, calls: int) -> int:
    """Make calls at one moment, and return how many were not evaluated."""
    skipped = 0
    for _ in range(calls):
        try:
            assert not service.call(name).permits
        except RateLimited:
            skipped += 1
    return skipped


def _reports(service: Service, name: str) -> list[Receipt]:
    return [claims for claims in service.claims(name) if claims.tool == "remit.rate_limit"]


def _counted(service: Service, name: str) -> int:
    return sum(int(claims.reason.split()[0]) for claims in _reports(service, name))


@pytest.mark.parametrize("how", ENDINGS)
def test_after_the_end_ten_calls_a_second_get_a_receipt_and_no_more(service: Service, how: str) -> None:
    name = service.start().session.id
    ENDINGS[how](service, name)
    before = service.session(name).length
    assert _flood(service, name, 50) == 50 - MAX_PER_S
    assert service.session(name).length == before + MAX_PER_S + 1
    service.clock.pass_s(1)
    assert _flood(service, name, 50) == 50 - MAX_PER_S
    assert service.session(name).length == before + 2 * MAX_PER_S + 1


def test_the_error_says_that_the_call_was_not_evaluated(service: Service) -> None:
    name = service.start().session.id
    service.run(EndSession(name))
    _flood(service, name, MAX_PER_S)
    with pytest.raises(RateLimited) as caught:
        service.call(name)
    assert caught.value.code == "rate_limited"
    assert "not evaluated" in str(caught.value)


def test_one_receipt_a_minute_says_how_many_calls_there_were_and_since_when(service: Service) -> None:
    name = service.start().session.id
    service.run(EndSession(name))
    skipped = 0
    for _ in range(180):
        skipped += _flood(service, name, MAX_PER_S + 3)
        service.clock.pass_s(1)
    reports = _reports(service, name)
    assert len(reports) == 3
    assert reports[0].reason.startswith("1 call was not evaluated since 2026-09-21T14:13:20.000Z")
    assert [int(claims.reason.split()[0]) for claims in reports] == [1, 3 * 60 - 1, 3 * 60]
    assert reports[1].measurements["remit.rate_limit"].description == (  # type: ignore[index]
        "179 calls were not evaluated since 2026-09-21T14:13:20.000Z"
    )
    assert {claims.internal_denial_code for claims in reports} == {"rate_limited"}
    service.governor.close()
    assert _counted(service, name) == skipped == 3 * 180


def test_an_attestation_covers_what_was_not_evaluated_before_it(service: Service) -> None:
    name = service.start().session.id
    service.run(EndSession(name))
    skipped = _flood(service, name, 100)
    attested = service.attest(name).attestation.claims
    assert _counted(service, name) == skipped
    assert attested.receipts == MAX_PER_S + 2
    assert attested.chain_verified


def test_what_was_counted_is_written_when_the_process_stops(service: Service) -> None:
    names = [service.start().session.id for _ in range(70)]
    skipped = 0
    for name in names:
        service.run(EndSession(name))
        skipped += _flood(service, name, MAX_PER_S + 3)
    service.governor.close()
    assert sum(_counted(service, name) for name in names) == skipped == 3 * 70
    assert service.governor.context.refused.unreported() == []


def test_what_could_not_be_written_is_counted_on(service: Service) -> None:
    name = service.start().session.id
    service.run(EndSession(name))
    _flood(service, name, MAX_PER_S)
    service.weather.lost = True
    with pytest.raises(LedgerUnavailable):
        service.call(name)
    assert _flood(service, name, 5) == 5
    service.governor.close()
    assert _counted(service, name) == 6


def test_a_session_that_is_active_has_no_such_limit(service: Service) -> None:
    name = service.start(max_tool_calls=50).session.id
    assert all(service.call(name).permits for _ in range(50))
    assert not any(service.call(name).permits for _ in range(50))
    assert len(service.claims(name)) == 100


def test_the_rate_of_one_session_is_not_that_of_another(service: Service) -> None:
    names = [service.start().session.id for _ in range(3)]
    for name in names[:2]:
        service.run(EndSession(name))
    assert _flood(service, names[0], 30) == 20
    assert _flood(service, names[1], 9) == 0
    assert service.call(names[2]).permits


def test_delegations_after_the_end_are_limited_too(service: Service) -> None:
    name = service.start().session.id
    service.run(EndSession(name))
    for number in range(MAX_PER_S):
        assert not service.delegate(name, f"request-{number}").permits
    with pytest.raises(RateLimited):
        service.delegate(name, "request-late")


def test_findings_after_the_end_are_limited_too(service: Service) -> None:
    actor = Actor(REPORTER)
    first = service.run(EvaluateAssistantCall(actor, ALLOWED, "call-0", "test call-0")).session_id
    service.run(RevokeSession(first))
    for number in range(1, MAX_PER_S + 1):
        assert service.run(RecordAssistantResult(actor, ALLOWED, f"call-{number}", "test", DIGEST)).is_finding
    with pytest.raises(RateLimited):
        service.run(RecordAssistantResult(actor, ALLOWED, "call-late", "test", DIGEST))


def test_the_calls_of_an_assistant_whose_session_was_revoked_are_limited(service: Service) -> None:
    actor = Actor(REPORTER)
    first = service.run(EvaluateAssistantCall(actor, ALLOWED, "call-0", "test call-0")).session_id
    service.run(RevokeSession(first))
    for number in range(1, MAX_PER_S + 1):
        assert not service.run(EvaluateAssistantCall(actor, ALLOWED, f"call-{number}", "test")).answer.permits
    with pytest.raises(RateLimited):
        service.run(EvaluateAssistantCall(actor, ALLOWED, "call-late", "test"))


def test_an_assistant_that_is_started_again_is_not_limited_by_the_calls_in_its_last_session(service: Service) -> None:
    actor = Actor(REPORTER)
    first = service.run(EvaluateAssistantCall(actor, ALLOWED, "call-0", "test call-0")).session_id
    service.run(EndSession(first))
    _flood(service, first, 2 * MAX_PER_S)
    following = service.run(EvaluateAssistantCall(actor, ALLOWED, "call-1", "test call-1"))
    assert following.answer.permits
    assert following.session_id != first


def test_events_under_the_kill_switch_are_limited_and_go_on_when_it_is_released(service: Service) -> None:
    observer = mission(allowed_tools=("browser_observe",), resource_scope=("**",))
    report = ReportEvent(
        REPORTER._replace(mission=observer), ObserveEvent("", "browser", {"target": "https://example.com/"})
    )
    service.run(KillSwitch(on=True))
    session_id = service.run(report).session_id
    for _ in range(MAX_PER_S - 1):
        service.run(report)
    with pytest.raises(RateLimited):
        service.run(report)
    service.run(KillSwitch(on=False))
    service.clock.pass_s(1)
    assert all(service.run(report).answer.permits for _ in range(MAX_PER_S + 3))
    assert _counted(service, session_id) == 1


def test_a_session_from_before_a_restart_is_limited_once_it_was_seen(service: Service) -> None:
    name = service.start().session.id
    service.run(EndSession(name))
    service.restart()
    assert _flood(service, name, 30) == 20


@given(pauses=st.lists(st.integers(0, 300), min_size=1, max_size=80))
def test_no_second_has_more_than_ten_decisions_and_every_call_is_accounted_for(pauses: list[int]) -> None:
    with Service() as service:
        name = service.start().session.id
        service.run(EndSession(name))
        evaluated, skipped = [], 0
        for pause in pauses:
            service.clock.pass_s(pause / 1000)
            try:
                service.run(Evaluate(name, ALLOWED))
                evaluated.append(service.clock.mono_ms)
            except RateLimited:
                skipped += 1
        for index in range(len(evaluated) - MAX_PER_S):
            assert evaluated[index + MAX_PER_S] - evaluated[index] >= 1000
        service.governor.close()
        assert _counted(service, name) == skipped
        assert len(evaluated) + skipped == len(pauses)


def test_what_is_remembered_of_sessions_is_bounded(service: Service) -> None:
    refused, now = service.governor.context.refused, service.clock.now()
    for number in range(10_000):
        refused.note(f"pass:{number}", "ended", now, refused=True)
    assert len(refused.sessions) == 4096
