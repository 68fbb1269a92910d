"""Lines of a file that may be anything: reading comes to an end, and says what is missing."""

import hashlib
import os
from pathlib import Path

import pytest

from remit.assistants.reconcile.lines import Lines
from remit.errors import FieldInvalid, StateMissing


def lines_of(tmp_path: Path, data: bytes, **limits: int) -> tuple[list[object], Lines]:
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    lines = Lines(path, **limits)
    return list(lines), lines


def test_objects_come_one_after_the_other(tmp_path: Path) -> None:
    data = b'{"a":1}\n\n{"b":2}\r\n{"c":3}'
    found, lines = lines_of(tmp_path, data)
    assert found == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert (lines.bad, lines.cut, lines.digest) == (0, False, hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b"7", b"\xff\xfe", b"\x00", b'{"a":' + b"1" * 9000 + b"}", b"[" * 100_000]
)
def test_a_line_that_cannot_be_read_is_counted_and_the_next_is_tried(tmp_path: Path, line: bytes) -> None:
    found, lines = lines_of(tmp_path, b'{"a":1}\n' + line + b'\n{"b":2}\n')
    assert (found, lines.bad) == ([{"a": 1}, {"b": 2}], 1)


def test_half_characters_are_read(tmp_path: Path) -> None:
    found, lines = lines_of(tmp_path, b'{"a":"\\ud83d"}\n')
    assert (found, lines.bad) == ([{"a": "\ud83d"}], 0)


def test_the_last_line_may_still_be_on_its_way(tmp_path: Path) -> None:
    found, lines = lines_of(tmp_path, b'{"a":1}\n{"b":')
    assert (found, lines.bad) == ([{"a": 1}], 0)


def test_a_line_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    data = b'{"a":1}\n{"b":"' + b"x" * 4000 + b'"}\n{"c":3}\n'
    found, lines = lines_of(tmp_path, data, max_line=100)
    assert (found, lines.bad, lines.cut) == ([{"a": 1}, {"c": 3}], 1, False)


def test_a_file_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    found, lines = lines_of(tmp_path, b'{"a":1}\n' * 100, max_bytes=80)
    assert (len(found), lines.cut) == (10, True)


def test_a_file_that_is_just_as_long_is_not_cut(tmp_path: Path) -> None:
    found, lines = lines_of(tmp_path, b'{"a":1}\n' * 10, max_bytes=80)
    assert (len(found), lines.cut) == (10, False)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StateMissing) as caught:
        list(Lines(tmp_path / "nowhere"))
    assert caught.value.code == StateMissing.code


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_refused_and_nobody_waits_for_it(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    os.mkfifo(place) if kind == "pipe" else place.mkdir()
    with pytest.raises(FieldInvalid) as caught:
        list(Lines(place))
    assert caught.value.code == FieldInvalid.code
