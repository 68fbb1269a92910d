"""Blocks in TOML files: put in, replaced, taken out, and all other lines as they were."""

import tomllib

import pytest

from remit.assistants.install.tomltext import add_block, remove_blocks
from remit.errors import FieldInvalid

ID, OTHER = "prot-0123456789ab", "prot-ffffffffffff"
FILE = b'model = "x"  # mine\r\n\r\n[table]\r\na = 1\r\n'


def test_a_block_is_added_and_its_removal_gives_back_every_byte() -> None:
    after = add_block(FILE, ID, "hooks", "[[hooks.Stop]]\nname = 1\n")
    assert tomllib.loads(after.decode())["hooks"] == {"Stop": [{"name": 1}]}
    assert after.replace(b"\r\n", b"").count(b"\n") == 0
    assert remove_blocks(after, ID) == FILE


def test_a_block_replaces_the_one_of_its_name_and_no_other() -> None:
    both = add_block(add_block(add_block(FILE, ID, "one", "[x]\na = 1"), ID, "two", "[y]"), OTHER, "one", "[z]")
    again = add_block(both, ID, "one", "[x]\na = 2")
    assert tomllib.loads(again.decode()) == {"model": "x", "table": {"a": 1}, "x": {"a": 2}, "y": {}, "z": {}}
    assert tomllib.loads(remove_blocks(again, ID).decode()) == {"model": "x", "table": {"a": 1}, "z": {}}


def test_a_file_that_is_not_there_begins_with_the_block() -> None:
    assert tomllib.loads(add_block(None, ID, "hooks", "[x]").decode()) == {"x": {}}


def test_a_mark_without_its_end_takes_nothing_with_it() -> None:
    begun = add_block(FILE, ID, "hooks", "[x]").rsplit(b"# <<<", 1)[0]
    assert remove_blocks(begun, ID) == begun


@pytest.mark.parametrize("data", [b"a = ", b"\xff", b"[x]\n"], ids=["no TOML", "no UTF-8", "the same table"])
def test_what_is_not_toml_before_or_after_is_refused(data: bytes) -> None:
    with pytest.raises(FieldInvalid) as refused:
        add_block(data, ID, "hooks", "[x]")
    assert refused.value.code == "field_invalid"
