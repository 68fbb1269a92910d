"""Compares calls in transcripts with decisions in verified receipts: which calls have a receipt, and which have not.

Invariant: doubt counts against coverage. A call needs a receipt unless the transcript shows that it was never started.
The receipt must have the same session, tool and arguments, as far as the transcript shows them, and must not be later
than the result of the call. A denied call must not have run. The text of a result is no evidence, because a tool can
write it: a denial counts only if the text names the receipt that denies this call.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from remit.assistants.reconcile.calls import Outcome, TranscriptCall
from remit.claims.receipt import Receipt, SignedReceipt, receipt_tool_name
from remit.claims.strictjson import JSON
from remit.policy.evidence import CALL_MEASUREMENT

_T = TypeVar("_T")
_CallStatus: TypeAlias = Literal[
    "permitted", "refused", "refused_but_run", "unreceipted", "mismatched", "unproven", "not_run", "before"
]
# How a receipt with the id of a call differs from the transcripts. late: it is later than the result of the call.
Difference: TypeAlias = Literal["session", "tool", "arguments", "late"]
# Denial codes of receipts that are about a call, but are not a decision on it.
_FINDINGS: Final = ("run_unasked", "denied_but_run")
_STARTED: Final[tuple[Outcome, ...]] = ("ran", "failed")
_NOT_STARTED: Final[tuple[Outcome, ...]] = ("refused_by_hook", "not_run")
_RESULT: Final = "remit.decision"
_PERMISSION_MODE: Final = "mode="
_SECOND: Final = len("2000-01-01T00:00:00")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z")


class SignedDecision(NamedTuple):
    """A decision on a call, from a receipt."""

    call_id: str
    receipt_id: str
    # The session id that the assistant uses.
    session: str
    tool: str
    at: str
    permitted: bool
    mode: str = ""
    # SHA-256 of the arguments, in hexadecimal.
    arguments: str = ""
    # Whether a receipt binds the result of the call to this decision.
    bound: bool = False


class MismatchedReceipt(NamedTuple):
    """A call, a receipt with its id that is not about this call, and how they differ."""

    call: TranscriptCall
    receipt_id: str
    differs: tuple[Difference, ...]


class Coverage(NamedTuple):
    """The result of a comparison."""

    calls: int = 0
    receipted: int = 0
    # Of the receipted calls: denied, and not run.
    refused: int = 0
    # Of the receipted calls: run; and of these, with the result bound to the decision.
    run: int = 0
    bound: int = 0
    # Without a receipt, and never started according to the assistant's own tags.
    not_run: int = 0
    # Made before the protection.
    before: int = 0
    unreceipted: tuple[TranscriptCall, ...] = ()
    refused_but_run: tuple[TranscriptCall, ...] = ()
    # With a receipt that has their id but is about another call.
    mismatched: tuple[MismatchedReceipt, ...] = ()
    # Not run according to the text of their result alone.
    unproven: tuple[TranscriptCall, ...] = ()
    # Decisions on calls that are not in the transcripts of their session.
    permitted_not_seen: tuple[SignedDecision, ...] = ()

    @property
    def is_full(self) -> bool:
        """Return whether every call that may have been started has a receipt that permits it."""
        return not self.has_gaps and not self.unproven

    @property
    def has_gaps(self) -> bool:
        """Return whether a call was started, as far as is known, without a receipt that permits it."""
        return bool(self.unreceipted or self.refused_but_run or self.mismatched)


def find_decisions(chain: Iterable[SignedReceipt], assistant: str, session: str) -> list[SignedDecision]:
    """Return the decisions on calls of an assistant in a chain; `session` is the assistant's session id."""
    found, bound = list[SignedDecision](), set[str]()
    for signed in chain:
        claims = signed.claims
        reference = claims.evidence_proof_ref
        if isinstance(reference, dict) and reference.get("type") == _RESULT:
            bound.add(str(reference.get("receipt_id")))
        found += _parse_decision(claims, assistant, session)
    return [one._replace(bound=one.receipt_id in bound) for one in found]


def _parse_decision(claims: Receipt, assistant: str, session: str) -> Iterator[SignedDecision]:
    measured = claims.measurements.get(CALL_MEASUREMENT) if claims.measurements else None
    name, call_id, *rest = [*(measured.description or "").split(" "), "", ""] if measured else ("", "")
    if name == assistant and call_id and claims.internal_denial_code not in _FINDINGS:
        modes = [part.removeprefix(_PERMISSION_MODE) for part in rest if part.startswith(_PERMISSION_MODE)]
        permitted = claims.verdict == "compliant"
        mode = modes[-1] if modes else ""
        yield SignedDecision(
            call_id,
            claims.receipt_id,
            session,
            claims.tool,
            claims.timestamp,
            permitted,
            mode,
            arguments=claims.arguments_hash,
        )


def compare(
    calls: Iterable[TranscriptCall], decisions: Iterable[SignedDecision], since: Mapping[str, str] | None = None
) -> Coverage:
    """Compare calls with decisions.

    `since` is the start of protection for each session id; earlier calls are only counted. A call may be in several
    transcripts, because a session that is continued under another id repeats the earlier calls.
    """
    decisions_by_id = _by_id((one.call_id, one) for one in decisions)
    records_by_id = _by_id((call.id, call) for call in calls)
    found: dict[_CallStatus, list[TranscriptCall]] = {status: [] for status in get_args(_CallStatus)}
    known, mismatched = dict[str, SignedDecision](), list[MismatchedReceipt]()
    for call_id, records in records_by_id.items():
        call, others = _most_significant(records), list[MismatchedReceipt]()
        for one in decisions_by_id.get(call_id, ()):
            differs = _differences(records, one)
            if differs:
                others.append(MismatchedReceipt(call, one.receipt_id, differs))
            else:
                known[call_id] = one
        status = _classify(call, known.get(call_id), (since or {}).get(call.session, ""), has_others=bool(others))
        found[status].append(call)
        mismatched += others[-1:] if status == "mismatched" else []
    sessions = {call.session for records in records_by_id.values() for call in records}
    run = [call for call in found["permitted"] if call.outcome in _STARTED]
    return Coverage(
        calls=len(records_by_id),
        receipted=len(found["permitted"]) + len(found["refused"]),
        refused=len(found["refused"]),
        run=len(run),
        bound=sum(known[call.id].bound for call in run),
        not_run=len(found["not_run"]),
        before=len(found["before"]),
        unreceipted=tuple(found["unreceipted"]),
        refused_but_run=tuple(found["refused_but_run"]),
        mismatched=tuple(mismatched),
        unproven=tuple(found["unproven"]),
        permitted_not_seen=tuple(
            one
            for call_id, all_of_it in decisions_by_id.items()
            for one in all_of_it[-1:]
            if one.permitted and one.session in sessions and call_id not in records_by_id
        ),
    )


def _by_id(pairs: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    found = dict[str, list[_T]]()
    for call_id, one in pairs:
        found.setdefault(call_id, []).append(one)
    return found


def _most_significant(records: Sequence[TranscriptCall]) -> TranscriptCall:
    """Return the record that shows that the call was started, if there is one; else the first."""
    return next((call for call in records if call.outcome in _STARTED), records[0])


def _differences(records: Sequence[TranscriptCall], decision: SignedDecision) -> tuple[Difference, ...]:
    """Return how a decision differs from the records of a call with its id.

    The session of any record may match, because a session that is continued under another id repeats its calls.
    """
    differs: dict[Difference, bool] = {
        "session": all(call.session != decision.session for call in records),
        "tool": any(receipt_tool_name(call.hook_tool) not in ("", decision.tool) for call in records),
        "arguments": any(
            call.hook_arguments and decision.arguments not in (call.hook_arguments, call.absolute_arguments)
            for call in records
        ),
        "late": any(_is_later(decision.at, call.ended) for call in records),
    }
    return tuple(name for name, does in differs.items() if does)


def _is_later(decided: str, ended: str) -> bool:
    """Return whether a decision was made after a result, at the precision that both times have."""
    one, other = _TIME.fullmatch(decided), _TIME.fullmatch(ended)
    if one is None or other is None:
        return False
    length = min(len(one[1]), len(other[1]))
    return one[1][:length] > other[1][:length]


def _classify(call: TranscriptCall, decision: SignedDecision | None, since: str, *, has_others: bool) -> _CallStatus:
    if decision is not None:
        return _classify_decided(call, decision)
    if call.outcome in _NOT_STARTED and not call.by_words:
        return "not_run"
    # Both are in UTC and in the same format, so that strings compare like times; one may lack fractions of a second.
    if call.at and call.at[:_SECOND] < since[:_SECOND]:
        return "before"
    if call.outcome in _NOT_STARTED:
        return "unproven"
    return "mismatched" if has_others else "unreceipted"


def _classify_decided(call: TranscriptCall, decision: SignedDecision) -> _CallStatus:
    if decision.permitted:
        return "permitted"
    if call.outcome in _STARTED:
        return "refused_but_run"
    return "refused" if not call.by_words or decision.receipt_id in call.receipts else "unproven"


def build_report(coverage: Coverage) -> dict[str, JSON]:
    """Return the comparison as JSON, for the signed statement."""
    counts: dict[str, JSON] = {name: value for name, value in coverage._asdict().items() if isinstance(value, int)}
    return counts | {
        "unreceipted": [_call_members(call) for call in coverage.unreceipted],
        "refused_but_run": [_call_members(call) for call in coverage.refused_but_run],
        "mismatched": [
            _call_members(one.call) | {"receipt_id": one.receipt_id, "differs": list(one.differs)}
            for one in coverage.mismatched
        ],
        "unproven": [_call_members(call) for call in coverage.unproven],
        "permitted_not_seen": [
            {"call": one.call_id, "tool": one.tool, "receipt_id": one.receipt_id} for one in coverage.permitted_not_seen
        ],
    }


def _call_members(call: TranscriptCall) -> dict[str, JSON]:
    return {
        "call": call.id,
        "tool": call.tool,
        "session": call.session,
        "agent": call.agent,
        "at": call.at,
        "outcome": call.outcome,
    }


def summarize(coverage: Coverage) -> str:
    """Return a summary of the counts, for a receipt."""
    return (
        f"{coverage.calls} calls: {coverage.receipted} receipted ({coverage.bound} of {coverage.run} results bound), "
        f"{len(coverage.unreceipted)} without a receipt, {len(coverage.refused_but_run)} refused and run, "
        f"{len(coverage.mismatched)} with a receipt that is not about them, "
        f"{len(coverage.unproven)} not run by the transcript's own word, "
        f"{coverage.not_run} never begun, {coverage.before} before the protection; "
        f"{len(coverage.permitted_not_seen)} receipts without a call in the transcript"
    )
