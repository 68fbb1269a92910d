"""The command line: one file per command group, text for people, `--json` for programs."""

import click

from remit.cli.program import LazyGroup
from remit.version import __version__


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="remit", message="remit %(version)s")
def main() -> None:
    """Govern the tool calls of AI agents and leave evidence that anyone can check."""


main.places = {
    "attest": "remit.cli.attest:attest",
    "completion": "remit.cli.completion:completion",
    "delegate": "remit.cli.delegate:delegate",
    "demo": "remit.cli.demo:demo",
    "doctor": "remit.cli.doctor:doctor",
    "hub": "remit.cli.hub:hub",
    "inspect": "remit.cli.inspection:inspect",
    "issue": "remit.cli.issue:issue",
    "keys": "remit.cli.keys:keys",
    "kill-switch": "remit.cli.killswitch:kill_switch",
    "ledger": "remit.cli.ledger:ledger",
    "open": "remit.cli.browser:open_dashboard",
    "profile": "remit.cli.profile:profile",
    "protect": "remit.cli.protect:protect",
    "proxy": "remit.cli.proxy:proxy",
    "reconcile": "remit.cli.reconcile:reconcile",
    "revoke": "remit.cli.revoke:revoke",
    "setup": "remit.cli.setup:setup",
    "status": "remit.cli.status:status",
    "tls": "remit.cli.tls:tls",
    "token": "remit.cli.tokens:token",
    "up": "remit.cli.up:up",
}
