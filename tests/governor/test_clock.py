"""Time: durations follow the clock that nobody can set, receipts the one on the wall, which never runs backwards."""

import pytest

from remit.errors import PassportExpired
from remit.governor.clock import Moment, SystemClock, elapsed_between, format_timestamp
from remit.governor.delegate import Delegate
from remit.governor.sessions import GetSession, StartSession
from tests.governor.world import MISSION, Service
from tests.world import NOW

HOUR, DAY = 3600, 86400
JUMPS = [-HOUR, DAY, -2 * DAY]


def test_a_session_expires_when_its_duration_has_passed(service: Service) -> None:
    name = service.start().session.id
    service.clock.pass_s(899)
    assert service.call(name).receipt.claims.budget_remaining["duration_s"] == 1
    service.clock.pass_s(1)
    claims = service.call(name).receipt.claims
    assert (claims.public_denial_reason, claims.internal_denial_code) == ("budget_exhausted", "duration_exceeded")
    assert service.session(name).state == "expired"


def test_expiry_is_found_at_the_next_touch(service: Service) -> None:
    name = service.start().session.id
    service.clock.pass_s(900)
    assert service.session(name).state == "active"
    service.run(GetSession(name))
    assert service.session(name).state == "expired"


def test_expiry_is_found_by_presenting_the_passport_again(service: Service) -> None:
    passport = service.issue()
    service.run(StartSession(passport.token))
    service.clock.pass_s(900)
    with pytest.raises(PassportExpired):
        service.run(StartSession(passport.token))
    assert service.session(passport.jti).state == "expired"


def test_a_shorter_life_of_the_passport_ends_the_session(service: Service) -> None:
    name = service.run(StartSession(service.issue(lifetime_s=60).token)).session.id
    service.clock.pass_s(59)
    assert service.call(name).permits
    service.clock.pass_s(1)
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


@pytest.mark.parametrize("jump", [-HOUR, -2 * DAY])
@pytest.mark.parametrize("restarted", [False, True])
def test_setting_the_wall_clock_does_not_count_as_time_that_has_passed(
    service: Service, jump: int, restarted: bool
) -> None:
    name = service.start().session.id
    service.clock.pass_s(100)
    service.clock.jump_s(jump)
    if restarted:
        service.restart()
    answer = service.call(name)
    assert answer.permits
    assert answer.receipt.claims.budget_remaining["duration_s"] == 800


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("restarted", [False, True])
def test_setting_the_wall_clock_does_not_prolong_a_session(service: Service, jump: int, restarted: bool) -> None:
    name = service.start().session.id
    service.call(name)
    service.clock.jump_s(jump)
    service.call(name)
    service.clock.pass_s(900)
    if restarted:
        service.restart()
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


def test_time_never_runs_backwards_within_a_chain(service: Service) -> None:
    name = service.start().session.id
    for seconds in (0, -HOUR, DAY, -2 * DAY, HOUR):
        service.clock.jump_s(seconds)
        service.call(name)
    issued = [claims.iat for claims in service.claims(name)]
    stamps = [claims.timestamp for claims in service.claims(name)]
    highest = NOW - HOUR + DAY
    assert issued == [NOW, NOW, highest, highest, highest]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("jump", JUMPS)
def test_an_attestation_is_never_older_than_its_last_receipt(service: Service, jump: int) -> None:
    name = service.start().session.id
    service.call(name)
    service.clock.jump_s(jump)
    attested = service.attest(name, end=True).attestation.claims
    assert attested.chain_verified
    assert attested.iat >= service.claims(name)[-1].iat
    assert str(attested.ended_at) >= attested.started_at


def test_after_a_reboot_time_is_counted_by_the_wall(service: Service) -> None:
    name = service.start().session.id
    service.clock.pass_s(100)
    service.call(name)
    service.clock.reboot(after_s=200)
    service.restart()
    assert service.call(name).receipt.claims.budget_remaining["duration_s"] == 600
    service.clock.pass_s(600)
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


def test_a_reboot_that_takes_too_long_ends_the_session(service: Service) -> None:
    name = service.start().session.id
    service.clock.reboot(after_s=900)
    service.restart()
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


def test_a_wall_clock_that_was_set_back_across_a_reboot_gives_no_time_back(service: Service) -> None:
    name = service.start().session.id
    service.clock.pass_s(100)
    service.call(name)
    service.clock.reboot(after_s=-2 * DAY)
    service.restart()
    assert service.call(name).receipt.claims.budget_remaining["duration_s"] == 800
    service.clock.pass_s(800)
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


def test_a_session_lasts_to_the_end_of_its_last_second_and_no_longer(service: Service) -> None:
    name = service.start(max_duration_s=10).session.id
    service.clock.pass_s(9.999)
    assert service.call(name).receipt.claims.budget_remaining["duration_s"] == 1
    service.clock.pass_s(0.001)
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"


@pytest.mark.parametrize("jump", [-HOUR, -2 * DAY])
def test_a_clock_that_is_set_back_does_not_keep_a_session_from_delegating(service: Service, jump: int) -> None:
    name = service.start().session.id
    service.clock.jump_s(jump)
    assert service.run(Delegate(name, MISSION, "request-1")).permits


@pytest.mark.parametrize("restarted", [False, True])
def test_no_call_is_permitted_after_the_passport_has_ended_by_the_wall(service: Service, restarted: bool) -> None:
    name = service.start().session.id
    service.clock.jump_s(DAY)
    if restarted:
        service.restart()
    assert service.call(name).receipt.claims.internal_denial_code == "duration_exceeded"
    assert service.session(name).state == "expired"


def test_nothing_is_delegated_after_the_passport_has_ended_by_the_wall(service: Service) -> None:
    name = service.start().session.id
    service.clock.jump_s(DAY)
    refused = service.run(Delegate(name, MISSION, "request-1"))
    assert refused.receipt.claims.internal_denial_code == "duration_exceeded"
    assert service.session(name).reserved == 0


def test_a_delegate_never_outlives_the_one_who_delegated(service: Service) -> None:
    name = service.start(max_duration_s=900).session.id
    service.clock.pass_s(800)
    child = service.run(Delegate(name, MISSION, "request-1"))
    service.clock.jump_s(-60)
    assert child.passport is not None
    child_id = service.run(StartSession(child.passport)).session.id
    service.clock.pass_s(101)
    assert service.call(child_id).receipt.claims.internal_denial_code == "duration_exceeded"


def test_elapsed_time_is_never_negative() -> None:
    now = Moment(wall_ms=1000, mono_ms=500, boot="a")
    assert elapsed_between("a", 200, 5000, now) == 300
    assert elapsed_between("a", 900, 0, now) == 0
    assert elapsed_between("b", 0, 400, now) == 600
    assert elapsed_between("b", 0, 5000, now) == 0


def test_a_moment_is_written_with_milliseconds() -> None:
    assert format_timestamp(NOW * 1000 + 7) == "2026-09-21T14:13:20.007Z"
    assert Moment(NOW * 1000 + 999, 0, "a").wall_s == NOW


def test_the_clocks_of_this_machine_agree_with_themselves() -> None:
    clock = SystemClock()
    first, second = clock.now(), clock.now()
    assert first.boot == second.boot == SystemClock().now().boot
    assert first.mono_ms <= second.mono_ms
