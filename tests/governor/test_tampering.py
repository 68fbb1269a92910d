"""Sessions of a protection that was tampered with end, and no event of the assistant brings them back."""

import pytest

from remit.governor.assistants import (
    Actor,
    AssistantEvaluation,
    BeginAssistantSession,
    EndAssistantSession,
    EvaluateAssistantCall,
)
from remit.governor.revoke import KillSwitch
from remit.governor.sessions import GetSession
from remit.governor.sources import Reporter
from remit.governor.tampering import TAMPERED, EndReporterSession, RevokeTamperedSessions
from tests.governor.world import ALLOWED, Service, mission

MISSION = mission(allowed_tools=("read_file", "Agent"), max_tool_calls=20, max_duration_s=600)


def actor(name: str, protection: str = "prot-1", agent: str = "") -> Actor:
    told = f'{{"type":"cli","app":"claude-code","id":"{name}","protection":"{protection}"}}'
    return Actor(Reporter(f"hook:{name}", told, MISSION), agent, withheld=("Agent",))


ONE, TWO, OTHER = actor("one"), actor("two"), actor("other", "prot-2")


def governed(service: Service, who: Actor, call_id: str) -> AssistantEvaluation:
    return service.run(EvaluateAssistantCall(who, ALLOWED, call_id, f"claude-code {call_id}"))


def state_of(service: Service, session_id: str) -> tuple[str, str]:
    session = service.run(GetSession(session_id)).session
    return session.state, session.cause


def test_all_sessions_of_the_protection_end_and_those_of_others_go_on(service: Service) -> None:
    names = [governed(service, who, "c1").session_id for who in (ONE, TWO, OTHER)]
    assert set(service.run(RevokeTamperedSessions("prot-1"))) == set(names[:2])
    assert [state_of(service, name) for name in names] == [("revoked", TAMPERED), ("revoked", TAMPERED), ("active", "")]


def test_a_session_of_a_subagent_ends_with_its_lead(service: Service) -> None:
    child = governed(service, actor("one", agent="a1"), "c1").session_id
    service.run(RevokeTamperedSessions("prot-1"))
    assert state_of(service, child) == ("revoked", TAMPERED)
    again = governed(service, actor("one", agent="a1"), "c2")
    assert (again.session_id, again.answer.permits) == (child, False)


@pytest.mark.parametrize(
    "events",
    [[], [BeginAssistantSession(ONE.reporter)], [EndAssistantSession(ONE), BeginAssistantSession(ONE.reporter)]],
)
def test_no_event_of_the_assistant_brings_it_back(
    service: Service, events: list[BeginAssistantSession | EndAssistantSession]
) -> None:
    session_id = governed(service, ONE, "c1").session_id
    service.run(RevokeTamperedSessions("prot-1"))
    for event in events:
        service.run(event)
    denied = governed(service, ONE, "c2")
    claims = denied.answer.receipt.claims
    assert (denied.session_id, denied.answer.permits) == (session_id, False)
    assert (claims.internal_denial_code, claims.public_denial_reason) == (TAMPERED, "revoked")


@pytest.mark.parametrize("before", [False, True], ids=["new", "ended before"])
def test_an_assistant_session_that_begins_meanwhile_is_refused_with_receipts(service: Service, before: bool) -> None:
    if before:
        governed(service, ONE, "c1")
        service.run(EndAssistantSession(ONE))
    session_id = service.run(EndReporterSession(ONE.reporter))
    denied = governed(service, ONE, "c2")
    assert (denied.session_id, denied.answer.permits) == (session_id, False)
    assert denied.answer.receipt.claims.internal_denial_code == TAMPERED
    assert service.run(EndReporterSession(ONE.reporter)) == session_id


def test_a_session_that_was_stopped_otherwise_stays_as_it_is(service: Service) -> None:
    session_id = governed(service, ONE, "c1").session_id
    service.run(KillSwitch(on=True))
    assert service.run(RevokeTamperedSessions("prot-1")) == ()
    assert state_of(service, session_id) == ("revoked", "kill_switch")
