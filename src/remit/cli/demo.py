"""`remit demo`: a passport, four calls that are actually judged, the evidence, and attempts to forge it.

By default it runs in memory with a new key, and writes nothing. With `--live` it uses the running proxy over HTTP, and
the session stays in its ledger. Either way the evidence is verified from tokens and public keys alone.
"""

import base64
import json
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click
from msgspec import to_builtins
from rich.markup import escape

from remit import (
    Attestation,
    BrokenChain,
    Head,
    Keyring,
    Mission,
    Passport,
    SignedReceipt,
    TrustedKey,
    verifier_id,
    verify_chain,
    verify_passport,
    verify_receipt,
    verify_session,
    walk_chain,
)
from remit.claims.mission import escape_path
from remit.cli.connect import connect_proxy, explain_proxy_failure
from remit.cli.errors import report_errors
from remit.cli.homes import open_service
from remit.cli.issue import issue_registered
from remit.cli.options import common_options
from remit.cli.render import show_data
from remit.cli.terminal import TerminalConsole
from remit.errors import ServiceUnavailable
from remit.governor.attest import Attest
from remit.governor.evaluate import Evaluate
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import StartSession
from remit.policy.call import ToolCall
from remit.server.run_files import load_running
from remit.wiring import Service, build_in_memory

_EXAMPLE_FOLDER: Final = "/work/project"


def _demo_mission(folder: str) -> Mission:
    return Mission(
        agent_id="agent:reviewer",
        mission="Review the pull request and run the tests",
        allowed_tools=("Bash", "read_file", "send_email"),
        forbidden_tools=("send_email",),
        resource_scope=(escape_path(folder),),
        max_tool_calls=20,
        max_duration_s=900,
        cwd=folder,
    )


_CALLS: Final = (
    ToolCall("Bash", {"command": "grep -rn TODO src | head -20 > todo.txt"}),
    ToolCall("Bash", {"command": "cd src && cat main.py ../../../home/user/.ssh/id_ed25519"}),
    ToolCall("read_file", {"path": "README.md"}),
    ToolCall("send_email", {"to": "press@example.com", "body": "all of it"}),
)


@dataclass(frozen=True)
class ForgeryAttempt:
    """A forgery of the chain, and where verification detected it."""

    deed: str
    index: int
    fault: str
    problem: str


class DemoRun(NamedTuple):
    """The tokens that a run has produced, and the keys to verify them with."""

    passport: str
    remedies: list[str]
    receipts: list[str]
    attestation: str
    keyring: Keyring
    now: int
    proxy_url: str = ""


@dataclass(frozen=True)
class DemoReport:
    """Everything that the demo shows, verified."""

    passport: Passport
    calls: tuple[ToolCall, ...]
    remedies: list[str]
    receipts: list[SignedReceipt]
    head: Head
    attestation: Attestation
    tamperings: list[ForgeryAttempt]
    # The address of the proxy; empty if the demo ran in memory.
    proxy_url: str


def run_in_memory() -> DemoRun:
    """Run the demo in memory. The calls are judged by the same code as any other."""
    with build_in_memory() as (governor, key):
        issued = governor.run(
            IssuePassport(PassportRequest(_demo_mission(_EXAMPLE_FOLDER), governor.context.new_id("pass")))
        )
        token, now = issued.token, issued.issued_at
        session_id = governor.run(StartSession(token)).session.id
        answers = [governor.run(Evaluate(session_id, call)) for call in _CALLS]
        attested = governor.run(Attest(session_id, end=True)).attestation.token
    return DemoRun(
        passport=token,
        remedies=[answer.remedy.sentence if answer.remedy else "" for answer in answers],
        receipts=[answer.receipt.token for answer in answers],
        attestation=attested,
        keyring=Keyring([TrustedKey(key.public, verifier_id(key.public))]),
        now=now,
    )


def run_against_proxy(service: Service) -> DemoRun:
    """Run the demo against the running proxy of a home, as an agent would."""
    home = service.home
    running = load_running(home, "proxy")
    if running is None:
        raise ServiceUnavailable("no proxy of this home is running: remit proxy --background")
    with tempfile.TemporaryDirectory() as project:
        issued = issue_registered(service, _demo_mission(os.path.realpath(project)))
        token, now = issued.token, issued.issued_at
        with explain_proxy_failure(home, running), connect_proxy(home, running) as proxy:
            session_id = proxy.start(token).session_id
            answers = [proxy.evaluate(session_id, call.tool_name, dict(call.arguments)) for call in _CALLS]
            attested = proxy.attest(session_id, end=True)
    return DemoRun(
        passport=token,
        remedies=[answer.remedy or "" for answer in answers],
        receipts=[answer.receipt for answer in answers],
        attestation=attested.token,
        keyring=service.keys.refresh(),
        now=now,
        proxy_url=running.listening,
    )


def verify_run(run: DemoRun) -> DemoReport:
    """Verify everything that a run has produced."""
    keyring, tokens = run.keyring, run.receipts
    walked = list(walk_chain(tokens, keyring))
    receipts = [verify_receipt(token, keyring) for token in tokens]
    head = walked[-1][1]
    return DemoReport(
        passport=verify_passport(run.passport, keyring, now=run.now),
        calls=_CALLS,
        remedies=run.remedies,
        receipts=receipts,
        head=head,
        attestation=verify_session(run.attestation, tokens, keyring),
        tamperings=[_detect_forgery(deed, forged, keyring, head) for deed, forged in _forgeries(receipts).items()],
        proxy_url=run.proxy_url,
    )


def _whitewash(receipt: SignedReceipt) -> str:
    """Return the token with its denial changed to a permit, and the old signature."""
    header, _, signature = receipt.token.split(".")
    claims = to_builtins(receipt.claims) | {"verdict": "compliant", "reason": "nothing to see here"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{header}.{forged}.{signature}"


def _forgeries(receipts: list[SignedReceipt]) -> dict[str, list[str]]:
    """Return forged chains, by what was done to them."""
    zero, one, two, three = (receipt.token for receipt in receipts)
    return {
        "rewrite the denial in receipt 1 to a permit": [zero, _whitewash(receipts[1]), two, three],
        "remove receipt 1": [zero, two, three],
        "swap receipts 1 and 2": [zero, two, one, three],
        "cut off the last receipt": [zero, one, two],
    }


def _detect_forgery(deed: str, tokens: list[str], keyring: Keyring, head: Head) -> ForgeryAttempt:
    try:
        verify_chain(tokens, keyring, last_hash=head.receipt_hash)
    except BrokenChain as error:
        return ForgeryAttempt(deed, error.index, error.fault, str(error))
    raise RuntimeError(f"verification missed: {deed}")


@click.command()
@click.option("--live", is_flag=True, help="Use the running proxy of the home; the session stays in its ledger.")
@common_options
def demo(*, live: bool, home: str | None, as_json: bool) -> None:
    """See how Remit works: a passport, a chain of receipts, and forgeries that are detected.

    Without --live everything happens in memory, and nothing is stored.

    Example: remit demo
    """
    if live:
        with open_service(home, as_json=as_json) as service:
            report = verify_run(run_against_proxy(service))
    else:
        with report_errors(as_json=as_json):
            report = verify_run(run_in_memory())
    if as_json:
        show_data(_as_data(report))
    else:
        _show(report, TerminalConsole(highlight=False, emoji=False))


def _as_data(report: DemoReport) -> dict[str, Any]:
    return {
        "passport": {"token": report.passport.token, "mission": to_builtins(report.passport.mission)},
        "receipts": [{"token": receipt.token, "claims": to_builtins(receipt.claims)} for receipt in report.receipts],
        "head": report.head.receipt_hash,
        "attestation": to_builtins(report.attestation),
        "tampering": [vars(tampering) for tampering in report.tamperings],
    }


def _show(report: DemoReport, console: TerminalConsole) -> None:
    mission = report.passport.mission
    lines = [
        "[bold]1. A mission passport says what an agent may do[/]",
        *_fact_lines(
            agent=mission.agent_id,
            mission=mission.mission,
            allowed=", ".join(mission.allowed_tools),
            forbidden=", ".join(mission.forbidden_tools),
            scope=", ".join(mission.resource_scope),
            limits=f"{mission.max_tool_calls} calls, {mission.max_duration_s} s",
            token=f"{report.passport.token[:32]}... ({len(report.passport.token)} characters)",
            **({"proxy": report.proxy_url} if report.proxy_url else {}),
        ),
        "",
        "[bold]2. Every call gets a decision and a signed receipt, chained to the one before[/]",
        *(line for index in range(len(report.receipts)) for line in _receipt_lines(index, report)),
        "",
        "[bold]3. Anyone with the public key can check the whole chain[/]",
        *_fact_lines(
            chain=f"[green]VERIFIED[/] {report.head.length} receipts, head {_short(report.head.receipt_hash)}",
            attested=", ".join(f"{count} {verdict}" for verdict, count in report.attestation.verdicts.items() if count),
            root=f"{_short(report.attestation.receipts_root)} (Merkle root over the receipts)",
        ),
        "",
        "[bold]4. Forgeries are detected[/]",
        *(line for tampering in report.tamperings for line in _tampering_lines(tampering)),
        "",
        *(_LIVE if report.proxy_url else _STORED_NOTHING),
    ]
    for line in lines:
        console.print(line, soft_wrap=True)


_STORED_NOTHING: Final = ["Nothing was stored. Next: docs/architecture.md shows how Remit is built."]
_LIVE: Final = [
    "[bold]5. Next[/]",
    "   remit ledger show          the content of the ledger",
    "   remit ledger check         verify every chain",
    "   remit issue --help         issue your own passport;  docs/integrate/proxy.md describes every request",
    "   remit open                 the dashboard; it needs the Hub: remit up --background",
    "   remit up --stop            stop the services in the background",
]


def _fact_lines(**facts: str) -> list[str]:
    return [f"   [dim]{name:<10}[/] {fact}" for name, fact in facts.items()]


def _receipt_lines(index: int, report: DemoReport) -> list[str]:
    receipt, call, remedy = report.receipts[index], report.calls[index], report.remedies[index]
    claims = receipt.claims
    asked = next(iter(call.arguments.values()))
    decision = "[green]PERMIT[/]" if claims.verdict == "compliant" else "[red]DENY[/]  "
    link = f"[dim]{_short(claims.parent_receipt_hash)} <- {_short(receipt.hash)}[/]"
    lines = [f"{decision} {claims.tool:<11} {link}", escape(str(asked)), f"[dim]{claims.reason}[/]"]
    lines += [f"[dim]{escape(remedy)}[/]"] if remedy else []
    return [f"   {index} {lines[0]}", *(f"            {line}" for line in lines[1:])]


def _tampering_lines(tampering: ForgeryAttempt) -> list[str]:
    return [
        f"   {tampering.deed}",
        f"     [red]BROKEN[/] at {tampering.problem} [dim]({tampering.fault})[/]",
    ]


def _short(digest: str | None) -> str:
    return digest[:8] if digest else "(root)  "
