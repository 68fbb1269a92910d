"""Expansion: a field that is called exact is exactly what bash would pass on."""

from collections.abc import Mapping

import pytest

from remit.policy.field import Field
from remit.policy.shell.evaluate.expand import Expander, arithmetic_names
from remit.policy.shell.evaluate.state import NUMBER, Output, ShellState, Unknown, Value
from remit.policy.shell.parse.grammar import parse_script
from remit.policy.shell.parse.syntax import Script, Simple

ANY = Unknown("any", "", "$y")
BELOW = Unknown("below", "/d", "$(…)", filled=True)
VARIABLES: Mapping[str, Value] = {
    "x": "a b",
    "p": "/etc/x.tar.gz",
    "e": "",
    "g": "*",
    "n": NUMBER,
    "y": ANY,
    "d": BELOW,
    "l": ("one", "two three"),
    "i": "3",
    "s": " a ",
}
PRINTED = Output("out\n\n")
WORLD = ShellState("/w", VARIABLES, {}, arguments=("first", "second one"))


class Asked:
    """An expander with what it followed and doubted."""

    def __init__(self, world: ShellState = WORLD, home: str | None = "/home/me", printed: Output = PRINTED) -> None:
        self.followed: list[Script] = []
        self.doubts: list[str] = []
        self.printed = printed
        self.expander = Expander(world, home, self._follow, lambda word, _: self.doubts.append(word))

    def _follow(self, script: Script, _: ShellState) -> Output:
        self.followed.append(script)
        return self.printed

    def fields(self, text: str) -> list[Field]:
        """Return the fields of the arguments of `echo`."""
        command = parse_script(f"echo {text}").items[0].first.commands[0]
        assert isinstance(command, Simple)
        return self.expander.fields(command.words[1:])


def exact(text: str) -> list[str] | None:
    """Return the texts of the fields, or None where one is not exact."""
    fields = Asked().fields(text)
    return [field.text for field in fields] if all(field.kind == "exact" for field in fields) else None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b c'", ["a", "b c"]),
        ("$x", ["a", "b"]),
        ('"$x"', ["a b"]),
        ("${x}c", ["a", "bc"]),
        ("c$x", ["ca", "b"]),
        ("$e", []),
        ('"$e"', [""]),
        ("a$e", ["a"]),
        ("$s", ["a"]),
        ("x$s", ["x", "a"]),
        ("x${s}y", ["x", "a", "y"]),
        ("$1 ${2}", ["first", "second", "one"]),
        ('"$@"', ["first", "second one"]),
        ("$@", ["first", "second", "one"]),
        ("$3", []),
        ('"${l[@]}"', ["one", "two three"]),
        ("${l[0]}", ["one"]),
        ('"${l[1]}"', ["two three"]),
        ("$(ls)", ["out"]),
        ('"$(ls)x"', ["outx"]),
        ("~", ["/home/me"]),
        ("~/a", ["/home/me/a"]),
        ("'~'/a", ["~/a"]),
        ("a~", ["a~"]),
        ("$HOME/a", ["/home/me/a"]),
        ("$PWD/a", ["/w/a"]),
        ("${e:-d}", ["d"]),
        ("${e-d}", []),
        ("${x:+d}", ["d"]),
        ("${e:+d}", []),
        ("${p#*/}", ["etc/x.tar.gz"]),
        ("${p##*/}", ["x.tar.gz"]),
        ("${p%.*}", ["/etc/x.tar"]),
        ("${p%%.*}", ["/etc/x"]),
        ("{a,b}$i", ["a3", "b3"]),
        ("'*' \\*", ["*", "*"]),
        ("a[", ["a["]),
        ("'a[b]'", ["a[b]"]),
    ],
)
def test_what_is_known_comes_to_exact_words(text: str, words: list[str]) -> None:
    assert exact(text) == words


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("*.py", ("*.py", "pattern")),
        ("a/?b", ("a/?b", "pattern")),
        ("[ab]", ("[ab]", "pattern")),
        ("$g", ("*", "pattern")),
        ("'[x]'*", ("[[]x]*", "pattern")),
        ("$n", ("*", "pattern")),
        ("a-$n.log", ("a-*.log", "pattern")),
        ("v=$:~", ("v=$", "unknown")),
        ("v='a':~/b", ("v=a", "unknown")),
        ("a$:~", ("a$:~", "exact")),
        ("a$((1+2))", ("a*", "pattern")),
        ("$$", ("*", "pattern")),
        ("${#x}", ("*", "pattern")),
        ('"$d"', ("/d", "below")),
        ('"$d"/x', ("/d", "below")),
        ("$d", ("", "unknown")),
        ('"$d"/../x', ("", "unknown")),
        ('a"$d"', ("a", "unknown")),
        ("$y", ("", "unknown")),
        ('"/a/$y"', ("/a/", "unknown")),
        ("$unset", ("", "unknown")),
        ("${y:-/etc}", ("", "unknown")),
        ("${x//a/b}", ("", "unknown")),
        ("${x:1}", ("", "unknown")),
        ("${!x}", ("", "unknown")),
        ("${x@P}", ("", "unknown")),
        ('"$*"', ("", "unknown")),
        ('"${l[*]}"', ("", "unknown")),
        ("<(ls)", ("/dev/fd", "below")),
    ],
)
def test_what_is_not_known_is_not_called_exact(text: str, field: tuple[str, str]) -> None:
    (only,) = Asked().fields(text)
    assert (only.text, only.kind) == field
    assert only.source == text


def test_without_a_home_a_tilde_stays() -> None:
    (only,) = Asked(home=None).fields("~/a")
    assert (only.text, only.kind) == ("~/a", "exact")


def test_another_separator_makes_splitting_unknown() -> None:
    asked = Asked(WORLD.with_variable("IFS", ":"))
    assert [field.kind for field in asked.fields("$x")] == ["unknown"]
    assert [field.kind for field in asked.fields('"$x"')] == ["exact"]


@pytest.mark.parametrize(
    "text", ["$(ls)", "`ls`", '"$(ls)"', "${e:-$(ls)}", "<(ls)", "$((1+$(ls)))", '"${e:-`ls`}"', "~/$(ls)"]
)
def test_every_command_inside_a_word_is_followed(text: str) -> None:
    asked = Asked()
    asked.fields(text)
    assert len(asked.followed) >= 1


@pytest.mark.parametrize("text", ["$((y))", "$((x+1))", "${l[x]}", "${p:x}", "$(($y+1))"])
def test_arithmetic_on_text_may_run_commands(text: str) -> None:
    world = WORLD.with_variable("y", Unknown("any", "", "$(…)"))
    asked = Asked(world)
    asked.fields(text)
    assert asked.doubts


@pytest.mark.parametrize("text", ["$((1+2))", "$((i+1))", "$((n*2))", "$((unset+1))", "$(($i))"])
def test_arithmetic_on_numbers_is_fine(text: str) -> None:
    asked = Asked()
    asked.fields(text)
    assert asked.doubts == []


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        (Output("a b"), "exact"),
        (Output(None), "unknown"),
        (Output(number=True), "pattern"),
        (Output(None, ("/d",), cwd="/w"), "below"),
        (Output(None, ("/d", "/e")), "unknown"),
        (Output(None, ("/d",), separated=True), "unknown"),
    ],
)
def test_a_substitution_is_known_as_well_as_what_it_prints(printed: Output, kind: str) -> None:
    (only,) = Asked(printed=printed).fields('"$(ls)"')
    assert only.kind == kind


def test_too_many_words_are_a_doubt() -> None:
    asked = Asked()
    asked.fields(" ".join("{1..100}" for _ in range(20)))
    assert asked.doubts


def test_names_in_arithmetic_are_found() -> None:
    assert arithmetic_names("a+b2*(3-_c)") == {"a", "b2", "_c"}
