"""`remit token`: the tokens that clients of the Hub and of the proxy show, made on first use."""

from typing import Final, Literal

import click

from remit.assistants.records import ANY_ID
from remit.cli.homes import open_command_home
from remit.cli.options import common_options
from remit.cli.render import show_data
from remit.cli.rotation import rotate as rotate_now
from remit.config import TOKEN_NAMES, TokenName, ensure_token
from remit.hub.auth import hook_token

__all__ = ["token"]

_HOOK: Final = "hook"


@click.command()
@click.argument("name", type=click.Choice((*TOKEN_NAMES, _HOOK)))
@click.argument("protection", required=False)
@click.option("--rotate", is_flag=True, help="Make a new one; the one before is refused at once.")
@common_options
def token(
    *, name: TokenName | Literal["hook"], protection: str | None, rotate: bool, home: str | None, as_json: bool
) -> None:
    """Print a token, and nothing else: made on first use, and kept in config.json of the home.

    `hub` opens the Hub. `admin` opens /revoke and /kill-switch of the proxy; `proxy` all else, where it was started
    with --require-token. `hook PROTECTION` is what the hooks of one protection show, as `prot-0123456789ab`: it is made
    from the token of the Hub, and only asks for decisions. Keep them out of command lines and logs: others may read
    those.

    Example: curl --header @<(printf 'Authorization: Bearer %s' "$(remit token admin)") ...
    """
    if name == _HOOK:
        return _show_hook(home, protection, rotate=rotate, as_json=as_json)
    if protection is not None:
        raise click.UsageError("only the token of hooks is for a protection")
    with open_command_home(home, as_json=as_json, create=True) as opened:
        made = (rotate_now if rotate else ensure_token)(opened, name)
    if as_json:
        return show_data({"ok": True, "name": name, "token": made})
    return click.echo(made)


def _show_hook(home: str | None, protection: str | None, *, rotate: bool, as_json: bool) -> None:
    if rotate:
        raise click.UsageError("the token of hooks is made from that of the Hub: remit token hub --rotate")
    if protection is None or not ANY_ID.fullmatch(protection):
        raise click.UsageError("name the protection, as remit doctor shows it: remit token hook prot-0123456789ab")
    with open_command_home(home, as_json=as_json, create=True) as opened:
        made = hook_token(ensure_token(opened, "hub"), protection)
    return show_data({"ok": True, "name": _HOOK, "token": made}) if as_json else click.echo(made)
