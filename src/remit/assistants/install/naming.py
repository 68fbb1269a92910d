"""The id of a protection: the same for the same assistant in the same place, so that protecting twice is once.

It is a name and no secret: what opens the Hub is the token beside it.
"""

import hashlib
import re
from typing import Final

from remit.assistants.install.files import read_file
from remit.assistants.install.plan import JsonEdit, Place, Plan
from remit.claims.canonical import canonicalize

__all__ = ["adopted_id", "protection_id"]

# As shared settings name it: in a command, or in the address that the first release wrote.
_NAMED: Final = re.compile(rb"(?:/protections/hook\.py\\?\" |/v1/hooks/claude-code/)(prot-[0-9a-f]{12})\b")


def protection_id(assistant: str, place: Place, home: str) -> str:
    """Return the id of a protection in a place, kept in a home."""
    anchors = {"local": place.folder, "project": place.folder, "managed": place.managed}
    anchor = anchors.get(place.level, place.config or place.user_home) or ""
    return "prot-" + hashlib.sha256(canonicalize([assistant, place.level, anchor, home])).hexdigest()[:12]


def adopted_id(plan: Plan) -> str | None:
    """Return the id that shared settings name already, if it is one: all who share them keep to it."""
    changes = (change for change in plan.changes if isinstance(change, JsonEdit))
    texts = (read_file(change.path).data or b"" for change in changes)
    named = {found[1] for text in texts for found in _NAMED.finditer(text)}
    return named.pop().decode("ascii") if len(named) == 1 else None
