"""`remit open`: the dashboard, in a browser, which is given a file of the home that sends it on."""

import webbrowser

import click

from remit.cli.hub_reaching import running_hub, token_of
from remit.cli.opening import opened_home
from remit.cli.options import everywhere
from remit.cli.render import note, show_data
from remit.errors import ServiceUnavailable
from remit.hub.opening import write_opening

__all__ = ["open_dashboard"]


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
            _browse(write_opening(opened, address))
    if as_json:
        return show_data({"ok": True, "dashboard": dashboard} | ({"address": address} if is_printed else {}))
    if is_printed:
        return click.echo(address)
    return note(f"opened {dashboard}; for a browser elsewhere: remit open --print")


def _browse(url: str) -> None:
    if not webbrowser.open(url):
        refused = ServiceUnavailable("no browser could be started")
        refused.add_note("Open the address in one yourself: remit open --print")
        raise refused
