"""The lines of a transcript, one JSON object each, from a file that may be anything.

Keeps this invariant: however long the file and its lines are, memory is bounded, and reading comes to an end. A line
that cannot be read is counted, and the next one is tried; the last one may still be on its way, and is not counted
then.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from remit.errors import FieldInvalid, StateMissing, quote

__all__ = ["MAX_BYTES", "MAX_LINE", "Lines"]

# A picture fits, which stands in a line twice. Read, a line of this length takes up to thirty times as much.
MAX_LINE: Final = 16 * 1024 * 1024
MAX_BYTES: Final = 4 * 1024 * 1024 * 1024
_PIECE: Final = 1024 * 1024


class Lines:
    """Goes through the objects of one file; once that has come to its end, `bad` and `cut` say what is missing.

    `digest` is then that of all that was read, lines that are too long left out.
    """

    def __init__(self, path: Path, *, max_line: int = MAX_LINE, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_line = max_line
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self.bad = 0
        self.cut = False

    @property
    def digest(self) -> str:
        """Return the SHA-256 of what was read, in hex."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield one object after the other."""
        with _opened(self._path) as file:
            for line, whole in self._split(file):
                members = _object(line)
                if members is not None:
                    yield members
                elif whole and line.strip():
                    self.bad += 1

    def _split(self, file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
        """Yield the lines that are not too long, and whether each has its end."""
        left = self._max_bytes
        while left > 0:
            line = file.readline(min(self._max_line, left))
            if not line:
                return
            left -= len(line)
            whole = line.endswith(b"\n")
            if not whole and len(line) >= self._max_line:
                self.bad += 1
                left -= _skip(file)
            else:
                self._hash.update(line)
                yield line, whole
        self.cut = bool(file.read(1))


def _opened(path: Path) -> BinaryIO:
    """Return a file that is one: opening a pipe would wait for ever."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kind = StateMissing if isinstance(error, FileNotFoundError) else FieldInvalid
        raise kind(f"the transcript {quote(path.name)} cannot be opened") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FieldInvalid(f"the transcript {quote(path.name)} is not a file")
    return os.fdopen(fd, "rb")


def _skip(file: BinaryIO) -> int:
    """Read on to the end of a line; return how much that was."""
    skipped = 0
    while piece := file.readline(_PIECE):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line. Assistants write half characters at times, which the strict reader refuses."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
