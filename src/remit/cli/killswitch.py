"""`remit kill-switch`: revokes every session at once. It does not ask for confirmation: it is for emergencies."""

from typing import Literal, TypeAlias

import click

from remit.cli.homes import open_ledger_reader, open_service
from remit.cli.options import common_options
from remit.cli.render import show_data, show_facts
from remit.governor.revoke import KillSwitch

_Turn: TypeAlias = Literal["on", "off", "status"]


@click.command("kill-switch")
@click.argument("turn", type=click.Choice(["on", "off", "status"]))
@common_options
def kill_switch(*, turn: _Turn, home: str | None, as_json: bool) -> None:
    """Turn the kill switch on or off, or show its state.

    `on` revokes every session and refuses new ones: every call is denied. `off` allows new sessions again, with new
    passports: revoked ones stay revoked.

    Example: remit kill-switch on
    """
    revoked = None
    if turn != "status":
        with open_service(home, as_json=as_json) as service:
            revoked = service.governor.run(KillSwitch(turn == "on"))
    with open_ledger_reader(home, as_json=as_json) as rows:
        is_on, active = rows.ledger_state().kill_switch, sum(1 for _ in rows.active_sessions())
    if as_json:
        counts = {"active_sessions": active} | ({} if revoked is None else {"revoked_sessions": revoked})
        return show_data({"ok": True, "kill_switch": is_on} | counts)
    facts = {"active": f"{active:,} sessions"} | ({"revoked": f"{revoked:,} sessions"} if turn == "on" else {})
    mark, style = ("the kill switch is ON", "red") if is_on else ("the kill switch is off", "")
    return show_facts(facts, mark=mark, style=style)
