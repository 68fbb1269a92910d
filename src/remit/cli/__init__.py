"""The command line: one file per noun, text for people, `--json` for programs."""

import click

from remit.cli.demo import demo
from remit.cli.ledger import ledger
from remit.version import __version__

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="remit", message="remit %(version)s")
def main() -> None:
    """Govern the tool calls of AI agents and leave evidence that anyone can check."""


main.add_command(demo)
main.add_command(ledger)
