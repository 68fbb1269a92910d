"""`remit token`: prints the tokens of the Hub and the proxy, and creates them on first use."""

from typing import Final, Literal

import click

from remit.assistants.records import PROTECTION_ID
from remit.cli.homes import open_command_home
from remit.cli.options import common_options
from remit.cli.render import show_data
from remit.cli.rotation import rotate as rotate_now
from remit.config import TOKEN_NAMES, TokenName, ensure_token
from remit.server.hook_tokens import hook_token

_HOOK: Final = "hook"


@click.command()
@click.argument("name", type=click.Choice((*TOKEN_NAMES, _HOOK)))
@click.argument("protection", required=False)
@click.option("--rotate", is_flag=True, help="Create a new one; the old one stops working at once.")
@common_options
def token(
    *, name: TokenName | Literal["hook"], protection: str | None, rotate: bool, home: str | None, as_json: bool
) -> None:
    """Print a token and nothing else. It is created on first use and stored in config.json of the home.

    `hub`: for the Hub. `admin`: for /revoke and /kill-switch of the proxy. `proxy`: for all else, if the proxy was
    started with --require-token. `hook PROTECTION`: for the hooks of one protection, such as prot-0123456789ab; it is
    derived from the token of the Hub, and can only request decisions. Keep tokens out of command lines and logs, which
    others may read.

    Example: curl --header @<(printf 'Authorization: Bearer %s' "$(remit token admin)") ...
    """
    if name == _HOOK:
        return _show_hook(home, protection, rotate=rotate, as_json=as_json)
    if protection is not None:
        raise click.UsageError(f"only the token 'hook' takes a protection, not '{name}'")
    with open_command_home(home, as_json=as_json, create=True) as opened:
        made = (rotate_now if rotate else ensure_token)(opened, name)
    if as_json:
        return show_data({"ok": True, "name": name, "token": made})
    return click.echo(made)


def _show_hook(home: str | None, protection: str | None, *, rotate: bool, as_json: bool) -> None:
    if rotate:
        raise click.UsageError("hook tokens are derived from the Hub token; rotate that: remit token hub --rotate")
    if protection is None or not PROTECTION_ID.fullmatch(protection):
        raise click.UsageError("name the protection that remit doctor shows, as in: remit token hook prot-0123456789ab")
    with open_command_home(home, as_json=as_json, create=True) as opened:
        made = hook_token(ensure_token(opened, "hub"), protection)
    return show_data({"ok": True, "name": _HOOK, "token": made}) if as_json else click.echo(made)
