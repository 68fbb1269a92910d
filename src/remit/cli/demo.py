"""`remit demo`: a tour in a minute, for a terminal, a pipe or a program."""

import json
from typing import Any

import click
from msgspec import to_builtins
from rich.console import Console
from rich.markup import escape

from remit.cli.tour import Tampering, Tour, take_tour

__all__ = ["demo"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def demo(*, as_json: bool) -> None:
    """Take a tour: a passport, a chain of receipts, and what becomes of a forgery."""
    tour = take_tour()
    if as_json:
        click.echo(json.dumps(_as_data(tour), indent=2))
    else:
        _show(tour, Console(highlight=False))


def _as_data(tour: Tour) -> dict[str, Any]:
    return {
        "passport": {"token": tour.passport.token, "mission": to_builtins(tour.passport.mission)},
        "receipts": [{"token": receipt.token, "claims": to_builtins(receipt.claims)} for receipt in tour.receipts],
        "head": tour.head.receipt_hash,
        "attestation": to_builtins(tour.attestation),
        "tampering": [vars(tampering) for tampering in tour.tamperings],
    }


def _show(tour: Tour, console: Console) -> None:
    mission = tour.passport.mission
    lines = [
        "[bold]1. A mission passport says what an agent may do[/]",
        *_facts(
            agent=mission.agent_id,
            mission=mission.mission,
            allowed=", ".join(mission.allowed_tools),
            forbidden=", ".join(mission.forbidden_tools),
            scope=", ".join(mission.resource_scope),
            limits=f"{mission.max_tool_calls} calls, {mission.max_duration_s} s",
            token=f"{tour.passport.token[:32]}... ({len(tour.passport.token)} characters)",
        ),
        "",
        "[bold]2. Every call gets a decision and a signed receipt, chained to the one before[/]",
        *(line for index in range(len(tour.receipts)) for line in _receipt_lines(index, tour)),
        "",
        "[bold]3. Anyone with the public key can check the whole chain[/]",
        *_facts(
            chain=f"[green]VERIFIED[/] {tour.head.length} receipts, head {_short(tour.head.receipt_hash)}",
            attested=", ".join(f"{count} {verdict}" for verdict, count in tour.attestation.verdicts.items() if count),
            root=f"{_short(tour.attestation.receipts_root)} (Merkle root over the receipts)",
        ),
        "",
        "[bold]4. Tampering is found, and named[/]",
        *(line for tampering in tour.tamperings for line in _tampering_lines(tampering)),
        "",
        "Nothing was stored. Next: docs/architecture.md shows how it is built.",
    ]
    for line in lines:
        console.print(line, soft_wrap=True)


def _facts(**facts: str) -> list[str]:
    return [f"   [dim]{name:<10}[/] {fact}" for name, fact in facts.items()]


def _receipt_lines(index: int, tour: Tour) -> list[str]:
    receipt, call, remedy = tour.receipts[index], tour.calls[index], tour.remedies[index]
    claims = receipt.claims
    asked = next(iter(call.arguments.values()))
    decision = "[green]PERMIT[/]" if claims.verdict == "compliant" else "[red]DENY[/]  "
    link = f"[dim]{_short(claims.parent_receipt_hash)} <- {_short(receipt.hash)}[/]"
    lines = [f"{decision} {claims.tool:<11} {link}", escape(str(asked)), f"[dim]{claims.reason}[/]"]
    lines += [f"[dim]{remedy.sentence}[/]"] if remedy else []
    return [f"   {index} {lines[0]}", *(f"            {line}" for line in lines[1:])]


def _tampering_lines(tampering: Tampering) -> list[str]:
    return [
        f"   {tampering.deed}",
        f"     [red]BROKEN[/] at {tampering.problem} [dim]({tampering.fault})[/]",
    ]


def _short(digest: str | None) -> str:
    return digest[:8] if digest else "(root)  "
