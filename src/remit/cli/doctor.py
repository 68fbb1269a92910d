"""`remit doctor`: is everything here as it must be, and if not, what to do."""

from pathlib import Path
from typing import Final

import click
from rich.text import Text

from remit.cli.asking import SERVICES, ask_running, ask_service
from remit.cli.checkup import Check, check_up
from remit.cli.errors import DONE, STATE, UNAVAILABLE, reported
from remit.cli.options import everywhere
from remit.cli.render import Screen, show_data, shown
from remit.config import home_path

__all__ = ["doctor"]

_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option("--url", metavar="URL", help="Ask the proxy there how it is, not that of the home.")
@click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="Whom to trust for it; else tls/ca.pem.")
@everywhere
def doctor(*, url: str | None, ca: Path | None, home: str | None, as_json: bool) -> None:
    """Check this machine and the home, one line each. Nothing is changed, and no home is made.

    Exit code 0 if there is no problem, 78 if there is one, 69 if only the Hub or the proxy does not answer: those of
    the home that are running, or the proxy at URL.

    Example: remit doctor --url https://127.0.0.1:8443
    """
    with reported(as_json=as_json):
        path = home_path(home)
        checks = list(check_up(path))
        checks += ask_running(path) if url is None else [ask_service(path, url, ca)]
    if as_json:
        show_data([check._asdict() for check in checks])
    else:
        _show(checks)
    problems = {check.name for check in checks if check.state == "problem"}
    raise SystemExit(DONE if not problems else UNAVAILABLE if problems <= {*SERVICES} else STATE)


def _show(checks: list[Check]) -> None:
    screen = Screen(highlight=False)
    for check in checks:
        state = (f"{check.state:<8}", _STYLES[check.state])
        screen.print(Text.assemble(state, f" {check.name:<12} {shown(check.said)}"), soft_wrap=True)
        if check.advice:
            screen.print(Text(f"{'':<22}{check.advice}"), soft_wrap=True)
