"""Passports: issued, handed on, and verified for the right one at the right time."""

import re

import pytest
from msgspec import structs

from remit import Confirmation, Passport, SigningKey, issue_passport, verify_passport
from remit.claims.passport import AUDIENCES, MAX_DELEGATION_DEPTH, OBSERVE_AUDIENCE
from remit.errors import (
    AudienceMismatch,
    DelegationTooDeep,
    FieldInvalid,
    MissionWidened,
    PassportExpired,
    PassportNotYetValid,
    RemitError,
)
from tests.world import ISSUER, KEYRING, MISSION, NOW, OURS, THEIRS


def issue(**changes: object) -> Passport:
    members: dict[str, object] = {"issuer": ISSUER, "jti": "pass:00000001", "now": NOW}
    return issue_passport(MISSION, OURS, **(members | changes))  # type: ignore[arg-type]


def test_what_is_issued_verifies_and_says_the_same() -> None:
    passport = issue(bound_to=Confirmation(jkt=OURS.kid))
    assert verify_passport(passport.token, KEYRING, now=NOW) == passport
    assert (passport.mission, passport.issuer, passport.jti) == (MISSION, ISSUER, "pass:00000001")
    assert (passport.issued_at, passport.not_before, passport.expires_at) == (NOW, NOW, NOW + 900)
    assert (passport.parent_jti, passport.delegation_depth) == (None, 0)


def test_a_passport_may_live_shorter_than_its_mission_but_not_longer() -> None:
    assert issue(lifetime_s=60).expires_at == NOW + 60
    for lifetime in (901, 0, -5):
        with pytest.raises(FieldInvalid):
            issue(lifetime_s=lifetime)


@pytest.mark.parametrize(("now", "verifies"), [(-61, False), (-60, True), (0, True), (959, True), (960, False)])
def test_clocks_may_differ_by_a_minute(now: int, *, verifies: bool) -> None:
    token = issue().token
    if verifies:
        assert verify_passport(token, KEYRING, now=NOW + now).jti == "pass:00000001"
        return
    with pytest.raises((PassportExpired, PassportNotYetValid)):
        verify_passport(token, KEYRING, now=NOW + now)


def test_more_than_a_minute_is_never_granted_and_less_may_be_asked_for() -> None:
    token = issue(not_before=NOW + 100).token
    with pytest.raises(PassportNotYetValid):
        verify_passport(token, KEYRING, now=NOW, skew_s=3600)
    with pytest.raises(PassportNotYetValid):
        verify_passport(token, KEYRING, now=NOW + 99, skew_s=0)
    assert verify_passport(token, KEYRING, now=NOW + 100, skew_s=0).not_before == NOW + 100


def test_someone_else_may_issue_if_we_believe_their_key() -> None:
    passport = issue_passport(MISSION, THEIRS, issuer="https://issuer.example", jti="pass:00000002", now=NOW)
    assert verify_passport(passport.token, KEYRING, now=NOW).issuer == "https://issuer.example"


def delegate(parent: Passport, now: int = NOW + 10, jti: str = "pass:delegate", **changes: object) -> Passport:
    narrower = structs.replace(parent.mission, agent_id="agent:helper", max_tool_calls=3, **changes)
    return issue_passport(narrower, OURS, issuer=ISSUER, jti=jti, now=now, parent=parent)


def test_a_delegate_names_its_parent_and_does_not_outlive_it() -> None:
    parent = issue(not_before=NOW + 50)
    child = verify_passport(delegate(parent).token, KEYRING, now=NOW + 60)
    assert (child.parent_jti, child.delegation_depth) == (parent.jti, 1)
    assert child.expires_at == parent.expires_at
    assert child.not_before == parent.not_before
    assert child.mission.agent_id == "agent:helper"


def test_a_delegate_with_less_time_ends_earlier() -> None:
    assert delegate(issue(), max_duration_s=60).expires_at == NOW + 70


def test_a_delegate_is_never_wider() -> None:
    with pytest.raises(MissionWidened):
        delegate(issue(), allowed_tools=("*",))


def test_an_expired_passport_delegates_nothing() -> None:
    with pytest.raises(PassportExpired):
        delegate(issue(), now=NOW + 900)


def test_a_lineage_ends_somewhere() -> None:
    passport = issue()
    for depth in range(1, MAX_DELEGATION_DEPTH + 1):
        passport = delegate(passport, jti=f"pass:depth:{depth}")
        assert passport.delegation_depth == depth
    with pytest.raises(DelegationTooDeep):
        delegate(passport)


def test_a_passport_is_not_its_own_parent() -> None:
    with pytest.raises(FieldInvalid) as caught:
        delegate(issue(), jti="pass:00000001")
    assert caught.value.place == "$.parent_jti"


def test_a_delegate_gets_relative_paths_written_out() -> None:
    child = delegate(issue(), resource_scope=("src", "*.py"), cwd="/work/project/lib")
    assert child.mission.resource_scope == ("/work/project/lib/src", "/work/project/lib/*.py")


def test_showing_a_passport_does_not_show_the_token() -> None:
    passport = issue()
    assert passport.token not in repr(passport)
    assert passport.token.rpartition(".")[2] not in f"{passport}"


def test_a_time_that_is_no_time_is_refused() -> None:
    with pytest.raises(PassportNotYetValid):
        verify_passport(issue().token, KEYRING, now=float("nan"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"jti": "short"},
        {"jti": "pass with spaces"},
        {"issuer": ""},
        {"now": -1},
        {"bound_to": Confirmation(certificate="tooshort")},
    ],
    ids=str,
)
def test_what_could_not_be_verified_is_not_issued(changes: dict[str, object]) -> None:
    with pytest.raises(FieldInvalid):
        issue(**changes)


def test_half_characters_are_refused_before_anything_is_signed() -> None:
    with pytest.raises(FieldInvalid) as caught:
        issue_passport(structs.replace(MISSION, mission="\ud800"), OURS, issuer=ISSUER, jti="pass:00000001", now=NOW)
    assert caught.value.code == "field_invalid"


def test_a_passport_that_would_be_too_long_is_not_issued() -> None:
    wide = structs.replace(MISSION, allowed_tools=tuple(f"tool_{number:04}" for number in range(1000)))
    wider = structs.replace(wide, resource_scope=tuple(f"/work/{number:04}" for number in range(1000)))
    with pytest.raises(RemitError) as caught:
        issue_passport(wider, OURS, issuer=ISSUER, jti="pass:00000001", now=NOW)
    assert caught.value.code == "token_too_large"


def test_a_confirmation_holds_one_thing() -> None:
    for members in ({}, {"jkt": OURS.kid, "certificate": OURS.kid}):
        with pytest.raises(FieldInvalid):
            Confirmation(**members)


def test_messages_say_a_place_once() -> None:
    with pytest.raises(FieldInvalid) as caught:
        issue(lifetime_s=901)
    assert len(re.findall(r"\$", str(caught.value))) == 1


def test_another_key_under_the_same_name_is_not_believed() -> None:
    thief = SigningKey.derive(bytes(40))
    forged = issue_passport(MISSION, thief, issuer=ISSUER, jti="pass:00000001", now=NOW)
    with pytest.raises(RemitError) as caught:
        verify_passport(forged.token, KEYRING, now=NOW)
    assert caught.value.code == "key_unknown"


# Audiences


def test_a_passport_is_for_tool_calls_unless_it_says_that_it_is_for_observation() -> None:
    plain = issue_passport(MISSION, OURS, issuer=ISSUER, jti="pass:tests:aud1", now=NOW)
    observing = issue_passport(MISSION, OURS, issuer=ISSUER, jti="pass:tests:aud2", now=NOW, audience=OBSERVE_AUDIENCE)
    assert (plain.audience, observing.audience) == ("remit", "remit:observe")
    assert verify_passport(plain.token, KEYRING, now=NOW).audience == "remit"
    assert verify_passport(observing.token, KEYRING, now=NOW, audiences=AUDIENCES) == observing
    with pytest.raises(AudienceMismatch) as caught:
        verify_passport(observing.token, KEYRING, now=NOW)
    assert caught.value.code == "audience_mismatch"
    assert "remit:observe" in str(caught.value)


def test_a_passport_for_an_audience_that_is_not_ours_is_not_issued() -> None:
    with pytest.raises(FieldInvalid) as caught:
        issue_passport(MISSION, OURS, issuer=ISSUER, jti="pass:tests:aud3", now=NOW, audience="someone")
    assert caught.value.place == "$.aud"


@pytest.mark.parametrize(("parent_is", "child_is"), [(OBSERVE_AUDIENCE, "remit"), ("remit", OBSERVE_AUDIENCE)])
def test_observation_is_neither_delegated_from_nor_to(parent_is: str, child_is: str) -> None:
    parent = issue_passport(MISSION, OURS, issuer=ISSUER, jti="pass:tests:aud4", now=NOW, audience=parent_is)
    with pytest.raises(AudienceMismatch):
        issue_passport(MISSION, OURS, issuer=ISSUER, jti="pass:tests:aud5", now=NOW, parent=parent, audience=child_is)
