"""Finds the programs of coding assistants and their versions.

Invariant: a program is run for its version outside of the governed folder, so that no file in that folder
has an influence.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.errors import FieldInvalid

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
