"""`remit open`: the dashboard, in a browser, which is given a file of the home that sends it on."""

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from remit.cli.connect import get_hub_token, get_running_hub, open_hub_home
from remit.cli.options import common_options
from remit.cli.render import note, show_data
from remit.errors import StateMissing
from remit.hub.opening import write_opening

__all__ = ["open_dashboard"]

_STDOUT: Final = 1
_STDERR: Final = 2


@click.command("open")
@click.option("--print", "is_printed", is_flag=True, help="Print the address, token and all, for a browser elsewhere.")
@common_options
def open_dashboard(*, is_printed: bool, home: str | None, as_json: bool) -> None:
    """Open the dashboard of the Hub that runs.

    Whoever has the address that --print shows can read everything that the Hub knows. Exit code 78 if there is no
    browser to open it in.

    Example: remit open
    """
    with open_hub_home(home, as_json=as_json) as opened:
        dashboard = f"{get_running_hub(opened).listening}/dashboard"
        address = f"{dashboard}?token={get_hub_token(opened)}"
        if not is_printed:
            _browse(write_opening(opened, address))
    if as_json:
        return show_data({"ok": True, "dashboard": dashboard} | ({"address": address} if is_printed else {}))
    if is_printed:
        return click.echo(address)
    return note(f"opened {dashboard}; for a browser elsewhere: remit open --print")


def _browse(url: str) -> None:
    with _stdout_kept():
        opened = webbrowser.open(url)
    if not opened:
        refused = StateMissing("no browser could be started")
        refused.add_note("Open the address in one yourself: remit open --print")
        raise refused


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Let programs that are started meanwhile print to stderr: stdout is for what this command says."""
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    try:
        os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)
