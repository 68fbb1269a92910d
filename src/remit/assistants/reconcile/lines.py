"""Reads the lines of a transcript, one JSON object each, from an untrusted file.

Invariant: memory and the number of bytes read are bounded, whatever the file contains. Lines that cannot be parsed are
counted and skipped. An incomplete last line is not counted, because it may still be being written.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from remit.errors import FieldInvalid, StateMissing, quote

# Enough for an image, which a line contains twice. A parsed line takes up to thirty times as much memory.
MAX_LINE: Final = 16 * 1024 * 1024
MAX_BYTES: Final = 4 * 1024 * 1024 * 1024
_CHUNK: Final = 1024 * 1024


class Lines:
    """Iterates over the objects of one file.

    After the iteration, `bad` is the number of lines that could not be parsed, `cut` is whether the file is longer
    than `max_bytes`, and `digest` is that of all lines that were not too long.
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
        """Return the SHA-256 of the lines that were read, in hexadecimal."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the objects."""
        with _open(self._path) as file:
            for line, is_complete in self._split(file):
                members = _object(line)
                if members is not None:
                    yield members
                elif is_complete and line.strip():
                    self.bad += 1

    def _split(self, file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
        """Yield the lines that are not too long, and whether each ends with a newline."""
        remaining = self._max_bytes
        while remaining > 0:
            line = file.readline(min(self._max_line, remaining))
            if not line:
                return
            remaining -= len(line)
            is_complete = line.endswith(b"\n")
            if not is_complete and len(line) >= self._max_line:
                self.bad += 1
                remaining -= _skip(file)
            else:
                self._hash.update(line)
                yield line, is_complete
        self.cut = bool(file.read(1))


def _open(path: Path) -> BinaryIO:
    """Open a regular file. Does not block on a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kind = StateMissing if isinstance(error, FileNotFoundError) else FieldInvalid
        raise kind(f"the transcript {quote(path.name)} cannot be opened") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FieldInvalid(f"the transcript {quote(path.name)} is not a regular file")
    return os.fdopen(fd, "rb")


def _skip(file: BinaryIO) -> int:
    """Skip the rest of a line. Return the number of bytes skipped."""
    skipped = 0
    while chunk := file.readline(_CHUNK):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped


def _object(line: bytes) -> dict[str, Any] | None:
    """Parse a line. Not with the strict parser, because assistants sometimes write lone surrogates."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
