"""`remit completion`: scripts for shells, and what they get when they ask."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from remit.cli import main
from remit.cli.errors import DONE
from tests.cli.running import run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(tmp_path: Path, shell: str) -> None:
    told = run(tmp_path / "home", "completion", shell)
    assert told.exit_code == DONE
    assert "_REMIT_COMPLETE" in told.stdout
    document = json.loads(run(tmp_path / "home", "completion", shell, "--json").stdout)
    assert (document["shell"], document["script"].strip()) == (shell, told.stdout.strip())
    assert not (tmp_path / "home").exists()


def asked(words: str, at: int) -> list[str]:
    env = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    told = CliRunner().invoke(main, [], prog_name="remit", env=env)
    assert (told.exit_code, told.stderr) == (DONE, "")
    return [line.partition(",")[2] for line in told.stdout.splitlines()]


def test_a_shell_that_asks_the_program_is_told_nothing_else() -> None:
    env = os.environ | {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": "remit hub s", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "from remit.cli import main; main(prog_name='remit')"]
    told = subprocess.run(command, env=env, capture_output=True, check=True, timeout=120)
    assert (told.stdout, told.stderr) == (b"plain,start\n", b"")


def test_commands_options_and_choices_are_completed() -> None:
    assert {"keys", "kill-switch"} <= set(asked("remit k", 1))
    assert {"setup", "status"} <= set(asked("remit s", 1))
    assert asked("remit hub s", 2) == ["start"]
    assert {"--background", "--port"} <= set(asked("remit hub --", 2)) & set(asked("remit up --", 2))
    assert asked("remit token h", 2) == ["hub", "hook"]
    assert asked("remit kill-switch o", 2) == ["on", "off"]
    assert "--allowed-tools" in asked("remit issue --allowed-tools Read Grep --al", 5)
    assert asked("remit issue --allowed-side-effects n", 3) == ["none"]
