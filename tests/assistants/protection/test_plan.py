"""The wire of hooks: a shell command that blocks whatever goes wrong, and a token that shows itself to nobody."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.assistants.protection.places import wire

pytestmark = pytest.mark.slow


def ended(command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, input="{}")


def test_the_token_is_in_no_command_and_in_no_text_of_the_wire() -> None:
    assert "secret" not in wire().command() + wire().shared_command() + repr(wire())
    assert wire().content()["token"] == "secret-of-hooks"


@pytest.mark.parametrize(("code", "after"), [(0, 0), (1, 2), (2, 2), (3, 2), (139, 2)])
def test_every_failure_of_the_script_ends_with_2(code: int, after: int, tmp_path: Path) -> None:
    script = tmp_path / "it's a $(script).py"
    script.write_text(f"import sys; print(sys.argv[1]); sys.exit({code})")
    result = ended(replace(wire(), python=sys.executable, script=str(script)).command())
    assert (result.returncode, result.stdout) == (after, "/home/of remit/protections/prot-0123456789ab.wire.json\n")
    assert bool(result.stderr) == (code not in (0, 2))


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin", "/dev/null"])
def test_an_interpreter_that_is_gone_blocks_and_says_so(python: str) -> None:
    result = ended(replace(wire(), python=python).command())
    assert result.returncode == 2
    assert "remit doctor claude-code" in result.stderr


def test_a_script_that_is_gone_blocks() -> None:
    result = ended(replace(wire(), python=sys.executable, script="/nowhere/hook.py").command())
    assert (result.returncode, bool(result.stderr)) == (2, True)


def test_the_script_can_lie_elsewhere_and_the_wire_stays_in_the_home() -> None:
    moved = wire().with_script_in("/etc/x")
    assert (moved.path, moved.script) == (wire().path, "/etc/x/hook.py")
    assert moved.content() == wire().content()


@pytest.mark.parametrize("named", ["HOME", "REMIT_HOME"])
def test_the_command_of_shared_settings_runs_the_script_of_whoever_runs_it(named: str, tmp_path: Path) -> None:
    home = tmp_path / "it's $(here)"
    folder = home / ("protections" if named == "REMIT_HOME" else ".remit/protections")
    folder.mkdir(parents=True)
    line = wire().shared_command()
    assert "/home/of remit" not in line
    environment = {"PATH": os.environ["PATH"], "HOME": "/nowhere", named: str(home)}
    gone = subprocess.run(["/bin/sh", "-c", line], capture_output=True, env=environment, check=False, input=b"{}")
    assert gone.returncode == 2
    (folder / "hook.py").write_text("import sys; print(sys.argv[1:])")
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, env=environment, check=False, input=b"{}")
    assert (done.returncode, done.stdout) == (0, b"['prot-0123456789ab']\n")
