"""Making a receipt: the one place where a step is signed and appended to a chain.

Keeps this invariant: what is appended fits a token, whatever a client has sent. Text that is too long is clipped here,
and only here.
"""

from typing import Final

from msgspec import UNSET, UnsetType, structs

from remit.claims.chain import draft, ordered_receipt_id
from remit.claims.receipt import MAX_TOOL, Measurement, SignedReceipt, Step
from remit.errors import StateCorrupt, TokenTooLarge
from remit.governor.clock import Moment, parse_timestamp, timestamp
from remit.governor.means import Means
from remit.ledger.port import Transaction
from remit.ledger.records import Kept, Once, Pending, Session

__all__ = ["GOVERNOR", "append", "budget_remaining", "clip", "moment_of", "new_receipt_id", "receipt_of", "reported_ms"]

# Who speaks in receipts that are not about a call.
GOVERNOR: Final = "governor"
_SHORT: Final = 400


def clip(text: str, length: int) -> str:
    """Return text that has at most `length` characters, and says so where some are missing."""
    return text if len(text) <= length else text[: length - 1] + "…"


def budget_remaining(session: Session) -> dict[str, int]:
    """Return what is left, as receipts write it."""
    return {
        "tool_calls": session.calls_left,
        "duration_s": session.duration_left_s if session.state == "active" else 0,
    }


def moment_of(session: Session, now: Moment) -> str:
    """Return the time of a step: wall-clock time, monotonic within a chain."""
    return timestamp(_latest_ms(session, now))


def _latest_ms(session: Session, now: Moment) -> int:
    return max(now.wall_ms, session.seen_wall_ms, session.iat * 1000)


def reported_ms(means: Means, transaction: Transaction, session: Session, now: Moment, observed_ms: int | None) -> int:
    """Return the time of a step in milliseconds: as observed, but from the receipt before it up to now; else now."""
    latest = _latest_ms(session, now)
    if observed_ms is None or observed_ms >= latest:
        return latest
    return max(observed_ms, _last_timestamp(means, transaction, session))


def _last_timestamp(means: Means, transaction: Transaction, session: Session) -> int:
    """Return the `timestamp` of the last receipt of a session, in milliseconds; 0 where there is none."""
    if session.receipt_id is None:
        return 0
    receipt_id, known = means.timestamps.get(session.id, ("", 0))
    if receipt_id == session.receipt_id:
        return known
    found = transaction.receipt(session.receipt_id)
    if found is None:
        raise StateCorrupt("ledger.db has lost the last receipt of the session: remit ledger check says more")
    claims = found.draft.claims if isinstance(found, Pending) else means.receipt(found.token).claims
    return parse_timestamp(claims.timestamp)


def receipt_of(means: Means, found: Kept | Pending) -> SignedReceipt:
    """Return a receipt that is durable: one that is kept is verified, one of a moment ago is known."""
    return found.receipt if isinstance(found, Pending) else means.receipt(found.token)


def new_receipt_id(means: Means, now: Moment) -> str:
    """Return an id for a receipt that is made now."""
    return ordered_receipt_id(now.wall_ms, means.entropy(10))


def append(
    means: Means,
    transaction: Transaction,
    session: Session,
    step: Step,
    now: Moment,
    *,
    form: bytes,
    new_id: str = "",
    once: Once | None = None,
    result_of: str = "",
    note: str = "",
    **changes: int | str,
) -> tuple[Session, Pending]:
    """Append a step to the chain of a session, and return the session as it then stands: its verdict is counted.

    `form` is the canonical form of the arguments that the step is about. `changes` are members of the session that
    change with the step.
    """
    signing = means.keys.signing(transaction.switches.kid)
    head = session.head
    if session.verifier != f"remit:{signing.kid}":
        head = head.handed_to(signing.public)
    new_id = new_id or new_receipt_id(means, now)
    try:
        drafted = draft(head, step, form=form, new_id=new_id, now=now.wall_s)
    except TokenTooLarge:
        drafted = draft(head, _shortened(step), form=form, new_id=new_id, now=now.wall_s)
    pending = Pending(drafted, signing)
    changes[step.verdict] = getattr(session, step.verdict) + 1
    changes["seen_wall_ms"] = max(session.seen_wall_ms, now.wall_ms)
    return transaction.append(session, pending, once=once, result_of=result_of, note=note, changes=changes), pending


def _shortened(step: Step) -> Step:
    """Return a step whose texts are short in any script and with any escapes."""
    return structs.replace(
        step,
        tool=clip(step.tool, MAX_TOOL),
        target=clip(step.target, _SHORT),
        reason=clip(step.reason, _SHORT),
        policy_decisions=tuple(
            structs.replace(said, reason=clip(said.reason or "", _SHORT)) for said in step.policy_decisions[:16]
        ),
        measurements=_short_measurements(step),
    )


def _short_measurements(step: Step) -> dict[str, Measurement] | UnsetType:
    if step.measurements is UNSET:
        return UNSET
    return {
        name: structs.replace(one, description=clip(one.description, _SHORT) if one.description else UNSET)
        for name, one in step.measurements.items()
    }
