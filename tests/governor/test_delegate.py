"""Delegation: narrower only, paid for in advance, given back exactly, and ended with the one who delegated."""

from collections.abc import Callable
from typing import Any

import pytest

from remit.claims.passport import MAX_DELEGATION_DEPTH, Confirmation, verify_passport
from remit.claims.receipt import LineageBudgetDelta, Receipt
from remit.errors import (
    DelegationTooDeep,
    FieldInvalid,
    LedgerUnavailable,
    MissionWidened,
    PassportExpired,
    PassportRevoked,
    RequestConflict,
)
from remit.governor.context import UseCase
from remit.governor.delegate import MAX_REQUEST_ID, Delegate
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.ledger.records import Session
from tests.governor.world import MISSION, Service, mission


def _delta(claims: Receipt) -> LineageBudgetDelta:
    assert isinstance(claims.budget_delta, LineageBudgetDelta)
    return claims.budget_delta


def _account(session: Session) -> tuple[int, int]:
    return session.used, session.reserved


def test_a_delegation_sets_calls_aside_and_says_so(service: Service) -> None:
    parent = service.start().session.id
    delegated = service.delegate(parent, "request-7", max_tool_calls=5)
    claims = delegated.receipt.claims
    assert delegated.permits
    assert (claims.tool, claims.action_class, claims.target) == ("remit.delegate", "delegate", delegated.child_id)
    assert claims.budget_remaining["tool_calls"] == 15
    assert claims.budget_delta == LineageBudgetDelta(
        operation="reserve",
        resource="tool_calls",
        amount=5,
        unit="invocations",
        remaining_for_parent=15,
        used_total=0,
        reserved_total=5,
        delegation_request_id="request-7",
    )


def test_the_delegates_passport_is_a_step_deeper_and_ends_with_its_parents(service: Service) -> None:
    started = service.start()
    service.clock.pass_s(300)
    delegated = service.delegate(started.session.id, max_tool_calls=5)
    passport = verify_passport(str(delegated.passport), service.keyring(), now=service.clock.now().wall_s)
    assert (passport.jti, passport.parent_jti) == (delegated.child_id, started.session.id)
    assert passport.delegation_depth == 1
    assert passport.expires_at == started.passport.expires_at


def test_a_delegates_passport_can_be_bound_to_a_key(service: Service) -> None:
    parent = service.start().session.id
    bound_to = Confirmation(jkt="A" * 43)
    delegated = service.run(Delegate(parent, MISSION, "request-1", bound_to))
    passport = verify_passport(str(delegated.passport), service.keyring(), now=service.clock.now().wall_s)
    assert passport.bound_to == bound_to


WIDER: dict[str, Any] = {
    "allowed_tools": ("Bash", "format_disk"),
    "resource_scope": ("/work",),
    "max_tool_calls": 21,
    "max_duration_s": 901,
}


@pytest.mark.parametrize("member", WIDER)
def test_a_delegate_gets_nothing_that_its_parent_has_not(service: Service, member: str) -> None:
    parent = service.start().session.id
    with pytest.raises(MissionWidened) as caught:
        service.delegate(parent, **{member: WIDER[member]})
    assert (caught.value.code, caught.value.member) == ("mission_widened", member)
    assert service.session(parent).length == 0


def test_side_effects_are_not_widened(service: Service) -> None:
    parent = service.start(allowed_side_effect_classes=("none",)).session.id
    with pytest.raises(MissionWidened) as caught:
        service.delegate(parent, max_tool_calls=1)
    assert caught.value.member == "allowed_side_effect_classes"


def test_a_lineage_has_a_limited_depth(service: Service) -> None:
    name = service.start().session.id
    for _ in range(MAX_DELEGATION_DEPTH):
        name = service.start_delegate(name, max_tool_calls=5)
    with pytest.raises(DelegationTooDeep) as caught:
        service.delegate(name, max_tool_calls=5)
    assert caught.value.code == "delegation_too_deep"
    assert service.session(name).length == 0


def test_a_delegation_that_cannot_be_paid_for_is_denied_with_a_receipt(service: Service) -> None:
    parent = service.start().session.id
    service.call(parent)
    delegated = service.delegate(parent, "request-7", max_tool_calls=20)
    claims = delegated.receipt.claims
    assert not delegated.permits
    assert (delegated.passport, delegated.child_id) == (None, None)
    assert (claims.public_denial_reason, claims.internal_denial_code) == (
        "budget_exhausted",
        "lineage_budget_exhausted",
    )
    delta = _delta(claims)
    assert (delta.operation, delta.amount, delta.delegation_request_id) == ("reject", 20, "request-7")
    assert (delta.used_total, delta.reserved_total, delta.remaining_for_parent) == (1, 0, 19)
    assert _account(service.session(parent)) == (1, 0)


def test_all_that_is_left_can_be_delegated(service: Service) -> None:
    parent = service.start().session.id
    service.call(parent)
    assert service.delegate(parent, max_tool_calls=19).permits
    assert service.session(parent).reserved == 19


def test_a_refused_request_can_be_made_again_when_there_is_enough(service: Service) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, "request-1", max_tool_calls=20)
    assert not service.delegate(parent, "request-2", max_tool_calls=10).permits
    service.run(EndSession(child))
    assert service.delegate(parent, "request-2", max_tool_calls=10).permits


FINAL: dict[str, tuple[Callable[[Service, str], object], str]] = {
    "ended": (lambda service, name: service.run(EndSession(name)), "session_ended"),
    "expired": (lambda service, _name: service.clock.pass_s(900), "duration_exceeded"),
    "revoked": (lambda service, name: service.run(RevokeSession(name)), "session_revoked"),
    "killed": (lambda service, _name: service.run(KillSwitch(on=True)), "kill_switch"),
}


@pytest.mark.parametrize("how", FINAL)
def test_a_final_session_delegates_nothing(service: Service, how: str) -> None:
    finish, code = FINAL[how]
    parent = service.start().session.id
    finish(service, parent)
    delegated = service.delegate(parent, max_tool_calls=5)
    assert not delegated.permits
    assert delegated.receipt.claims.internal_denial_code == code
    assert _delta(delegated.receipt.claims).operation == "reject"


@pytest.mark.parametrize("restarted", [False, True])
def test_the_same_request_again_gets_the_same_passport(service: Service, restarted: bool) -> None:
    parent = service.start().session.id
    first = service.delegate(parent, max_tool_calls=5)
    if restarted:
        service.restart()
    again = service.delegate(parent, max_tool_calls=5)
    assert again.repeated
    assert (again.passport, again.child_id) == (first.passport, first.child_id)
    assert again.receipt.token == first.receipt.token
    assert _account(service.session(parent)) == (0, 5)


@pytest.mark.parametrize(
    ("undo", "refusal"),
    [(RevokePassport, "passport_revoked"), (RevokeSession, "session_revoked"), (EndSession, "session_ended")],
)
def test_a_delegate_that_may_not_act_any_more_is_not_handed_out_again(
    service: Service, undo: Callable[[str], UseCase[Any]], refusal: str
) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, max_tool_calls=5)
    service.run(undo(child))
    again = service.delegate(parent, max_tool_calls=5)
    assert (again.repeated, again.permits, again.refusal) == (True, False, refusal)


def test_a_delegate_that_was_revoked_before_it_started_is_not_handed_out_again(service: Service) -> None:
    parent = service.start().session.id
    child = service.delegate(parent, max_tool_calls=5).child_id
    service.run(RevokePassport(child or ""))
    assert service.delegate(parent, max_tool_calls=5).refusal == "passport_revoked"


def test_a_mission_that_no_passport_can_hold_is_refused_by_its_name(service: Service) -> None:
    parent = service.start(resource_scope=("**",)).session.id
    scope = tuple(f"/work/project/{number:0200}" for number in range(200))
    with pytest.raises(FieldInvalid) as caught:
        service.delegate(parent, max_tool_calls=1, resource_scope=scope)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.mission")


@pytest.mark.parametrize("change", [{"max_tool_calls": 4}, {"mission": "Something else"}])
def test_another_mission_under_a_used_request_is_a_conflict(service: Service, change: dict[str, Any]) -> None:
    parent = service.start().session.id
    service.delegate(parent, max_tool_calls=5)
    with pytest.raises(RequestConflict) as caught:
        service.delegate(parent, wanted=mission(max_tool_calls=5), **change)
    assert caught.value.code == "request_conflict"


@pytest.mark.parametrize("request_id", ["", "r" * (MAX_REQUEST_ID + 1)])
def test_a_request_has_a_name_of_limited_length(service: Service, request_id: str) -> None:
    parent = service.start().session.id
    with pytest.raises(FieldInvalid) as caught:
        service.delegate(parent, request_id)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.delegation_request_id")


def test_a_delegation_of_an_unknown_commit_is_made_once(service: Service) -> None:
    parent = service.start().session.id
    service.run(GetSession(parent))
    service.weather.unknown = True
    with pytest.raises(LedgerUnavailable):
        service.delegate(parent, max_tool_calls=5)
    assert service.delegate(parent, max_tool_calls=5).repeated
    assert service.session(parent).reserved == 5


def test_a_delegate_has_a_chain_and_a_budget_of_its_own(service: Service) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, max_tool_calls=2)
    assert [service.call(child).permits for _ in range(3)] == [True, True, False]
    assert service.session(child).parent == parent
    assert service.claims(child)[-1].internal_denial_code == "tool_calls_exhausted"
    assert _account(service.session(parent)) == (0, 2)


ENDINGS: dict[str, Callable[[Service, str], object]] = {
    "ended": lambda service, name: service.run(EndSession(name)),
    "revoked": lambda service, name: service.run(RevokeSession(name)),
    "its passport revoked": lambda service, name: service.run(RevokePassport(name)),
    "attested and ended": lambda service, name: service.attest(name, end=True),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_what_a_delegate_has_not_used_goes_back(service: Service, how: str) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, "request-7", max_tool_calls=5)
    service.call(child)
    service.call(child)
    ENDINGS[how](service, child)
    claims = service.claims(parent)[-1]
    delta = _delta(claims)
    assert (claims.tool, claims.target) == ("remit.release", child)
    assert (delta.operation, delta.amount, delta.delegation_request_id) == ("release", 3, "request-7")
    assert (delta.used_total, delta.reserved_total, delta.remaining_for_parent) == (2, 0, 18)
    assert _account(service.session(parent)) == (2, 0)


def test_what_goes_back_goes_back_once(service: Service) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, max_tool_calls=5)
    service.run(EndSession(child))
    service.run(RevokeSession(child))
    service.run(RevokePassport(child))
    assert [claims.tool for claims in service.claims(parent)] == ["remit.delegate", "remit.release"]


def test_a_delegate_that_has_expired_gives_back_when_the_parent_needs_it(service: Service) -> None:
    parent = service.start(max_tool_calls=5).session.id
    child = service.start_delegate(parent, max_tool_calls=5, max_duration_s=60)
    service.call(child)
    service.clock.pass_s(60)
    assert service.call(parent).permits
    assert service.session(child).state == "expired"
    assert _account(service.session(parent)) == (2, 0)


def test_a_delegate_that_never_started_gives_back_when_its_passport_has_expired(service: Service) -> None:
    parent = service.start(max_tool_calls=5).session.id
    delegated = service.delegate(parent, max_tool_calls=5, max_duration_s=60)
    assert not service.call(parent).permits
    service.clock.pass_s(60)
    assert service.call(parent).permits
    assert _account(service.session(parent)) == (1, 0)
    with pytest.raises(PassportExpired) as caught:
        service.run(StartSession(str(delegated.passport)))
    assert caught.value.code == "passport_expired"


def test_a_new_delegation_can_be_paid_from_one_that_has_expired(service: Service) -> None:
    parent = service.start(max_tool_calls=5).session.id
    service.delegate(parent, "request-1", max_tool_calls=5, max_duration_s=60)
    service.clock.pass_s(60)
    assert service.delegate(parent, "request-2", max_tool_calls=5, max_duration_s=60).permits
    assert _account(service.session(parent)) == (0, 5)


def test_a_delegate_that_was_revoked_before_its_start_gives_back_at_once(service: Service) -> None:
    parent = service.start(max_tool_calls=5).session.id
    delegated = service.delegate(parent, max_tool_calls=5)
    service.run(RevokePassport(str(delegated.child_id)))
    assert service.call(parent).permits
    with pytest.raises(PassportRevoked):
        service.run(StartSession(str(delegated.passport)))


def test_what_grandchildren_used_reaches_the_first_of_the_lineage(service: Service) -> None:
    first = service.start().session.id
    child = service.start_delegate(first, max_tool_calls=10)
    grandchild = service.start_delegate(child, max_tool_calls=4)
    for name in (first, child, grandchild, grandchild):
        assert service.call(name).permits
    service.run(EndSession(child))
    assert service.session(grandchild).state == "ended"
    assert _account(service.session(child)) == (3, 0)
    assert _account(service.session(first)) == (4, 0)


@pytest.mark.parametrize("how", [*ENDINGS, "expired"])
def test_the_end_of_a_parent_is_the_end_of_its_delegates(service: Service, how: str) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, "request-1", max_tool_calls=5)
    grandchild = service.start_delegate(child, max_tool_calls=2)
    unused = service.delegate(parent, "request-2", max_tool_calls=5)
    if how == "expired":
        service.clock.pass_s(900)
        service.run(GetSession(parent))
    else:
        ENDINGS[how](service, parent)
    states = {service.session(name).state for name in (parent, child, grandchild)}
    assert len(states) == 1
    assert "active" not in states
    assert not service.call(grandchild).permits
    assert service.session(parent).reserved == service.session(child).reserved == 0
    with pytest.raises(PassportExpired if how == "expired" else PassportRevoked):
        service.run(StartSession(str(unused.passport)))


def test_a_delegate_that_ends_leaves_its_parent_and_siblings_alone(service: Service) -> None:
    parent = service.start().session.id
    one = service.start_delegate(parent, "request-1", max_tool_calls=5)
    two = service.start_delegate(parent, "request-2", max_tool_calls=5)
    service.run(EndSession(one))
    assert service.call(parent).permits
    assert service.call(two).permits


def test_two_processes_do_not_set_the_same_calls_aside(pair: tuple[Service, Service]) -> None:
    one, two = pair
    parent = one.start(max_tool_calls=5).session.id
    granted: list[bool] = []
    one.run(GetSession(parent))
    one.weather.meanwhile = lambda: granted.append(two.delegate(parent, "request-2", max_tool_calls=5).permits)
    granted.append(one.delegate(parent, "request-1", max_tool_calls=5).permits)
    assert granted == [True, False]
    assert one.session(parent).reserved == 5


def test_a_delegate_can_be_used_up_in_another_process(pair: tuple[Service, Service]) -> None:
    one, two = pair
    parent = one.start(max_tool_calls=5).session.id
    child = two.start_delegate(parent, max_tool_calls=3)
    for _ in range(3):
        assert two.call(child).permits
    one.run(EndSession(child))
    assert _account(two.session(parent)) == (3, 0)
