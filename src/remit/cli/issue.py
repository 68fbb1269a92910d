"""`remit issue`: a mission passport, signed with the key of the home."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from remit.claims.jws import PASSPORT, verify_token
from remit.claims.mission import SIDE_EFFECT_CLASSES, Mission, parse_mission
from remit.claims.passport import Confirmation, issue_passport
from remit.cli.certificates import confirmation_of
from remit.cli.errors import reported
from remit.cli.limits import limits
from remit.cli.opening import opened_ledger
from remit.cli.options import ListCommand, everywhere
from remit.cli.render import note, show_data
from remit.cli.resources import real_path, real_scope, starting_directory
from remit.errors import FieldInvalid, TokenTooLarge
from remit.ledger.embedded import Embedded

__all__ = ["issue"]


@click.command(cls=ListCommand)
@click.option("--agent-id", required=True, metavar="ID", help="Who acts.")
@click.option("--mission", required=True, metavar="TEXT", help="What is asked of the agent.")
@click.option("--max-tool-calls", type=int, default=100, show_default=True, help="How many calls it may make.")
@click.option("--max-duration-s", type=int, default=3600, show_default=True, help="How long a session may last.")
@click.option("--lifetime-s", type=int, help="How long the passport is good, if shorter than that.")
@limits(tools="none", scope="the current directory", effects="all")
@everywhere
def issue(
    *,
    agent_id: str,
    mission: str,
    allowed_tools: Sequence[str],
    forbidden_tools: Sequence[str],
    resource_scope: Sequence[str],
    max_tool_calls: int,
    max_duration_s: int,
    lifetime_s: int | None,
    allowed_side_effects: Sequence[str],
    cwd: str | None,
    bind_certificate: Path | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Issue a mission passport, and print its token and nothing else.

    Lists take several values and may be given again. Paths are written into the passport as they really are.

    \b
    Example:
      TOKEN=$(remit issue --agent-id agent:me --mission "Fix the tests"
              --allowed-tools Read Edit Bash --resource-scope ~/project)
    """  # noqa: D301 - the mark of the library for lines that stay as they are
    with reported(as_json=as_json):
        asked = _mission(
            cwd,
            resource_scope,
            agent_id=agent_id,
            mission=mission,
            allowed_tools=list(allowed_tools),
            forbidden_tools=list(forbidden_tools),
            max_tool_calls=max_tool_calls,
            max_duration_s=max_duration_s,
            allowed_side_effect_classes=list(allowed_side_effects or SIDE_EFFECT_CLASSES),
        )
        bound_to = confirmation_of(bind_certificate) if bind_certificate else None
    with opened_ledger(home, as_json=as_json, create=True) as ledger:
        token, claims = _issued(ledger, asked, lifetime_s, bound_to)
    if as_json:
        return show_data({"token": token, "claims": claims})
    return click.echo(token)


def _mission(cwd: str | None, resource_scope: Sequence[str], **members: Any) -> Mission:  # noqa: ANN401 - checked here
    """Return the mission, with what is not told taken from where the command runs."""
    here = real_path(".", "$.cwd")
    scope = real_scope(resource_scope or [here])
    start = starting_directory(here, scope) if cwd is None else real_path(cwd, "$.cwd")
    mission = parse_mission({**members, "resource_scope": list(scope), "cwd": start})
    if not resource_scope:
        note(f"no --resource-scope: the passport is for the current directory, {here}")
    if not mission.allowed_tools:
        note("no --allowed-tools: the passport allows no tool")
    return mission


def _issued(
    ledger: Embedded, mission: Mission, lifetime_s: int | None, bound_to: Confirmation | None
) -> tuple[str, dict[str, Any]]:
    if lifetime_s is not None and not 1 <= lifetime_s <= mission.max_duration_s:
        raise FieldInvalid("must be between 1 and --max-duration-s", place="$.lifetime_s")
    switches = ledger.reader.switches()
    key = ledger.keys.signing(switches.kid)
    try:
        passport = issue_passport(
            mission,
            key,
            issuer=f"remit:{key.kid}",
            jti=f"pass:{secrets.token_hex(16)}",
            now=int(time.time()),
            lifetime_s=lifetime_s,
            bound_to=bound_to,
        )
    except TokenTooLarge as error:
        raise FieldInvalid(f"a passport cannot say so much: {error}") from None
    if switches.kill_switch:
        note("the kill switch is on: no session starts until it is off")
    return passport.token, verify_token(PASSPORT, passport.token, ledger.keys.keyring()).claims
