"""Settings. The only reader of the environment: everything else is told."""

import os
from pathlib import Path
from typing import Final

from remit.errors import StateMissing

__all__ = ["HOME_VARIABLE", "home_path"]

HOME_VARIABLE: Final = "REMIT_HOME"
_DEFAULT: Final = "~/.remit"


def home_path(option: str | None) -> Path:
    """Return where the home lies: as the option says, else REMIT_HOME, else `~/.remit`. An empty text says nothing."""
    try:
        return Path(option or os.environ.get(HOME_VARIABLE) or _DEFAULT).expanduser()
    except RuntimeError:
        raise StateMissing(f"this user has no home directory: name a folder with --home or {HOME_VARIABLE}") from None
