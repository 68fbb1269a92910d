"""Writes log lines in a thread, so that logging never blocks on a slow reader.

Invariants: lines are written whole and in order. The queue is bounded; lines beyond it are dropped, and their number is
written when the queue is empty. After a fork, the child starts with an empty queue. `log.py` formats the lines.
"""

import io
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Final, NamedTuple, TextIO, TypeAlias, final

# The size of the queue in characters.
MAX_QUEUED: Final = 2 * 1024 * 1024

_FormatDropped: TypeAlias = Callable[[int], str]


class _OutputLine(NamedTuple):
    stream: TextIO
    text: str


@final
class LineWriter:
    """A bounded queue of lines, and the thread that writes them."""

    def __init__(self, format_dropped: _FormatDropped) -> None:
        """Write lines; `format_dropped` returns the line that reports a number of dropped ones."""
        self._format_dropped = format_dropped
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = Condition()
        self._queue: deque[_OutputLine] = deque()
        self._size = 0
        self._dropped = 0
        self._is_writing = False
        self._writer: Thread | None = None

    def put(self, stream: TextIO, text: str) -> None:
        """Queue a line; drop it if the queue is full."""
        with self._changed:
            if self._size + len(text) > MAX_QUEUED:
                self._dropped += 1
                return
            self._queue.append(_OutputLine(stream, text))
            self._size += len(text)
            if self._writer is None:
                self._writer = Thread(target=self._run, name="log", daemon=True)
                self._writer.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty, for `timeout_s` at most; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._is_writing, timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue)
                line = self._queue.popleft()
                self._size -= len(line.text)
                self._is_writing = True
                dropped = 0 if self._queue else self._dropped
                self._dropped -= dropped
            with suppress(Exception):  # an error here could only be logged here
                _write(line)
                if dropped:
                    _write(_OutputLine(line.stream, self._format_dropped(dropped)))


def _write(line: _OutputLine) -> None:
    """Write to the descriptor of the stream: its buffer has a lock, which others would wait for."""
    try:
        number = line.stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        line.stream.write(line.text)
        line.stream.flush()
        return
    rest = line.text.encode("utf-8", "backslashreplace")
    while rest:
        rest = rest[os.write(number, rest) :]
