"""Options that commands share: the home, the output format, key ids and lists.

A list option takes several values and may be repeated: `--allowed-tools Read Grep --allowed-tools Bash`. It ends at the
next option or at `--`; a value that begins with a dash is written `--allowed-tools=-x`.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def common_options(command: _Command) -> _Command:
    """Add the options that every command has."""
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)
    return click.option("--home", metavar="DIR", help="The home directory. Default: REMIT_HOME, else ~/.remit.")(
        command
    )


# A key id is a SHA-256 thumbprint in base64url: one in 64 begins with a dash.
_DASHED_KEY_ID: Final = re.compile(r"-[A-Za-z0-9_-]{42}\Z")


class KeyCommand(click.Command):
    """A command whose argument is a key id, which may begin with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a key id is not taken for an option."""
        ids = [word for word in args if _DASHED_KEY_ID.match(word)]
        if ids and "--" not in args:
            args = [*(word for word in args if word not in ids), "--", *ids]
        return super().parse_args(ctx, args)


class ListOption(click.Option):
    """An option with several values. Only for a `ListCommand`."""

    def __init__(self, declarations: list[str], **attributes: Any) -> None:  # noqa: ANN401 - required by click
        super().__init__(declarations, **(attributes | {"multiple": True}))


class ListCommand(click.Command):
    """A command with list options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after expanding the lists."""
        return super().parse_args(ctx, _expand_lists(self.params, args, ctx))


def _expand_lists(params: Iterable[click.Parameter], args: Iterable[str], ctx: click.Context) -> list[str]:
    """Return the arguments with `--list A B` as `--list A --list B`, which is what click parses."""
    options = {name: option for option in params if isinstance(option, click.Option) for name in option.opts}
    given, expanded = deque(args), list[str]()
    while given:
        word = given.popleft()
        option = options.get(word)
        if word == "--":
            return [*expanded, word, *given]
        if isinstance(option, ListOption):
            expanded += _values(word, given, ctx)
        elif option is not None and not option.is_flag and given:
            expanded += [word, given.popleft()]
        else:
            expanded.append(word)
    return expanded


def _values(name: str, given: deque[str], ctx: click.Context) -> list[str]:
    values = list[str]()
    while given and not (given[0].startswith("-") and given[0] != "-"):
        values += [name, given.popleft()]
    if not values and not ctx.resilient_parsing:
        raise click.BadOptionUsage(name, f"Option '{name}' requires at least one value.", ctx)
    return values or [name]
