"""Sessions and passports that are bound to a certificate: nobody else gets anything out of them."""

from collections.abc import Callable

import pytest
from msgspec import structs

from remit.claims.passport import Confirmation, Passport
from remit.errors import HolderMismatch, SessionNotFound
from remit.governor.attest import Attest
from remit.governor.context import UseCase
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.results import RecordResult
from remit.governor.sessions import EndSession, RequireHolder, StartSession, check_passport_holder, check_session_holder
from tests.governor.results import DIGEST
from tests.governor.world import ALLOWED, MISSION, Service

OURS, THEIRS = "A" * 43, "B" * 43
CASES: dict[str, Callable[[str], UseCase[object]]] = {
    "evaluate": lambda session: Evaluate(session, ALLOWED),
    "result": lambda session: RecordResult(session, "rcpt:" + "0" * 32, DIGEST),
    "end": EndSession,
    "attest": Attest,
    "attest and end": lambda session: Attest(session, end=True),
    "delegate": lambda session: Delegate(session, structs.replace(MISSION, max_tool_calls=1), "request-1"),
}


def _bound(service: Service, bound_to: Confirmation) -> Passport:
    return service.issue(bound_to=bound_to)


def _start(service: Service, holder: str) -> str:
    return service.run(StartSession(service.issue().token, holder)).session.id


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("holder", [THEIRS, "", OURS.lower()])
def test_a_bound_session_answers_to_no_one_else(service: Service, case: str, holder: str) -> None:
    session = _start(service, OURS)
    for _ in range(2):  # as it is read, and as it is remembered
        with pytest.raises(HolderMismatch) as caught:
            service.run(RequireHolder(CASES[case](session), session, holder))
        assert caught.value.code == "holder_mismatch"
    assert service.session(session).length == 0
    assert service.session(session).state == "active"


def test_its_holder_goes_on_after_a_restart_and_others_do_not(service: Service) -> None:
    session = _start(service, OURS)
    service.restart()
    with pytest.raises(HolderMismatch):
        service.run(RequireHolder(Evaluate(session, ALLOWED), session, THEIRS))
    assert service.run(RequireHolder(Evaluate(session, ALLOWED), session, OURS)).permits


def test_a_session_that_nobody_showed_a_certificate_for_is_bound_to_nobody(service: Service) -> None:
    session = _start(service, "")
    for holder in ("", OURS, THEIRS):
        assert service.run(RequireHolder(Evaluate(session, ALLOWED), session, holder)).permits


def test_a_passport_shown_again_by_another_does_not_give_the_session(service: Service) -> None:
    token = service.issue().token
    started = service.run(StartSession(token, OURS))
    for holder in (THEIRS, ""):
        with pytest.raises(HolderMismatch):
            service.run(StartSession(token, holder))
    again = service.run(StartSession(token, OURS))
    assert (again.existing, again.session.id) == (True, started.session.id)


def test_a_passport_shown_again_does_not_bind_a_session_that_is_bound_to_nobody(service: Service) -> None:
    token = service.issue().token
    session = service.run(StartSession(token)).session.id
    assert service.run(StartSession(token, OURS)).existing
    assert service.session(session).holder == ""


def test_a_session_that_is_not_there_is_not_found_whoever_asks(service: Service) -> None:
    with pytest.raises(SessionNotFound):
        service.run(RequireHolder(EndSession("pass:nobody"), "pass:nobody", OURS))


def test_a_passport_that_is_bound_to_a_certificate_starts_a_session_for_its_holder_alone(service: Service) -> None:
    passport = _bound(service, Confirmation(certificate=OURS))
    for holder in (THEIRS, ""):
        with pytest.raises(HolderMismatch):
            service.run(StartSession(passport.token, holder))
    assert service.sessions() == []
    assert service.run(StartSession(passport.token, OURS)).session.holder == OURS


@pytest.mark.parametrize("holder", ["", OURS])
def test_a_passport_that_is_bound_to_a_key_starts_nothing_as_nobody_proves_keys_here(
    service: Service, holder: str
) -> None:
    passport = _bound(service, Confirmation(jkt=OURS))
    with pytest.raises(HolderMismatch):
        service.run(StartSession(passport.token, holder))
    assert service.sessions() == []


def test_a_delegate_can_be_bound_to_another_holder_than_its_parent(service: Service) -> None:
    parent = _start(service, OURS)
    wanted = structs.replace(MISSION, max_tool_calls=1)
    case = Delegate(parent, wanted, "request-1", Confirmation(certificate=THEIRS))
    token = service.run(RequireHolder(case, parent, OURS)).passport
    assert token is not None
    with pytest.raises(HolderMismatch):
        service.run(StartSession(token, OURS))
    child = service.run(StartSession(token, THEIRS)).session.id
    assert service.run(RequireHolder(Evaluate(child, ALLOWED), child, THEIRS)).permits


def test_two_processes_see_the_same_holder(pair: tuple[Service, Service]) -> None:
    one, two = pair
    session = _start(one, OURS)
    with pytest.raises(HolderMismatch):
        two.run(RequireHolder(EndSession(session), session, THEIRS))
    assert two.run(RequireHolder(EndSession(session), session, OURS)).state == "ended"


def test_the_rules_by_themselves(service: Service) -> None:
    check_session_holder("", THEIRS)
    check_session_holder(OURS, OURS)
    check_passport_holder(service.issue(), "")
    check_passport_holder(_bound(service, Confirmation(certificate=OURS)), OURS)
