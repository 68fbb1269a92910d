"""The calls of assistants and their subagents: judged in sessions of their own, their outcomes bound, gaps found."""

import json

import pytest
from msgspec import structs

from remit.claims.canonical import sha256_hex
from remit.claims.receipt import Digest
from remit.claims.strictjson import JSON
from remit.errors import HookSecretWrong, RequestConflict
from remit.governor.assistants import (
    Actor,
    AssistantEvaluation,
    BeginAssistantSession,
    EndAssistantSession,
    EvaluateAssistantCall,
)
from remit.governor.conclude import AssistantResult, RecordAssistantResult
from remit.governor.folders import MissionTemplate
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, StartSession
from remit.governor.sources import Reporter, StartSourceSession
from remit.policy.call import ToolCall
from tests.governor.stepping import Commit, steps_of
from tests.governor.world import ALLOWED, FORBIDDEN, Service, mission

MISSION = mission(allowed_tools=("read_file", "Agent", "send_email"), max_tool_calls=20, max_duration_s=600)
LEAD = Actor(Reporter("hook:one", '{"type":"cli","app":"claude-code","id":"s1"}', MISSION), withheld=("Agent",))
AGENT = LEAD._replace(agent="a1", kind="Explore")
RESULT = Digest(alg="sha-256", value="A" * 43, canonicalization="jcs-rfc8785", scope="result")
OTHER_RESULT = Digest(alg="sha-256", value="B" * 43, canonicalization="jcs-rfc8785", scope="result")
SPAWN = ToolCall("Agent", {"prompt": "look around"})


def governed(service: Service, call_id: str, actor: Actor = LEAD, call: ToolCall = ALLOWED) -> AssistantEvaluation:
    return service.run(EvaluateAssistantCall(actor, call, call_id, f"claude-code {call_id}"))


def concluded(
    service: Service, call_id: str, actor: Actor = LEAD, call: ToolCall = ALLOWED, result: Digest = RESULT
) -> AssistantResult:
    return service.run(RecordAssistantResult(actor, call, call_id, f"claude-code {call_id}", result))


def read(path: str) -> ToolCall:
    arguments: dict[str, JSON] = {"path": path}
    return ToolCall("read_file", arguments)


def test_the_first_call_starts_the_session_and_its_receipt_names_the_call(service: Service) -> None:
    session_id, answer = governed(service, "toolu_1")
    assert answer.permits
    measured = answer.receipt.claims.measurements
    assert isinstance(measured, dict)
    assert (measured["remit.call"].kind, measured["remit.call"].description) == (
        "envelope_binding",
        "claude-code toolu_1",
    )
    assert service.session(session_id).used == 1


def test_calls_of_the_same_id_are_one(service: Service) -> None:
    first, again = governed(service, "toolu_1"), governed(service, "toolu_1")
    assert again.answer.repeated
    assert again.answer.receipt == first.answer.receipt
    assert service.session(first.session_id).used == 1


def test_one_id_does_not_stand_for_two_calls(service: Service) -> None:
    governed(service, "toolu_1")
    with pytest.raises(RequestConflict):
        governed(service, "toolu_1", call=read("/work/project/other"))


def test_a_session_that_is_used_up_is_not_followed_by_a_fresh_one(service: Service) -> None:
    answers = [governed(service, f"toolu_{number}") for number in range(MISSION.max_tool_calls + 2)]
    assert len({given.session_id for given in answers}) == 1
    assert [given.answer.permits for given in answers][-2:] == [False, False]
    assert answers[-1].answer.receipt.claims.internal_denial_code == "tool_calls_exhausted"


def test_a_session_whose_time_is_over_denies_and_stays(service: Service) -> None:
    first = governed(service, "toolu_1").session_id
    service.clock.pass_s(MISSION.max_duration_s + 1)
    session_id, answer = governed(service, "toolu_2")
    assert (session_id, answer.permits) == (first, False)
    assert answer.receipt.claims.internal_denial_code == "duration_exceeded"


def test_a_revoked_session_denies_and_stays(service: Service) -> None:
    first = governed(service, "toolu_1").session_id
    service.run(RevokeSession(first))
    session_id, answer = governed(service, "toolu_2")
    assert (session_id, answer.permits) == (first, False)


@pytest.mark.parametrize("remembered", [True, False])
def test_a_session_that_was_ended_is_followed_by_a_new_one(service: Service, remembered: bool) -> None:
    first = governed(service, "toolu_1").session_id
    ended = service.run(EndAssistantSession(LEAD))
    assert ended is not None
    assert ended.state == "ended"
    if not remembered:
        service.governor.context.sources.clear()
    second, answer = governed(service, "toolu_2")
    assert second != first
    assert answer.permits


def test_ending_what_never_began_is_nothing(service: Service) -> None:
    assert service.run(EndAssistantSession(LEAD)) is None
    assert service.run(EndAssistantSession(AGENT)) is None


def test_a_subagent_acts_under_a_narrower_passport_in_a_chain_of_its_own(service: Service) -> None:
    lead = governed(service, "toolu_1").session_id
    child, answer = governed(service, "toolu_2", AGENT)
    assert answer.permits
    session = service.session(child)
    assert (session.parent, session.actor, session.length) == (lead, "agent:reviewer/Explore", 1)
    assert session.limit == MISSION.max_tool_calls // 4
    assert service.session(lead).reserved == session.limit


def test_a_subagent_may_not_start_subagents_though_its_lead_may(service: Service) -> None:
    assert governed(service, "toolu_1", LEAD, SPAWN).answer.permits
    answer = governed(service, "toolu_2", AGENT, SPAWN).answer
    assert answer.receipt.claims.internal_denial_code == "tool_forbidden"


@pytest.mark.parametrize("remembered", [True, False])
def test_further_calls_of_a_subagent_are_in_the_same_session(service: Service, remembered: bool) -> None:
    first = governed(service, "toolu_1", AGENT).session_id
    if not remembered:
        service.governor.context.sources.clear()
    assert governed(service, "toolu_2", AGENT).session_id == first
    assert governed(service, "toolu_3", AGENT._replace(agent="a2")).session_id != first


def test_a_subagent_that_has_ended_gives_back_its_calls_and_can_come_back(service: Service) -> None:
    first = governed(service, "toolu_1", AGENT).session_id
    lead = service.session(first).parent
    assert lead is not None
    service.run(EndAssistantSession(AGENT))
    assert (service.session(lead).reserved, service.session(lead).used) == (0, 1)
    service.governor.context.sources.clear()
    second, answer = governed(service, "toolu_2", AGENT)
    assert second != first
    assert answer.permits


@pytest.mark.parametrize("odd", ["a1#2", "a1#3", "2:name:a1", "1:name:a1"])
def test_a_subagent_that_comes_back_is_never_taken_for_one_of_another_name(service: Service, odd: str) -> None:
    other = AGENT._replace(agent=odd)
    theirs = governed(service, "toolu_1", other).session_id
    for number in range(2, 5):
        assert governed(service, f"toolu_{number}", AGENT).session_id != theirs
        service.run(EndAssistantSession(AGENT))
    assert governed(service, "toolu_5", other).session_id == theirs


def _delegated_as_before(service: Service, lead: str, request: str) -> str:
    """Delegate under a name that the first release gave, and return the session of the delegate."""
    passport = service.delegate(lead, request, wanted=MISSION, max_tool_calls=2).passport
    assert passport is not None
    return service.run(StartSession(passport, by_source=True)).session.id


def test_subagents_of_the_first_release_are_found_by_the_names_that_they_had(service: Service) -> None:
    lead = governed(service, "toolu_1").session_id
    long = AGENT._replace(agent="x" * 200)
    before = _delegated_as_before(service, lead, "agent:a1")
    hashed = _delegated_as_before(service, lead, f"agent:{sha256_hex(long.agent.encode())}")
    assert governed(service, "toolu_2", AGENT).session_id == before
    assert governed(service, "toolu_3", long).session_id == hashed
    service.run(EndAssistantSession(AGENT))
    second = _delegated_as_before(service, lead, "agent:a1#2")
    service.governor.context.sources.clear()
    assert governed(service, "toolu_4", AGENT).session_id == second
    ended = service.run(EndAssistantSession(AGENT))
    assert ended is not None
    assert ended.id == second


def test_a_name_of_the_first_release_that_two_subagents_may_have_had_is_that_of_the_one_who_came_back(
    service: Service,
) -> None:
    lead = governed(service, "toolu_1").session_id
    first = _delegated_as_before(service, lead, "agent:a1")
    service.run(EndSession(first))
    second = _delegated_as_before(service, lead, "agent:a1#2")
    odd = AGENT._replace(agent="a1#2")
    assert governed(service, "toolu_2", odd).session_id != second
    assert governed(service, "toolu_3", AGENT).session_id == second


def test_a_numbered_name_of_the_first_release_is_that_of_its_subagent_where_no_other_could_have_had_it(
    service: Service,
) -> None:
    lead = governed(service, "toolu_1").session_id
    before = _delegated_as_before(service, lead, "agent:a1#2")
    odd = AGENT._replace(agent="a1#2")
    governed(service, "toolu_2", AGENT)
    service.run(EndAssistantSession(AGENT))
    assert governed(service, "toolu_3", AGENT).session_id != before
    assert governed(service, "toolu_4", odd).session_id == before


def test_an_agent_named_by_a_digest_is_not_the_one_with_the_long_name(service: Service) -> None:
    lead = governed(service, "toolu_1").session_id
    digest = sha256_hex(b"x" * 200)
    before = _delegated_as_before(service, lead, f"agent:{digest}")
    assert governed(service, "toolu_2", AGENT._replace(agent=digest)).session_id != before


def test_a_subagent_of_a_lead_without_calls_left_is_refused_with_a_receipt(service: Service) -> None:
    for number in range(MISSION.max_tool_calls):
        governed(service, f"toolu_{number}")
    session_id, answer = governed(service, "toolu_agent", AGENT)
    assert not answer.permits
    assert answer.receipt.claims.internal_denial_code == "lineage_budget_exhausted"
    assert "toolu_agent" in str(answer.receipt.claims.measurements)
    assert service.session(session_id).receipt_id == answer.receipt.claims.receipt_id


def test_the_kill_switch_stops_leads_and_subagents(service: Service) -> None:
    governed(service, "toolu_1")
    governed(service, "toolu_2", AGENT)
    service.run(KillSwitch(on=True))
    assert not governed(service, "toolu_3").answer.permits
    assert not governed(service, "toolu_4", AGENT).answer.permits
    assert not governed(service, "toolu_5", AGENT._replace(agent="a2")).answer.permits


@pytest.mark.parametrize("actor", [LEAD, AGENT])
def test_an_outcome_is_bound_to_its_decision(service: Service, actor: Actor) -> None:
    session_id, answer = governed(service, "toolu_1", actor)
    outcome = concluded(service, "toolu_1", actor)
    assert (outcome.session_id, outcome.is_finding) == (session_id, False)
    assert outcome.receipt.claims.result_hash == RESULT
    kept = service.reader.result_of(answer.receipt.claims.receipt_id)
    assert kept is not None
    assert kept.receipt_id == outcome.receipt.claims.receipt_id


@pytest.mark.parametrize("actor", [LEAD, AGENT])
def test_an_outcome_without_a_decision_is_a_finding_in_the_chain(service: Service, actor: Actor) -> None:
    governed(service, "toolu_1", actor)
    outcome = concluded(service, "toolu_9", actor, FORBIDDEN)
    assert outcome.is_finding
    claims = outcome.receipt.claims
    assert (claims.internal_denial_code, claims.verdict, claims.tool) == ("run_unasked", "violation", "send_email")
    assert service.session(outcome.session_id).violation == 1


def test_an_outcome_without_any_session_is_a_finding_too(service: Service) -> None:
    assert concluded(service, "toolu_1").is_finding
    assert service.run(StartSourceSession(LEAD.reporter)).session.violation == 1


def test_a_finding_that_is_told_twice_is_one(service: Service) -> None:
    first, again = concluded(service, "toolu_1"), concluded(service, "toolu_1")
    assert again.receipt == first.receipt
    assert again.is_finding
    assert service.session(first.session_id).length == 1


def test_the_outcome_of_a_denied_call_is_a_finding(service: Service) -> None:
    governed(service, "toolu_1", call=FORBIDDEN)
    outcome = concluded(service, "toolu_1", call=FORBIDDEN)
    assert outcome.is_finding
    assert outcome.receipt.claims.internal_denial_code == "denied_but_run"


def test_one_call_has_one_outcome(service: Service) -> None:
    governed(service, "toolu_1")
    concluded(service, "toolu_1")
    with pytest.raises(RequestConflict):
        concluded(service, "toolu_1", result=OTHER_RESULT)


def test_calls_without_names_get_their_outcomes_in_order(service: Service) -> None:
    same = [governed(service, "").answer.receipt.claims.receipt_id for _ in range(2)]
    other = governed(service, "", call=read("/work/project/b")).answer.receipt.claims.receipt_id
    assert [concluded(service, "").is_finding for _ in range(2)] == [False, False]
    assert all(service.reader.result_of(receipt_id) for receipt_id in same)
    assert service.reader.result_of(other) is None
    assert concluded(service, "").receipt.claims.internal_denial_code == "run_unasked"


def test_the_outcome_of_a_call_without_a_name_goes_to_the_one_that_was_permitted(service: Service) -> None:
    governed(service, "", call=FORBIDDEN)
    assert concluded(service, "", call=FORBIDDEN).receipt.claims.internal_denial_code == "denied_but_run"


@pytest.mark.parametrize("remembered", [True, False])
def test_beginning_again_revives_no_session_that_is_over(service: Service, remembered: bool) -> None:
    first = service.run(BeginAssistantSession(LEAD.reporter))
    assert service.run(BeginAssistantSession(LEAD.reporter)) == first
    service.run(RevokeSession(first))
    if not remembered:
        service.governor.context.sources.clear()
    assert service.run(BeginAssistantSession(LEAD.reporter)) == first
    assert not governed(service, "toolu_1").answer.permits


def test_beginning_after_its_time_revives_no_session(service: Service) -> None:
    first = service.run(BeginAssistantSession(LEAD.reporter))
    service.clock.pass_s(MISSION.max_duration_s + 1)
    assert service.run(BeginAssistantSession(LEAD.reporter)) == first


def test_beginning_after_the_end_starts_a_new_session(service: Service) -> None:
    first = service.run(BeginAssistantSession(LEAD.reporter))
    service.run(EndAssistantSession(LEAD))
    assert service.run(BeginAssistantSession(LEAD.reporter)) != first


@pytest.mark.parametrize("actor", [LEAD, AGENT])
def test_what_was_run_otherwise_than_it_was_decided_on_is_a_finding(service: Service, actor: Actor) -> None:
    session_id, answer = governed(service, "toolu_1", actor)
    outcomes = [concluded(service, "toolu_1", actor, read("/etc/passwd")) for _ in range(2)]
    assert {outcome.receipt.claims.receipt_id for outcome in outcomes} == {outcomes[0].receipt.claims.receipt_id}
    claims = outcomes[0].receipt.claims
    assert (outcomes[0].is_finding, claims.internal_denial_code, claims.target) == (True, "run_unasked", "/etc/passwd")
    assert service.reader.result_of(answer.receipt.claims.receipt_id) is None
    assert service.session(session_id).violation == 1


def test_an_outcome_without_a_name_is_that_of_the_call_that_was_permitted_not_of_its_refused_twin(
    service: Service,
) -> None:
    once = LEAD._replace(reporter=LEAD.reporter._replace(mission=mission(max_tool_calls=1)))
    assert [governed(service, "", once).answer.permits for _ in range(2)] == [True, False]
    assert not concluded(service, "", once).is_finding


def limited(**changes: object) -> Actor:
    """Return an assistant whose reporter is changed."""
    return LEAD._replace(reporter=LEAD.reporter._replace(**changes))  # type: ignore[arg-type]


def told(**members: str) -> str:
    """Return what is told of a source."""
    return json.dumps({"app": "claude-code", "id": "s1", **members})


def ended_and_begun(service: Service, actor: Actor, times: int = 1) -> None:
    for _ in range(times):
        service.run(EndAssistantSession(actor))
        service.run(BeginAssistantSession(actor.reporter))


def test_ends_and_starts_never_give_back_calls(service: Service) -> None:
    permitted = 0
    for number in range(2 * MISSION.max_tool_calls):
        permitted += governed(service, f"toolu_{number}").answer.permits
        ended_and_begun(service, LEAD)
    assert permitted == MISSION.max_tool_calls
    answer = governed(service, "toolu_last").answer
    assert answer.receipt.claims.internal_denial_code == "tool_calls_exhausted"


def test_calls_that_subagents_have_used_are_not_given_back_either(service: Service) -> None:
    permitted = 0
    for number in range(2 * MISSION.max_tool_calls):
        permitted += governed(service, f"toolu_{number}", AGENT).answer.permits
        service.run(EndAssistantSession(AGENT))
        ended_and_begun(service, LEAD)
    assert permitted == MISSION.max_tool_calls


def test_ends_and_starts_never_give_back_time(service: Service) -> None:
    for number in range(4):
        assert governed(service, f"toolu_{number}").answer.permits
        service.clock.pass_s(MISSION.max_duration_s // 4)
        ended_and_begun(service, LEAD)
    answer = governed(service, "toolu_last").answer
    assert answer.receipt.claims.internal_denial_code == "duration_exceeded"


def test_the_last_fraction_of_a_second_is_not_rounded_up_by_starts(service: Service) -> None:
    governed(service, "toolu_1")
    service.clock.pass_s(MISSION.max_duration_s - 1)
    for _ in range(10):
        service.clock.pass_s(0.3)
        ended_and_begun(service, LEAD)
    assert not governed(service, "toolu_2").answer.permits


@pytest.mark.parametrize("when", ["while it runs", "after its end"])
def test_what_was_revoked_stays_so_over_ends_starts_and_generations(service: Service, when: str) -> None:
    lead = governed(service, "toolu_1").session_id
    if when == "after its end":
        service.run(EndAssistantSession(LEAD))
        service.run(RevokePassport(lead))
    else:
        service.run(RevokeSession(lead))
    for actor in (LEAD, limited(generation=1)):
        service.run(EndAssistantSession(actor))
        service.run(BeginAssistantSession(actor.reporter))
        assert not governed(service, f"toolu_{actor.reporter.generation + 2}", actor).answer.permits
        assert not governed(service, "toolu_a", actor._replace(agent="a1")).answer.permits


def test_a_session_that_the_kill_switch_has_not_closed_yet_cannot_be_ended_and_continued(service: Service) -> None:
    lead = governed(service, "toolu_1").session_id
    first_step = next(steps_of(KillSwitch(on=True), service.governor.context))
    assert isinstance(first_step, Commit)
    service.ledger.run(first_step.work, alone=True)
    service.run(EndAssistantSession(LEAD))
    assert service.session(lead).state == "active"


@pytest.mark.parametrize("state", ["active", "used up", "expired", "ended"])
def test_a_new_generation_gives_fresh_limits(service: Service, state: str) -> None:
    first = governed(service, "toolu_0").session_id
    if state == "used up":
        for number in range(MISSION.max_tool_calls):
            governed(service, f"toolu_{number}")
    elif state == "expired":
        service.clock.pass_s(MISSION.max_duration_s + 1)
        governed(service, "toolu_1")
    elif state == "ended":
        service.run(EndAssistantSession(LEAD))
    renewed = limited(generation=1, told=told(generation="1"))
    session_id, answer = governed(service, "toolu_n", renewed)
    assert answer.permits
    assert session_id != first
    assert service.session(first).state != "active"
    assert service.session(session_id).limit == MISSION.max_tool_calls
    # The generation before is not taken up again.
    service.governor.context.sources.clear()
    assert governed(service, "toolu_m", LEAD).session_id == session_id


def test_an_outcome_that_comes_after_a_new_generation_belongs_to_its_decision(service: Service) -> None:
    lead = governed(service, "toolu_1").session_id
    outcome = concluded(service, "toolu_1", limited(generation=1))
    assert (outcome.session_id, outcome.is_finding) == (lead, False)


def test_later_sessions_work_in_the_folder_of_the_first(service: Service) -> None:
    placing = MissionTemplate(structs.replace(MISSION, resource_scope=(".",)), frozenset())
    actor = limited(placing=placing, mission=placing.in_folder("/work/project"))
    assert governed(service, "toolu_1", actor, read("/work/project/a")).answer.permits
    for generation in (0, 1):
        moved = limited(placing=placing, mission=placing.in_folder("/work"), generation=generation)
        ended_and_begun(service, moved, 2)
        assert governed(service, f"toolu_{generation}x", moved, read("/work/project/a")).answer.permits
        assert not governed(service, f"toolu_{generation}y", moved, read("/work/other")).answer.permits


@pytest.mark.parametrize("remembered", [True, False])
def test_a_session_is_bound_to_the_secret_of_its_first_event(service: Service, remembered: bool) -> None:
    own = limited(secret="own", told=told(secret="own"))
    lead = governed(service, "toolu_1", own).session_id
    if not remembered:
        service.governor.context.sources.clear()
    before = service.session(lead)
    for other in (LEAD, limited(secret="other", told=told(secret="other"))):
        for act in (
            lambda other=other: governed(service, "toolu_2", other),
            lambda other=other: governed(service, "toolu_2", other._replace(agent="a1")),
            lambda other=other: concluded(service, "toolu_1", other),
            lambda other=other: service.run(BeginAssistantSession(other.reporter)),
            lambda other=other: service.run(EndAssistantSession(other)),
        ):
            with pytest.raises(HookSecretWrong):
                act()
    assert service.session(lead) == before
    service.run(EndAssistantSession(own))
    with pytest.raises(HookSecretWrong):
        service.run(BeginAssistantSession(LEAD.reporter))
    assert governed(service, "toolu_3", own).answer.permits


def test_protecting_again_renews_the_limits_of_a_session_and_not_its_secret(service: Service) -> None:
    own = limited(secret="own", told=told(secret="own"))
    lead = governed(service, "toolu_1", own).session_id
    with pytest.raises(HookSecretWrong):
        service.run(BeginAssistantSession(limited(secret="other", told=told(secret="other"), generation=1).reporter))
    renewed = limited(secret="own", told=told(secret="own", generation="1"), generation=1)
    assert service.run(BeginAssistantSession(renewed.reporter)) != lead
    assert governed(service, "toolu_2", renewed).answer.permits


def test_a_session_that_began_without_a_secret_goes_on_and_is_bound_when_it_is_continued(service: Service) -> None:
    lead = governed(service, "toolu_1").session_id
    own = limited(secret="own", told=told(secret="own"))
    assert governed(service, "toolu_2", own).session_id == lead
    ended_and_begun(service, own)
    with pytest.raises(HookSecretWrong):
        governed(service, "toolu_3")
    assert governed(service, "toolu_3", own).answer.permits
