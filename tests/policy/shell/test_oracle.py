"""The comparison with real shells: what counts as seen, what minimising leaves out, which scripts are safe to run."""

from pathlib import Path
from typing import Literal

import pytest

from remit.policy.field import Field
from tests.policy.shell.oracle import Oracle, Ran, Reading, Seen, find_missed, find_shell, make_tree, minimise
from tests.policy.shell.scripts import Script, is_safe
from tests.policy.shell.touching import is_contained

pytestmark = pytest.mark.slow

CWD = "/work/app"
BASH = find_shell("bash")


def field(text: str, kind: Literal["exact", "pattern", "below", "unknown"] = "exact", *, splits: bool = False) -> Field:
    return Field(text, kind, text, splits=splits)


def missed(fields: list[Field], words: list[str], *, cwd: str | None = CWD, by_name: bool = False) -> str:
    """Return what is wrong with a command that was run, when this one was seen."""
    reading = Reading([Seen((field("cmd"), *fields), cwd)], refused=False)
    found = find_missed(reading, [Ran("".join(f"{word}\x1f" for word in ["cmd", *words]), CWD)], by_name=by_name)
    return found[0] if found is not None else ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([field("a b")], ["a b"]),
        ([field("*", "pattern")], ["x", "y z"]),
        ([field("a[*]*", "pattern")], ["a*b"]),
        ([field("[ab]", "pattern")], ["[ab]"]),
        ([field("v[]", "pattern")], ["v[]"]),
        ([field("", "unknown")], ["x y"]),
        ([field("a", "unknown")], ["ab"]),
        ([field("", "unknown", splits=True), field("z")], ["z"]),
        ([field("a", "unknown", splits=True), field("z")], ["ab", "c", "z"]),
        ([field("/work/app/src", "below")], ["src/x"]),
        ([field("/dev/fd", "below")], ["/dev/fd/63"]),
    ],
)
def test_words_that_a_field_stands_for_are_seen(fields: list[Field], words: list[str]) -> None:
    assert missed(fields, words) == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([field("a")], ["b"]),
        ([field("a")], []),
        ([field("a")], ["a", "a"]),
        ([field("a*", "pattern")], ["b"]),
        ([field("a*", "pattern")], []),
        ([field("", "unknown")], []),
        ([field("", "unknown")], ["a", "b"]),
        ([field("a", "unknown")], ["b"]),
        ([field("a", "unknown", splits=True)], []),
        ([field("/work/app/src", "below")], ["../src/x"]),
        ([field("/work/app/src", "below")], ["src-x"]),
    ],
)
def test_other_words_are_not(fields: list[Field], words: list[str]) -> None:
    assert missed(fields, words) == "other words"
    assert missed(fields, words, by_name=True) == ""


def test_a_program_that_was_not_seen_is_named_whatever_is_compared() -> None:
    ran = [Ran("other\x1f", CWD)]
    for by_name in (True, False):
        found = find_missed(Reading([Seen((field("cmd"),), CWD)], refused=False), ran, by_name=by_name)
        assert found == ("program not seen", ran[0])


def test_a_command_runs_in_the_directory_that_was_seen() -> None:
    assert missed([], [], cwd="/work") == "other directory"
    assert missed([], [], cwd=None) == ""


def test_the_parts_that_a_failure_needs_are_found() -> None:
    parts = [*"abcdefghijk"]
    assert minimise(parts, lambda text: "b" in text and "i" in text) == ["b", "i"]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cmd $(zz) | c2", ["cmd", "zz", "c2"]),
        ("x=1\n: $((1/0)); c2\ncmd", ["cmd"]),
        ("exit; cmd", []),
        ("cmd 'x", []),
        ("unheard-of; (cmd &)", ["unheard-of", "cmd"]),
        ("trap 'cmd' EXIT; c2", ["cmd", "c2"]),
    ],
)
def test_a_shell_says_what_a_script_runs(text: str, names: list[str], tmp_path: Path) -> None:
    assert BASH is not None
    folder = make_tree(tmp_path)
    first, second = BASH.run([Script(text, {}), Script("c3", {"u": "1"})], folder)
    assert sorted(ran.name for ran in first) == sorted(names)
    assert [ran.name for ran in second] == ["c3"]
    assert sorted(ran.name for ran in BASH.run_alone(Script(text, {}), folder)) == sorted(names)


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_a_script_that_is_refused_is_not_compared(tmp_path: Path) -> None:
    assert BASH is not None
    oracle = Oracle(BASH, make_tree(tmp_path))
    assert oracle.check([Script("eval $u", {"u": "hit"}), Script("cmd", {})]) == []
    assert oracle.figures == {"scripts": 2, "refused": 1, "commands": 1}


@pytest.mark.parametrize(
    "text", ["cmd > x", "cmd >>/dev/null/x", "cmd >/dev/nullx", "cmd >$v", "cmd <>a", "eval 'c >'x"]
)
def test_a_script_that_may_write_a_file_is_not_safe(text: str) -> None:
    assert not is_safe(text)


@pytest.mark.parametrize("text", ["cmd >/dev/null", "cmd 2>&1 | c2", "cmd >(c2)", "eval 'cmd >/dev/null' x"])
def test_a_script_that_writes_nowhere_is_safe(text: str) -> None:
    assert is_safe(text)


@pytest.mark.parametrize(
    "text", ["rm -rf /", "rm -rf $x/*", 'cat "$d"/..', "ls ${x%/*}/*", "cat </etc/passwd", "x=/etc", "cat ../" * 7]
)
def test_a_script_that_may_name_an_absolute_path_is_not_contained(text: str) -> None:
    assert not is_contained(text)


@pytest.mark.parametrize("text", ["cat note.txt > /dev/null", 'rm -rf "${PWD%/*}/outside"', "cat $d/outside/key.txt"])
def test_a_script_that_stays_in_its_tree_is_contained(text: str) -> None:
    assert is_contained(text)
