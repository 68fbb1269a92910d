"""Running commands: what a person types, and what comes back."""

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from remit.cli import main

__all__ = ["ASKED", "issued", "lines", "piped", "run", "started"]

# What changes how output is written, and is not set where people work.
_UNUSUAL = {"FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONUNBUFFERED"}
ASKED = ("--agent-id", "agent:me", "--mission", "Read what is there", "--allowed-tools", "Read", "Grep")


def run(place: Path, *arguments: str, given: str | bytes | None = None) -> Result:
    """Run a command on the home at `place`, in this process."""
    return CliRunner().invoke(main, [*arguments, "--home", str(place)], input=given)


def issued(place: Path, *arguments: str) -> str:
    """Return the token of a new passport."""
    result = run(place, "issue", *ASKED, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def started(place: Path, *arguments: str) -> str:
    """Return the id of a session that was started with a new passport."""
    from remit.governor.sessions import StartSession
    from remit.wiring import build_service

    token = issued(place, *arguments)
    service = build_service(place)
    try:
        return service.governor.run(StartSession(token)).session.id
    finally:
        service.close()


def piped(place: Path, *arguments: str, **options: object) -> "subprocess.CompletedProcess[bytes]":
    """Run a command in a process of its own, without a terminal."""
    env = {name: value for name, value in os.environ.items() if name not in _UNUSUAL}
    command = [sys.executable, "-m", "remit", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        command, env=env | {"REMIT_HOME": str(place)}, timeout=120, check=False, **options
    )


def lines(text: str) -> list[str]:
    """What a person reads, with everything that is drawn at random named by its kind."""
    text = re.sub(r"(ledger|rcpt|pass|remit):[0-9A-Za-z_-]{32,43}", r"<\1>", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<hash>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<date>", text)
    return re.sub(r"(?<![\w-])[A-Za-z0-9_-]{43}(?![\w-])", "<kid>", text).splitlines()
