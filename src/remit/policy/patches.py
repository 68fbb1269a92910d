"""The files that a patch names: those of a unified diff, and those of the form that coding assistants use.

Every line that could name a file is read; one that names it in a way we do not know makes the patch a doubt.
"""

from collections.abc import Iterator
from typing import Final

__all__ = ["patched_files"]

_NAMING: Final = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_FRAME: Final = ("*** Begin Patch", "*** End Patch", "*** End of File", "*** Environment ID: ")
_SIDES: Final = ("--- ", "+++ ")
_MOVES: Final = ("rename from ", "rename to ", "copy from ", "copy to ")
_OTHER_NAMES: Final = ("Index: ", "Only in ", "Binary files ", "diff ", "*** ", "===")


def patched_files(text: str) -> tuple[list[str], bool]:
    """Return the files that a patch names, and whether it names any in a way that is not known."""
    names: list[str] = []
    doubtful = False
    inside = False
    for raw in text.split("\n"):
        line = raw.strip(" \t\r")
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
                yield name[2:] if mark in _SIDES and name[:2] in ("a/", "b/") else name
    if line.startswith("diff --git "):
        for name in line.removeprefix("diff --git ").split(" "):
            yield name[2:] if name[:2] in ("a/", "b/") else name


def _is_odd(line: str) -> bool:
    if line.startswith((*_NAMING, *_FRAME, "diff --git ")):
        return '"' in line
    return line.startswith(_OTHER_NAMES) or (line.startswith((*_SIDES, *_MOVES)) and '"' in line)
