"""The hook script for machine-wide hooks, in a folder that every user can read and only root can write.

The wire file with the token stays in the home of the user who runs the Hub. So the hooks work for that user, and deny
the calls of all other users.
"""

from pathlib import Path
from typing import Final

from remit.assistants.install.plan import FileChange, HookConnection, OwnFile
from remit.assistants.records import hook_script_text

PUBLIC: Final = 0o644


def for_everyone(wire: HookConnection, folder: Path) -> tuple[HookConnection, FileChange]:
    """Return a wire whose script is in a subfolder of `folder`, and the change that writes the script."""
    moved = wire.with_script_in(str(folder / "remit"))
    return moved, OwnFile(moved.script, hook_script_text(wire.protection), PUBLIC)
