"""Finds the programs of coding assistants and their versions, and checks folders to protect.

Keeps this invariant: a program is run for its version outside of the governed folder, so that no file in that folder
has an influence.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.assistants.install.plan import HookConnection
from remit.assistants.records import PROTECTIONS_FOLDER, SCRIPT_NAME, wire_name
from remit.config import user_home
from remit.errors import FieldInvalid
from remit.hub.auth import hook_token, proof_key

__all__ = ["check_folder", "find_program", "get_program_version", "make_wire"]

_NUMBERS: Final = r"(\d+(?:\.\d+){1,3})(?:[-+][0-9A-Za-z.+-]{1,64})?"
# How each program prints its version. Any other output is not trusted to be a version.
_VERSIONS: Final[Mapping[str, re.Pattern[str]]] = {
    "claude": re.compile(rf"^{_NUMBERS} \(Claude Code\)\s*$", re.MULTILINE),
    "codex": re.compile(rf"^codex-cli {_NUMBERS}\s*$", re.MULTILINE),
    "copilot": re.compile(rf"^GitHub Copilot CLI {_NUMBERS}\.?\s*$", re.MULTILINE),
    "gemini": re.compile(rf"\A\s*{_NUMBERS}\s*\Z"),
    "opencode": re.compile(rf"\A\s*{_NUMBERS}\s*\Z"),
}
_TIMEOUT_S: Final = 30
_MAX_CHARACTERS: Final = 200


def find_program(name: str, named: str | None) -> str:
    """Return the absolute path of an assistant's program: the given one, else from PATH; empty if there is none."""
    path = named or shutil.which(name) or ""
    if Path(path).is_absolute():
        return path
    if named:
        raise FieldInvalid("must be the absolute path of the program", place="--program")
    return ""


def get_program_version(name: str, named: str | None) -> str:
    """Return the version of an assistant's program; empty if there is none or its output is not understood."""
    path = find_program(name, named)
    if not path:
        return ""
    try:
        output = subprocess.run(  # noqa: S603 - the program that the user runs too
            [path, "--version"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        if named:
            raise FieldInvalid(f"{path} does not print its version", place="--program") from None
        return ""
    match = _VERSIONS[name].search(output[:_MAX_CHARACTERS])
    return match[1] if match else ""


def make_wire(home: str, protection: str, assistant: str, *, hub_url: str, hub_token: str) -> HookConnection:
    """Return how the hooks of a protection reach the Hub. `home` is the real path of the home."""
    folder = Path(home, PROTECTIONS_FOLDER)
    return HookConnection(
        protection=protection,
        assistant=assistant,
        url=f"{hub_url}/v1/hooks/{assistant}/{protection}",
        token=hook_token(hub_token, protection),
        proof=proof_key(hub_token, protection),
        path=str(folder / wire_name(protection)),
        # Not the Python of a virtual environment, which may be in the governed folder.
        python=os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
        script=str(folder / SCRIPT_NAME),
    )


def check_folder(folder: str, *, named: bool) -> None:
    """Raise unless an absolute, real path is a folder that can be protected.

    The root and the user's home hold everything, so they must be named explicitly.
    """
    if not Path(folder).is_dir():
        raise FieldInvalid(f"{folder} is not a folder", place="--scope")
    if not named and folder in ("/", str(Path(user_home() or "/").resolve())):
        raise FieldInvalid(f"{folder} holds everything; if you mean it: --scope {folder}", place="--scope")
