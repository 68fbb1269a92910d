"""Paths: what is compared with the scope is what would be opened, or it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.files import TextFiles, UnseenFiles, join, locate, refuse_text

FILES = TextFiles()


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "/a/b.c",
        "../a",
        ".",
        "",
        "a b",
        "caf\u00e9",
        "a%20b",
        "100%",
        "$",
        "a$",
        "a~",
        "xy:z",
        "a\\b",
        "C",
        "...",
        "a..b",
    ],
)
def test_a_plain_path_is_taken_as_it_is_written(text: str) -> None:
    assert refuse_text(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "a" * 4097,
        "/" + "a/" * 2048,
        "a\0b",
        "a\nb",
        "a\tb",
        "\x7f",
        "a\u200bb",
        "a\u202eb",
        "\ufeffa",
        "soft\u00adhyphen",
        "\ud800",
        " a",
        "a ",
        "~",
        "~/a",
        "~root/a",
        "$HOME/a",
        "a/${X}",
        "$(id)",
        "%APPDATA%/a",
        "https://a.example/b",
        "file:/etc/passwd",
        "file:etc",
        "FILE:///etc",
        "C:/a",
        "c:a",
        "\\\\server\\share",
        "//?/C:/a",
        "//./pipe/a",
        "..\\a",
        "a\\..\\b",
        "a/..\\b",
        "%2e%2e/a",
        "a/%2E%2E/b",
        "%252e%252e/a",
        "..%2fa",
        "\uff0e\uff0e/a",
        "a\uff0fb",
        "\u2025/a",
        "a\uff3cb",
    ],
    ids=ascii,
)
def test_a_path_that_somebody_could_read_differently_is_refused(text: str) -> None:
    assert refuse_text(text)


@pytest.mark.parametrize(
    ("base", "text", "joined"),
    [("/a", "b", "/a/b"), ("/a", "/b", "/b"), ("/a", "", "/a"), ("/a", "..", "/a/.."), ("/", "b", "//b")],
)
def test_a_relative_path_starts_at_the_base(base: str, text: str, joined: str) -> None:
    assert join(base, text) == joined


@pytest.mark.parametrize(
    ("text", "base", "path"),
    [
        ("b", "/a", "/a/b"),
        ("../b", "/a", "/b"),
        ("./b/./c/", "/a", "/a/b/c"),
        ("/b//c", "/a", "/b/c"),
        ("../../../b", "/a", "/b"),
        ("/..", None, "/"),
        ("", "/a", "/a"),
    ],
)
def test_dots_are_resolved_before_anything_is_compared(text: str, base: str | None, path: str) -> None:
    look = locate(text, base, FILES)
    assert (look.path, look.refusal) == (path, "")


def test_a_relative_path_without_a_base_is_refused() -> None:
    assert locate("a", None, FILES).refusal
    assert not locate("/a", None, FILES).refusal


def test_the_refusal_of_the_file_system_is_passed_on() -> None:
    assert locate("/a", None, UnseenFiles()).refusal


@given(st.text(max_size=40), st.sampled_from([None, "/", "/a", "/a/b"]))
def test_what_is_not_refused_is_absolute_and_has_no_dots(text: str, base: str | None) -> None:
    look = locate(text, base, FILES)
    if not look.refusal:
        names = look.path.split("/")
        assert names[0] == ""
        assert not {".", ".."} & set(names)
        assert look.path == "/" or "" not in names[1:]


@given(st.lists(st.sampled_from(["..", ".", "a", "b", ""]), max_size=8).map("/".join))
def test_finding_a_place_twice_gives_the_same_place(text: str) -> None:
    once = locate(text, "/x/y", FILES).path
    assert locate(once, None, FILES).path == once
