"""Protection ids. They are deterministic, so that protecting an assistant twice updates one protection.

An id is not a secret: hooks authenticate with a token.
"""

import hashlib
import re
from typing import Final

from remit.assistants.install.files import read_file
from remit.assistants.install.plan import InstallTarget, JsonEdit, Plan
from remit.claims.canonical import canonicalize

__all__ = ["protection_id", "shared_protection_id"]

# Where shared settings have the id: in the hook command, or in the URL that the first release wrote.
_ID_IN_SETTINGS: Final = re.compile(rb"(?:/protections/hook\.py\\?\" |/v1/hooks/claude-code/)(prot-[0-9a-f]{12})\b")


def protection_id(assistant: str, target: InstallTarget, home: str) -> str:
    """Return the id of the protection of a target, stored in the Remit home `home`."""
    anchors = {"local": target.folder, "project": target.folder, "managed": target.managed}
    anchor = anchors.get(target.level, target.config or target.user_home) or ""
    return "prot-" + hashlib.sha256(canonicalize([assistant, target.level, anchor, home])).hexdigest()[:12]


def shared_protection_id(plan: Plan) -> str | None:
    """Return the id in the shared settings, if there is exactly one: all users of the settings use the same id."""
    changes = (change for change in plan.changes if isinstance(change, JsonEdit))
    texts = (read_file(change.path).data or b"" for change in changes)
    ids = {found[1] for text in texts for found in _ID_IN_SETTINGS.finditer(text)}
    return ids.pop().decode("ascii") if len(ids) == 1 else None
