"""A receipt as one line of a list: what was decided, about what, why, and what would have helped.

Keeps this invariant: what is told of a call comes from claims whose signature was checked a moment ago, in the place
where they belong. Of a receipt that does not verify, only its id and place are told.
"""

from typing import Final, NamedTuple

from msgspec import UNSET

from remit.claims.chain import step_id
from remit.claims.receipt import Receipt, SignedReceipt
from remit.errors import TokenError
from remit.governor.means import Means
from remit.governor.receipts import GOVERNOR, clip
from remit.hub.dashboard.figures import Times, When
from remit.hub.dashboard.words import FINDINGS, NOT_GENUINE, RECORDED, VERDICTS, Mark, fault_in_words
from remit.ledger.records import Kept
from remit.policy.evidence import EFFECTS, REMEDY

__all__ = ["Checked", "Entry", "check", "entry_of", "mark_of", "measured"]

_TARGET: Final = 160
_REASON: Final = 320
_TOOL: Final = 64
_MISPLACED: Final = "row_mismatch"


class Checked(NamedTuple):
    """A receipt that was kept, with its verified form, or the code of what is wrong with it."""

    kept: Kept
    receipt: SignedReceipt | None
    fault: str = ""


class Entry(NamedTuple):
    """One line of a list. Without `when` the receipt is not genuine, and `reason` says what is wrong with it."""

    number: int
    receipt_id: str
    session_id: str
    mark: Mark
    reason: str
    when: When | None = None
    tool: str = ""
    target: str = ""
    code: str = ""
    remedy: str = ""
    effects: str = ""

    @property
    def genuine(self) -> bool:
        """Tell whether the receipt verifies."""
        return self.when is not None


def check(means: Means, kept: Kept) -> Checked:
    """Verify a receipt that was kept, and that it is the one which belongs in its place."""
    try:
        receipt = means.receipt(kept.token)
    except TokenError as error:
        return Checked(kept, None, error.code)
    claims = receipt.claims
    if (claims.receipt_id, claims.grant_id, claims.step_id) != (kept.receipt_id, kept.session_id, step_id(kept.seq)):
        return Checked(kept, None, _MISPLACED)
    return Checked(kept, receipt)


def entry_of(checked: Checked, times: Times) -> Entry:
    """Return the line of a receipt."""
    kept = checked.kept
    if checked.receipt is None:
        reason = f"This receipt {fault_in_words(checked.fault)}."
        return Entry(kept.seq, kept.receipt_id, kept.session_id, NOT_GENUINE, reason)
    claims = checked.receipt.claims
    return Entry(
        kept.seq,
        kept.receipt_id,
        kept.session_id,
        mark_of(claims),
        clip(claims.reason, _REASON),
        times.when(claims.iat),
        clip(claims.tool, _TOOL),
        clip(claims.target, _TARGET),
        claims.internal_denial_code or "",
        clip(measured(claims, REMEDY), _REASON),
        clip(measured(claims, EFFECTS), _REASON),
    )


def mark_of(claims: Receipt) -> Mark:
    """Return the verdict of a receipt; what is permitted by nobody but us was no call, and a finding denies nothing."""
    finding = FINDINGS.get(claims.internal_denial_code or "")
    if finding is not None:
        return finding
    own = any(said.backend == GOVERNOR for said in claims.policy_decisions)
    return RECORDED if own and claims.verdict == "compliant" else VERDICTS[claims.verdict]


def measured(claims: Receipt, name: str) -> str:
    """Return what a receipt says about one thing that was measured; nothing where it says nothing."""
    measurement = None if claims.measurements is UNSET else claims.measurements.get(name)
    return measurement.description or "" if measurement else ""
