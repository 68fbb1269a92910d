"""`remit status`: shows the status of the Hub, or exports all of its evidence."""

from typing import Final

import click
from msgspec import to_builtins

from remit.cli.connect import open_hub_client
from remit.cli.errors import report_errors
from remit.cli.export import check_writable, is_stdout, print_chunks, write_chunks
from remit.cli.options import common_options
from remit.cli.render import show_data, show_facts
from remit.config import expand_user_path
from remit.schemas.hub import StatusAnswer, VerificationAnswer

_STDOUT: Final = "-"
_NAMED: Final = 3


@click.command()
@click.option(
    "--export",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FILE]",
    help="Write all evidence as one JSON document to FILE; without FILE, or with -, to stdout.",
)
@common_options
def status(*, export: str | None, home: str | None, as_json: bool) -> None:
    """Show the status of the Hub.

    Example: remit status --export evidence.json
    """
    if export is not None:
        return _export(export, home, as_json=as_json)
    with open_hub_client(home, as_json=as_json) as hub:
        answer = hub.status()
    return show_data(to_builtins(answer)) if as_json else _show(answer)


def _export(given: str, home: str | None, *, as_json: bool) -> None:
    with report_errors(as_json=as_json):
        file = expand_user_path(given) if given else ""
        if given != _STDOUT:
            check_writable(file)
    with open_hub_client(home, as_json=as_json) as hub:
        if given == _STDOUT or is_stdout(file):
            return print_chunks(hub.export())
        size = write_chunks(file, hub.export())
    if as_json:
        return show_data({"ok": True, "file": file, "bytes": size})
    return show_facts({"file": file, "bytes": f"{size:,}"})


def verification_summary(verification: VerificationAnswer | None) -> str:
    """Describe up to which time the evidence was verified."""
    if verification is None:
        return "unknown: the Hub has an older version"
    of = f"{verification.sessions_verified:,} of {verification.sessions:,} sessions"
    if verification.state == "broken":
        names = ", ".join(one.session_id for one in verification.broken[:_NAMED])
        return f"BROKEN: {verification.sessions_broken:,} of {verification.sessions:,} sessions ({names})"
    if verification.problem or verification.state == "unknown":
        return f"unknown: {verification.problem or 'the verifier does not report'}"
    if verification.verified_at is None:
        return f"not yet: {of} so far"
    return f"up to {verification.verified_at}, {of}"


def _show(answer: StatusAnswer) -> None:
    last = answer.latest_receipt
    facts = {
        "hub": f"{answer.hub_url} (remit {answer.version})",
        "home": answer.home,
        "sessions": f"{answer.sessions:,}",
        "reviews": f"{answer.session_reviews:,}",
        "latest": f"{last.verdict}, {last.tool} {last.target}" if last else "no receipt yet",
    }
    facts |= {"": f"{last.timestamp}, {last.receipt_id}"} if last else {}
    facts |= {"verified": verification_summary(answer.verification)}
    facts |= {"adapters": ", ".join(f"{name} {state}" for name, state in to_builtins(answer.adapters).items())}
    show_facts(facts | {"next": "remit open"})
