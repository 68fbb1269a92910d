"""What is printed: as text, whatever it holds."""

import pytest

from remit.cli.render import date, escape_text, show_facts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, größer, 日本", "plain, größer, 日本"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202e\u200b", r"\u202e\u200b"),
        ("\ud800", r"\ud800"),
        ("", ""),
    ],
)
def test_what_is_not_seen_is_escaped(text: str, expected: str) -> None:
    assert escape_text(text) == expected


def test_facts_are_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_facts({"a": "[red]x[/] :smile: \\", "b": "\x1b[2J"}, mark="[bold]")
    assert capsys.readouterr().out.splitlines() == [
        "[bold]",
        "a            [red]x[/] :smile: \\",
        r"b            \x1b[2J",
    ]


def test_a_date_that_no_calendar_has_is_a_number() -> None:
    assert date(0) == "1970-01-01 00:00:00 UTC"
    assert date(2**53) == str(2**53)
