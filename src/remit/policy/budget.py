"""The arithmetic of limits: what is left, and what a reservation takes away.

Everything is reserved before it is used, never charged afterwards, so that a limit holds however many calls are under
way. These are pure functions over values; the ledger makes one step out of reading, changing and writing an account.
"""

from typing import NamedTuple

__all__ = ["Account", "Budget", "consume", "elapsed_s", "release", "reserve"]


class Account(NamedTuple):
    """A counter with a limit: what was used, and what is set aside for delegates."""

    limit: int
    used: int = 0
    reserved: int = 0

    @property
    def remaining(self) -> int:
        """Return what can still be used or set aside; never less than nothing."""
        return max(0, self.limit - self.used - self.reserved)


class Budget(NamedTuple):
    """What a session has left when a call comes in."""

    tool_calls: int
    duration_s: int
    # False when the calls are gone because a delegate holds them, not because they were used.
    own_calls: bool = True


def consume(account: Account, amount: int = 1) -> Account | None:
    """Return the account after `amount` is used, or None where that is more than remains."""
    return account._replace(used=account.used + amount) if 0 <= amount <= account.remaining else None


def reserve(account: Account, amount: int) -> Account | None:
    """Return the account with `amount` set aside for a delegate, or None where that is more than remains."""
    return account._replace(reserved=account.reserved + amount) if 0 <= amount <= account.remaining else None


def release(account: Account, reserved: int, used: int) -> Account:
    """Return the account after a delegate has ended: what it used is used, the rest is free again."""
    if not 0 <= used <= reserved <= account.reserved:
        raise ValueError("more is released than was reserved")
    return account._replace(used=account.used + used, reserved=account.reserved - reserved)


def elapsed_s(started_ms: int, now_ms: int) -> int:
    """Return the whole seconds that have passed, rounded up, so that a limit is never overstayed."""
    return max(0, -(-(now_ms - started_ms) // 1000))
