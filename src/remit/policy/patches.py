"""The files that a patch names: those of a unified diff, and those of the form that coding assistants use.

Every line that could name a file is read; one that names it in a way we do not know makes the patch a doubt.
"""

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["patched_files"]

_NAMING: Final = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
# How a line starts that may name a file.
_MARKS: Final = frozenset("*-+rcdIOB=@")
_OTHER_ENDS: Final = re.compile(r"[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_FRAME: Final = ("*** Begin Patch", "*** End Patch", "*** End of File", "*** Environment ID: ")
_SIDES: Final = ("--- ", "+++ ")
_MOVES: Final = ("rename from ", "rename to ", "copy from ", "copy to ")
_OTHER_NAMES: Final = ("Index: ", "Only in ", "Binary files ", "diff ", "*** ", "===")


def patched_files(text: str) -> tuple[list[str], bool]:
    """Return the files that a patch names, and whether it names any in a way that is not known."""
    names: list[str] = []
    doubtful = False
    inside = False
    # Readers differ on what ends a line: what any of them would take for one is looked at.
    for raw in (*text.split("\n"), *(text.splitlines() if _OTHER_ENDS.search(text) else ())):
        line = raw.strip(" \t\r")
        if line[:1] not in _MARKS:
            continue
        inside = (inside or line.startswith("@@")) and not line.startswith("diff ")
        names.extend(_named(line))
        doubtful = doubtful or (not inside and _is_odd(line))
    return names, doubtful or not names


def _named(line: str) -> Iterator[str]:
    for mark in _NAMING:
        if line.startswith(mark):
            yield line.removeprefix(mark).strip()
    for mark in (*_SIDES, *_MOVES):
        if line.startswith(mark):
            name = line.removeprefix(mark).partition("\t")[0].strip()
            if name != "/dev/null":
                yield name
                # Without the first part, as programs that apply patches do.
                yield name.partition("/")[2] if mark in _SIDES and not name.startswith("/") and "/" in name else name
    if line.startswith("diff --git "):
        for name in line.removeprefix("diff --git ").split(" ")[:8]:
            yield name.partition("/")[2] if name[:2] in ("a/", "b/") else name


def _is_odd(line: str) -> bool:
    if line.startswith((*_NAMING, *_FRAME, "diff --git ")):
        return '"' in line
    return line.startswith(_OTHER_NAMES) or (line.startswith((*_SIDES, *_MOVES)) and '"' in line)
