"""`remit completion`: scripts for shells, and what they get when they ask."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    env = os.environ | {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    command = [sys.executable, "-c", "from remit.cli import main; main(prog_name='remit')"]
    told = subprocess.run(command, env=env, capture_output=True, check=True, timeout=60)
    assert told.stderr == b""
    return [line.partition(",")[2] for line in told.stdout.decode().splitlines()]


def test_commands_options_and_choices_are_completed() -> None:
    assert {"keys", "kill-switch"} <= set(asked("remit k", 1))
    assert {"setup", "status"} <= set(asked("remit s", 1))
    assert asked("remit hub s", 2) == ["start"]
    assert {"--background", "--port"} <= set(asked("remit hub --", 2)) & set(asked("remit up --", 2))
    assert asked("remit token h", 2) == ["hub", "hook"]
    assert asked("remit kill-switch o", 2) == ["on", "off"]
    assert "--allowed-tools" in asked("remit issue --allowed-tools Read Grep --al", 5)
    assert asked("remit issue --allowed-side-effects n", 3) == ["none"]
