"""Parses compound commands: groups, conditions, loops, cases and functions.

Each function starts after the word that opens its command and parses the whole command. Rare forms (`select`, `coproc`)
are refused.
"""

import re
from collections.abc import Callable
from typing import Final

from remit.errors import quote
from remit.policy.shell.parse.lines import accept_word, expect_word, read_redirects, reserved_ahead, skip_lines
from remit.policy.shell.parse.syntax import (
    AndOr,
    ArithmeticCommand,
    Case,
    Command,
    Condition,
    For,
    Function,
    If,
    Pipeline,
    Script,
    Subshell,
    Text,
    While,
    Word,
)
from remit.policy.shell.parse.words import Reader

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_.:+@/-]+\Z")
_IN: Final = re.compile(r"in(?=[ \t\n;])")
# Characters that are operators inside `[[ … ]]`, and would end a command elsewhere.
_CONDITION_MARKS: Final = ("&&", "||", "|", "(", ")", "<", ">")
_CONDITION_END: Final = re.compile(r"\]\](?=[ \t\n;&|<>()]|\Z)")


def read_compound(reader: Reader) -> Command | None:
    """Parse the compound command that starts here; return None if it is a simple command."""
    if reader.text.startswith("((", reader.at):
        reader.check_bash()
        return _arithmetic(reader)
    if reader.accept("("):
        return _group(reader, ")", isolated=True)
    word = reserved_ahead(reader)
    if not word:
        return None
    read = _COMPOUNDS.get(word)
    if read is None:
        raise reader.fail(f"{quote(word)} is unexpected or not supported")
    if word in ("[[", "function"):
        reader.check_bash()
    reader.accept(word)
    reader.deepen()
    command = read(reader)
    reader.depth -= 1
    return command


def _group(reader: Reader, end: str, *, isolated: bool) -> Subshell:
    reader.deepen()
    body = reader.read_script(reader, ")" if isolated else "")
    if not (reader.accept(")") if isolated else accept_word(reader, "}")):
        raise reader.fail(f"{quote(end)} is missing")
    if not body.items:
        raise reader.fail("a group without commands")
    reader.depth -= 1
    return Subshell(body, read_redirects(reader), isolated)


def _braces(reader: Reader) -> Subshell:
    return _group(reader, "}", isolated=False)


def _if(reader: Reader) -> If:
    arms, otherwise = [_arm(reader)], None
    while accept_word(reader, "elif"):
        arms.append(_arm(reader))
    if accept_word(reader, "else"):
        otherwise = reader.read_script(reader, "")
    expect_word(reader, "fi")
    return If(tuple(arms), otherwise, read_redirects(reader))


def _arm(reader: Reader) -> tuple[Script, Script]:
    condition = reader.read_script(reader, "")
    expect_word(reader, "then")
    return condition, reader.read_script(reader, "")


def _while(reader: Reader) -> While:
    condition = reader.read_script(reader, "")
    return While(condition, _do(reader), read_redirects(reader))


def _do(reader: Reader) -> Script:
    expect_word(reader, "do")
    body = reader.read_script(reader, "")
    expect_word(reader, "done")
    return body


def _for(reader: Reader) -> Command:
    reader.skip_blanks()
    if reader.text.startswith("((", reader.at):
        counting = _arithmetic(reader)
        _end_of_head(reader)
        return While(_only(counting), _do(reader), read_redirects(reader))
    name = _plain_name(reader)
    words: list[Word] | None = None
    skip_lines(reader)
    if _IN.match(reader.text, reader.at):
        reader.at += 2
        words = []
        reader.skip_blanks()
        while (word := reader.word()) is not None:
            words.append(word)
            reader.skip_blanks()
        if not (reader.accept(";") or reader.newline()):
            raise reader.fail("the list of a loop does not end")
    else:
        _end_of_head(reader)
    return For(name, None if words is None else tuple(words), _do(reader), read_redirects(reader))


def _end_of_head(reader: Reader) -> None:
    reader.skip_blanks()
    reader.accept(";")


def _only(command: Command) -> Script:
    return Script((AndOr(Pipeline((command,), negated=False), (), background=False),))


def _plain_name(reader: Reader) -> str:
    word = reader.word()
    if word is None or not _NAME.match(word.source):
        raise reader.fail("a loop needs a plain variable name")
    return word.source


def _case(reader: Reader) -> Case:
    reader.skip_blanks()
    subject = reader.word()
    skip_lines(reader)
    if subject is None or not _IN.match(reader.text, reader.at):
        raise reader.fail("'in' is missing")
    reader.at += 2
    arms: list[tuple[tuple[Word, ...], Script]] = []
    while True:
        skip_lines(reader)
        if accept_word(reader, "esac"):
            return Case(subject, tuple(arms), read_redirects(reader))
        arms.append((_patterns(reader), reader.read_script(reader, "")))
        if reader.peek(3) == ";;&" or reader.peek(2) == ";&":
            raise reader.fail("an arm of a case that goes on into the next")
        if not reader.accept(";;") and reserved_ahead(reader) != "esac":
            raise reader.fail("an arm of a case does not end")


def _patterns(reader: Reader) -> tuple[Word, ...]:
    reader.accept("(")
    patterns: list[Word] = []
    while True:
        reader.skip_blanks()
        pattern = reader.word()
        if pattern is None:
            raise reader.fail("a pattern is missing")
        patterns.append(pattern)
        reader.skip_blanks()
        if reader.accept(")"):
            return tuple(patterns)
        if not reader.accept("|"):
            raise reader.fail("a pattern does not end")


def _function(reader: Reader) -> Function:
    reader.skip_blanks()
    name = reader.word()
    if name is None:
        raise reader.fail("a function needs a name")
    reader.skip_blanks()
    if reader.accept("("):
        reader.skip_blanks()
        if not reader.accept(")"):
            raise reader.fail("a function has no parameters in brackets")
    return read_function_body(reader, name)


def read_function_body(reader: Reader, name: Word) -> Function:
    """Parse the body of the function `name`."""
    if not _FUNCTION_NAME.match(name.source):
        raise reader.fail("a function needs a plain name")
    skip_lines(reader)
    reader.count_command()
    body = read_compound(reader)
    if body is None or isinstance(body, Function):
        raise reader.fail("the body of a function is a compound command")
    return Function(name.source, body)


def _condition(reader: Reader) -> Condition:
    words: list[Word] = []
    while True:
        skip_lines(reader)
        if _CONDITION_END.match(reader.text, reader.at):
            reader.at += 2
            return Condition(tuple(words), read_redirects(reader))
        substitution = reader.peek(2) in ("<(", ">(")
        mark = None if substitution else next((mark for mark in _CONDITION_MARKS if reader.accept(mark)), None)
        word = Word((Text(mark, quoted=True),), mark) if mark else reader.word()
        if word is None:
            raise reader.fail("a condition is not closed")
        words.append(word)


def _arithmetic(reader: Reader) -> Command:
    """Parse `(( … ))`; if it does not end like arithmetic, it is two nested subshells."""
    inner = reader.arithmetic(2)
    if inner is None:
        reader.accept("(")
        return _group(reader, ")", isolated=True)
    return ArithmeticCommand(inner, read_redirects(reader))


_COMPOUNDS: Final[dict[str, Callable[[Reader], Command]]] = {
    "{": _braces,
    "[[": _condition,
    "case": _case,
    "for": _for,
    "function": _function,
    "if": _if,
    "until": _while,
    "while": _while,
}
