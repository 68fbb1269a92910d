"""Hooks of this home whose protection it does not know any more: nobody undoes them, and they block for ever.

Keeps this invariant: only what names a wire file in this very home is taken out. Hooks of another home, and shared ones
that name none, may be known elsewhere.
"""

import json
from itertools import islice
from typing import Final

from remit.assistants.install.jsonedit import remove_entries
from remit.assistants.records import ANY_ID, FileKind, Protections

__all__ = ["without_stale"]

# Each is taken out by itself, which takes time: a file with more of them is made to take it.
_MOST: Final = 100


def without_stale(protections: Protections, kind: FileKind, data: bytes, own: str) -> bytes:
    """Return a file of settings without hooks of protections that this home does not know; `own` is not looked at."""
    if kind != "json":
        return data
    text = data.decode("utf-8", "replace")
    for name in islice(dict.fromkeys(ANY_ID.findall(text)), _MOST):
        if name != own and not protections.holds(name) and _in_json(protections.wire_path(name)) in text:
            data = remove_entries(data, name)
    return data


def _in_json(path: str) -> str:
    return json.dumps(path, ensure_ascii=False)[1:-1]
