"""`remit doctor`: checks this machine and the home, or the protection of a coding assistant."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from remit.assistants.doctor.checks import Check
from remit.assistants.registry import PLANNERS
from remit.cli.doctor_checks import check_installation, check_proxy_at, check_running_services
from remit.cli.errors import DONE, STATE, advice_for, failure, report_errors
from remit.cli.homes import require_ledger
from remit.cli.options import common_options
from remit.cli.render import escape_text, show_data
from remit.cli.terminal import TerminalConsole
from remit.config import assistant_config_folder, get_hook_variable, home_path, load_settings, user_home
from remit.errors import RemitError, StateError
from remit.governor.statements import RecordStatement

if TYPE_CHECKING:
    from remit.wiring import Service

_DOCTOR: Final = "remit.doctor"
_GAP: Final = "enforcement_gap"
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.argument("assistant", required=False, type=click.Choice(sorted(PLANNERS)))
@click.option("--url", metavar="URL", help="Check the proxy at this URL instead of the services of the home.")
@click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="The authority of --url; else tls/ca.pem.")
@common_options
def doctor(*, assistant: str | None, url: str | None, ca: Path | None, home: str | None, as_json: bool) -> None:
    """Check this machine and the home, one line per check. Changes nothing, and creates no home.

    With ASSISTANT, check its protection instead: a test call goes through its hooks and must be denied. The result is
    signed into the ledger.

    Exit code 0 if there is no problem, 78 if there is one. A service that is running but does not answer is a problem.

    Example: remit doctor --url https://127.0.0.1:8443
    """
    if assistant and (url or ca):
        raise click.UsageError("give either ASSISTANT, or --url and --ca")
    with report_errors(as_json=as_json):
        path = home_path(home)
        if assistant:
            checks = _check_assistant(path, assistant)
        else:
            checks = list(check_installation(path))
            checks += check_running_services(path) if url is None else [check_proxy_at(path, url, ca)]
    problems = [check for check in checks if check.state == "problem"]
    if as_json:
        show_data(_outcome(problems) | {"checks": [check._asdict() for check in checks]})
    else:
        _show(checks)
    raise SystemExit(STATE if problems else DONE)


def _outcome(problems: list[Check]) -> dict[str, object]:
    if not problems:
        return {"ok": True}
    return failure("; ".join(f"{check.name}: {check.said}" for check in problems), StateError.code)


def _check_assistant(path: Path, assistant: str) -> list[Check]:
    """Run the checks of an assistant and sign their results."""
    from remit.wiring import build_service  # noqa: PLC0415 - only needed with ASSISTANT

    require_ledger(path)
    service = build_service(path)
    try:
        checks = list(_check_protections(service, assistant))
        return [*checks, _sign_results(service, assistant, checks)]
    finally:
        service.close()


def _check_protections(service: "Service", assistant: str) -> Iterator[Check]:
    from remit.assistants.doctor.checkup import DoctorContext, check_assistant  # noqa: PLC0415 - only with ASSISTANT

    planner, damaged = PLANNERS[assistant], list[RemitError]()
    try:
        known = service.protections.all(damaged=damaged.append)
        protections = [protection for protection in known if protection.assistant == assistant]
        hub_token = load_settings(service.home).hub_token
    except RemitError as error:
        yield Check("protection", "problem", str(error), advice_for(error))
        return
    yield from (Check("protection", "problem", str(error), advice_for(error)) for error in damaged)
    if not protections:
        said = f"{planner.title} is not protected by this home"
        yield Check("protection", "problem", said, f"Protect it: remit protect {assistant}")
        return
    context = DoctorContext(
        home=service.home,
        governor=service.governor,
        hub_token=hub_token,
        user_home=user_home() or "/",
        config_folder=assistant_config_folder(planner.variable),
        hook_variable=get_hook_variable,
    )
    yield from check_assistant(context, planner, protections)


def _sign_results(service: "Service", assistant: str, checks: list[Check]) -> Check:
    """Sign the results: the `checks` that `--json` prints, without this last one."""
    counts = {state: sum(check.state == state for check in checks) for state in _STYLES}
    bad = counts["problem"] > 0
    statement = RecordStatement(
        tool=_DOCTOR,
        target=assistant,
        report=[check._asdict() for check in checks],
        code=_GAP if bad else "",
        reason=f"the protection of {assistant} {'has a problem' if bad else 'works'}",
        counted=", ".join(f"{count} {state}" for state, count in counts.items()),
    )
    try:
        return Check("signed", "ok", service.governor.run(statement).receipt.claims.receipt_id, "")
    except RemitError as error:
        return Check("signed", "warning", f"not signed: {error}", advice_for(error))


def _show(checks: list[Check]) -> None:
    screen = TerminalConsole(highlight=False)
    for check in checks:
        state = (f"{check.state:<8}", _STYLES[check.state])
        screen.print(Text.assemble(state, f" {check.name:<12} {escape_text(check.said)}"), soft_wrap=True)
        if check.advice:
            screen.print(Text(f"{'':<22}{check.advice}"), soft_wrap=True)
