"""`remit setup`: creates a home with its ledger, keys and Hub token. It can be run again at any time."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from remit.cli.errors import report_errors
from remit.cli.homes import open_service
from remit.cli.options import common_options
from remit.cli.render import note, show_data, show_facts
from remit.cli.units import Unit, check_unit, unit_for, write_unit
from remit.config import (
    HUB_HOSTS,
    check_hub_host,
    ensure_token,
    home_path,
    load_settings,
    parse_hub_url,
    set_hub_url,
    without_localhost,
)
from remit.ledger.home import Home
from remit.server.hosts import url_host
from remit.server.run_files import all_running

# Shown beside the address of the dashboard, which requires the token if it is opened directly.
OPENED_BY: Final = "open it with: remit open"


class PreparedHome(NamedTuple):
    """A home that is set up: the URL of its Hub, and its token if that is new."""

    hub_url: str
    made: str | None


@click.command()
@click.option("--host", metavar="HOST", help=f"The address of the Hub: {', '.join(HUB_HOSTS)}.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port of the Hub; 8765 unless it was set before.")
@click.option(
    "--rotate-token",
    is_flag=True,
    help="Create a new Hub token; the old one stops working at once.",
)
@click.option("--service", is_flag=True, help="Write a unit file that lets systemd or launchd run: remit up")
@click.option("--force", is_flag=True, help="With --service: overwrite an existing file.")
@common_options
def setup(
    *,
    host: str | None,
    port: int | None,
    rotate_token: bool,
    service: bool,
    force: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Set up the home: its ledger, its keys, and the token of the Hub, which is shown once.

    What exists already is kept, so the command can be run again at any time.

    Example: remit setup --port 8765
    """
    with report_errors(as_json=as_json):
        if host is not None:
            check_hub_host(host, "--host")
        unit = unit_for(home_path(home)) if service else None
        if unit is not None:
            check_unit(unit, force=force)
            write_unit(unit)  # first: if it failed after a token was created, the token would not be shown
    prepared = prepare_home(home, host=host, port=port, rotate=rotate_token, as_json=as_json)
    _show(home_path(home), prepared, unit, as_json=as_json)


def prepare_home(
    option: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    rotate: bool = False,
    as_json: bool,
) -> PreparedHome:
    """Create what is missing, and change the settings that are given."""
    with open_service(option, as_json=as_json, create=True) as service:
        home = service.home
        before = load_settings(home)
        url = _new_url(before.hub_url, host, port)
        set_hub_url(home, url)
        token = _rotated_token(home) if rotate else ensure_token(home, "hub")
        running = all_running(home, "hub")
    elsewhere = [hub.listening for hub in running if url != before.hub_url]
    if elsewhere:
        note(f"the running Hub stays at {elsewhere[0]} until it is restarted")
    return PreparedHome(url, None if token == before.hub_token else token)


def _rotated_token(home: Home) -> str:
    from remit.cli.rotation import rotate  # noqa: PLC0415 - most do not rotate, and it needs the client of the Hub

    return rotate(home, "hub")


def _new_url(before: str, host: str | None, port: int | None) -> str:
    stored_host, stored_port = parse_hub_url(before)
    if host is not None:
        check_hub_host(host, "--host")
    return without_localhost(f"http://{url_host(host or stored_host)}:{stored_port if port is None else port}")


def _show(path: Path, prepared: PreparedHome, unit: Unit | None, *, as_json: bool) -> None:
    dashboard = f"{prepared.hub_url}/dashboard"
    if as_json:
        data: dict[str, Any] = {"ok": True, "home": str(path), "hub_url": prepared.hub_url, "dashboard": dashboard}
        data |= {"token": prepared.made} if prepared.made else {}
        data |= {"service": {"file": str(unit.path), "enable": unit.enable}} if unit else {}
        return show_data(data)
    facts = {"home": str(path), "hub": prepared.hub_url, "dashboard": f"{dashboard} ({OPENED_BY})"}
    facts |= {"token": prepared.made or "exists already: remit token hub"}
    facts |= {"service": str(unit.path), "enable": unit.enable} if unit else {}
    return show_facts(facts | {"next": "remit up, then remit open"})
