"""Writes lines by a thread of its own, so that nobody who has something to say waits for whoever reads it.

Keeps these invariants: lines are whole and in order; what waits is bounded; and what found no place is counted, and
told after all that waited. After a fork the child begins with nothing. What a line says is for `log.py`.
"""

import io
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Final, NamedTuple, TextIO, TypeAlias, final

__all__ = ["MAX_WAITING", "Lines"]

# In characters, which is enough for what a service says while a disk has a bad moment.
MAX_WAITING: Final = 2 * 1024 * 1024

_Dropped: TypeAlias = Callable[[int], str]


class _Line(NamedTuple):
    stream: TextIO
    text: str


@final
class Lines:
    """Lines on their way."""

    def __init__(self, dropped: _Dropped) -> None:
        """Write lines; `dropped` puts into words that so many found no place."""
        self._words = dropped
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = Condition()
        self._waiting: deque[_Line] = deque()
        self._size = 0
        self._dropped = 0
        self._is_writing = False
        self._writer: Thread | None = None

    def put(self, stream: TextIO, text: str) -> None:
        """Have a line written, some time soon; if too many wait, it is dropped."""
        with self._changed:
            if self._size + len(text) > MAX_WAITING:
                self._dropped += 1
                return
            self._waiting.append(_Line(stream, text))
            self._size += len(text)
            if self._writer is None:
                self._writer = Thread(target=self._write_on, name="log", daemon=True)
                self._writer.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is written, for so long and no longer, and tell whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_writing, timeout_s)

    def _write_on(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                line = self._waiting.popleft()
                self._size -= len(line.text)
                self._is_writing = True
                dropped = 0 if self._waiting else self._dropped
                self._dropped -= dropped
            with suppress(Exception):  # there is nobody else to tell
                _write(line)
                if dropped:
                    _write(_Line(line.stream, self._words(dropped)))


def _write(line: _Line) -> None:
    """Write past the stream's own buffer: whoever flushes that would wait for the same reader."""
    try:
        number = line.stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        line.stream.write(line.text)
        line.stream.flush()
        return
    rest = line.text.encode("utf-8", "backslashreplace")
    while rest:
        rest = rest[os.write(number, rest) :]
