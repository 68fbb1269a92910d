"""`remit open`: opens the dashboard in a browser, through a file in the home that redirects to it with the token."""

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
from remit.hub.redirect_page import write_redirect_page

_STDOUT: Final = 1
_STDERR: Final = 2


@click.command("open")
@click.option("--print", "is_printed", is_flag=True, help="Print the address with its token instead.")
@common_options
def open_dashboard(*, is_printed: bool, home: str | None, as_json: bool) -> None:
    """Open the dashboard of the running Hub.

    The address that --print shows contains the token: it gives access to everything in the Hub. Exit code 78 if no
    browser can be started.

    Example: remit open
    """
    with open_hub_home(home, as_json=as_json) as opened:
        dashboard = f"{get_running_hub(opened).listening}/dashboard"
        address = f"{dashboard}?token={get_hub_token(opened)}"
        if not is_printed:
            _browse(write_redirect_page(opened, address))
    if as_json:
        return show_data({"ok": True, "dashboard": dashboard} | ({"address": address} if is_printed else {}))
    if is_printed:
        return click.echo(address)
    return note(f"opened {dashboard}; for another browser: remit open --print")


def _browse(url: str) -> None:
    with _redirect_stdout():
        opened = webbrowser.open(url)
    if not opened:
        refused = StateMissing("no browser could be started")
        refused.add_note("Print the address, and open it in a browser: remit open --print")
        raise refused


@contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Redirect the output of programs that are started in the block to stderr: stdout is for the result."""
    sys.stdout.flush()
    saved = os.dup(_STDOUT)
    try:
        os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        os.dup2(saved, _STDOUT)
        os.close(saved)
