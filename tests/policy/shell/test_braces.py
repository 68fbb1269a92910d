"""Brace expansion: every word it makes is seen, or it is said that there are too many."""

import pytest

from remit.policy.shell.parse.braces import MAX_ALTERNATIVES, brace_alternatives, expand_braces
from remit.policy.shell.parse.syntax import Parameter, Text
from tests.policy.judging import command, touched


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", ["a"]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b}y", ["xay", "xby"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"]),
        ("{a,}", ["a", ""]),
        ("{,}", ["", ""]),
        ("{1..3}", ["1", "2", "3"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{a}", ["{a}"]),
        ("{}", ["{}"]),
        ("{a,b", ["{a,b"]),
        ("a,b}", ["a,b}"]),
        ("{a}{b,c}", ["{a}b", "{a}c"]),
        ("a{b,c}d{e", ["abd{e", "acd{e"]),
    ],
)
def test_braces_make_the_words_that_bash_makes(text: str, words: list[str]) -> None:
    assert expand_braces(text) == words


def test_quoted_braces_stand_for_themselves() -> None:
    parts = (Text("{a,b}", quoted=True),)
    assert list(brace_alternatives(parts)) == [list(parts)]


def test_other_parts_stay_where_they_are() -> None:
    name = Parameter("x", "", None, quoted=False)
    parts = (Text("{a,", quoted=False), name, Text("}b", quoted=False))
    assert list(brace_alternatives(parts)) == [[Text("ab", quoted=False)], [name, Text("b", quoted=False)]]


@pytest.mark.parametrize("text", ["{1..5..2}", "{01..03}", "{a..5}", "{1..}", "{1..1000}", "{" * 13 + "a,b" + "}" * 13])
def test_what_is_not_worth_a_second_opinion_is_not_called_exact(text: str) -> None:
    assert expand_braces(text) == ["/**"]


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(str(number) for number in range(MAX_ALTERNATIVES + 1)) + "}",
        "{{1..100},{1..100}}",
        "{1..12}{1..12}",
        "{{1..100},/etc/passwd}",
    ],
    ids=["list", "lists", "product", "last"],
)
def test_too_many_words_are_said_to_be_too_many(text: str) -> None:
    words = expand_braces(text)
    assert words == ["/**"] or "/etc/passwd" in words


@pytest.mark.parametrize(
    "text",
    ["{{1..100},/etc/passwd}", "{{1..60},{1..60},/etc/passwd}", "{{a..z},{a..z},{a..z},{a..z},{a..z},/etc/passwd}"],
)
def test_no_word_is_lost_behind_many_others(text: str) -> None:
    decision = command(f"cat {text}")
    assert decision.code in ("out_of_scope", "target_unknown")


def test_every_word_that_fits_is_judged() -> None:
    assert touched(command("cat {a,../b}{c,d}")) == {
        "run cat",
        "read /work/app/ac",
        "read /work/app/ad",
        "read /work/bc",
        "read /work/bd",
    }
