"""Which passports start a session: those that were registered or delegated here, for clients; and of which audience."""

from pathlib import Path

import pytest
from msgspec import structs

from remit.claims.chain import verifier_id
from remit.claims.keys import SigningKey, TrustedKey
from remit.claims.passport import OBSERVE_AUDIENCE, issue_passport
from remit.errors import (
    AudienceMismatch,
    LedgerUnavailable,
    LineageUnknown,
    PassportUnregistered,
    RequestConflict,
    SessionNotFound,
)
from remit.governor.assistants import Actor, BeginAssistantSession, EvaluateAssistantCall
from remit.governor.attest import Attest
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import EndSession, RequireHolder, StartSession
from remit.governor.sources import Reporter, StartSourceSession
from remit.ledger.keys import LedgerKeys
from tests.governor.world import ALLOWED, MISSION, Service
from tests.world import NOW, STRANGER, register

HUB = Reporter("hub:one", "{}", MISSION, OBSERVE_AUDIENCE)
# As the first release made them: for the same audience as all others.
EARLIER = Reporter("hub:two", "{}", MISSION)
HOOK = Reporter("hook:one", "{}", MISSION)


def key_of(service: Service) -> SigningKey:
    return service.governor.context.keys.signing(service.reader.ledger_state().kid)


def signed(service: Service, key: SigningKey, jti: str = "pass:forged:0001") -> str:
    now = service.clock.now().wall_s
    return issue_passport(MISSION, key, issuer=verifier_id(key.public), jti=jti, now=now).token


def test_a_passport_that_was_not_registered_starts_nothing_and_says_what_to_do(service: Service) -> None:
    with pytest.raises(PassportUnregistered) as caught:
        service.run(StartSession(signed(service, key_of(service))))
    assert caught.value.code == "passport_unregistered"
    assert "remit issue" in str(caught.value)
    assert service.sessions() == []


def test_a_retired_key_starts_nothing_with_a_passport_of_after_its_hand_over(service: Service) -> None:
    old, waiting = key_of(service), service.issue()
    service.rotate()
    service.clock.pass_s(5)
    with pytest.raises(PassportUnregistered):
        service.run(StartSession(signed(service, old)))
    assert service.run(StartSession(waiting.token)).existing is False


def test_another_token_under_a_registered_id_starts_nothing(service: Service) -> None:
    waiting = service.issue()
    service.clock.pass_s(5)
    with pytest.raises(PassportUnregistered):
        service.run(StartSession(signed(service, key_of(service), waiting.jti)))
    service.run(StartSession(waiting.token))
    with pytest.raises(RequestConflict):
        service.run(StartSession(signed(service, key_of(service), waiting.jti)))


def test_another_token_under_the_id_of_a_delegate_starts_nothing(service: Service) -> None:
    parent = service.start()
    granted = service.delegate(parent.session.id, max_tool_calls=2)
    key, child_id = key_of(service), granted.child_id or ""
    wide = issue_passport(MISSION, key, issuer=verifier_id(key.public), jti=child_id, now=NOW, parent=parent.passport)
    with pytest.raises(LineageUnknown):
        service.run(StartSession(wide.token))
    assert service.run(StartSession(granted.passport or "")).session.limit == 2


def test_a_passport_of_an_issuer_that_is_trusted_elsewhere_needs_no_registration(service: Service) -> None:
    keys = service.governor.context.keys
    assert isinstance(keys, LedgerKeys)
    keys._foreign = (TrustedKey(STRANGER.public, "https://issuer.example", foreign=True),)
    keys.refresh()
    now = service.clock.now().wall_s
    passport = issue_passport(MISSION, STRANGER, issuer="https://issuer.example", jti="pass:foreign:1", now=now)
    assert service.run(StartSession(passport.token)).existing is False


def test_a_registration_that_is_not_durable_gives_no_passport(service: Service) -> None:
    service.weather.lost = True
    with pytest.raises(LedgerUnavailable):
        service.run(IssuePassport(PassportRequest(MISSION, "pass:lost:0001")))
    assert service.reader.registered("pass:lost:0001") is None
    assert service.run(IssuePassport(PassportRequest(MISSION, "pass:lost:0001"))).jti == "pass:lost:0001"


def test_one_id_is_issued_once(service: Service) -> None:
    service.run(IssuePassport(PassportRequest(MISSION, "pass:once:0001")))
    with pytest.raises(RequestConflict):
        service.run(IssuePassport(PassportRequest(MISSION, "pass:once:0001")))


# Sessions that a source reports to


def test_a_source_for_observation_gets_a_passport_for_observation(service: Service) -> None:
    assert service.run(StartSourceSession(HUB)).passport.audience == "remit:observe"
    assert service.run(StartSourceSession(HOOK)).passport.audience == "remit"


@pytest.mark.parametrize("reporter", [HUB, EARLIER, HOOK])
def test_a_client_does_nothing_in_the_session_of_a_source(service: Service, reporter: Reporter) -> None:
    started = service.run(StartSourceSession(reporter))
    name = started.session.id
    for _ in range(2):  # as it is read, and as it is remembered
        for case in (Evaluate(name, ALLOWED), EndSession(name), Attest(name), Delegate(name, MISSION, "one")):
            with pytest.raises(AudienceMismatch):
                service.run(RequireHolder(case, name, ""))
    with pytest.raises(AudienceMismatch):
        service.run(StartSession(started.passport.token))
    assert service.session(name).length == 0


@pytest.mark.parametrize("reporter", [HUB, EARLIER])
def test_nothing_is_delegated_from_observation(service: Service, reporter: Reporter) -> None:
    name = service.run(StartSourceSession(reporter)).session.id
    with pytest.raises(AudienceMismatch) as caught:
        service.delegate(name, max_tool_calls=1)
    assert caught.value.code == "audience_mismatch"
    assert service.session(name).length == 0


def test_subagents_of_an_assistant_go_on_and_a_client_gets_nothing_of_them(service: Service) -> None:
    actor = Actor(HOOK)
    service.run(BeginAssistantSession(HOOK))
    governed = service.run(EvaluateAssistantCall(actor._replace(agent="helper", kind="helper"), ALLOWED, "call-1", "e"))
    assert governed.answer.permits
    child = governed.session_id
    assert service.session(child).parent is not None
    with pytest.raises(AudienceMismatch):
        service.run(RequireHolder(Evaluate(child, ALLOWED), child, ""))
    with pytest.raises(AudienceMismatch):
        service.run(StartSession(service.session(child).passport))


def test_what_was_delegated_from_observation_by_the_first_release_is_nothing_to_a_client(service: Service) -> None:
    """The first release let a session of the Hub delegate; such a delegate is told by where its lineage began."""
    hook = service.run(StartSourceSession(EARLIER._replace(key="hook:two"))).session
    waiting = service.delegate(hook.id, "one", max_tool_calls=1).passport or ""
    child = service.run(StartSession(service.delegate(hook.id, "two", max_tool_calls=1).passport or "", by_source=True))
    service.shelf.sources[hook.id] = service.shelf.sources[hook.id]._replace(key="hub:two")
    with pytest.raises(AudienceMismatch):
        service.run(StartSession(waiting))
    with pytest.raises(AudienceMismatch):
        service.run(RequireHolder(Evaluate(child.session.id, ALLOWED), child.session.id, ""))
    with pytest.raises(AudienceMismatch):
        service.delegate(child.session.id, max_tool_calls=1)


def test_a_session_that_is_not_there_is_not_found(service: Service) -> None:
    with pytest.raises(SessionNotFound):
        service.run(RequireHolder(Evaluate("pass:nobody", ALLOWED), "pass:nobody", ""))


def test_a_passport_for_observation_starts_nothing_even_if_it_is_registered(service: Service, tmp_path: Path) -> None:
    key = key_of(service)
    token = issue_passport(
        structs.replace(MISSION, allowed_tools=("*",)),
        key,
        issuer=verifier_id(key.public),
        jti="pass:observe:0001",
        now=service.clock.now().wall_s,
        audience=OBSERVE_AUDIENCE,
    ).token
    register(service.ledger, token)
    with pytest.raises(AudienceMismatch):
        service.run(StartSession(token))
