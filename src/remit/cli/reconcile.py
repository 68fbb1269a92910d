"""`remit reconcile`: checks that every call in an assistant's transcripts has a receipt, and signs the result."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from remit.assistants.reconcile.calls import TranscriptCall, TranscriptReader
from remit.assistants.reconcile.coverage import Difference, MismatchedReceipt
from remit.assistants.reconcile.evidence import load_governed_sessions
from remit.assistants.reconcile.reconcile import Reconciliation, reconcile_transcripts
from remit.assistants.reconcile.selection import select_by_path, select_recent
from remit.assistants.records import Protection, Protections
from remit.assistants.registry import ASSISTANTS, get_transcript_reader
from remit.claims.receipt import SignedReceipt
from remit.cli.errors import DONE, NO, failure, report_errors
from remit.cli.homes import require_ledger
from remit.cli.options import common_options
from remit.cli.render import escape_text, note, show_data, show_facts, spinner
from remit.cli.terminal import TerminalConsole
from remit.config import assistant_config_folder, home_path, user_home
from remit.errors import StateMissing
from remit.ledger.home import open_home
from remit.wiring import build_service

_DAY_MS: Final = 24 * 3600 * 1000
_MAX_SHOWN: Final = 20
_ASSISTANTS: Final = sorted(ASSISTANTS)
# Kinds of findings, and what to do about them.
_UNRECEIPTED: Final = "no receipt"
_RUN_ANYWAY: Final = "refused, and run"
_MISMATCHED: Final = "receipt of another call"
_UNPROVEN: Final = "not proven"
_ADVICE: Final = {
    _UNRECEIPTED: "Check whether it ran without hooks (--bare, --safe-mode, hooks turned off): remit doctor {0}",
    _RUN_ANYWAY: "Check what it did: the assistant ignored the denial. Stop it: remit kill-switch on",
    _MISMATCHED: "The receipt has the id of the call but is about another one: nothing permitted it. If its session "
    "continues another one, name the transcripts of both.",
    _UNPROVEN: "Only the text of its result suggests that it did not run, and tools can write that. Check what it did.",
    "transcript gone": "It was removed or never written: the calls of this session are unknown.",
    "chain broken": "Keep the ledger as it is, and run: remit ledger check",
}
_DIFFERENCES: Final[Mapping[Difference, str]] = {
    "session": "another session",
    "tool": "another tool",
    "arguments": "other arguments",
    "late": "decided after the result",
}


@click.command()
@click.argument("assistant", type=click.Choice(_ASSISTANTS), metavar="ASSISTANT")
@click.argument("transcripts", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--days", type=click.IntRange(1, 3650), default=14, show_default=True, help="How far to look back.")
@common_options
def reconcile(*, assistant: str, transcripts: tuple[Path, ...], days: int, home: str | None, as_json: bool) -> None:
    """Compare the transcripts of ASSISTANT with the ledger: every call needs a receipt.

    Default: the transcripts of sessions in the ledger, and all of protected folders. The result is signed. Exit code
    0 if every call is covered, 1 if not, or if a transcript is the only sign that a call did not run.

    Example: remit reconcile claude-code
    """
    with report_errors(as_json=as_json):
        reader = get_transcript_reader(assistant, user_home() or "")
        path = home_path(home)
        require_ledger(path)
        protections = _load_protections(path, assistant)
        service = build_service(path)
        try:
            with spinner("comparing"):
                governed = load_governed_sessions(service.reader, assistant)
                if transcripts:
                    selected = select_by_path(reader, transcripts, governed, protections)
                else:
                    oldest = int(time.time() * 1000) - days * _DAY_MS
                    config = _config_folder(reader)
                    selected = select_recent(reader, config, governed, protections, oldest_ms=oldest)
                found = reconcile_transcripts(service.reader, service.keys.refresh(), assistant, governed, selected)
                receipt = service.governor.run(found.statement()).receipt
        finally:
            service.close()
    _show(found, receipt, as_json=as_json)
    raise SystemExit(DONE if found.is_full else NO)


def _load_protections(path: Path, assistant: str) -> dict[str, Protection]:
    with open_home(path, create=False) as home:
        known = Protections(home).all(damaged=lambda error: note(f"careful: {error}"))
        return {one.id: one for one in known if one.assistant == assistant}


def _config_folder(reader: TranscriptReader) -> Path:
    named_folder, user = assistant_config_folder(reader.variable), user_home()
    if not named_folder and user is None:
        raise StateMissing(f"this user has no home directory: name the transcripts, or set {reader.variable}")
    return Path(named_folder) if named_folder else Path(user or "") / reader.folder


def _show(found: Reconciliation, receipt: SignedReceipt, *, as_json: bool) -> None:
    if as_json:
        statement = found.statement()
        head = failure(statement.reason, statement.code) if statement.code else {"ok": True}
        return show_data(head | found.report() | {"receipt": receipt.token})
    mark, style = ("FULL COVERAGE", "green") if found.is_full else ("NOT PROVEN", "yellow")
    mark, style = ("GAPS", "red") if found.has_gaps else (mark, style)
    show_facts(_facts(found) | {"signed": receipt.claims.receipt_id}, mark=mark, style=style)
    screen = TerminalConsole(highlight=False)
    for line in _finding_lines(found):
        screen.print(Text(line), soft_wrap=True)
    return None


def _facts(found: Reconciliation) -> dict[str, str]:
    coverage = found.coverage
    facts = {
        "assistant": found.assistant,
        "transcripts": f"{len(found.transcripts):,}",
        "calls": f"{coverage.calls:,}",
        "receipted": f"{coverage.receipted:,}, {coverage.refused:,} of them refused",
        "results": f"{coverage.bound:,} of {coverage.run:,} bound to their decision",
    }
    further = {
        "no receipt": len(coverage.unreceipted),
        "run anyway": len(coverage.refused_but_run),
        "mismatched": len(coverage.mismatched),
        "not proven": len(coverage.unproven),
        "never begun": coverage.not_run,
        "earlier": coverage.before,
        "not seen": len(coverage.permitted_not_seen),
        "unreadable": found.unread,
        "cut": found.cut,
        "gone": len(found.missing),
        "broken": len(found.broken),
    }
    return facts | {name: f"{count:,}{_EXPLANATIONS.get(name, '')}" for name, count in further.items() if count}


_EXPLANATIONS: Final = {
    "mismatched": " with a receipt of their id that is about another call",
    "not proven": " not run, according to the transcript only",
    "never begun": " without a receipt, and not run",
    "earlier": " from before the protection",
    "not seen": " permitted calls that are in no transcript",
    "unreadable": " lines of transcripts",
    "cut": " transcripts too long to read in full",
    "gone": " sessions without a transcript",
    "broken": " chains that do not verify",
}


def _finding_lines(found: Reconciliation) -> Iterator[str]:
    """Yield the findings, one per line, and what to do about each kind."""
    kinds = {
        _UNRECEIPTED: [*map(_line, found.coverage.unreceipted)],
        _RUN_ANYWAY: [*map(_line, found.coverage.refused_but_run)],
        _MISMATCHED: [*map(_mismatch_line, found.coverage.mismatched)],
        _UNPROVEN: [*map(_line, found.coverage.unproven)],
        "transcript gone": [escape_text(name) for name in found.missing],
        "chain broken": list(found.broken),
    }
    for kind, lines in kinds.items():
        if lines:
            yield ""
            yield from (f"{kind}: {line}" for line in lines[:_MAX_SHOWN])
            if len(lines) > _MAX_SHOWN:
                yield f"{kind}: and {len(lines) - _MAX_SHOWN:,} more (--json shows all)"
            yield f"  {_ADVICE[kind].format(found.assistant)}"


def _line(call: TranscriptCall) -> str:
    by = f" by subagent {call.agent}" if call.agent else ""
    said = "started, with unknown end" if call.outcome == "pending" else call.outcome
    return escape_text(f"{call.at or 'at an unknown time'}  {call.tool or 'unknown tool'}  {call.id}{by} ({said})")


def _mismatch_line(one: MismatchedReceipt) -> str:
    return f"{_line(one.call)}; {escape_text(one.receipt_id)}: {', '.join(_DIFFERENCES[name] for name in one.differs)}"
