"""`remit token`: the tokens that clients of the Hub and of the proxy show, made on first use."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import click

from remit.cli.background import NAMES
from remit.cli.opening import opened_home
from remit.cli.options import everywhere
from remit.cli.render import note, show_data
from remit.config import TOKEN_NAMES, TokenName, ensure_token, rotate_token
from remit.http.record import Running, ServiceName, all_running
from remit.hub.doors import hook_token

__all__ = ["note_rotated", "token"]

_HOOK: Final = "hook"
# Which service asks for it.
_ASKED_BY: Final[Mapping[TokenName, ServiceName]] = {"admin": "proxy", "hub": "hub", "proxy": "proxy"}


@click.command()
@click.argument("name", type=click.Choice((*TOKEN_NAMES, _HOOK)))
@click.option("--rotate", is_flag=True, help="Make a new one. What runs takes it after SIGHUP or a restart.")
@everywhere
def token(*, name: TokenName | Literal["hook"], rotate: bool, home: str | None, as_json: bool) -> None:
    """Print a token, and nothing else: made on first use, and kept in config.json of the home.

    `hub` opens the Hub. `admin` opens /revoke and /kill-switch of the proxy; `proxy` all else, where it was started
    with --require-token. `hook` is what hooks of assistants show: it follows from that of the Hub, and only asks for
    decisions. Keep them out of command lines and logs: others may read those.

    Example: curl --header @<(printf 'Authorization: Bearer %s' "$(remit token admin)") ...
    """
    if name == _HOOK:
        return _show_hook(home, rotate=rotate, as_json=as_json)
    with opened_home(home, as_json=as_json, create=True) as opened:
        made = (rotate_token if rotate else ensure_token)(opened, name)
        running = all_running(opened, _ASKED_BY[name]) if rotate else []
    if rotate:
        note_rotated(name, running)
    if as_json:
        return show_data({"ok": True, "name": name, "token": made})
    return click.echo(made)


def _show_hook(home: str | None, *, rotate: bool, as_json: bool) -> None:
    if rotate:
        raise click.UsageError("the token of hooks is made from that of the Hub: remit token hub --rotate")
    with opened_home(home, as_json=as_json, create=True) as opened:
        made = hook_token(ensure_token(opened, "hub"))
    return show_data({"ok": True, "name": _HOOK, "token": made}) if as_json else click.echo(made)


def note_rotated(name: TokenName, running: Sequence[Running]) -> None:
    """Tell that a token is new, and whom to tell of it."""
    if name == "hub":
        note("hooks of assistants show a token that was made from the old one: run remit protect again for each")
    note(f"there is a new {name} token" + ("" if running else f"; no {NAMES[_ASKED_BY[name]]} of this home is running"))
    if running:
        note(f"what runs takes the old one until it is told: kill -HUP {' '.join(str(one.pid) for one in running)}")
