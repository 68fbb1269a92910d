"""Adds blocks of lines to a TOML file, between two marker comments, and removes them again.

Invariant: the file is valid TOML before and after, and its other lines are kept as they are.
"""

import re
import tomllib
from typing import Final

from remit.errors import FieldInvalid

_BEGIN: Final = "# >>> remit {protection} {name}: written by `remit protect`, which can take it out again"
_END: Final = "# <<< remit {protection} {name}"
_NAME: Final = "[a-z][a-z0-9-]*"


def add_block(data: bytes | None, protection: str, name: str, text: str) -> bytes:
    """Return the file with a block appended. A block of the same name is removed."""
    before = remove_blocks(data or b"", protection, name)
    line_end = b"\r\n" if b"\r\n" in before else b"\n"
    begin, end = (mark.format(protection=protection, name=name) for mark in (_BEGIN, _END))
    block = "\n".join((begin, text.strip("\n"), end, "")).encode("utf-8").replace(b"\n", line_end)
    separator = line_end if before and not before.endswith(b"\n") else b""
    after = before + separator + block
    _check(after, "cannot take what Remit has to add: it defines the same name differently")
    return after


def remove_blocks(data: bytes, protection: str, name: str = _NAME) -> bytes:
    """Return the file without the blocks of a protection, or without its block `name`."""
    _check(data, "is not TOML; Remit does not rewrite what it cannot parse")
    begin = rb"^# >>> remit %b (%b):[^\n]*\n" % (protection.encode(), name.encode())
    end = rb"^# <<< remit %b \1\r?(?:\n|\Z)" % protection.encode()
    return re.sub(begin + rb"(?:[^\n]*\n)*?" + end, b"", data, flags=re.MULTILINE)


def _check(data: bytes, problem: str) -> None:
    try:
        tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise FieldInvalid(problem) from None
