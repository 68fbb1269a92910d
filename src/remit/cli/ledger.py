"""`remit ledger`: shows, backs up, restores and checks the ledger."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import click

from remit.claims.strictjson import JSON
from remit.cli.errors import DONE, NO, failure
from remit.cli.homes import open_command_home, open_ledger_reader
from remit.cli.options import common_options
from remit.cli.render import escape_text, progress_bar, show_data, show_facts, spinner
from remit.errors import EvidenceError, RemitError
from remit.governor.statements import RecordStatement
from remit.ledger.backup import backup
from remit.ledger.check import check_ledger
from remit.ledger.findings import LedgerFinding, LedgerReport
from remit.ledger.records import LedgerOverview
from remit.ledger.restore import RestoreResult, restore
from remit.ledger.rows import LedgerQueries
from remit.wiring import build_service

_MAX_SHOWN: Final = 20
_FILE: Final = click.Path(path_type=Path)


@click.group()
def ledger() -> None:
    """Show, back up, restore and check the ledger."""


@ledger.command("show")
@common_options
def _show_command(*, home: str | None, as_json: bool) -> None:
    """Show the size of the ledger, and its last receipt.

    Example: remit ledger show --json
    """
    with open_ledger_reader(home, as_json=as_json) as rows:
        data = _overview_data(rows.overview()) | _keys_data(rows)
    if as_json:
        return show_data({"ok": True} | data)
    return show_facts(
        {
            "ledger": data["ledger_id"],
            "receipts": f"{data['receipts']:,}",
            "sessions": f"{data['sessions']:,}",
            "last": data["last_receipt_id"] or "no receipt yet",
            "hash": data["last_receipt_hash"] or "-",
            "keys": f"{len(data['keys'])}, first {data['keys'][0]}, signing {data['keys'][-1]}",
            "switch": "the kill switch is on" if data["kill_switch"] else "the kill switch is off",
        }
    )


def _overview_data(overview: LedgerOverview) -> dict[str, Any]:
    return overview._asdict()


def _keys_data(rows: LedgerQueries) -> dict[str, Any]:
    return {"keys": [record.kid for record in rows.keys()], "kill_switch": rows.ledger_state().kill_switch}  # noqa: SIM118


@ledger.command("backup")
@click.argument("file", type=_FILE)
@common_options
def _backup_command(*, file: Path, home: str | None, as_json: bool) -> None:
    """Copy the ledger to the new file FILE. The Hub and the proxy may keep running.

    The copy is verified. It contains no private keys: back up keys/ separately.

    Example: remit ledger backup ~/remit-2026-01-31.db
    """
    with open_command_home(home, as_json=as_json) as opened, spinner("copying the ledger"):
        overview = backup(opened, file)
    if as_json:
        return show_data({"ok": True, "file": str(file)} | _overview_data(overview))
    return show_facts({"file": str(file), "receipts": f"{overview.receipts:,}", "sessions": f"{overview.sessions:,}"})


@ledger.command("restore")
@click.argument("file", type=_FILE)
@click.option("--accept-loss", is_flag=True, help="Restore even if later receipts are lost.")
@common_options
def _restore_command(*, file: Path, accept_loss: bool, home: str | None, as_json: bool) -> None:
    """Replace the ledger by the copy in FILE. Stop the Hub and the proxy first.

    Active sessions of the copy are closed, because their chains may have continued since. The old ledger is kept. A
    receipt is signed that records what was restored and lost.

    Example: remit ledger restore ~/remit-2026-01-31.db
    """
    with open_command_home(home, as_json=as_json) as opened, spinner("restoring the ledger"):
        restored = restore(opened, file, accept_loss=accept_loss)
        signed = _sign_restore(opened.path, restored)
    if as_json:
        rest = {name: value for name, value in restored._asdict().items() if name != "overview"}
        return show_data({"ok": True} | _overview_data(restored.overview) | rest | {"signed": signed})
    unknown = "" if restored.anchored else "; there was no ledger.anchor, so there may be more"
    return show_facts(
        {
            "receipts": f"{restored.overview.receipts:,}",
            "lost": f"{restored.lost_receipts:,} receipts are known to be lost{unknown}",
            "closed": f"{restored.closed_sessions:,} active sessions",
            "kept": restored.replaced or "there was no ledger before",
            "signed": signed or "no: the ledger could not be written",
            "next": "remit ledger check",
        }
    )


def _sign_restore(home: str, restored: RestoreResult) -> str | None:
    """Sign a statement about what was restored and lost into the ledger. Return its receipt id, None on failure."""
    overview = restored.overview
    lost = restored.lost_receipts > 0 or not restored.anchored
    report: dict[str, JSON] = {
        "ledger": overview.ledger_id,
        "receipts": overview.receipts,
        "last_receipt_hash": overview.last_receipt_hash,
        "lost_receipts": restored.lost_receipts,
        "closed_sessions": restored.closed_sessions,
        "anchored": restored.anchored,
    }
    reason = f"the ledger was restored with {overview.receipts} receipts"
    statement = RecordStatement(
        tool="remit.restore",
        target=overview.ledger_id,
        report=report,
        code="coverage_gap" if lost else "",
        reason=f"{reason}, and receipts are or may be lost" if lost else reason,
        counted=f"{restored.lost_receipts} receipts known to be lost, {restored.closed_sessions} sessions closed",
    )
    try:
        service = build_service(Path(home))
    except RemitError:
        return None
    try:
        return service.governor.run(statement).receipt.claims.receipt_id
    except RemitError:
        return None
    finally:
        service.close()


@ledger.command("check")
@common_options
def _check_command(*, home: str | None, as_json: bool) -> None:
    """Verify every chain from its root, and compare every row with what is signed.

    Exit code 0 if there are no findings, 1 if there are.

    Example: remit ledger check --json
    """
    with (
        open_command_home(home, as_json=as_json) as opened,
        progress_bar("checking receipts") as tell,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        report = check_ledger(opened, each=pool.map, progress=tell)
    if as_json:
        show_data(_report_data(report))
    else:
        _show_report(report)
    raise SystemExit(NO if report.found else DONE)


def _report_data(report: LedgerReport) -> dict[str, Any]:
    findings = [finding._asdict() for finding in report.findings]
    said = f"{report.found:,} findings in the ledger"
    head = failure(said, EvidenceError.code) if report.found else {"ok": True}
    return head | report._asdict() | {"findings": findings}


def _show_report(report: LedgerReport) -> None:
    facts = {name: f"{getattr(report, name):,}" for name in ("receipts", "sessions", "attestations", "keys")}
    mark, style = (f"BROKEN {report.found:,} findings", "red") if report.found else ("VERIFIED", "green")
    show_facts(facts, mark=mark, style=style)
    for finding in report.findings[:_MAX_SHOWN]:
        click.echo(escape_text(_line(finding)))
    if report.found > _MAX_SHOWN:
        click.echo(f"... and {report.found - _MAX_SHOWN:,} more: remit ledger check --json")


def _line(finding: LedgerFinding) -> str:
    place = finding.session_id or "ledger"
    number = f" receipt {finding.receipt}" if finding.receipt else ""
    return f"{place}{number}: {finding.sentence} ({finding.fault})"


ledger.add_command(_check_command, "fsck")
