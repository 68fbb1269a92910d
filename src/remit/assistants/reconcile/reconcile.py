"""Compares the transcripts of an assistant with the ledger, and builds the statement to sign about the result."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from remit.assistants.reconcile.calls import Transcript
from remit.assistants.reconcile.coverage import Coverage, build_report, compare, summarize
from remit.assistants.reconcile.evidence import GovernedSession, load_decisions
from remit.assistants.reconcile.selection import SelectedTranscripts
from remit.claims.keys import Keyring
from remit.claims.strictjson import JSON
from remit.governor.statements import RecordStatement
from remit.ledger.store import LedgerReader

RECONCILE: Final = "remit.reconcile"
_GAP: Final = "coverage_gap"
_UNPROVEN: Final = "coverage_unproven"


class Reconciliation(NamedTuple):
    """The result of a reconciliation."""

    assistant: str
    coverage: Coverage
    transcripts: tuple[Transcript, ...]
    # Sessions in the ledger without a transcript.
    missing: tuple[str, ...]
    # Sessions in the ledger whose chain does not verify.
    broken: tuple[str, ...]

    @property
    def unread(self) -> int:
        """Return the number of transcript lines that could not be parsed."""
        return sum(one.bad_lines for one in self.transcripts)

    @property
    def cut(self) -> int:
        """Return the number of transcripts that are longer than the limit."""
        return sum(one.cut for one in self.transcripts)

    @property
    def is_full(self) -> bool:
        """Return whether all started calls are covered, and all transcripts and chains were read completely."""
        return self.coverage.is_full and not self.has_gaps

    @property
    def has_gaps(self) -> bool:
        """Return whether a call is not covered, or a transcript or chain could not be read completely."""
        return bool(self.coverage.has_gaps or self.missing or self.broken or self.unread or self.cut)

    def report(self) -> dict[str, JSON]:
        """Return the result as JSON."""
        transcripts: list[JSON] = [
            {"session": one.session, "calls": len(one.calls), "bad_lines": one.bad_lines, "sha256": one.digest}
            for one in self.transcripts
        ]
        return {
            "assistant": self.assistant,
            "full": self.is_full,
            **build_report(self.coverage),
            "transcripts": transcripts,
            "missing": list(self.missing),
            "broken": list(self.broken),
        }

    def statement(self) -> RecordStatement:
        """Return the statement to sign."""
        code, reason = "", "every call that was begun has a receipt"
        if self.has_gaps:
            code, reason = _GAP, "not every call is covered by a receipt"
        elif not self.is_full:
            code = _UNPROVEN
            reason = "that calls without a receipt of their own refusal did not run is the transcript's word alone"
        return RecordStatement(RECONCILE, self.assistant, self.report(), code, reason, summarize(self.coverage))


def reconcile_transcripts(
    reader: LedgerReader,
    keyring: Keyring,
    assistant: str,
    governed: Sequence[GovernedSession],
    selected: SelectedTranscripts,
) -> Reconciliation:
    """Compare the selected transcripts with the sessions in the ledger."""
    names = {one.session for one in selected.transcripts}
    first, rest = _split_by_name(governed, names)
    calls = [call for one in selected.transcripts for call in one.calls]
    loaded = load_decisions(reader, first, assistant, keyring)
    coverage = compare(calls, loaded.decisions, selected.since)
    if (coverage.unreceipted or coverage.unproven or coverage.mismatched) and rest:
        # Another session may have a receipt for the same call id, which the result then names.
        further = load_decisions(reader, rest, assistant, keyring)
        coverage = compare(calls, [*further.decisions, *loaded.decisions], selected.since)
    return Reconciliation(assistant, coverage, selected.transcripts, selected.missing, loaded.broken)


def _split_by_name(
    governed: Sequence[GovernedSession], names: set[str]
) -> tuple[list[GovernedSession], list[GovernedSession]]:
    first = [one for one in governed if one.name in names]
    return first, [one for one in governed if one.name not in names]
