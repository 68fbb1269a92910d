"""The options that say what an agent may do, for passports that are issued and for those that are delegated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from remit.claims.mission import SIDE_EFFECT_CLASSES
from remit.cli.options import ListOption

__all__ = ["limits"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def limits(*, tools: str, scope: str, effects: str) -> Callable[[_Command], _Command]:
    """Add the options; the arguments say what holds where one is not given."""
    options = (
        click.option(
            "--allowed-tools",
            cls=ListOption,
            metavar="TOOL [TOOL...]",
            help=f"Tools it may use, by name or glob. Without it: {tools}.",
        ),
        click.option(
            "--forbidden-tools", cls=ListOption, metavar="TOOL [TOOL...]", help="Tools it may not use, even if allowed."
        ),
        click.option(
            "--resource-scope",
            cls=ListOption,
            metavar="PATH [PATH...]",
            help=f"Folders, files, globs and URLs it may touch; ** is everything. Without it: {scope}.",
        ),
        click.option(
            "--allowed-side-effects",
            cls=ListOption,
            type=click.Choice(SIDE_EFFECT_CLASSES),
            metavar="CLASS [CLASS...]",
            help=f"Of {', '.join(SIDE_EFFECT_CLASSES)}. Without it: {effects}.",
        ),
        click.option("--cwd", metavar="DIR", help="Where relative paths start."),
        click.option(
            "--bind-certificate",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Bind the passport to the holder of this client certificate (PEM).",
        ),
    )

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
