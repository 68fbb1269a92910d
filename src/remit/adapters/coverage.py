"""Calls of an assistant held against the receipts that were signed for them: which have one, and which have not.

Pure: calls come from transcripts, decisions from receipts that were verified. Keeps this invariant: doubt counts
against coverage. A call of which nothing tells that it was never begun needs a receipt; one that was refused must not
have run. The text of a result is no evidence, because a tool can write it: a refusal counts only where its text names
the receipt that denies this very call.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from remit.adapters.transcripts.call import Call, Outcome
from remit.claims.receipt import Receipt, SignedReceipt
from remit.claims.strictjson import JSON
from remit.policy.evidence import CALL

__all__ = ["Coverage", "Decided", "compare", "decided_in", "in_words", "report_of"]

_Standing: TypeAlias = Literal[
    "permitted", "refused", "refused_but_run", "unreceipted", "unproven", "not_run", "before"
]
# Receipts that speak of a call and are no decision on it.
_FINDINGS: Final = ("run_unasked", "denied_but_run")
_BEGUN: Final[tuple[Outcome, ...]] = ("ran", "failed")
_NEVER_BEGUN: Final[tuple[Outcome, ...]] = ("refused_by_hook", "not_run")
_RESULT: Final = "remit.decision"
_PERMISSION_MODE: Final = "mode="
_SECOND: Final = len("2000-01-01T00:00:00")


class Decided(NamedTuple):
    """A decision that was signed, on the call of this id."""

    call_id: str
    receipt_id: str
    # The assistant's own name of its session.
    session: str
    tool: str
    at: str
    permitted: bool
    mode: str = ""
    # SHA-256 of the arguments, in hexadecimal.
    arguments: str = ""
    # Whether what became of the call was recorded too.
    bound: bool = False


class Coverage(NamedTuple):
    """What was found. The calls that are named are those in question."""

    calls: int = 0
    receipted: int = 0
    # Of those: refused, and not run.
    refused: int = 0
    # Of those: run, and of these with the result bound to the decision.
    run: int = 0
    bound: int = 0
    # Without a receipt, and never begun, as the assistant's own marks say.
    not_run: int = 0
    # Older than the protection.
    before: int = 0
    unreceipted: tuple[Call, ...] = ()
    refused_but_run: tuple[Call, ...] = ()
    # Not run, by the words of their result alone.
    unproven: tuple[Call, ...] = ()
    # Decisions on calls that the transcripts of their session do not tell of.
    permitted_not_seen: tuple[Decided, ...] = ()

    @property
    def is_full(self) -> bool:
        """Tell whether every call that was begun was permitted before, by a receipt, and no other may have been."""
        return not self.has_gaps and not self.unproven

    @property
    def has_gaps(self) -> bool:
        """Tell whether a call was begun, for all that is known, without a receipt that permitted it."""
        return bool(self.unreceipted or self.refused_but_run)


def decided_in(chain: Iterable[SignedReceipt], assistant: str, session: str) -> list[Decided]:
    """Return the decisions in a chain that are on calls of an assistant; `session` is its own name of the session."""
    found, bound = list[Decided](), set[str]()
    for signed in chain:
        claims = signed.claims
        reference = claims.evidence_proof_ref
        if isinstance(reference, dict) and reference.get("type") == _RESULT:
            bound.add(str(reference.get("receipt_id")))
        found += _decided(claims, assistant, session)
    return [one._replace(bound=one.receipt_id in bound) for one in found]


def _decided(claims: Receipt, assistant: str, session: str) -> Iterator[Decided]:
    measured = claims.measurements.get(CALL) if claims.measurements else None
    name, call_id, *rest = [*(measured.description or "").split(" "), "", ""] if measured else ("", "")
    if name == assistant and call_id and claims.internal_denial_code not in _FINDINGS:
        modes = [part.removeprefix(_PERMISSION_MODE) for part in rest if part.startswith(_PERMISSION_MODE)]
        permitted = claims.verdict == "compliant"
        mode = modes[-1] if modes else ""
        yield Decided(
            call_id,
            claims.receipt_id,
            session,
            claims.tool,
            claims.timestamp,
            permitted,
            mode,
            arguments=claims.arguments_hash,
        )


def compare(calls: Iterable[Call], decisions: Iterable[Decided], since: Mapping[str, str] | None = None) -> Coverage:
    """Return how far the calls are covered by the decisions.

    `since` says from when on each session is protected, by its name; earlier calls are only counted. A call may be told
    by several transcripts: a session that goes on under another name repeats what was before.
    """
    known = {one.call_id: one for one in decisions}
    once = _once_each(calls)
    found: dict[_Standing, list[Call]] = {standing: [] for standing in get_args(_Standing)}
    for call in once.values():
        found[_standing(call, known.get(call.id), (since or {}).get(call.session, ""))].append(call)
    sessions = {call.session for call in once.values()}
    run = [call for call in found["permitted"] if call.outcome in _BEGUN]
    return Coverage(
        calls=len(once),
        receipted=len(found["permitted"]) + len(found["refused"]),
        refused=len(found["refused"]),
        run=len(run),
        bound=sum(known[call.id].bound for call in run),
        not_run=len(found["not_run"]),
        before=len(found["before"]),
        unreceipted=tuple(found["unreceipted"]),
        refused_but_run=tuple(found["refused_but_run"]),
        unproven=tuple(found["unproven"]),
        permitted_not_seen=tuple(
            one for one in known.values() if one.permitted and one.session in sessions and one.call_id not in once
        ),
    )


def _once_each(calls: Iterable[Call]) -> dict[str, Call]:
    """Return the calls by their ids; of one that is told twice, what says that it was begun."""
    once = dict[str, Call]()
    for call in calls:
        known = once.get(call.id)
        if known is None or (known.outcome not in _BEGUN and call.outcome in _BEGUN):
            once[call.id] = call
    return once


def _standing(call: Call, decision: Decided | None, since: str) -> _Standing:
    if decision is not None:
        if decision.permitted:
            return "permitted"
        if call.outcome in _BEGUN:
            return "refused_but_run"
        return "refused" if not call.by_words or _names(call, decision) else "unproven"
    if call.outcome in _NEVER_BEGUN and not call.by_words:
        return "not_run"
    # Both are written alike, in UTC, so that their order is that of the letters; one may leave out parts of a second.
    if call.at and call.at[:_SECOND] < since[:_SECOND]:
        return "before"
    return "unproven" if call.outcome in _NEVER_BEGUN else "unreceipted"


def _names(call: Call, denial: Decided) -> bool:
    """Tell whether the text of a refusal names a denial, and that is one of this call."""
    return (
        denial.receipt_id in call.receipts
        and call.hook_tool in ("", denial.tool)
        and call.hook_arguments in ("", denial.arguments)
    )


def report_of(coverage: Coverage) -> dict[str, JSON]:
    """Return what was found as JSON: all that a statement binds."""
    counts: dict[str, JSON] = {name: value for name, value in coverage._asdict().items() if isinstance(value, int)}
    return counts | {
        "unreceipted": [_call_members(call) for call in coverage.unreceipted],
        "refused_but_run": [_call_members(call) for call in coverage.refused_but_run],
        "unproven": [_call_members(call) for call in coverage.unproven],
        "permitted_not_seen": [
            {"call": one.call_id, "tool": one.tool, "receipt_id": one.receipt_id} for one in coverage.permitted_not_seen
        ],
    }


def _call_members(call: Call) -> dict[str, JSON]:
    return {
        "call": call.id,
        "tool": call.tool,
        "session": call.session,
        "agent": call.agent,
        "at": call.at,
        "outcome": call.outcome,
    }


def in_words(coverage: Coverage) -> str:
    """Return what was counted, for a receipt."""
    return (
        f"{coverage.calls} calls: {coverage.receipted} receipted ({coverage.bound} of {coverage.run} results bound), "
        f"{len(coverage.unreceipted)} without a receipt, {len(coverage.refused_but_run)} refused and run, "
        f"{len(coverage.unproven)} not run by the transcript's own word, "
        f"{coverage.not_run} never begun, {coverage.before} before the protection; "
        f"{len(coverage.permitted_not_seen)} receipts without a call in the transcript"
    )
