"""Taking authority back: what was delegated goes with it, and nothing comes back."""

import pytest

from remit.errors import FieldInvalid, PassportRevoked
from remit.governor.revoke import MAX_REASON, KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, StartSession
from tests.governor.world import Service


def _codes(service: Service, *names: str) -> list[str]:
    return [service.call(name).receipt.claims.internal_denial_code or "" for name in names]


def _family(service: Service) -> tuple[str, str, str]:
    first = service.start().session.id
    child = service.start_delegate(first, max_tool_calls=8)
    return first, child, service.start_delegate(child, max_tool_calls=4)


def test_revoking_a_passport_revokes_its_session(service: Service) -> None:
    name = service.start().session.id
    session = service.run(RevokePassport(name, "lost"))
    assert session is not None
    assert (session.state, session.cause) == ("revoked", "passport_revoked")
    assert _codes(service, name) == ["passport_revoked"]


def test_revoking_a_passport_revokes_what_was_delegated_from_it(service: Service) -> None:
    first, child, grandchild = _family(service)
    service.run(RevokePassport(child))
    assert _codes(service, first, child, grandchild) == ["", "passport_revoked", "passport_revoked"]


def test_revoking_a_session_leaves_the_one_it_was_delegated_from(service: Service) -> None:
    first, child, grandchild = _family(service)
    session = service.run(RevokeSession(grandchild))
    assert session.state == "revoked"
    assert _codes(service, first, child, grandchild) == ["", "", "session_revoked"]


def test_revoking_a_lineage_reaches_up_to_its_first_passport(service: Service) -> None:
    first, child, grandchild = _family(service)
    other = service.start().session.id
    session = service.run(RevokeSession(grandchild, lineage=True))
    assert (session.id, session.state) == (grandchild, "revoked")
    assert _codes(service, first, child, grandchild) == ["session_revoked"] * 3
    assert _codes(service, other) == [""]


def test_a_passport_that_nobody_knows_can_be_revoked(service: Service) -> None:
    assert service.run(RevokePassport("pass:from-elsewhere:1")) is None
    assert service.run(RevokePassport("pass:from-elsewhere:1")) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_revocation_outlives_the_process(service: Service, restarted: bool) -> None:
    passport = service.issue()
    service.run(RevokePassport(passport.jti))
    if restarted:
        service.restart()
    with pytest.raises(PassportRevoked) as caught:
        service.run(StartSession(passport.token))
    assert caught.value.code == "passport_revoked"


def test_a_reason_has_a_limit(service: Service) -> None:
    service.run(RevokePassport("pass:some:0001", "r" * MAX_REASON))
    with pytest.raises(FieldInvalid) as caught:
        service.run(RevokePassport("pass:some:0001", "r" * (MAX_REASON + 1)))
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.reason")


def test_the_kill_switch_revokes_everything_and_counts_it(service: Service) -> None:
    family = _family(service)
    other, ended = service.start().session.id, service.start().session.id
    service.run(EndSession(ended))
    assert service.run(KillSwitch(on=True)) == 4
    assert {session.id for session in service.sessions() if session.state == "revoked"} == {*family, other}
    assert _codes(service, *family, other) == ["kill_switch"] * 4
    assert service.session(ended).state == "ended"


def test_the_kill_switch_turned_again_revokes_nothing_more(service: Service) -> None:
    service.start()
    service.run(KillSwitch(on=True))
    assert service.run(KillSwitch(on=True)) == 0


def test_what_was_killed_stays_so_when_the_switch_is_released(service: Service) -> None:
    old = service.start().session.id
    service.run(KillSwitch(on=True))
    assert service.run(KillSwitch(on=False)) == 0
    new = service.start().session.id
    assert _codes(service, old, new) == ["kill_switch", ""]


def test_the_kill_switch_outlives_the_process(service: Service) -> None:
    name = service.start().session.id
    service.run(KillSwitch(on=True))
    service.restart()
    assert _codes(service, name) == ["kill_switch"]


def test_the_kill_switch_reaches_calls_that_another_process_has_judged(pair: tuple[Service, Service]) -> None:
    one, two = pair
    name = one.start().session.id
    one.call(name)
    one.weather.meanwhile = lambda: two.run(KillSwitch(on=True))
    assert _codes(one, name) == ["kill_switch"]


def test_a_revocation_reaches_a_start_that_is_under_way_in_another_process(pair: tuple[Service, Service]) -> None:
    one, two = pair
    passport = one.issue()
    one.weather.meanwhile = lambda: two.run(RevokePassport(passport.jti))
    with pytest.raises(PassportRevoked) as caught:
        one.run(StartSession(passport.token))
    assert caught.value.code == "passport_revoked"


def test_revoking_gives_the_parent_back_what_was_not_used(service: Service) -> None:
    first, child, grandchild = _family(service)
    service.call(grandchild)
    service.run(RevokePassport(child))
    assert (service.session(first).used, service.session(first).reserved) == (1, 0)
