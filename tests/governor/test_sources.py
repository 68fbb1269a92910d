"""The sessions of sources: started upon the first report, found again, and followed by new ones."""

import pytest
from msgspec import json

from remit.claims.mission import Mission
from remit.claims.strictjson import JSON
from remit.errors import AudienceMismatch, RequestConflict
from remit.governor.evaluate import EventSummary
from remit.governor.observe import ObserveEvent, PreviewDecision, ReportEvent, ReportResult
from remit.governor.revoke import KillSwitch, RevokeSession
from remit.governor.sessions import EndSession, StartSession
from remit.governor.sources import Reporter, StartSourceSession
from remit.ledger.records import MAX_NOTES
from tests.governor.world import Service, mission

OBSERVER: Mission = mission(
    allowed_tools=("browser_observe", "cli_command"), resource_scope=("**",), max_tool_calls=60, max_duration_s=600
)
REPORTER = Reporter("hub:one", '{"type":"browser","title":"one"}', OBSERVER)
OTHER = REPORTER._replace(key="hub:other")
PAGE: dict[str, JSON] = {"kind": "page", "target": "https://example.com/a"}


def report(event: dict[str, JSON] = PAGE, reporter: Reporter = REPORTER, key: str = "", *marks: str) -> ReportEvent:
    """Return a report of one event."""
    seen = EventSummary(marks, ({"kind": "page", "summary": str(event.get("target"))},))
    return ReportEvent(reporter, ObserveEvent("", "cli" if "command" in event else "browser", event, key, seen))


def taken(service: Service, given: ReportEvent) -> ReportResult:
    return service.run(given)


def test_the_first_report_of_a_source_starts_its_session(service: Service) -> None:
    session_id, answer = taken(service, report())
    assert answer.permits
    assert service.reader.source_of(session_id) == (session_id, REPORTER.key, REPORTER.told)
    assert service.session(session_id).observed == 1


def test_the_same_source_again_is_the_same_session(service: Service) -> None:
    first, again, other = (taken(service, report(reporter=by)).session_id for by in (REPORTER, REPORTER, OTHER))
    assert first == again != other
    assert service.run(StartSourceSession(REPORTER)).existing


def test_another_process_finds_the_session_that_one_has_started(service: Service) -> None:
    first = taken(service, report()).session_id
    service.governor.context.sources.clear()
    assert taken(service, report()).session_id == first


@pytest.mark.parametrize("key", ["hub:one", "hook:one"])
def test_the_passport_of_a_source_starts_nothing_for_a_client(service: Service, key: str) -> None:
    started = service.run(StartSourceSession(REPORTER._replace(key=key)))
    with pytest.raises(AudienceMismatch) as caught:
        service.run(StartSession(started.passport.token))
    assert caught.value.code == "audience_mismatch"
    assert service.run(StartSession(started.passport.token, by_source=True)).session.id == started.session.id


@pytest.mark.parametrize("remembered", [True, False])
def test_a_session_that_has_ended_is_followed_by_a_new_one_and_gets_no_further_receipt(
    service: Service, remembered: bool
) -> None:
    first = taken(service, report()).session_id
    service.run(EndSession(first))
    if not remembered:
        service.governor.context.sources.clear()
    second, answer = taken(service, report())
    assert second != first
    assert (answer.permits, answer.session.length) == (True, 1)
    assert service.session(first).length == 1


def test_a_session_whose_time_is_over_is_followed_by_a_new_one(service: Service) -> None:
    first = taken(service, report()).session_id
    service.clock.pass_s(OBSERVER.max_duration_s + 1)
    assert taken(service, report()).session_id != first
    assert service.session(first).state == "expired"


def test_a_revoked_session_is_followed_by_a_new_one(service: Service) -> None:
    first = taken(service, report()).session_id
    service.run(RevokeSession(first))
    assert taken(service, report()).session_id != first


@pytest.mark.parametrize("remembered", [True, False])
def test_while_the_kill_switch_is_on_what_is_observed_is_denied_in_the_session_there_was(
    service: Service, remembered: bool
) -> None:
    first = taken(service, report()).session_id
    service.run(KillSwitch(on=True))
    if not remembered:
        service.governor.context.sources.clear()
    session_id, answer = taken(service, report())
    assert (session_id, answer.permits, answer.receipt.claims.internal_denial_code) == (first, False, "kill_switch")
    assert service.run(PreviewDecision(report())).code == "kill_switch"
    service.run(KillSwitch(on=False))
    assert taken(service, report()).session_id != first


def test_a_source_that_reports_for_the_first_time_under_the_kill_switch_gets_a_session_and_a_receipt(
    service: Service,
) -> None:
    service.run(KillSwitch(on=True))
    session_id, answer = taken(service, report())
    assert (answer.permits, answer.receipt.claims.internal_denial_code) == (False, "kill_switch")
    started = service.run(StartSourceSession(REPORTER))
    assert (started.session.id, started.existing) == (session_id, True)
    service.run(KillSwitch(on=False))
    assert taken(service, report()).answer.permits


def test_the_kill_switch_stops_sessions_that_were_started_under_it_when_it_is_turned_on_again(service: Service) -> None:
    service.run(KillSwitch(on=True))
    session_id, _ = taken(service, report())
    service.run(KillSwitch(on=True))
    assert service.session(session_id).cause == "kill_switch"


def test_what_is_used_up_is_denied_in_the_same_session(service: Service) -> None:
    few = REPORTER._replace(
        mission=mission(allowed_tools=("browser_observe",), resource_scope=("**",), max_tool_calls=1)
    )
    answers = [taken(service, report(reporter=few)) for _ in range(2)]
    assert [one.answer.permits for one in answers] == [True, False]
    assert answers[0].session_id == answers[1].session_id


def test_notes_say_what_was_done_with_the_verdict_and_the_receipt(service: Service) -> None:
    session_id, answer = taken(service, report())
    (note,) = service.reader.notes(session_id)
    assert note == answer.note
    assert json.decode(note.text) == [
        {
            "observed_at": answer.receipt.claims.timestamp,
            "kind": "page",
            "summary": PAGE["target"],
            "verdict": "compliant",
            "receipt_id": answer.receipt.claims.receipt_id,
        }
    ]


def test_only_the_last_notes_are_kept(service: Service) -> None:
    answers = [taken(service, report(PAGE | {"target": f"https://example.com/{number}"})) for number in range(55)]
    kept = service.reader.notes(answers[0].session_id)
    assert [note.observed for note in kept] == list(range(55 - MAX_NOTES + 1, 56))


def test_marks_gather_what_was_in_events_and_why_some_were_denied(service: Service) -> None:
    session_id, _ = taken(service, report(PAGE, REPORTER, "", "visible_text"))
    taken(service, report(PAGE, REPORTER, "", "conversation"))
    taken(service, report(PAGE | {"hidden_provider_activity": True}))
    assert service.session(session_id).marks == "conversation provider_side_activity visible_text"


def test_the_same_event_under_the_same_key_is_one(service: Service) -> None:
    first, again = taken(service, report(key="k")), taken(service, report(key="k"))
    assert (again.answer.repeated, again.answer.receipt.token) == (True, first.answer.receipt.token)
    assert service.session(first.session_id).observed == 1
    with pytest.raises(RequestConflict):
        taken(service, report(PAGE | {"kind": "other"}, key="k"))


@pytest.mark.parametrize("remembered", [True, False])
def test_a_key_is_found_in_the_last_session_even_if_that_is_over(service: Service, remembered: bool) -> None:
    first = taken(service, report(key="k"))
    service.run(EndSession(first.session_id))
    if not remembered:
        service.governor.context.sources.clear()
    again = taken(service, report(key="k"))
    assert (again.answer.receipt.token, again.answer.permits) == (first.answer.receipt.token, False)
    assert taken(service, report(key="other")).session_id != first.session_id


def test_considering_says_that_a_chain_is_broken_before_anything_is_appended(damaged: Service) -> None:
    session_id = taken(damaged, report()).session_id
    shelf = damaged.shelf
    kept = shelf.chains[session_id][-1]
    shelf.receipts[kept.receipt_id] = kept._replace(token=kept.token[:-4] + "AAAA")
    damaged.governor.context.heads.clear()
    assert damaged.run(PreviewDecision(report())).code == "chain_broken"
    assert damaged.session(session_id).cause == ""


def test_considering_a_report_leaves_no_trace(service: Service) -> None:
    before = service.reader.overview()
    assert service.run(PreviewDecision(report())).permits
    assert (
        service.run(PreviewDecision(report(PAGE | {"hidden_provider_activity": True}))).verdict
        == "insufficient_evidence"
    )
    assert service.reader.overview() == before
    assert service.reader.source_count() == 0


def test_considering_a_report_goes_by_its_session_while_that_is_active(service: Service) -> None:
    narrow = REPORTER._replace(mission=mission(allowed_tools=(), resource_scope=("**",)))
    session_id = service.run(StartSourceSession(narrow)).session.id
    assert service.run(PreviewDecision(report())).code == "tool_not_allowed"
    service.run(EndSession(session_id))
    assert service.run(PreviewDecision(report())).permits


def test_a_receipt_of_a_denial_says_what_would_have_permitted_it(service: Service) -> None:
    narrow = REPORTER._replace(mission=mission(allowed_tools=(), resource_scope=("**",)))
    claims = taken(service, report(reporter=narrow)).answer.receipt.claims
    assert "browser_observe" in str((claims.measurements or {})["remit.remedy"].description)


@pytest.mark.parametrize(("done", "side"), [("read", "none"), ("send", "external_send"), (None, "none")])
def test_a_page_that_was_only_looked_at_was_sent_nothing(service: Service, done: str | None, side: str) -> None:
    claims = taken(service, report(PAGE | {"action_class": done})).answer.receipt.claims
    assert (claims.side_effect_class, claims.target) == (side, PAGE["target"])
