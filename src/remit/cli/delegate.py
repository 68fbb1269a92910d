"""`remit delegate`: issues a narrower passport for a delegate, with calls from the budget of the session."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from remit.claims.jws import PASSPORT, verify_token
from remit.claims.mission import Mission, parse_mission
from remit.cli.errors import NO, print_error, report_errors
from remit.cli.homes import open_service
from remit.cli.mission_options import certificate_confirmation, mission_options
from remit.cli.options import ListCommand, common_options
from remit.cli.render import show_data
from remit.cli.resources import resolve_path, resolve_scope, starting_directory
from remit.governor.delegate import Delegate, DelegateResult
from remit.governor.sessions import GetSession

_ADVICE: Final = "Request fewer calls, or start another session with a new passport."


@click.command(cls=ListCommand)
@click.argument("session_id")
@click.option("--agent-id", required=True, metavar="ID", help="The id of the delegate.")
@click.option("--mission", required=True, metavar="TEXT", help="The task of the delegate.")
@click.option("--max-tool-calls", required=True, type=int, help="How many of the session's calls it gets.")
@click.option(
    "--max-duration-s", type=int, help="How long its session may last; it never outlasts the parent's session."
)
@click.option(
    "--request-id", metavar="ID", help="Makes the request idempotent: repeating it returns the same passport."
)
@mission_options(tools="the parent's", scope="the parent's", effects="the parent's")
@common_options
def delegate(
    *,
    session_id: str,
    agent_id: str,
    mission: str,
    max_tool_calls: int,
    max_duration_s: int | None,
    request_id: str | None,
    allowed_tools: Sequence[str],
    forbidden_tools: Sequence[str],
    resource_scope: Sequence[str],
    allowed_side_effects: Sequence[str],
    cwd: str | None,
    bind_certificate: Path | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Issue a passport for a delegate of the session SESSION_ID, and print its token and nothing else.

    It never allows more than the parent; its calls are reserved at once. Options that are not given are the parent's.

    \b
    Example:
      remit delegate pass:0123456789abcdef0123456789abcdef --agent-id agent:helper
            --mission "Read the logs" --max-tool-calls 10 --allowed-tools Read
    """  # noqa: D301 - click: \\b keeps line breaks
    with report_errors(as_json=as_json):
        bound_to = certificate_confirmation(bind_certificate) if bind_certificate else None
        scope = resolve_scope(resource_scope)
        start = None if cwd is None else resolve_path(cwd, "$.cwd")
    with open_service(home, as_json=as_json) as service:
        parent = service.governor.run(GetSession(session_id)).passport.mission
        requested = _mission(
            parent,
            agent_id=agent_id,
            mission=mission,
            max_tool_calls=max_tool_calls,
            max_duration_s=max_duration_s,
            allowed_tools=allowed_tools,
            forbidden_tools=forbidden_tools,
            resource_scope=scope,
            allowed_side_effect_classes=allowed_side_effects,
            cwd=start,
        )
        request = f"req:{secrets.token_hex(16)}" if request_id is None else request_id
        delegated = service.governor.run(Delegate(session_id, requested, request, bound_to))
        keyring = service.keys.refresh()
        claims = verify_token(PASSPORT, delegated.passport, keyring).claims if delegated.passport else {}
    _show(delegated, claims, request, as_json=as_json)


def _mission(parent: Mission, **requested: Any) -> Mission:  # noqa: ANN401 - checked here
    """Return the requested mission; members that are not given are those of the parent.

    The duration is the parent's full one, so that repeating the request later is the same request. The passport and the
    session of the delegate end with the parent's anyway.
    """
    told = {name: value for name, value in requested.items() if value not in (None, ())}
    members: dict[str, Any] = {
        "allowed_tools": list(parent.allowed_tools),
        "resource_scope": list(parent.resource_scope),
        "max_duration_s": parent.max_duration_s,
        "allowed_side_effect_classes": list(parent.allowed_side_effect_classes),
        "cwd": parent.cwd,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in told.items()},
    }
    if requested["cwd"] is None and requested["resource_scope"]:
        members["cwd"] = starting_directory(parent.cwd, requested["resource_scope"])
    return parse_mission(members)


def _show(delegated: DelegateResult, claims: dict[str, Any], request: str, *, as_json: bool) -> None:
    said = delegated.receipt.claims
    if not delegated.permits or delegated.passport is None:
        code = delegated.refusal or said.internal_denial_code or "policy_denied"
        reason = f"the delegation is no longer valid ({code})" if delegated.refusal else said.reason
        print_error(reason, code, _ADVICE, as_json=as_json)
        raise SystemExit(NO)
    if as_json:
        show_data(
            {
                "token": delegated.passport,
                "claims": claims,
                "request_id": request,
                "repeated": delegated.repeated,
                "receipt_id": said.receipt_id,
                "budget_remaining": said.budget_remaining,
            }
        )
    else:
        click.echo(delegated.passport)
