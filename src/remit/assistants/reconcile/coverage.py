"""Calls of an assistant held against the receipts that were signed for them: which have one, and which have not.

Pure: calls come from transcripts, decisions from receipts that were verified. Keeps this invariant: doubt counts
against coverage. A call of which nothing tells that it was never begun needs a receipt of its own: of its session, its
tool and its arguments, as far as these are told, and no later than its result. One that was refused must not have run.
The text of a result is no evidence, because a tool can write it: a refusal counts only where its text names the receipt
that denies this very call.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from remit.assistants.reconcile.calls import Call, Outcome
from remit.claims.receipt import Receipt, SignedReceipt, named_tool
from remit.claims.strictjson import JSON
from remit.policy.evidence import CALL

__all__ = ["Coverage", "Decided", "Difference", "Mismatched", "compare", "decided_in", "in_words", "report_of"]

_T = TypeVar("_T")
_Standing: TypeAlias = Literal[
    "permitted", "refused", "refused_but_run", "unreceipted", "mismatched", "unproven", "not_run", "before"
]
# What a receipt with the id of a call says otherwise than the transcripts; late: it is from after the call's result.
Difference: TypeAlias = Literal["session", "tool", "arguments", "late"]
# Receipts that speak of a call and are no decision on it.
_FINDINGS: Final = ("run_unasked", "denied_but_run")
_BEGUN: Final[tuple[Outcome, ...]] = ("ran", "failed")
_NEVER_BEGUN: Final[tuple[Outcome, ...]] = ("refused_by_hook", "not_run")
_RESULT: Final = "remit.decision"
_PERMISSION_MODE: Final = "mode="
_SECOND: Final = len("2000-01-01T00:00:00")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z")


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


class Mismatched(NamedTuple):
    """A call whose id a receipt has that is not about this call: which one, and in what it differs."""

    call: Call
    receipt_id: str
    differs: tuple[Difference, ...]


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
    # With receipts that have their id, and are about something else.
    mismatched: tuple[Mismatched, ...] = ()
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
        return bool(self.unreceipted or self.refused_but_run or self.mismatched)


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
    named = _by_id((one.call_id, one) for one in decisions)
    tellings = _by_id((call.id, call) for call in calls)
    found: dict[_Standing, list[Call]] = {standing: [] for standing in get_args(_Standing)}
    known, mismatched = dict[str, Decided](), list[Mismatched]()
    for call_id, told in tellings.items():
        call, others = _most_telling(told), list[Mismatched]()
        for one in named.get(call_id, ()):
            differs = _differences(told, one)
            if differs:
                others.append(Mismatched(call, one.receipt_id, differs))
            else:
                known[call_id] = one
        standing = _standing(call, known.get(call_id), (since or {}).get(call.session, ""), has_others=bool(others))
        found[standing].append(call)
        mismatched += others[-1:] if standing == "mismatched" else []
    sessions = {call.session for told in tellings.values() for call in told}
    run = [call for call in found["permitted"] if call.outcome in _BEGUN]
    return Coverage(
        calls=len(tellings),
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
            for call_id, all_of_it in named.items()
            for one in all_of_it[-1:]
            if one.permitted and one.session in sessions and call_id not in tellings
        ),
    )


def _by_id(pairs: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    found = dict[str, list[_T]]()
    for call_id, one in pairs:
        found.setdefault(call_id, []).append(one)
    return found


def _most_telling(told: Sequence[Call]) -> Call:
    """Return what is told of a call; of several, what says that it was begun."""
    return next((call for call in told if call.outcome in _BEGUN), told[0])


def _differences(told: Sequence[Call], decision: Decided) -> tuple[Difference, ...]:
    """Return in what a decision differs from all that is told of the call of its id.

    It is of one of the sessions that tell of the call: one that goes on under another name repeats it.
    """
    differs: dict[Difference, bool] = {
        "session": all(call.session != decision.session for call in told),
        "tool": any(named_tool(call.hook_tool) not in ("", decision.tool) for call in told),
        "arguments": any(
            call.hook_arguments and decision.arguments not in (call.hook_arguments, call.absolute_arguments)
            for call in told
        ),
        "late": any(_is_later(decision.at, call.ended) for call in told),
    }
    return tuple(name for name, does in differs.items() if does)


def _is_later(decided: str, ended: str) -> bool:
    """Tell whether a decision was made after a result, by as much of a second as both tell."""
    one, other = _TIME.fullmatch(decided), _TIME.fullmatch(ended)
    if one is None or other is None:
        return False
    length = min(len(one[1]), len(other[1]))
    return one[1][:length] > other[1][:length]


def _standing(call: Call, decision: Decided | None, since: str, *, has_others: bool) -> _Standing:
    if decision is not None:
        return _decided_standing(call, decision)
    if call.outcome in _NEVER_BEGUN and not call.by_words:
        return "not_run"
    # Both are written alike, in UTC, so that their order is that of the letters; one may leave out parts of a second.
    if call.at and call.at[:_SECOND] < since[:_SECOND]:
        return "before"
    if call.outcome in _NEVER_BEGUN:
        return "unproven"
    return "mismatched" if has_others else "unreceipted"


def _decided_standing(call: Call, decision: Decided) -> _Standing:
    if decision.permitted:
        return "permitted"
    if call.outcome in _BEGUN:
        return "refused_but_run"
    return "refused" if not call.by_words or decision.receipt_id in call.receipts else "unproven"


def report_of(coverage: Coverage) -> dict[str, JSON]:
    """Return what was found as JSON: all that a statement binds."""
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
        f"{len(coverage.mismatched)} with a receipt that is not about them, "
        f"{len(coverage.unproven)} not run by the transcript's own word, "
        f"{coverage.not_run} never begun, {coverage.before} before the protection; "
        f"{len(coverage.permitted_not_seen)} receipts without a call in the transcript"
    )
