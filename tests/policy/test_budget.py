"""Budgets: never less than nothing, and nothing lost between setting aside and giving back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.budget import Account, consume, elapsed_s, release, reserve

AMOUNTS = st.integers(0, 50)
ACCOUNTS = st.builds(Account, AMOUNTS, AMOUNTS, AMOUNTS)
STEPS = st.lists(st.tuples(st.sampled_from(["consume", "reserve", "release"]), st.integers(0, 12), st.integers(0, 12)))


@given(ACCOUNTS)
def test_what_remains_is_never_less_than_nothing(account: Account) -> None:
    assert account.remaining >= 0


@given(ACCOUNTS, st.integers(-5, 60))
def test_using_takes_exactly_what_was_asked_or_nothing(account: Account, amount: int) -> None:
    after = consume(account, amount)
    if 0 <= amount <= account.remaining:
        assert after == Account(account.limit, account.used + amount, account.reserved)
        assert after.remaining == account.remaining - amount
    else:
        assert after is None


@given(ACCOUNTS, st.integers(-5, 60))
def test_setting_aside_takes_exactly_what_was_asked_or_nothing(account: Account, amount: int) -> None:
    after = reserve(account, amount)
    if 0 <= amount <= account.remaining:
        assert after == Account(account.limit, account.used, account.reserved + amount)
    else:
        assert after is None


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_what_a_delegate_does_not_use_comes_back(limit: int, reserved: int, used: int) -> None:
    before = Account(limit)
    held = reserve(before, reserved)
    if held is not None and used <= reserved:
        after = release(held, reserved, used)
        assert (after.used, after.reserved) == (used, 0)
        assert after.remaining == before.remaining - used


@given(st.integers(0, 40), STEPS)
def test_no_order_of_steps_goes_beyond_the_limit(limit: int, steps: list[tuple[str, int, int]]) -> None:
    account, used = Account(limit), 0
    for step, amount, part in steps:
        before = account
        if step == "consume":
            account = consume(account, amount) or account
        elif step == "reserve":
            account = reserve(account, amount) or account
        elif part <= amount <= account.reserved:
            account = release(account, amount, part)
        used += account.used - before.used
        assert account.used + account.reserved + account.remaining == limit
    assert account.used == used


def test_one_call_is_the_usual_amount() -> None:
    assert consume(Account(1)) == Account(1, 1)
    assert consume(Account(1, 1)) is None
    assert consume(Account(1, 0, 1)) is None


@pytest.mark.parametrize(("reserved", "used"), [(4, 0), (3, 4), (2, -1), (-1, -1), (1, 2)])
def test_more_is_never_released_than_was_set_aside(reserved: int, used: int) -> None:
    with pytest.raises(ValueError, match="released"):
        release(Account(10, 2, 3), reserved, used)


@pytest.mark.parametrize(
    ("started", "now", "seconds"), [(0, 0, 0), (0, 1, 1), (0, 1000, 1), (0, 1001, 2), (5000, 4000, 0), (999, 1999, 1)]
)
def test_time_is_rounded_up_and_never_runs_backwards(started: int, now: int, seconds: int) -> None:
    assert elapsed_s(started, now) == seconds
