"""The states of a session as values: the moves, the time that is left, and how a session stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from remit.claims.attestation import SessionState
from remit.governor.clock import Moment
from remit.governor.lifecycle import (
    QUARANTINED,
    TRANSITIONS,
    count_elapsed,
    get_account,
    same_decision,
    session_status,
)
from remit.ledger.records import FINAL_STATES, LedgerState, Session
from remit.policy.budget import Budget
from remit.policy.engines import DENIALS, SessionStatus

SESSION = Session(
    id="pass:state:0001",
    passport="token",
    actor="agent:reviewer",
    parent=None,
    trace_id="trace:state:0001",
    run_nonce="n" * 32,
    started_ms=1_000_000,
    lifetime_ms=60_000,
    expires_ms=2**42,
    limit=10,
    verifier="remit:key",
    seen_boot="a",
    seen_mono_ms=5_000,
    seen_wall_ms=1_000_000,
)
OFF, ON = LedgerState("key"), LedgerState("key", kill_switch=True)


def _state(move: str) -> Session:
    return structs.replace(SESSION, state=TRANSITIONS[move].state, cause=TRANSITIONS[move].code, ended_ms=1_000_000)


def test_every_move_leads_to_a_final_state_and_every_final_state_is_reached() -> None:
    assert {move.state for move in TRANSITIONS.values()} == set(FINAL_STATES)


@pytest.mark.parametrize("code", [QUARANTINED, *(move.code for move in TRANSITIONS.values())])
def test_every_cause_is_a_code_that_a_receipt_can_carry(code: str) -> None:
    assert code in DENIALS


PUBLIC = {
    "end": "revoked",
    "expire": "budget_exhausted",
    "revoke_passport": "revoked",
    "revoke_session": "revoked",
    "kill": "revoked",
    "tamper": "revoked",
}


@pytest.mark.parametrize("move", TRANSITIONS)
def test_a_final_state_refuses_with_its_own_code(move: str) -> None:
    standing = session_status(_state(move), OFF)
    assert standing.refusal == TRANSITIONS[move].code
    assert DENIALS[standing.refusal][0] == PUBLIC[move]


@pytest.mark.parametrize("move", TRANSITIONS)
def test_time_stands_still_in_a_final_state(move: str) -> None:
    session = _state(move)
    assert count_elapsed(session, Moment(9_000_000, 9_000_000, "a")) is session


@pytest.mark.parametrize("move", TRANSITIONS)
def test_the_kill_switch_does_not_hide_why_a_session_came_to_its_end(move: str) -> None:
    assert session_status(_state(move), ON).refusal == TRANSITIONS[move].code


def test_an_active_session_refuses_nothing() -> None:
    assert session_status(SESSION, OFF) == SessionStatus(SESSION.id, Budget(10, 60, own_calls=False), "")


def test_the_kill_switch_refuses_what_is_active() -> None:
    assert session_status(SESSION, ON).refusal == "kill_switch"


def test_a_quarantined_session_refuses_although_it_is_active() -> None:
    assert session_status(structs.replace(SESSION, cause=QUARANTINED), ON).refusal == "chain_broken"


@pytest.mark.parametrize(
    ("elapsed_ms", "left_s"), [(0, 60), (1, 60), (1_000, 59), (59_001, 1), (59_999, 1), (60_000, 0), (90_000, 0)]
)
def test_the_last_second_counts_until_it_is_over(elapsed_ms: int, left_s: int) -> None:
    session = structs.replace(SESSION, elapsed_ms=elapsed_ms)
    assert session.duration_left_s == left_s
    assert (session_status(session, OFF).refusal == "duration_exceeded") == (left_s == 0)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_no_account_goes_below_nothing(limit: int, used: int, reserved: int) -> None:
    session = structs.replace(SESSION, limit=limit, used=used, reserved=reserved)
    assert session_status(session, OFF).budget.tool_calls == get_account(session).remaining >= 0


_MOMENTS = st.builds(Moment, st.integers(0, 10**13), st.integers(0, 10**9), st.sampled_from(["a", "b"]))


@given(st.lists(_MOMENTS, max_size=8))
def test_counted_time_never_shrinks_whatever_the_clocks_do(moments: list[Moment]) -> None:
    session = SESSION
    for moment in moments:
        before, session = session, count_elapsed(session, moment)
        assert session.elapsed_ms >= before.elapsed_ms


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_on_one_boot_many_touches_count_as_one(passed: list[int]) -> None:
    session, mono = SESSION, SESSION.seen_mono_ms
    for number, step in enumerate(passed):
        mono += step
        session = count_elapsed(session, Moment(number * 77_777, mono, "a"))
    assert session.elapsed_ms == sum(passed)


@pytest.mark.parametrize("state", ["active", *FINAL_STATES])
def test_only_an_active_session_is_counted(state: SessionState) -> None:
    session = structs.replace(SESSION, state=state)
    moved = count_elapsed(session, Moment(2_000_000, 6_000, "a"))
    assert moved.elapsed_ms == (1_000 if state == "active" else 0)


def _standing(calls: int, refusal: str = "", *, own_calls: bool = False) -> SessionStatus:
    return SessionStatus(SESSION.id, Budget(calls, 60, own_calls=own_calls), refusal)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (_standing(5), _standing(4), True),
        (_standing(1), _standing(0), False),
        (_standing(0), _standing(1), False),
        (_standing(5), _standing(5, "kill_switch"), False),
        (_standing(5, "session_ended"), _standing(0, "session_ended"), False),
        (_standing(0, own_calls=True), _standing(0, own_calls=False), False),
        (_standing(3, own_calls=True), _standing(3, own_calls=False), True),
    ],
)
def test_a_call_is_judged_again_only_if_the_answer_could_differ(
    one: SessionStatus, two: SessionStatus, same: bool
) -> None:
    assert same_decision(one, two, exactly=False) is same
    assert same_decision(one, two, exactly=True) is (same and one.budget.tool_calls == two.budget.tool_calls)
