"""Starting, presenting again, ending: one passport is one session, and budgets never start afresh."""

from collections.abc import Callable

import pytest
from msgspec import structs

from remit.claims.chain import verifier_id
from remit.claims.passport import issue_passport
from remit.errors import (
    KeyUnknown,
    KillSwitchOn,
    LineageUnknown,
    PassportError,
    PassportExpired,
    PassportNotYetValid,
    PassportRevoked,
    SessionNotFound,
    SessionSealed,
    TokenMalformed,
)
from remit.governor.attest import Attest
from remit.governor.context import UseCase
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.results import RecordResult
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.ledger.records import RESTORED
from tests.governor.results import DIGEST
from tests.governor.world import ALLOWED, MISSION, Service
from tests.world import NOW, STRANGER


def test_a_session_begins_with_what_its_passport_says(service: Service) -> None:
    passport = service.issue()
    started = service.run(StartSession(passport.token))
    session = started.session
    assert not started.existing
    assert started.passport == passport
    assert (session.id, session.actor, session.parent) == (passport.jti, MISSION.agent_id, None)
    assert (session.limit, session.used, session.reserved) == (MISSION.max_tool_calls, 0, 0)
    assert (session.state, session.cause, session.length) == ("active", "", 0)
    assert session.started_ms == NOW * 1000
    assert session.lifetime_ms == MISSION.max_duration_s * 1000


def test_each_session_has_a_trace_and_a_nonce_of_its_own(service: Service) -> None:
    one, two = service.start().session, service.start().session
    assert one.trace_id != two.trace_id
    assert one.run_nonce != two.run_nonce


def test_the_same_passport_again_is_the_same_session(service: Service) -> None:
    passport = service.issue()
    first = service.run(StartSession(passport.token))
    again = service.run(StartSession(passport.token))
    assert again.existing
    assert (again.session.id, again.session.trace_id) == (first.session.id, first.session.trace_id)
    assert len(service.sessions()) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_presenting_a_passport_again_does_not_fill_its_budget(service: Service, restarted: bool) -> None:
    passport = service.issue()
    name = service.run(StartSession(passport.token)).session.id
    service.call(name)
    if restarted:
        service.restart()
    again = service.run(StartSession(passport.token))
    assert again.existing
    assert again.session.used == 1
    assert service.call(name).receipt.claims.budget_remaining["tool_calls"] == MISSION.max_tool_calls - 2


def test_presenting_a_passport_again_does_not_begin_its_time_afresh(service: Service) -> None:
    passport = service.issue()
    name = service.run(StartSession(passport.token)).session.id
    service.clock.pass_s(600)
    service.run(StartSession(passport.token))
    assert service.call(name).receipt.claims.budget_remaining["duration_s"] == 300


def _expire(service: Service, name: str) -> None:
    # Within the skew that is granted to clocks, so that the passport itself can still be presented.
    service.clock.pass_s(MISSION.max_duration_s + 10)


FINAL: dict[str, Callable[[Service, str], object]] = {
    "ended": lambda service, name: service.run(EndSession(name)),
    "expired": _expire,
    "revoked": lambda service, name: service.run(RevokeSession(name)),
}


def test_a_session_that_has_ended_is_shown_as_it_is_and_never_starts_again(service: Service) -> None:
    passport = service.issue()
    name = service.run(StartSession(passport.token)).session.id
    service.run(EndSession(name))
    again = service.run(StartSession(passport.token))
    assert again.existing
    assert again.session.state == service.session(name).state == "ended"


REFUSED: dict[str, tuple[Callable[[Service, str], object], str]] = {
    "expired": (_expire, "passport_expired"),
    "its session revoked": (lambda service, name: service.run(RevokeSession(name)), "passport_revoked"),
    "itself revoked": (lambda service, name: service.run(RevokePassport(name)), "passport_revoked"),
    "killed": (lambda service, _name: service.run(KillSwitch(on=True)), "passport_revoked"),
    "ended, then revoked": (
        lambda service, name: (service.run(EndSession(name)), service.run(RevokePassport(name))),
        "passport_revoked",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_passport_that_has_expired_or_was_revoked_is_refused_although_it_was_started_before(
    service: Service, how: str
) -> None:
    passport = service.issue()
    name = service.run(StartSession(passport.token)).session.id
    end, code = REFUSED[how]
    end(service, name)
    for _ in range(2):
        with pytest.raises(PassportError) as caught:
            service.run(StartSession(passport.token))
        assert caught.value.code == code
    assert service.session(name).state != "active"


def test_a_passport_within_the_skew_after_its_end_starts_nothing(service: Service) -> None:
    passport = service.issue()
    service.clock.pass_s(MISSION.max_duration_s)
    with pytest.raises(PassportExpired):
        service.run(StartSession(passport.token))
    assert service.sessions() == []


def test_the_passport_of_a_delegate_is_refused_once_that_of_its_parent_was_revoked(service: Service) -> None:
    parent = service.start().session.id
    delegated = service.delegate(parent)
    child = service.run(StartSession(str(delegated.passport))).session.id
    service.run(RevokePassport(parent))
    with pytest.raises(PassportRevoked):
        service.run(StartSession(str(delegated.passport)))
    assert service.session(child).state == "revoked"


def test_a_passport_that_has_expired_starts_nothing(service: Service) -> None:
    passport = service.issue()
    service.clock.pass_s(MISSION.max_duration_s + 60)
    with pytest.raises(PassportExpired) as caught:
        service.run(StartSession(passport.token))
    assert caught.value.code == "passport_expired"
    assert service.sessions() == []


def test_a_passport_from_the_future_starts_nothing_beyond_the_skew(service: Service) -> None:
    passport = service.issue()
    service.clock.jump_s(-61)
    with pytest.raises(PassportNotYetValid) as caught:
        service.run(StartSession(passport.token))
    assert caught.value.code == "passport_not_yet_valid"
    service.clock.jump_s(1)
    assert service.run(StartSession(passport.token)).session.state == "active"


def test_a_passport_of_a_stranger_starts_nothing(service: Service) -> None:
    issuer = verifier_id(STRANGER.public)
    passport = issue_passport(MISSION, STRANGER, issuer=issuer, jti="pass:strange:1", now=NOW)
    with pytest.raises(KeyUnknown) as caught:
        service.run(StartSession(passport.token))
    assert caught.value.code == "key_unknown"


def test_what_is_no_token_starts_nothing(service: Service) -> None:
    with pytest.raises(TokenMalformed) as caught:
        service.run(StartSession("not a token"))
    assert caught.value.code == "token_malformed"


def test_a_passport_that_was_revoked_before_its_start_starts_nothing(service: Service) -> None:
    passport = service.issue()
    assert service.run(RevokePassport(passport.jti, "lost")) is None
    with pytest.raises(PassportRevoked) as caught:
        service.run(StartSession(passport.token))
    assert caught.value.code == "passport_revoked"


def test_nothing_starts_while_the_kill_switch_is_on(service: Service) -> None:
    service.run(KillSwitch(on=True))
    with pytest.raises(KillSwitchOn) as caught:
        service.start()
    assert caught.value.code == "kill_switch"
    service.run(KillSwitch(on=False))
    assert service.start().session.state == "active"


def test_a_delegates_passport_that_was_not_delegated_here_starts_nothing(service: Service) -> None:
    parent = service.issue()
    service.run(StartSession(parent.token))
    key = service.governor.context.keys.signing(service.reader.keys()[-1].kid)
    child = issue_passport(MISSION, key, issuer=parent.issuer, jti="pass:unknown:1", now=NOW, parent=parent)
    with pytest.raises(LineageUnknown) as caught:
        service.run(StartSession(child.token))
    assert caught.value.code == "lineage_unknown"


def test_a_shorter_life_of_the_passport_bounds_the_session(service: Service) -> None:
    passport = service.issue(lifetime_s=100)
    started = service.run(StartSession(passport.token))
    assert started.session.lifetime_ms == 100_000


def test_a_late_start_does_not_outlive_the_passport(service: Service) -> None:
    passport = service.issue()
    service.clock.pass_s(850)
    name = service.run(StartSession(passport.token)).session.id
    assert service.call(name).receipt.claims.budget_remaining["duration_s"] == 50
    service.clock.pass_s(50)
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


def test_ending_a_session_is_final_and_can_be_repeated(service: Service) -> None:
    name = service.start().session.id
    service.clock.pass_s(5)
    ended = service.run(EndSession(name))
    service.clock.pass_s(5)
    again = service.run(EndSession(name))
    assert (ended.state, ended.ended_ms) == ("ended", (NOW + 5) * 1000)
    assert (again.state, again.ended_ms) == (ended.state, ended.ended_ms)


@pytest.mark.parametrize("first", FINAL)
@pytest.mark.parametrize("then", ["ended", "revoked"])
def test_a_final_state_is_never_left(service: Service, first: str, then: str) -> None:
    name = service.start().session.id
    FINAL[first](service, name)
    FINAL[then](service, name)
    assert service.session(name).state == first


UNKNOWN: dict[str, UseCase[object]] = {
    "evaluate": Evaluate("pass:nobody:1", ALLOWED),
    "look": GetSession("pass:nobody:1"),
    "end": EndSession("pass:nobody:1"),
    "delegate": Delegate("pass:nobody:1", MISSION, "request-1"),
    "revoke": RevokeSession("pass:nobody:1"),
    "revoke lineage": RevokeSession("pass:nobody:1", lineage=True),
    "attest": Attest("pass:nobody:1"),
    "attest and end": Attest("pass:nobody:1", end=True),
    "result": RecordResult("pass:nobody:1", "rcpt:nothing:1", DIGEST),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_session_that_does_not_exist_is_not_found(service: Service, name: str) -> None:
    with pytest.raises(SessionNotFound) as caught:
        service.run(UNKNOWN[name])
    assert caught.value.code == "session_not_found"
    assert service.reader.overview().receipts == 0


def test_a_session_from_an_older_copy_takes_no_receipt_any_more(damaged: Service) -> None:
    name = damaged.start().session.id
    damaged.restart()
    kept = damaged.session(name)
    damaged.shelf.sessions[name] = structs.replace(kept, state="revoked", cause=RESTORED, ended_ms=kept.started_ms)
    with pytest.raises(SessionSealed) as caught:
        damaged.call(name)
    assert caught.value.code == "session_sealed"
    assert damaged.session(name).length == 0


def test_two_processes_start_one_session_from_one_passport(pair: tuple[Service, Service]) -> None:
    one, two = pair
    passport = one.issue()
    two.weather.meanwhile = lambda: one.run(StartSession(passport.token))
    started = two.run(StartSession(passport.token))
    assert started.existing
    assert len(one.sessions()) == 1


def test_a_delegate_that_starts_while_its_parent_ends_is_ended_with_it(pair: tuple[Service, Service]) -> None:
    one, two = pair
    parent = one.start().session.id
    delegated = one.delegate(parent, max_tool_calls=5)
    one.weather.meanwhile = lambda: two.run(StartSession(str(delegated.passport)))
    one.run(EndSession(parent))
    states = {session.id: session.state for session in one.sessions()}
    assert states == {parent: "ended", delegated.child_id: "ended"}


def test_a_delegate_cannot_start_once_its_parent_has_ended_in_another_process(pair: tuple[Service, Service]) -> None:
    one, two = pair
    parent = one.start().session.id
    delegated = one.delegate(parent, max_tool_calls=5)
    two.weather.meanwhile = lambda: one.run(EndSession(parent))
    with pytest.raises(PassportError) as caught:
        two.run(StartSession(str(delegated.passport)))
    assert caught.value.code == "passport_revoked"
    assert [session.id for session in one.sessions()] == [parent]


def test_a_process_sees_that_another_has_ended_a_session(pair: tuple[Service, Service]) -> None:
    one, two = pair
    passport = one.issue()
    name = one.run(StartSession(passport.token)).session.id
    two.call(name)
    one.run(EndSession(name))
    assert two.run(StartSession(passport.token)).session.state == "ended"


def test_a_process_sees_that_another_has_released_the_kill_switch(pair: tuple[Service, Service]) -> None:
    one, two = pair
    passport = one.issue()
    one.run(KillSwitch(on=True))
    with pytest.raises(KillSwitchOn):
        two.run(StartSession(passport.token))
    one.run(KillSwitch(on=False))
    assert two.run(StartSession(passport.token)).session.state == "active"


def test_a_process_believes_passports_of_the_key_that_another_has_changed_to(pair: tuple[Service, Service]) -> None:
    one, two = pair
    two.start()
    one.rotate()
    assert two.run(StartSession(one.issue().token)).session.state == "active"
