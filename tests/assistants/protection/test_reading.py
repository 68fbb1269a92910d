"""Settings of others: understood, or refused."""

from pathlib import Path

import pytest

from remit.assistants.install.reading import read_settings
from remit.claims.strictjson import MAX_BYTES
from remit.errors import InputError

NOT_PLAIN = {
    "a member twice": b'{"a": 1, "a": 2}',
    "a number of any size": b'{"a": 123456789012345678901234567890}',
    "half a character": b'{"a": "\\ud800"}',
    "too large": b'{"a": "' + b"x" * MAX_BYTES + b'"}',
    "a comment": b'{"a": 1} // b',
    "a trailing comma": b'{"a": 1,}',
    "another coding": b'{"a": "\xff"}',
}


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
@pytest.mark.parametrize("with_comments", [False, True])
def test_what_readers_may_understand_otherwise_is_refused(data: bytes, with_comments: bool, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(data)
    with pytest.raises(InputError) as refused:
        read_settings(tmp_path / "settings.json", with_comments=with_comments)
    assert refused.value.place == f"{tmp_path.name}/settings.json"


@pytest.mark.parametrize("data", [b"", b" \n", b"[]", b"null", b"\xef\xbb\xbf{}"])
def test_a_file_that_says_nothing_says_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(data)
    assert read_settings(tmp_path / "settings.json") == {}
    assert read_settings(tmp_path / "gone.json") == read_settings(tmp_path) == {}


def test_lines_of_nothing_but_a_comment_are_left_out_for_who_knows_comments(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(b'// one\n{\n  // "a": 1\r\n  "a": "// two"\n}\n')
    assert read_settings(tmp_path / "settings.json", with_comments=True) == {"a": "// two"}
    with pytest.raises(InputError):
        read_settings(tmp_path / "settings.json")


def test_a_comment_that_may_end_sooner_for_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(b'// one\r{"a": 1}\n{}')
    with pytest.raises(InputError):
        read_settings(tmp_path / "settings.json", with_comments=True)
