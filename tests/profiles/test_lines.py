"""Bytes and lines: what counts is what a person sees, and what could be seen otherwise is refused."""

import pytest

from remit.errors import FieldInvalid
from remit.profiles.lines import MAX_BYTES, decode_profile, parse_lines


def kinds(text: str) -> list[tuple[str, str, int]]:
    return [line[:3] for line in parse_lines(text)]


def refusal(text: str) -> str:
    with pytest.raises(FieldInvalid) as caught:
        parse_lines(text)
    assert caught.value.code == "field_invalid"
    return caught.value.place


def test_headings_items_and_text_are_told_apart_with_their_line() -> None:
    found = kinds("# One\n\ntext\n* a\n+ b\n3. c\n## Two ##\n  - d")
    assert found == [
        ("heading", "One", 1), ("text", "text", 3), ("item", "a", 4), ("item", "b", 5), ("item", "c", 6),
        ("heading", "Two", 7), ("item", "d", 8),
    ]  # fmt: skip


def test_a_line_that_goes_on_belongs_to_the_item_before_it() -> None:
    assert kinds("- Run npm\n  run lint\nand more\n\nother") == [
        ("item", "Run npm run lint and more", 1),
        ("text", "other", 5),
    ]


def test_an_item_says_where_it_goes_on() -> None:
    assert [line.goes_on_at for line in parse_lines("- a\n- b\n  c\n  d\n\ne")] == [0, 3, 0]


def test_code_within_a_line_opens_no_block() -> None:
    assert kinds("```Run x``` is bad\n\n- a\n\n``` `x\n\n- b") == [
        ("text", "```Run x``` is bad", 1),
        ("item", "a", 3),
        ("text", "``` `x", 5),
        ("item", "b", 7),
    ]


def test_comments_and_code_count_for_nothing() -> None:
    text = "- a <!-- one --> b <!-- two -->\n<!--\n- c\n-->\n```\n- d\n<!--\n```\n- e\n~~~ x\n- f\n```\n~~~\n- g"
    assert kinds(text) == [("item", "a  b", 1), ("item", "e", 9), ("item", "g", 14)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n<!-- a\n## Blocked", 2),
        ("a\n\n```\nb", 3),
        ("<!-- a\n--> - b", 2),
        ("`<!-- a` -->", 1),
        ("\\<!-- a -->", 1),
        ("<!-->\n## Blocked\n-->", 1),
        ("<!--->\n-->", 1),
    ],
)
def test_comments_and_code_that_readers_could_end_elsewhere_are_refused(text: str, line: int) -> None:
    assert refusal(text) == f"line {line}"


@pytest.mark.parametrize("underline", ["---", "===", "-", "  =="])
def test_a_heading_by_underline_is_refused(underline: str) -> None:
    assert refusal(f"## Allowed\n- Read files\n\nBlocked\n{underline}\n- Run git push") == "line 5"


def test_a_block_of_code_ends_only_with_its_mark_alone() -> None:
    assert kinds("````\n- a\n```\n- b\n```` x\n- c\n`````\n- d") == [("item", "d", 8)]


def test_a_rule_between_blank_lines_is_nothing() -> None:
    assert kinds("a\n\n---\n\n* * *\nb") == [("text", "a", 1), ("text", "b", 6)]


UNSEEN = [
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    "\r",
    "\x0b",
    "\u200b",
    "\u202e",
    "\u2028",
    "\u2066",
    "\u00ad",
    "\ud800",
    "\U000e0041",
]


@pytest.mark.parametrize("character", UNSEEN)
def test_what_is_not_seen_or_reorders_text_is_refused_even_in_a_comment(character: str) -> None:
    assert refusal(f"fine\n<!-- a{character}b -->") == "line 2"


def test_bytes_are_utf_8_with_a_mark_or_without_and_lines_end_in_either_way() -> None:
    text = decode_profile("\ufeff# Größe\r\n\r\n- a\r\n".encode())
    assert kinds(text) == [("heading", "Größe", 1), ("item", "a", 3)]


@pytest.mark.parametrize(("data", "place"), [(b"a\nb\xff", "line 2"), (b"x" * (MAX_BYTES + 1), "profile")])
def test_bytes_that_are_no_profile_are_refused(data: bytes, place: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        decode_profile(data)
    assert caught.value.place == place


def test_long_texts_and_long_lines_are_refused() -> None:
    assert refusal("a\n" + "x" * 5000) == "line 2"
    assert refusal("x\n" * MAX_BYTES) == "profile"
