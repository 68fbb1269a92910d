"""Log lines written by a thread: logging does not wait for a slow reader, and dropped lines are counted."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple, TextIO

import pytest

from remit.server.lines import MAX_QUEUED, LineWriter


class Pipe(NamedTuple):
    """A pipe that is read only when a test does."""

    reader: int
    stream: TextIO

    def read_until(self, end: bytes) -> str:
        """Return all up to these bytes."""
        found = b""
        while not found.endswith(end):
            found += os.read(self.reader, 1 << 20)
        return found.decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield Pipe(reader, stream)
        os.close(reader)


def in_words(count: int) -> str:
    return f"{count} were dropped\n"


def test_lines_are_written_whole_and_in_their_order(pipe: Pipe) -> None:
    lines, texts = LineWriter(in_words), [f"line {number}\n" for number in range(100)]
    for text in texts:
        lines.put(pipe.stream, text)
    assert lines.flush(10)
    assert pipe.read_until(texts[-1].encode()) == "".join(texts)


def test_nobody_waits_for_a_reader_and_what_found_no_place_is_told(pipe: Pipe) -> None:
    lines, text = LineWriter(in_words), "x" * (MAX_QUEUED // 4) + "\n"
    for _ in range(10):
        lines.put(pipe.stream, text)
    assert not lines.flush(0.01)
    found = pipe.read_until(b"dropped\n")
    (dropped,) = re.findall(r"(\d+) were dropped", found)
    assert found.count(text) + int(dropped) == 10
    lines.put(pipe.stream, "after\n")
    assert pipe.read_until(b"after\n").endswith("after\n")


def test_a_stream_that_is_gone_keeps_nobody_from_another(pipe: Pipe) -> None:
    lines, (reader, writer) = LineWriter(in_words), os.pipe()
    gone = os.fdopen(writer, "w", encoding="utf-8")
    os.close(reader)
    lines.put(gone, "lost\n")
    lines.put(pipe.stream, "kept\n")
    assert lines.flush(10)
    assert pipe.read_until(b"kept\n") == "kept\n"
    gone.close()
