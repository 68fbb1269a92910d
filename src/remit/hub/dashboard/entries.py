"""Receipts as entries of a list: the decision, the call, the reason, and the remedy.

Invariant: everything shown of a call comes from claims that were just verified, of a receipt at its right position in
the chain. Of a receipt that does not verify, only its id and position are shown.
"""

from typing import Final, NamedTuple

from msgspec import UNSET

from remit.claims.chain import step_id
from remit.claims.receipt import Receipt, SignedReceipt
from remit.errors import TokenError
from remit.governor.context import Context
from remit.governor.receipts import GOVERNOR, clip
from remit.hub.dashboard.formatting import FormattedTime, TimeFormatter
from remit.hub.dashboard.labels import FINDINGS, NOT_GENUINE, RECORDED, VERDICTS, Badge, describe_fault
from remit.ledger.records import StoredReceipt
from remit.policy.evidence import EFFECTS_MEASUREMENT, REMEDY_MEASUREMENT

_TARGET: Final = 160
_REASON: Final = 320
_TOOL: Final = 64
_MISPLACED: Final = "row_mismatch"


class CheckedReceipt(NamedTuple):
    """A stored receipt with its verified form, or with the code of its fault."""

    kept: StoredReceipt
    receipt: SignedReceipt | None
    fault: str = ""


class ReceiptEntry(NamedTuple):
    """An entry of a list. If the receipt does not verify, `when` is None and `reason` describes the fault."""

    number: int
    receipt_id: str
    session_id: str
    badge: Badge
    reason: str
    when: FormattedTime | None = None
    tool: str = ""
    target: str = ""
    code: str = ""
    remedy: str = ""
    effects: str = ""

    @property
    def genuine(self) -> bool:
        """Return whether the receipt verifies."""
        return self.when is not None


def check_receipt(context: Context, kept: StoredReceipt) -> CheckedReceipt:
    """Verify a stored receipt, and that its claims match its row."""
    try:
        receipt = context.receipt(kept.token)
    except TokenError as error:
        return CheckedReceipt(kept, None, error.code)
    claims = receipt.claims
    if (claims.receipt_id, claims.grant_id, claims.step_id) != (kept.receipt_id, kept.session_id, step_id(kept.seq)):
        return CheckedReceipt(kept, None, _MISPLACED)
    return CheckedReceipt(kept, receipt)


def build_entry(checked: CheckedReceipt, times: TimeFormatter) -> ReceiptEntry:
    """Return the entry of a receipt."""
    kept = checked.kept
    if checked.receipt is None:
        reason = f"This receipt {describe_fault(checked.fault)}."
        return ReceiptEntry(kept.seq, kept.receipt_id, kept.session_id, NOT_GENUINE, reason)
    claims = checked.receipt.claims
    return ReceiptEntry(
        kept.seq,
        kept.receipt_id,
        kept.session_id,
        build_badge(claims),
        clip(claims.reason, _REASON),
        times.when(claims.iat),
        clip(claims.tool, _TOOL),
        clip(claims.target, _TARGET),
        claims.internal_denial_code or "",
        clip(measurement_text(claims, REMEDY_MEASUREMENT), _REASON),
        clip(measurement_text(claims, EFFECTS_MEASUREMENT), _REASON),
    )


def build_badge(claims: Receipt) -> Badge:
    """Return the badge of a receipt: its verdict, `RECORDED` if it decides on no call, or that of a finding."""
    finding = FINDINGS.get(claims.internal_denial_code or "")
    if finding is not None:
        return finding
    by_governor = any(decision.backend == GOVERNOR for decision in claims.policy_decisions)
    return RECORDED if by_governor and claims.verdict == "compliant" else VERDICTS[claims.verdict]


def measurement_text(claims: Receipt, name: str) -> str:
    """Return the description of a measurement in a receipt; empty if there is none."""
    measurement = None if claims.measurements is UNSET else claims.measurements.get(name)
    return measurement.description or "" if measurement else ""
