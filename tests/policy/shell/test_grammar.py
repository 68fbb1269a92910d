"""The grammar: every command of a script is found, and there is no partial answer."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import ShellUnparsed
from remit.policy.shell.parse.cursor import MAX_COMMANDS, MAX_DEPTH
from remit.policy.shell.parse.grammar import parse_script
from remit.policy.shell.parse.syntax import (
    ArithmeticCommand,
    Case,
    Command,
    Condition,
    For,
    Function,
    If,
    Simple,
    Subshell,
    While,
)

MARKS = list("ab ;&|<>()'\"`$\\\n{}[]#=!*x")
PIECES = st.lists(
    st.sampled_from([*MARKS, "if ", "; fi", "do ", "done", "$(", "${x", "<<E\n", "\nE\n"]), max_size=30
).map("".join)


def only(text: str) -> Command:
    """Return the one command of a script."""
    (item,) = parse_script(text).items
    (command,) = item.first.commands
    return command


def sources(command: Command) -> list[str]:
    assert isinstance(command, Simple)
    return [word.source for word in command.words]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "# only a comment", "\\\n"])
def test_a_script_without_commands_is_empty(text: str) -> None:
    assert parse_script(text).items == ()


@pytest.mark.parametrize(
    "text", ["a; b; c", "a\nb\nc", "a & b & c", "a;b;c;", "a # x\nb\n\n c", "a;\nb;\nc\n", "a;b & \\\nc"]
)
def test_lists_are_divided_into_commands(text: str) -> None:
    assert [sources(item.first.commands[0])[0] for item in parse_script(text).items] == ["a", "b", "c"]


def test_pipes_and_joints_are_kept() -> None:
    (item,) = parse_script("a | b |& c && ! d || e &").items
    assert len(item.first.commands) == 3
    assert [joint for joint, _ in item.rest] == ["&&", "||"]
    assert item.rest[0][1].negated
    assert item.background


def test_a_line_may_end_after_a_joint() -> None:
    (item,) = parse_script("a &&\n\n # note\n b |\n c").items
    assert len(item.rest) == 1
    assert len(item.rest[0][1].commands) == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(a)", Subshell),
        ("{ a; }", Subshell),
        ("if a; then b; elif c; then d; else e; fi", If),
        ("while a; do b; done", While),
        ("until a; do b; done", While),
        ("for x in 1 2; do a; done", For),
        ("for x; do a; done", For),
        ("for x\nin 1\ndo a\ndone", For),
        ("for ((i=0;i<3;i++)); do a; done", While),
        ("case x in a) b;; (c|d) e;; *) f;; esac", Case),
        ("case x in a) b; esac", Case),
        ("f() { a; }", Function),
        ("f () ( a )", Function),
        ("function f { a; }", Function),
        ("function f() { a; }", Function),
        ("f()\n{\na\n}", Function),
        ("[[ a == b && -f c ]]", Condition),
        ("((x = 1))", ArithmeticCommand),
        ("((a); b)", Subshell),
        ("time a", Simple),
        ("! a", Simple),
        ("a", Simple),
        (">x", Simple),
        ("x=1", Simple),
    ],
)
def test_each_kind_of_command_is_told(text: str, kind: type) -> None:
    assert isinstance(only(text), kind)


def test_a_subshell_is_told_from_a_group() -> None:
    shell, group = only("(a)"), only("{ a; }")
    assert isinstance(shell, Subshell)
    assert isinstance(group, Subshell)
    assert (shell.isolated, group.isolated) == (True, False)


@pytest.mark.parametrize(
    ("text", "operator", "file"),
    [
        ("a > b", ">", "b"),
        ("a >> b", ">>", "b"),
        ("a >| b", ">|", "b"),
        ("a 2> b", ">", "b"),
        ("a &> b", "&>", "b"),
        ("a &>> b", "&>>", "b"),
        ("a < b", "<", "b"),
        ("a <> b", "<>", "b"),
        ("a >& b", ">&", "b"),
        ("a 2>&1", ">&", "1"),
        ("a <<< b", "<<<", "b"),
        ("> b a", ">", "b"),
        ("a>b", ">", "b"),
        ("{ a; } > b", ">", "b"),
        ("if a; then b; fi > b", ">", "b"),
        ("while a; do b; done < b", "<", "b"),
        ("(a) 2>> b", ">>", "b"),
    ],
)
def test_a_redirection_is_found_wherever_it_stands(text: str, operator: str, file: str) -> None:
    command = only(text)
    assert not isinstance(command, Function)
    (redirect,) = command.redirects
    assert (redirect.operator, redirect.word.source) == (operator, file)


def test_a_number_belongs_to_a_redirection_only_where_it_touches_it() -> None:
    assert sources(only("a 2>b")) == ["a"]
    assert sources(only("a 2 >b")) == ["a", "2"]


def test_a_named_descriptor_is_kept() -> None:
    command = only("exec {fd}>b")
    assert isinstance(command, Simple)
    assert command.redirects[0].descriptor == "{fd}"


@pytest.mark.parametrize(
    ("text", "name", "replaces"),
    [("x=1 a", "x", True), ("x+=1 a", "x", False), ("x[0]=1 a", "x", False), ("x= a", "x", True)],
)
def test_assignments_stand_before_the_words(text: str, name: str, replaces: bool) -> None:
    command = only(text)
    assert isinstance(command, Simple)
    assert (command.assignments[0].name, command.assignments[0].replaces) == (name, replaces)
    assert sources(command) == ["a"]


def test_an_array_has_elements() -> None:
    command = only("x=(a 'b c'\n d)")
    assert isinstance(command, Simple)
    value = command.assignments[0].value
    assert [element.source for element in value if not isinstance(element, str)] == ["a", "'b c'", "d"]


def test_after_the_first_word_an_assignment_is_a_word() -> None:
    assert sources(only("a x=1")) == ["a", "x=1"]


@pytest.mark.parametrize("text", ["'if' a", "\\if a", "echo if then fi", "a { }", '"{" a', "iff"])
def test_reserved_words_count_only_where_a_command_starts(text: str) -> None:
    assert isinstance(only(text), Simple)


@pytest.mark.parametrize(
    "text",
    [
        ";",
        "a ;; b",
        "a && ",
        "| a",
        "a |",
        "a || || b",
        "&& a",
        "(a",
        "a)",
        "()",
        "{ a",
        "{ }",
        "}",
        "if a; then b",
        "if a; fi",
        "if a then b; fi",
        "fi",
        "then",
        "while a; done",
        "do a; done",
        "for x in a",
        "for $x in a; do b; done",
        "for 1 in a; do b; done",
        "case x in a) b",
        "case x a) b;; esac",
        "case x in a b;; esac",
        "esac",
        "f() a",
        "$f() { a; }",
        "function { a; }",
        "f(x) { a; }",
        "[[ a",
        "((a",
        "a >",
        "a > ;",
        "x=(a",
        "select x in a; do b; done",
        "coproc a",
        "a &\\\n& b",
        "a |\\\n| b",
        "a <\\\n< b",
        "a\0b",
    ],
    ids=ascii,
)
def test_what_is_not_a_whole_script_is_refused(text: str) -> None:
    with pytest.raises(ShellUnparsed) as caught:
        parse_script(text)
    assert caught.value.code == "shell_unparsed"


@pytest.mark.parametrize(
    "text",
    [
        "a;" * (MAX_COMMANDS + 1),
        "( " * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        "{ " * (MAX_DEPTH + 1) + "a;" + "}; " * (MAX_DEPTH + 1),
        "if a; then " * (MAX_DEPTH + 1) + "b" + "; fi" * (MAX_DEPTH + 1),
        "$(" * 5000,
        "((" * 5000,
        "`" + "\\`" * 3000,
    ],
    ids=["commands", "subshells", "groups", "conditions", "substitutions", "arithmetic", "backticks"],
)
def test_more_than_people_write_is_refused(text: str) -> None:
    with pytest.raises(ShellUnparsed):
        parse_script(text)


@given(PIECES)
def test_any_text_is_read_or_refused(text: str) -> None:
    for posix in (False, True):
        with suppress(ShellUnparsed):
            parse_script(text, posix=posix)


@given(PIECES)
def test_what_is_read_for_any_shell_is_read_the_same_for_bash(text: str) -> None:
    try:
        script = parse_script(text, posix=True)
    except ShellUnparsed:
        return
    assert parse_script(text) == script


@pytest.mark.parametrize(
    "text",
    [
        "w[]=a",
        "w[]=()",
        "w[1]=(a)",
        'c "`"{a,}"b`"',
        'c ${v-""{}',
        "c ${v:-{a,b}}",
        "c a${v-{}{1..3}",
        'c ${v-"}"{}{1..3}',
    ],
)
def test_what_bash_takes_for_an_error_or_divides_in_another_way_is_not_read(text: str) -> None:
    with pytest.raises(ShellUnparsed):
        parse_script(text)
