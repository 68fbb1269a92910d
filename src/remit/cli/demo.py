"""`remit demo`: a tour in a minute, for a terminal, a pipe or a program."""

from typing import Any, Final

import click
from msgspec import to_builtins
from rich.markup import escape

from remit.cli.errors import reported
from remit.cli.options import everywhere
from remit.cli.render import Screen, show_data
from remit.cli.service import opened_service
from remit.cli.tour import Tampering, Tour, perform, rehearse, take_tour

__all__ = ["demo"]


@click.command()
@click.option(
    "--live", is_flag=True, help="Ask the proxy of the home that is running, and leave a session in its ledger."
)
@everywhere
def demo(*, live: bool, home: str | None, as_json: bool) -> None:
    """Take a tour: a passport, a chain of receipts, and what becomes of a forgery.

    Without --live everything happens in memory, and nothing is stored.

    Example: remit demo
    """
    if live:
        with opened_service(home, as_json=as_json) as service:
            tour = take_tour(perform(service))
    else:
        with reported(as_json=as_json):
            tour = take_tour(rehearse())
    if as_json:
        show_data(_as_data(tour))
    else:
        _show(tour, Screen(highlight=False, emoji=False))


def _as_data(tour: Tour) -> dict[str, Any]:
    return {
        "passport": {"token": tour.passport.token, "mission": to_builtins(tour.passport.mission)},
        "receipts": [{"token": receipt.token, "claims": to_builtins(receipt.claims)} for receipt in tour.receipts],
        "head": tour.head.receipt_hash,
        "attestation": to_builtins(tour.attestation),
        "tampering": [vars(tampering) for tampering in tour.tamperings],
    }


def _show(tour: Tour, console: Screen) -> None:
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
            **({"proxy": f"{tour.where} is asked, and answers"} if tour.where else {}),
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
        *(_LIVE if tour.where else _STORED_NOTHING),
    ]
    for line in lines:
        console.print(line, soft_wrap=True)


_STORED_NOTHING: Final = ["Nothing was stored. Next: docs/architecture.md shows how it is built."]
_LIVE: Final = [
    "[bold]5. What to do next[/]",
    "   remit ledger show          what the ledger holds by now",
    "   remit ledger check         every chain of it, verified from its root",
    "   remit issue --help         a passport of your own;  docs/spec/proxy.md shows every request",
    "   remit open                 the dashboard, where the Hub runs too: remit up --background",
    "   remit up --stop            stop what runs in the background",
]


def _facts(**facts: str) -> list[str]:
    return [f"   [dim]{name:<10}[/] {fact}" for name, fact in facts.items()]


def _receipt_lines(index: int, tour: Tour) -> list[str]:
    receipt, call, remedy = tour.receipts[index], tour.calls[index], tour.remedies[index]
    claims = receipt.claims
    asked = next(iter(call.arguments.values()))
    decision = "[green]PERMIT[/]" if claims.verdict == "compliant" else "[red]DENY[/]  "
    link = f"[dim]{_short(claims.parent_receipt_hash)} <- {_short(receipt.hash)}[/]"
    lines = [f"{decision} {claims.tool:<11} {link}", escape(str(asked)), f"[dim]{claims.reason}[/]"]
    lines += [f"[dim]{escape(remedy)}[/]"] if remedy else []
    return [f"   {index} {lines[0]}", *(f"            {line}" for line in lines[1:])]


def _tampering_lines(tampering: Tampering) -> list[str]:
    return [
        f"   {tampering.deed}",
        f"     [red]BROKEN[/] at {tampering.problem} [dim]({tampering.fault})[/]",
    ]


def _short(digest: str | None) -> str:
    return digest[:8] if digest else "(root)  "
