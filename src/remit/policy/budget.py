"""Arithmetic on limits: what remains, and what a reservation takes.

Everything is reserved before it is used and never charged afterwards, so that a limit holds with any number of
concurrent calls. The functions are pure; the ledger reads, changes and writes an account in one transaction.
"""

from typing import NamedTuple

__all__ = ["Account", "Budget", "consume", "elapsed_s", "release", "reserve"]


class Account(NamedTuple):
    """A counter with a limit: the amount used, and the amount reserved for delegates."""

    limit: int
    used: int = 0
    reserved: int = 0

    @property
    def remaining(self) -> int:
        """Return what can still be used or reserved; never negative."""
        return max(0, self.limit - self.used - self.reserved)


class Budget(NamedTuple):
    """What a session has left."""

    tool_calls: int
    duration_s: int
    # False if the calls are exhausted because a delegate has reserved them.
    own_calls: bool = True


def consume(account: Account, amount: int = 1) -> Account | None:
    """Return the account after `amount` is used, or None if less remains."""
    return account._replace(used=account.used + amount) if 0 <= amount <= account.remaining else None


def reserve(account: Account, amount: int) -> Account | None:
    """Return the account with `amount` reserved for a delegate, or None if less remains."""
    return account._replace(reserved=account.reserved + amount) if 0 <= amount <= account.remaining else None


def release(account: Account, reserved: int, used: int) -> Account:
    """Return the account after a delegate has ended: its use is charged, the rest is released."""
    if not 0 <= used <= reserved <= account.reserved:
        raise ValueError("more is released than was reserved")
    return account._replace(used=account.used + used, reserved=account.reserved - reserved)


def elapsed_s(started_ms: int, now_ms: int) -> int:
    """Return the elapsed time in whole seconds, rounded up, so that a limit is never exceeded."""
    return max(0, -(-(now_ms - started_ms) // 1000))
