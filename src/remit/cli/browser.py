"""`remit open`: the dashboard, in a browser.

Keeps this invariant: the token stands in no argument of a process, which every user of the machine can read. The
browser is given a file of the home that sends it on.
"""

import webbrowser
from html import escape
from pathlib import Path
from typing import Final

import click

from remit.cli.hub_reaching import running_hub, token_of
from remit.cli.opening import opened_home
from remit.cli.options import everywhere
from remit.cli.render import note, show_data
from remit.errors import ServiceUnavailable
from remit.http.record import FOLDER
from remit.ledger.home import Home

__all__ = ["open_dashboard"]

_FILE: Final = "open.html"
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>Remit</title>
<p><a href="{0}">The dashboard of Remit</a></p>
"""


@click.command("open")
@click.option("--print", "is_printed", is_flag=True, help="Print the address, token and all, for a browser elsewhere.")
@everywhere
def open_dashboard(*, is_printed: bool, home: str | None, as_json: bool) -> None:
    """Open the dashboard of the Hub that runs.

    Whoever has the address that --print shows can read everything that the Hub knows.

    Example: remit open
    """
    with opened_home(home, as_json=as_json) as opened:
        dashboard = f"{running_hub(opened).listening}/dashboard"
        address = f"{dashboard}?token={token_of(opened)}"
        if not is_printed:
            _browse(_page_for(opened, address))
    if as_json:
        return show_data({"ok": True, "dashboard": dashboard} | ({"address": address} if is_printed else {}))
    if is_printed:
        return click.echo(address)
    return note(f"opened {dashboard}; for a browser elsewhere: remit open --print")


def _page_for(home: Home, address: str) -> str:
    """Return the URL of a file that sends a browser on; it is its owner's alone, as the token is."""
    with home.folder(FOLDER) as folder:
        folder.replace(_FILE, _PAGE.format(escape(address)).encode())
        return Path(folder.path_of(_FILE)).as_uri()


def _browse(url: str) -> None:
    if not webbrowser.open(url):
        refused = ServiceUnavailable("no browser could be started")
        refused.add_note("Open the address in one yourself: remit open --print")
        raise refused
