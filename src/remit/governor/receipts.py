"""Drafting receipts and appending them to the chain of a session. The ledger signs them before the commit.

All receipts of the governor are appended by `append`. Invariant: a receipt fits the maximum size of a token, whatever a
client has sent: if it does not, its texts are shortened.
"""

from typing import Final

from msgspec import UNSET, UnsetType, structs

from remit.claims.chain import draft, ordered_receipt_id
from remit.claims.receipt import MAX_TOOL, Measurement, SignedReceipt, Step
from remit.errors import StateCorrupt, TokenTooLarge
from remit.governor.clock import Moment, format_timestamp, parse_timestamp
from remit.governor.context import Context
from remit.ledger.records import IdempotencyKey, Session, StoredReceipt, UnsignedReceipt
from remit.ledger.store import Transaction

# The `backend` of policy decisions in receipts that are not decisions on calls.
GOVERNOR: Final = "governor"
_SHORT_TEXT: Final = 400


def clip(text: str, length: int) -> str:
    """Truncate text to at most `length` characters, with an ellipsis at the end if any were removed."""
    return text if len(text) <= length else text[: length - 1] + "…"


def budget_remaining(session: Session) -> dict[str, int]:
    """Return the remaining budget in the form of receipts."""
    return {
        "tool_calls": session.calls_left,
        "duration_s": session.duration_left_s if session.state == "active" else 0,
    }


def step_timestamp(session: Session, now: Moment) -> str:
    """Return the timestamp of a step: wall-clock time, monotonic within a chain."""
    return format_timestamp(_latest_ms(session, now))


def _latest_ms(session: Session, now: Moment) -> int:
    return max(now.wall_ms, session.seen_wall_ms, session.iat * 1000)


def observed_timestamp_ms(
    context: Context, transaction: Transaction, session: Session, now: Moment, observed_ms: int | None
) -> int:
    """Return the time of an observed event in milliseconds, limited to between the last receipt and now.

    Without `observed_ms`, it is now.
    """
    latest = _latest_ms(session, now)
    if observed_ms is None or observed_ms >= latest:
        return latest
    return max(observed_ms, _last_timestamp(context, transaction, session))


def _last_timestamp(context: Context, transaction: Transaction, session: Session) -> int:
    """Return the `format_timestamp` of the last receipt of a session in milliseconds, or 0 if it has no receipt."""
    if session.receipt_id is None:
        return 0
    receipt_id, timestamp_ms = context.timestamps.get(session.id, ("", 0))
    if receipt_id == session.receipt_id:
        return timestamp_ms
    stored = transaction.receipt(session.receipt_id)
    if stored is None:
        raise StateCorrupt("the last receipt of the session is missing from ledger.db; run: remit ledger check")
    claims = stored.draft.claims if isinstance(stored, UnsignedReceipt) else context.receipt(stored.token).claims
    return parse_timestamp(claims.timestamp)


def load_receipt(context: Context, stored: StoredReceipt | UnsignedReceipt) -> SignedReceipt:
    """Return a durable receipt: a stored one is verified first, one that this process has just signed is not."""
    return stored.receipt if isinstance(stored, UnsignedReceipt) else context.receipt(stored.token)


def new_receipt_id(context: Context, now: Moment) -> str:
    """Return a new receipt id, ordered by time."""
    return ordered_receipt_id(now.wall_ms, context.entropy(10))


def append(
    context: Context,
    transaction: Transaction,
    session: Session,
    step: Step,
    now: Moment,
    *,
    form: bytes,
    new_id: str = "",
    once: IdempotencyKey | None = None,
    result_of: str = "",
    note: str = "",
    **changes: int | str,
) -> tuple[Session, UnsignedReceipt]:
    """Append a step to the chain of a session; return the updated session and the receipt.

    `form` is the canonical form of the arguments of the step. `changes` are new values of session members. The counter
    of the verdict is incremented.
    """
    signing = context.keys.signing(transaction.ledger_state.kid)
    head = session.head
    if session.verifier != f"remit:{signing.kid}":
        head = head.handed_to(signing.public)
    new_id = new_id or new_receipt_id(context, now)
    try:
        drafted = draft(head, step, form=form, new_id=new_id, now=now.wall_s)
    except TokenTooLarge:
        drafted = draft(head, _shorten(step), form=form, new_id=new_id, now=now.wall_s)
    unsigned = UnsignedReceipt(drafted, signing)
    changes[step.verdict] = getattr(session, step.verdict) + 1
    changes["seen_wall_ms"] = max(session.seen_wall_ms, now.wall_ms)
    return transaction.append(session, unsigned, once=once, result_of=result_of, note=note, changes=changes), unsigned


def _shorten(step: Step) -> Step:
    """Return a step with its texts shortened so far that they fit in any script and with any escapes."""
    return structs.replace(
        step,
        tool=clip(step.tool, MAX_TOOL),
        target=clip(step.target, _SHORT_TEXT),
        reason=clip(step.reason, _SHORT_TEXT),
        policy_decisions=tuple(
            structs.replace(decision, reason=clip(decision.reason or "", _SHORT_TEXT))
            for decision in step.policy_decisions[:16]
        ),
        measurements=_shorten_measurements(step),
    )


def _shorten_measurements(step: Step) -> dict[str, Measurement] | UnsetType:
    if step.measurements is UNSET:
        return UNSET
    return {
        name: structs.replace(one, description=clip(one.description, _SHORT_TEXT) if one.description else UNSET)
        for name, one in step.measurements.items()
    }
