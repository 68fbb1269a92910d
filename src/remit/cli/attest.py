"""`remit attest`: asks the running Hub for an attestation of a session."""

from typing import Final

import click
from msgspec import to_builtins

from remit.claims.attestation import Attestation
from remit.claims.keys import Keyring
from remit.cli.connect import connect_hub, get_running_hub
from remit.cli.errors import DONE, NO, failure
from remit.cli.homes import open_command_home, open_ledger_reader
from remit.cli.options import common_options
from remit.cli.render import note, show_data, show_facts, spinner
from remit.errors import BrokenChain, SessionNotFound
from remit.ledger.keys import build_keyring
from remit.schemas.proxy import AttestAnswer

# The Hub verifies every receipt of the session first, which takes time.
_TIMEOUT_S: Final = 1800.0


@click.command()
@click.argument("session_id", required=False)
@click.option("--end", is_flag=True, help="End the session first.")
@common_options
def attest(*, session_id: str | None, end: bool, home: str | None, as_json: bool) -> None:
    """Ask the Hub for an attestation of SESSION_ID, by default of the newest session, and print it.

    The last line is its token. Exit code 1 if the chain of the session is broken; the attestation states that too.

    Example: remit attest --end
    """
    if session_id == "":
        raise click.BadParameter("must not be empty", param_hint="SESSION_ID")
    newest, keyring = _newest_session(home, as_json=as_json)
    with open_command_home(home, as_json=as_json) as opened:
        running = get_running_hub(opened)
        chosen = session_id or newest
        if not chosen:
            raise SessionNotFound("the ledger has no session yet")
        if session_id is None:
            note(f"the newest session is {chosen}")
        with (
            spinner("attesting"),
            connect_hub(opened, running, timeout_s=_TIMEOUT_S, retries=0, keyring=keyring) as hub,
        ):
            answer = hub.attest(chosen, end=end)
    _show(answer, as_json=as_json)
    raise SystemExit(DONE if answer.claims.chain_verified else NO)


def _newest_session(home: str | None, *, as_json: bool) -> tuple[str, Keyring]:
    """Return the id of the newest session, empty if there is none, and the keys of the ledger."""
    with open_ledger_reader(home, as_json=as_json) as rows:
        sessions = rows.latest_sessions(limit=1)
        return sessions[0].id if sessions else "", build_keyring(rows.keys())


def _show(answer: AttestAnswer, *, as_json: bool) -> None:
    if as_json:
        failed = failure("the chain of the session is broken, as the attestation states", BrokenChain.code)
        head = {"ok": True} if answer.claims.chain_verified else failed
        return show_data(head | {name: value for name, value in to_builtins(answer).items() if name != "ok"})
    verified = answer.claims.chain_verified
    mark, style = ("CHAIN VERIFIED", "green") if verified else ("CHAIN BROKEN", "red")
    broken = {} if verified else {"breaks at": _describe_break(answer)}
    show_facts(_facts(answer.claims) | broken, mark=mark, style=style)
    return click.echo(answer.token)


def _describe_break(answer: AttestAnswer) -> str:
    claims, why = answer.claims, f" ({answer.fault.replace('_', ' ')})" if answer.fault else ""
    before = sum(claims.verdicts.values())
    if claims.receipts <= before:
        return f"the end, after receipt {before:,}{why}"
    return f"receipt {claims.broken_at:,} of {claims.receipts:,}{why}; verdicts are counted up to there"


def _facts(claims: Attestation) -> dict[str, str]:
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in claims.verdicts.items() if count)
    return {
        "session": claims.session_id,
        "mission": claims.mission,
        "state": claims.state,
        "started": claims.started_at,
        **({"ended": claims.ended_at} if claims.ended_at else {}),
        "receipts": f"{claims.receipts:,}" + (f" ({verdicts})" if verdicts else ""),
        "root": claims.receipts_root,
    }
