"""Words: quotes, escapes, expansions and here-documents come out as bash reads them, or not at all."""

import pytest

from remit.errors import ShellUnparsed
from remit.policy.shell.parse.cursor import MAX_DEPTH, MAX_LENGTH, MAX_PARTS, MAX_WORDS
from remit.policy.shell.parse.grammar import parse_script
from remit.policy.shell.parse.syntax import Arithmetic, Parameter, ProcessSubstitution, Simple, Substitution, Text, Word


def simple(text: str, *, posix: bool = False) -> Simple:
    """Return the one simple command of a script."""
    (item,) = parse_script(text, posix=posix).items
    (command,) = item.first.commands
    assert isinstance(command, Simple)
    return command


def word(text: str) -> Word:
    """Return the one argument of `echo`."""
    _, only = simple(f"echo {text}").words
    return only


def plain(text: str) -> str:
    """Return the text of a word that holds nothing but text."""
    parts = word(text).parts
    assert all(isinstance(part, Text) for part in parts)
    return "".join(part.value for part in parts if isinstance(part, Text))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a", "a"),
        ("'a b'", "a b"),
        ('"a b"', "a b"),
        ("a\\ b", "a b"),
        ("a'b'\"c\"d", "abcd"),
        ("''", ""),
        ('""', ""),
        ("'a\\b'", "a\\b"),
        ('"a\\b"', "a\\b"),
        ('"a\\"b"', 'a"b'),
        ('"a\\\\b"', "a\\b"),
        ('"a\\$b"', "a$b"),
        ('"a\\`b"', "a`b"),
        ('"a\\\nb"', "ab"),
        ("a\\\nb", "ab"),
        ("$'a\\tb'", "a\tb"),
        ("$'\\x41\\101\\u0042'", "AAB"),
        ("$'it\\'s'", "it's"),
        ("$'\\q'", "\\q"),
        ('$"a"', "a"),
        ("a#b", "a#b"),
        ("$", "$"),
        ("a$", "a$"),
        ('"$"', "$"),
        ("a\rb", "a\rb"),
        ("\u00e9", "\u00e9"),
        ("a=b", "a=b"),
    ],
    ids=ascii,
)
def test_quotes_and_escapes_are_taken_away(text: str, meant: str) -> None:
    assert plain(text) == meant


def test_quoting_is_remembered_part_by_part() -> None:
    assert list(word("a'*'\\?").parts) == [
        Text("a", quoted=False),
        Text("*", quoted=True),
        Text("?", quoted=True),
    ]
    assert word("a'*'").source == "a'*'"


@pytest.mark.parametrize(
    ("text", "name", "operator", "operand"),
    [
        ("$x", "x", "", None),
        ("$1", "1", "", None),
        ("$@", "@", "", None),
        ("${x}", "x", "", None),
        ("${10}", "10", "", None),
        ("${#x}", "x", "#", None),
        ("${x:-a b}", "x", ":-", "a b"),
        ("${x#*/}", "x", "#", "*/"),
        ("${x%%.*}", "x", "%%", ".*"),
        ("${x//a/b}", "x", "//", "a/b"),
        ("${x:1:2}", "x", ":", "1:2"),
        ("${x[@]}", "x", "[@]", None),
        ("${!x}", "x", "!", None),
        ("${x^^}", "x", "^^", ""),
        ("${x@Q}", "x", "@", "Q"),
    ],
)
def test_a_parameter_keeps_its_operator(text: str, name: str, operator: str, operand: str | None) -> None:
    (part,) = word(text).parts
    assert isinstance(part, Parameter)
    assert (part.name, part.operator, part.quoted) == (name, operator, False)
    assert (part.operand.source if part.operand else None) == operand


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("$(ls)", Substitution),
        ("`ls`", Substitution),
        ("<(ls)", ProcessSubstitution),
        (">(ls)", ProcessSubstitution),
        ("$((1+2))", Arithmetic),
        ("$(( (1+2)*3 ))", Arithmetic),
        ("$((ls); ls)", Substitution),
        ("$( (ls) )", Substitution),
    ],
)
def test_commands_inside_words_are_found(text: str, kind: type) -> None:
    (part,) = word(text).parts
    assert isinstance(part, kind)


@pytest.mark.parametrize(
    "text", ['"a $(cat x) b"', '"a `cat x` b"', '"${y:-$(cat x)}"', "${y:-`cat x`}", '"$(echo "$(cat x)")"']
)
def test_commands_inside_quotes_are_found(text: str) -> None:
    assert "cat" in str(word(text).parts)


def test_a_backtick_inside_double_quotes_may_hold_escaped_quotes() -> None:
    (part,) = word('"`echo \\"a b\\"`"').parts
    assert isinstance(part, Substitution)
    command = part.script.items[0].first.commands[0]
    assert isinstance(command, Simple)
    assert command.words[1].parts == (Text("a b", quoted=True),)


@pytest.mark.parametrize(
    "text",
    [
        "'a",
        '"a',
        "`a",
        "$(a",
        "${a",
        "$((1",
        "$'a",
        "a\\",
        "${}",
        "${a b}",
        "${a!b}",
        "$[1+1]",
        "$'\\0'",
        "$'\\xff'",
        "$'\\cA'",
        "$'\\ud800'",
        "\"${x:-'a'}\"",
        "$\\\n(ls)",
        "<\\\n(ls)",
        "\0",
    ],
    ids=ascii,
)
def test_a_word_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ShellUnparsed) as caught:
        parse_script(f"echo {text}")
    assert caught.value.code == "shell_unparsed"


@pytest.mark.parametrize("text", ["$'a'", "<(ls)", "[[ a ]]", "((1))", "function f { ls; }"])
def test_what_other_shells_read_differently_is_refused_for_them(text: str) -> None:
    parse_script(text if text[0] in "[(f" else f"cat {text}")
    with pytest.raises(ShellUnparsed):
        parse_script(text if text[0] in "[(f" else f"cat {text}", posix=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("cat <<E\na\nb\nE\n", "a\nb\n"),
        ("cat <<E\nE", ""),
        ("cat <<'E F'\na\nE F\n", "a\n"),
        ("cat <<-E\n\ta\n\t\tE\n", "a\n"),
        ("cat <<E\n'a' \"b\"\nE\n", "'a' \"b\"\n"),
        ("cat <<E\n\\$x \\` \\\\ \\q\nE\n", "$x ` \\ \\q\n"),
        ("cat <<'E'\n$x `ls` \\\nE\n", "$x `ls` \\\n"),
        ("cat << E\n E\nE\n", " E\n"),
    ],
)
def test_a_here_document_has_its_own_text(text: str, meant: str) -> None:
    (redirect,) = simple(text).redirects
    assert all(isinstance(part, Text) for part in redirect.word.parts)
    assert "".join(part.value for part in redirect.word.parts if isinstance(part, Text)) == meant


def test_expansions_in_a_here_document_are_found_unless_its_mark_is_quoted() -> None:
    (plain_one,) = simple("cat <<E\n$(ls) $x\nE\n").redirects
    assert [type(part) for part in plain_one.word.parts if not isinstance(part, Text)] == [Substitution, Parameter]
    (quoted,) = simple("cat <<\\E\n$(ls) $x\nE\n").redirects
    assert [type(part) for part in quoted.word.parts] == [Text]


def test_two_here_documents_of_a_line_come_in_order() -> None:
    first, second = simple("cat <<A 3<<B\n1\nA\n2\nB\n").redirects
    assert (first.word.parts, second.word.parts) == ([Text("1\n", quoted=True)], [Text("2\n", quoted=True)])


@pytest.mark.parametrize(
    "text",
    [
        "cat <<E\na\n",
        "cat <<E",
        "cat <<$x\na\n$x\n",
        "cat <<E\na\\\nE\n",
        "cat <<E $(ls\n)\nE\n",
        "cat <<E 'a\nb'\nE\n",
        "cat <<",
    ],
    ids=ascii,
)
def test_a_here_document_that_is_not_plain_is_refused(text: str) -> None:
    with pytest.raises(ShellUnparsed) as caught:
        parse_script(text)
    assert caught.value.code == "shell_unparsed"


@pytest.mark.parametrize(
    "text",
    [
        "a" * (MAX_LENGTH + 1),
        "a " * (MAX_WORDS + 1),
        "echo " + "$x" * (MAX_PARTS + 2),
        'echo "' + "$x" * (MAX_PARTS + 2) + '"',
        "echo " + "$(" * (MAX_DEPTH + 1) + "ls" + ")" * (MAX_DEPTH + 1),
        "echo " + "${x:-" * (MAX_DEPTH + 1) + "}" * (MAX_DEPTH + 1),
        "cat <<E\n" + "$x" * (MAX_PARTS + 2) + "\nE\n",
    ],
    ids=["length", "words", "parts", "quoted", "nesting", "operands", "here"],
)
def test_more_than_people_write_is_refused(text: str) -> None:
    with pytest.raises(ShellUnparsed):
        parse_script(text)
