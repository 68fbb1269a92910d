"""`remit issue`: issues a mission passport, signed by the home and registered in its ledger.

The token is printed after its registration is durable.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec import structs

from remit.claims.jws import PASSPORT, verify_token
from remit.claims.mission import SIDE_EFFECT_CLASSES, Mission, parse_mission
from remit.claims.passport import Confirmation, Passport
from remit.cli.errors import report_errors
from remit.cli.homes import open_service
from remit.cli.mission_options import certificate_confirmation, mission_options
from remit.cli.options import ListCommand, common_options
from remit.cli.profile import compile_mission, load_profile
from remit.cli.render import note, show_data
from remit.cli.resources import resolve_path, resolve_scope, starting_directory
from remit.errors import FieldInvalid
from remit.governor.issue import IssuePassport, PassportRequest
from remit.policy.scope import literal_entry
from remit.profiles.compiling import remarks_on
from remit.wiring import Service


@click.command(cls=ListCommand)
@click.option("--agent-id", metavar="ID", help="The id of the agent; required without --from-profile.")
@click.option("--mission", metavar="TEXT", help="The task of the agent; required without --from-profile.")
@click.option("--from-profile", metavar="FILE", help="A profile, such as REMIT.md, for what no other option sets.")
@click.option("--max-tool-calls", type=int, help="How many calls it may make. Default: 100.")
@click.option("--max-duration-s", type=int, help="How long a session may last. Default: 3600.")
@click.option("--lifetime-s", type=int, help="How long the passport is valid, if shorter than --max-duration-s.")
@mission_options(tools="none", scope="the current directory", effects="all")
@common_options
def issue(
    *,
    agent_id: str | None,
    mission: str | None,
    from_profile: str | None,
    allowed_tools: Sequence[str],
    forbidden_tools: Sequence[str],
    resource_scope: Sequence[str],
    max_tool_calls: int | None,
    max_duration_s: int | None,
    lifetime_s: int | None,
    allowed_side_effects: Sequence[str],
    cwd: str | None,
    bind_certificate: Path | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Issue a mission passport, and print its token and nothing else.

    Lists take several values and may be repeated. Paths are stored absolute and with links resolved.

    \b
    Example:
      TOKEN=$(remit issue --agent-id agent:me --mission "Fix the tests"
              --allowed-tools Read Edit Bash --resource-scope ~/project)
      TOKEN=$(remit issue --from-profile REMIT.md)
    """  # noqa: D301 - click: \\b keeps line breaks
    with report_errors(as_json=as_json):
        base = _members_of_profile(from_profile) if from_profile is not None else _DEFAULTS
        requested = _mission(
            cwd,
            resource_scope,
            base,
            agent_id=agent_id,
            mission=mission,
            allowed_tools=allowed_tools,
            forbidden_tools=forbidden_tools,
            max_tool_calls=max_tool_calls,
            max_duration_s=max_duration_s,
            allowed_side_effect_classes=allowed_side_effects,
        )
        bound_to = certificate_confirmation(bind_certificate) if bind_certificate else None
    with open_service(home, as_json=as_json, create=True) as service:
        token, claims = _issue(service, requested, lifetime_s, bound_to)
    if as_json:
        return show_data({"token": token, "claims": claims})
    return click.echo(token)


_DEFAULTS: Final[Mapping[str, Any]] = {
    "max_tool_calls": 100,
    "max_duration_s": 3600,
    "allowed_side_effect_classes": SIDE_EFFECT_CLASSES,
}
_NEEDED: Final = {"agent_id": "--agent-id", "mission": "--mission"}


def _members_of_profile(path: str) -> Mapping[str, Any]:
    loaded = load_profile(path)
    for remark in remarks_on(loaded.profile):
        note(remark)
    return structs.asdict(compile_mission(loaded))


def _mission(
    cwd: str | None,
    resource_scope: Sequence[str],
    base: Mapping[str, Any],
    **given: Any,  # noqa: ANN401 - checked here
) -> Mission:
    """Return the mission: the given options, else those of `base`, else defaults for the current directory."""
    members = {**base, **{name: value for name, value in given.items() if value not in (None, ())}}
    for name, option in _NEEDED.items():
        if name not in members:
            raise click.UsageError(f"Missing option '{option}'.", click.get_current_context())
    if resource_scope or "resource_scope" not in base or cwd is not None:
        members |= _scope_and_cwd(cwd, resource_scope, base)
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in members.items()}
    mission = parse_mission(listed)
    if not mission.allowed_tools:
        note("no --allowed-tools: the passport allows no tool")
    return mission


def _scope_and_cwd(cwd: str | None, resource_scope: Sequence[str], base: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resource scope and the directory for relative paths; both default to the current directory."""
    here = resolve_path(".", "$.cwd")
    scope = resolve_scope(resource_scope) or base.get("resource_scope") or (literal_entry(here, "$.cwd"),)
    start = starting_directory(here, scope) if cwd is None else resolve_path(cwd, "$.cwd")
    if not resource_scope and "resource_scope" not in base:
        note(f"no --resource-scope: the passport is for the current directory, {here}")
    return {"resource_scope": scope, "cwd": start}


def _issue(
    service: Service, mission: Mission, lifetime_s: int | None, bound_to: Confirmation | None
) -> tuple[str, dict[str, Any]]:
    if lifetime_s is not None and not 1 <= lifetime_s <= mission.max_duration_s:
        raise FieldInvalid("must be between 1 and --max-duration-s", place="$.lifetime_s")
    passport = issue_registered(service, mission, lifetime_s=lifetime_s, bound_to=bound_to)
    if service.reader.ledger_state().kill_switch:
        note("the kill switch is on: no session can start until it is off")
    return passport.token, verify_token(PASSPORT, passport.token, service.keys.refresh()).claims


def issue_registered(
    service: Service, mission: Mission, *, lifetime_s: int | None = None, bound_to: Confirmation | None = None
) -> Passport:
    """Issue a passport of the home, and return it after its registration is durable."""
    return service.governor.run(
        IssuePassport(PassportRequest(mission, f"pass:{secrets.token_hex(16)}", lifetime_s, bound_to))
    )
