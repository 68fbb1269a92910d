"""Tools that no catalog knows: what their names and the looks of their arguments say.

An argument is a resource when it is named like one or reads like one. In doubt it is: a passport that lets an unknown
tool run still bounds what it may touch.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from remit.claims.receipt import ActionClass
from remit.claims.shapes import SideEffectClass
from remit.policy.shell.run import judge_script
from remit.policy.trace import Trace

__all__ = ["guess_action", "judge_unmarked"]

_MAX_NAME: Final = 256
_PARTS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_PATH_NAMES: Final = frozenset(
    "path paths file files filename filenames filepath filepaths dir dirs directory directories folder folders cwd "
    "workdir outfile infile".split()
)
# Names that often hold a path, and often something else: then only a single line is one.
_LOOSE_NAMES: Final = frozenset("source sources src destination destinations dest dst output location root".split())
_URL_NAMES: Final = frozenset("url urls uri uris href endpoint webhook".split())
# Names that every tool uses for text.
_DATA_NAMES: Final = frozenset("content contents old_string new_string prompt regex".split())
_COMMAND_NAMES: Final = frozenset("command cmd commands argv shell bash".split())
_CODE_NAMES: Final = frozenset("code script".split())
_SHELL_TOOLS: Final = frozenset(
    "bash shell sh exec execute run command cmd terminal console powershell process subprocess ssh".split()
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:", re.IGNORECASE)
_READS_LIKE: Final = re.compile(r"[/~]|\.{1,2}[/\\\\]|[A-Za-z]:[/\\\\]|\\\\\\\\|\.\.\Z|\$(?:HOME|\{)")
_UPWARD: Final = re.compile(r"(?:\A|[/\\\\])\.\.(?:[/\\\\]|\Z)|(?:%2e|\.){2}(?:%2f|%5c)", re.IGNORECASE)

# The first word of a tool's name that is here decides.
_CHANGES: Final = (
    "write create update edit append save put patch insert rename move copy replace modify make touch export"
)
_SENDS: Final = (
    "send post publish email mail notify message reply comment upload share submit push pay transfer tweet invite call"
)
_READS: Final = "read get list show view fetch load open download describe inspect status info stat"
_VERBS: Final[dict[str, tuple[ActionClass, str, SideEffectClass]]] = {
    **dict.fromkeys(_READS.split(), ("read", "tool", "none")),
    **dict.fromkeys("search find grep lookup glob browse".split(), ("search", "tool", "none")),
    **dict.fromkeys("query select count".split(), ("query", "database", "none")),
    **dict.fromkeys("summarize summarise translate explain analyze analyse".split(), ("summarize", "tool", "none")),
    **dict.fromkeys("observe watch monitor record".split(), ("observe", "observation", "none")),
    **dict.fromkeys("delegate handoff spawn assign agent".split(), ("delegate", "agent", "state_change")),
    **dict.fromkeys(_SENDS.split(), ("send", "message", "external_send")),
    **dict.fromkeys(_CHANGES.split(), ("write", "tool", "internal_write")),
}
_UNKNOWN: Final[tuple[ActionClass, str, SideEffectClass]] = ("write", "tool", "state_change")


@lru_cache(maxsize=1024)
def guess_action(tool_name: str) -> tuple[ActionClass, str, SideEffectClass]:
    """Return what the name of a tool says that it does; a name that says nothing changes state."""
    parts = (part.lower() for part in _PARTS.findall(tool_name[:_MAX_NAME]))
    return next((_VERBS[part] for part in parts if part in _VERBS), _UNKNOWN)


@lru_cache(maxsize=4096)
def _words(name: str) -> frozenset[str]:
    return frozenset(part.lower() for part in _PARTS.findall(name[:_MAX_NAME]))


def judge_unmarked(
    trace: Trace, tool_name: str, place: str, text: str, *, base: str | None, inner: Callable[[str, str], None]
) -> None:
    """Note the resource that an argument names, if it is one."""
    words = _words(place.rpartition(".")[2])
    stripped = text.strip()
    if place.rpartition(".")[2] in _DATA_NAMES:
        return
    role = "read" if guess_action(tool_name)[2] == "none" else "edit"
    lines = "\n" in stripped
    if stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]"):
        inner(place, stripped)
    if words & _COMMAND_NAMES and (_words(tool_name) & _SHELL_TOOLS or re.search(r"[\s;|&<>$`]", stripped)):
        judge_script(trace, text, base)
    elif words & _CODE_NAMES and _words(tool_name) & _SHELL_TOOLS:
        trace.doubt(place, "it is code that is not analysed", unbounded=True)
    elif _SCHEME.match(stripped) and not lines:
        _judge_url(trace, text, place, role)
    elif words & _URL_NAMES and stripped:
        trace.contact(text, place, sends=role != "read", bare=True)
    elif (
        words & _PATH_NAMES
        or (words & _LOOSE_NAMES and not lines)
        or (not lines and (_READS_LIKE.match(stripped) or _UPWARD.search(stripped)))
    ):
        trace.touch(role, text, base, place)


def _judge_url(trace: Trace, text: str, place: str, role: str) -> None:
    if text.lower().startswith("file:"):
        trace.doubt(place, "it is a URL of a file, which is read in more than one way")
    else:
        trace.contact(text, place, sends=role != "read")
