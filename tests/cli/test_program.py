"""What holds for every command: help, options, usage errors, and how it ends when nobody takes the output."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from remit.cli import main
from remit.cli.errors import DONE, STATE, USAGE
from remit.cli.program import INTERRUPTED, READER_GONE
from tests.cli.running import ASKED, issued, piped, run


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that lead to it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    if command.invoke_without_command:
        yield path, command
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from walk(inner, (*path, name))


COMMANDS = dict(walk(main))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_takes_a_home_and_json_and_shows_an_example(path: tuple[str, ...]) -> None:
    told = CliRunner().invoke(main, [*path, "--help"])
    assert told.exit_code == DONE
    assert "Example:" in told.stdout
    names = {name for parameter in COMMANDS[path].params for name in parameter.opts}
    assert {"--home", "--json"} <= names


@pytest.mark.parametrize("path", [path for path in COMMANDS if path[0] not in {"proxy", "hub"}], ids=" ".join)
def test_a_wrong_option_is_told_in_two_lines_or_one_document(path: tuple[str, ...]) -> None:
    told = CliRunner().invoke(main, [*path, "--nonsense"])
    assert (told.exit_code, told.stdout) == (USAGE, "")
    assert [line[:7] for line in told.stderr.splitlines()] == ["remit: ", "       "]
    coded = CliRunner().invoke(main, [*path, "--json", "--nonsense"])
    assert (coded.exit_code, coded.stderr) == (USAGE, "")
    document = json.loads(coded.stdout)
    assert (document["ok"], document["error_code"]) == (False, "usage")


@pytest.mark.parametrize("arguments", [["nonsense"], ["ledger", "nonsense"], ["token", "other"], ["ledger", "backup"]])
def test_wrong_and_missing_words_are_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == USAGE
    coded = CliRunner().invoke(main, [*arguments, "--json"])
    assert (coded.exit_code, json.loads(coded.stdout)["error_code"]) == (USAGE, "usage")


def test_json_after_two_dashes_is_no_option() -> None:
    assert CliRunner().invoke(main, ["token", "--", "--json"]).stdout == ""


@pytest.mark.parametrize("arguments", [[], ["keys"]])
def test_no_words_show_the_help_and_are_a_usage_error(arguments: list[str]) -> None:
    told = CliRunner().invoke(main, arguments)
    assert (told.exit_code, told.stdout) == (USAGE, "")
    assert "Usage:" in told.stderr


def test_a_usage_error_steers_no_terminal_and_stays_short() -> None:
    told = CliRunner().invoke(main, ["demo", "\x07\x9b31m" + "x" * 100_000])
    assert told.exit_code == USAGE
    assert told.stderr.replace("\n", "").isprintable()
    assert len(told.stderr) < 1000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    issued(tmp_path / "home")
    return tmp_path / "home"


FEW = [["demo"], ["ledger", "show"], ["ledger", "show", "--json"], ["keys", "export"], ["--help"], ["issue", *ASKED]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("arguments", FEW, ids=" ".join)
def test_output_that_cannot_be_written_is_an_error_without_a_traceback(place: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = piped(place, *arguments, stdout=full)
    assert ended.returncode == STATE
    assert b"Traceback" not in ended.stderr
    assert b"remit: the output cannot be written (ENOSPC)" in ended.stderr


@pytest.mark.parametrize("arguments", FEW, ids=" ".join)
def test_output_that_is_closed_is_an_error_too(place: Path, arguments: list[str]) -> None:
    ended = piped(place, *arguments, stdout=None, preexec_fn=lambda: os.close(1))
    assert ended.returncode == STATE
    assert b"Traceback" not in ended.stderr
    assert b"remit: the output cannot be written (EBADF)" in ended.stderr


@pytest.mark.parametrize("arguments", FEW, ids=" ".join)
def test_a_reader_that_has_gone_ends_the_program_quietly(place: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = piped(place, *arguments, stdout=writing)
    os.close(writing)
    assert ended.returncode == READER_GONE
    assert b"Traceback" not in ended.stderr
    assert b"cannot be written" not in ended.stderr


def test_nobody_to_complain_to_changes_nothing_in_the_exit_code(place: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        assert piped(place, "nonsense", stderr=full).returncode == USAGE
        assert piped(place, "demo", stdout=full, stderr=full).returncode == STATE
        assert piped(place, "ledger", "show", "--home", "/nowhere/x", stderr=full).returncode == STATE
        told = piped(place, "issue", *ASKED, stderr=full)
    assert (told.returncode, told.stdout.count(b".")) == (DONE, 2)


def test_an_interrupt_ends_the_program_without_a_traceback(place: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "remit", "inspect", f"@{fifo}", "--home", str(place)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, children ignore it too
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, before)
    with process, fifo.open("wb"):  # opened by both: the command is at work
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (INTERRUPTED, b"", b"")


def test_an_interrupt_while_the_program_is_read_ends_it_without_a_traceback() -> None:
    interrupted = (
        "import runpy, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'remit.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "runpy.run_module('remit', run_name='__main__')\n"
    )
    ended = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, b"", b"")


def test_text_that_the_terminal_cannot_show_is_escaped(place: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "latin-1", "REMIT_HOME": str(place)}
    token = run(place, "issue", *ASKED[:3], "lies \u65e5").stdout.strip()
    command = [sys.executable, "-m", "remit", "inspect", token]
    shown = subprocess.run(command, env=env, capture_output=True, check=True, timeout=60)
    assert rb"lies \u65e5" in shown.stdout
