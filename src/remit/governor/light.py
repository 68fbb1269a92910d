"""Which calls are quick to judge: these the writer of the ledger judges itself, all others are judged aside.

Keeps this invariant: what is light takes well under a millisecond, whatever its arguments hold.
"""

import re
from typing import Final

from remit.policy.call import ToolCall
from remit.policy.catalog import known_tools

__all__ = ["is_light"]

# What can be judged and written down in well under a millisecond; all else is done aside.
_LIGHT_ROLES: Final = frozenset(("data", "edit", "read", "seen", "url", "write"))
# In a URL, these characters stand for themselves.
_URL_ROLES: Final = frozenset(("seen", "url"))
_LIGHT_ARGUMENTS: Final = 16
_LIGHT_TEXT: Final = 512
_WIDE: Final = re.compile(r"[*?\[{]")


def is_light(call: ToolCall) -> bool:
    """Tell whether a call is quick to judge: a known tool with few, short and plain paths, URLs or data.

    What is run, searched or deleted can stand for any number of files, and so can a pattern.
    """
    tool = known_tools().get(call.tool_name)
    if tool is None or len(call.arguments) > _LIGHT_ARGUMENTS or len(call.cwd or "") > _LIGHT_TEXT:
        return False
    for name, value in call.arguments.items():
        role = tool.args.get(name)
        if role not in _LIGHT_ROLES:
            return False
        if isinstance(value, str):
            if len(value) > _LIGHT_TEXT or (_WIDE.search(value) and not (role in _URL_ROLES and "://" in value)):
                return False
        elif not isinstance(value, bool | int | None):
            return False
    return True
