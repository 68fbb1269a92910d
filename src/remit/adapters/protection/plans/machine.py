"""What hooks for everyone on a machine need beside them: the wire file and the script, out of anyone's home.

Everyone runs these hooks, so everyone reads what they need; only root can write there.
"""

import json
from pathlib import Path
from typing import Final

from remit.adapters.hooks.script import script_text
from remit.adapters.protection.plan import Change, Whole, Wire

__all__ = ["PUBLIC", "for_everyone"]

PUBLIC: Final = 0o644


def for_everyone(wire: Wire, folder: Path, *, with_script: bool = True) -> tuple[Wire, tuple[Change, ...]]:
    """Return the wire that hooks for everyone use, and the files that it needs, in a folder of ours."""
    moved = wire.moved(str(folder / "remit"))
    script = (Whole(moved.script, script_text(wire.protection), PUBLIC),) if with_script else ()
    return moved, (*script, Whole(moved.path, json.dumps(moved.content()) + "\n", PUBLIC))
