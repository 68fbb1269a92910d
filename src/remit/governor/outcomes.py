"""What a receipt comes to by now: a permission that was given before ends with its session."""

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from remit.claims.receipt import PublicDenialReason, Receipt, Verdict
from remit.policy.engines import DENIALS

__all__ = ["Outcome", "outcome_of"]


class Outcome(NamedTuple):
    """What a client is told about a decision."""

    verdict: Verdict
    reason: str
    public_reason: PublicDenialReason | UnsetType = UNSET


def outcome_of(claims: Receipt, refusal: str) -> Outcome:
    """Return what a receipt says; or, where that was a permission that `refusal` has ended, why it does not hold."""
    if not refusal or claims.verdict != "compliant":
        return Outcome(claims.verdict, claims.reason, claims.public_denial_reason)
    public_reason, verdict = DENIALS[refusal]
    return Outcome(verdict, f"permitted before, and not any more: {refusal.replace('_', ' ')}", public_reason)
