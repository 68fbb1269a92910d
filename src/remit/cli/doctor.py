"""`remit doctor`: is everything here as it must be, and if not, what to do."""

from pathlib import Path
from typing import Final

import click
from rich.text import Text

from remit.cli.checkup import Check, check_up
from remit.cli.errors import DONE, STATE, UNAVAILABLE, advice_for, reported
from remit.cli.options import everywhere
from remit.cli.render import Screen, show_data, shown
from remit.client import Proxy
from remit.config import home_path
from remit.errors import ServiceError, ServiceUnavailable

__all__ = ["doctor"]

_PATIENCE_S: Final = 5.0
_PROXY: Final = "proxy"
_START: Final = "Start it with: remit proxy; or look at --url and --ca."
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option("--url", metavar="URL", help="Also ask the proxy that runs there how it is.")
@click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="Whom to trust for it; else tls/ca.pem.")
@everywhere
def doctor(*, url: str | None, ca: Path | None, home: str | None, as_json: bool) -> None:
    """Check this machine and the home, one line each. Nothing is changed, and no home is made.

    Exit code 0 if there is no problem, 78 if there is one, 69 if only the proxy at URL does not answer.

    Example: remit doctor --url https://127.0.0.1:8443
    """
    with reported(as_json=as_json):
        path = home_path(home)
        checks = list(check_up(path))
        if url is not None:
            checks.append(_asked(url, ca or _own_authority(path, url)))
    if as_json:
        show_data([check._asdict() for check in checks])
    else:
        _show(checks)
    problems = {check.name for check in checks if check.state == "problem"}
    raise SystemExit(DONE if not problems else UNAVAILABLE if problems == {_PROXY} else STATE)


def _own_authority(path: Path, url: str) -> Path | None:
    own = path / "tls" / "ca.pem"
    return own if url.startswith("https:") and own.is_file() else None


def _asked(url: str, ca: Path | None) -> Check:
    try:
        with Proxy(url, ca=ca, timeout_s=_PATIENCE_S, retries=0) as proxy:
            answer = proxy.health()
    except ServiceError as error:
        advice = _START if isinstance(error, ServiceUnavailable) else advice_for(error)
        return Check(_PROXY, "problem", str(error), advice)
    return Check(_PROXY, "ok", f"remit {answer.version} answers", "")


def _show(checks: list[Check]) -> None:
    screen = Screen(highlight=False)
    for check in checks:
        state = (f"{check.state:<8}", _STYLES[check.state])
        screen.print(Text.assemble(state, f" {check.name:<12} {shown(check.said)}"), soft_wrap=True)
        if check.advice:
            screen.print(Text(f"{'':<22}{check.advice}"), soft_wrap=True)
