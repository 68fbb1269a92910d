"""List options: several values after one option, and the option again."""

import click
import pytest
from click.testing import CliRunner

from remit.cli.options import ListCommand, ListOption


@click.command(cls=ListCommand)
@click.argument("words", nargs=-1)
@click.option("--tools", "-t", cls=ListOption)
@click.option("--text", default="")
@click.option("--flag", is_flag=True)
def probe(*, words: tuple[str, ...], tools: tuple[str, ...], text: str, flag: bool) -> None:
    """Show what was read."""
    click.echo(f"{list(words)} {list(tools)} {text} {flag}")


READ = {
    "--tools a b": "[] ['a', 'b']  False",
    "--tools a --tools b c": "[] ['a', 'b', 'c']  False",
    "-t a b --flag": "[] ['a', 'b']  True",
    "--tools a --text x --tools b": "[] ['a', 'b'] x False",
    "--tools a -- b": "['b'] ['a']  False",
    "w --tools a": "['w'] ['a']  False",
    "--flag w --tools a": "['w'] ['a']  True",
    "--tools=-x": "[] ['-x']  False",
    "--tools=a b": "['b'] ['a']  False",
    "--tools -": "[] ['-']  False",
    "--text --tools": "[] [] --tools False",
    "-- --tools a b": "['--tools', 'a', 'b'] []  False",
}


@pytest.mark.parametrize("line", READ)
def test_lists_are_read_up_to_the_next_option(line: str) -> None:
    assert CliRunner().invoke(probe, line.split()).stdout.strip() == READ[line].strip()


@pytest.mark.parametrize("line", ["--tools", "--tools --flag", "--tools -- a", "--tools --text x"])
def test_a_list_without_values_is_a_usage_error(line: str) -> None:
    assert CliRunner().invoke(probe, line.split()).exit_code == 2


def test_an_empty_value_is_a_value() -> None:
    assert CliRunner().invoke(probe, ["--tools", "", "--tools="]).stdout.strip() == "[] ['', '']  False"
