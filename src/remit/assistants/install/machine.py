"""What hooks for everyone on a machine need beside them: the script, out of anyone's home.

Everyone runs these hooks, so everyone reads the script; only root can write there. The wire file, in which a token is,
stays in the home of whoever runs the Hub, so the hooks answer that user, and refuse the calls of all others.
"""

from pathlib import Path
from typing import Final

from remit.assistants.install.plan import FileChange, OwnFile, Wire
from remit.assistants.records import script_text

__all__ = ["PUBLIC", "for_everyone"]

PUBLIC: Final = 0o644


def for_everyone(wire: Wire, folder: Path) -> tuple[Wire, FileChange]:
    """Return the wire that hooks for everyone use, and the script that they run, in a folder of ours."""
    moved = wire.with_script_in(str(folder / "remit"))
    return moved, OwnFile(moved.script, script_text(wire.protection), PUBLIC)
