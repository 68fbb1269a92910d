"""Reconciling: the transcripts of an assistant held against the ledger, as one finding that can be signed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from remit.assistants.doctor.evidence import Governed, load_decisions
from remit.assistants.reconcile.calls import Transcript
from remit.assistants.reconcile.coverage import Coverage, compare, in_words, report_of
from remit.assistants.reconcile.selection import Selected
from remit.claims.keys import Keyring
from remit.claims.strictjson import JSON
from remit.governor.statements import Declare
from remit.ledger.port import Reader

__all__ = ["RECONCILE", "Reconciled", "hold_against"]

RECONCILE: Final = "remit.reconcile"
_GAP: Final = "coverage_gap"
_UNPROVEN: Final = "coverage_unproven"


class Reconciled(NamedTuple):
    """What was compared, and what was found."""

    assistant: str
    coverage: Coverage
    transcripts: tuple[Transcript, ...]
    # Sessions that the ledger knows, and whose transcript is not there.
    missing: tuple[str, ...]
    # Sessions of the ledger whose chain does not verify.
    broken: tuple[str, ...]

    @property
    def unread(self) -> int:
        """Return how many lines of transcripts could not be read."""
        return sum(one.bad_lines for one in self.transcripts)

    @property
    def cut(self) -> int:
        """Return how many transcripts are longer than is read of one."""
        return sum(one.cut for one in self.transcripts)

    @property
    def is_full(self) -> bool:
        """Tell whether all that was begun is covered, and nothing was left out."""
        return self.coverage.is_full and not self.has_gaps

    @property
    def has_gaps(self) -> bool:
        """Tell whether a call is not covered, or something could not be looked at."""
        return bool(self.coverage.has_gaps or self.missing or self.broken or self.unread or self.cut)

    def report(self) -> dict[str, JSON]:
        """Return all of it as JSON."""
        transcripts: list[JSON] = [
            {"session": one.session, "calls": len(one.calls), "bad_lines": one.bad_lines, "sha256": one.digest}
            for one in self.transcripts
        ]
        return {
            "assistant": self.assistant,
            "full": self.is_full,
            **report_of(self.coverage),
            "transcripts": transcripts,
            "missing": list(self.missing),
            "broken": list(self.broken),
        }

    def statement(self) -> Declare:
        """Return what is to be signed of it."""
        code, reason = "", "every call that was begun has a receipt"
        if self.has_gaps:
            code, reason = _GAP, "not every call is covered by a receipt"
        elif not self.is_full:
            code = _UNPROVEN
            reason = "that calls without a receipt of their own refusal did not run is the transcript's word alone"
        return Declare(RECONCILE, self.assistant, self.report(), code, reason, in_words(self.coverage))


def hold_against(
    reader: Reader, keyring: Keyring, assistant: str, governed: Sequence[Governed], selected: Selected
) -> Reconciled:
    """Return what the transcripts say, held against the sessions of the ledger."""
    names = {one.session for one in selected.transcripts}
    first, rest = _parted(governed, names)
    calls = [call for one in selected.transcripts for call in one.calls]
    held = load_decisions(reader, first, assistant, keyring)
    coverage = compare(calls, held.decisions, selected.since)
    if (coverage.unreceipted or coverage.unproven or coverage.mismatched) and rest:
        # Another session may have a receipt of the same id, which is then named.
        further = load_decisions(reader, rest, assistant, keyring)
        coverage = compare(calls, [*further.decisions, *held.decisions], selected.since)
    return Reconciled(assistant, coverage, selected.transcripts, selected.missing, held.broken)


def _parted(governed: Sequence[Governed], names: set[str]) -> tuple[list[Governed], list[Governed]]:
    first = [one for one in governed if one.name in names]
    return first, [one for one in governed if one.name not in names]
