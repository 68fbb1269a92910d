"""Reading commands: lists, pipes, compound commands, functions and redirections.

`parse_script` returns the whole script or raises `ShellUnparsed`; there is no partial answer. Words are read by
`words.py`. The grammar is bash's; forms that people hardly use (`select`, `coproc`, extended globs) are refused.
"""

import re
from collections.abc import Callable
from typing import Final, Literal

from remit.errors import ShellUnparsed, quote
from remit.policy.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    Case,
    Command,
    Condition,
    For,
    Function,
    If,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Subshell,
    Text,
    While,
    Word,
)
from remit.policy.shell.words import MAX_LENGTH, Reader

__all__ = ["parse_script"]

_RESERVED: Final = frozenset(
    "if then elif else fi for while until do done case esac { } ! [[ function select time coproc".split()
)
# Words that end the list before them.
_CLOSERS: Final = frozenset("then elif else fi do done esac }".split())
_REDIRECTS: Final = ("&>>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">|", ">&", "&>", "<", ">")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[A-Za-z0-9_@*]*\])?(\+?)=")
_DESCRIPTOR: Final = re.compile(r"(?:[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})(?=[<>])")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_.:+@/-]+\Z")
# Characters that mean something between words of `[[ … ]]` where elsewhere they would end a command.
_CONDITION_MARKS: Final = ("&&", "||", "|", "(", ")", "<", ">")
_CONDITION_END: Final = re.compile(r"\]\](?=[\s;&|<>()]|\Z)")


def parse_script(text: str, *, posix: bool = False) -> Script:
    """Return the commands that bash would read in `text`.

    Other shells read some forms differently: with `posix` those are refused.
    """
    if len(text) > MAX_LENGTH:
        raise ShellUnparsed(f"it is longer than {MAX_LENGTH} characters", "")
    if "\0" in text:
        raise ShellUnparsed("it holds a NUL character", "")
    reader = Reader(text, _script, posix=posix)
    script = _script(reader, "")
    if reader.at < len(text):
        raise reader.fail("something is not in its place")
    reader.check_finished()
    return script


def _script(reader: Reader, end: str) -> Script:
    """Return the lists up to `end` (or a word that closes a compound command), which is left for the caller."""
    items: list[AndOr] = []
    while True:
        _skip_lines(reader)
        if _at_end(reader, end):
            return Script(tuple(items))
        first = _pipeline(reader)
        rest: list[tuple[Literal["&&", "||"], Pipeline]] = []
        while joint := _joint(reader):
            _skip_lines(reader)
            rest.append((joint, _pipeline(reader)))
        background = _separator(reader, end)
        items.append(AndOr(first, tuple(rest), background))


def _at_end(reader: Reader, end: str) -> bool:
    if reader.at >= len(reader.text) or (end and reader.peek() == end):
        return True
    return reader.peek(2) == ";;" or reader.peek(2) == ";&" or _reserved_ahead(reader) in _CLOSERS


def _joint(reader: Reader) -> Literal["&&", "||"] | None:
    reader.skip_blanks()
    return "&&" if reader.accept("&&") else "||" if reader.accept("||") else None


def _separator(reader: Reader, end: str) -> bool:
    """Move past what ends a list; tell whether the list runs in the background."""
    reader.skip_blanks()
    if reader.newline() or reader.peek(2) in (";;", ";&"):
        return False
    if reader.accept(";"):
        reader.check_not_continued()
        return False
    if reader.accept("&"):
        reader.check_not_continued()
        return True
    if _at_end(reader, end):
        return False
    raise reader.fail("something is not in its place")


def _skip_lines(reader: Reader) -> None:
    while True:
        reader.skip_blanks()
        if not reader.newline():
            return


def _reserved_ahead(reader: Reader) -> str:
    """Return the reserved word that comes next, or nothing. A quote or an expansion makes it an ordinary word."""
    ahead = _WORD_AHEAD.match(reader.text, reader.at)
    return ahead[0] if ahead and ahead[0] in _RESERVED else ""


_WORD_AHEAD: Final = re.compile(r"(?:[a-z]+|[{}!]|\[\[)(?=[\s;&|<>()]|\Z)")


def _accept_word(reader: Reader, word: str) -> bool:
    reader.skip_blanks()
    return _reserved_ahead(reader) == word and reader.accept(word)


def _expect_word(reader: Reader, word: str) -> None:
    _skip_lines(reader)
    if not _accept_word(reader, word):
        raise reader.fail(f"{quote(word)} is missing")


def _pipeline(reader: Reader) -> Pipeline:
    negated = False
    while True:
        reader.skip_blanks()
        if _accept_word(reader, "!"):
            negated = not negated
        elif _accept_word(reader, "time"):
            reader.skip_blanks()
            if _TIME_OPTION.match(reader.text, reader.at):
                reader.at += 2
        else:
            break
    commands = [_command(reader)]
    while True:
        reader.skip_blanks()
        if reader.peek(2) == "||" or not reader.accept("|"):
            return Pipeline(tuple(commands), negated)
        reader.check_not_continued()
        reader.accept("&")
        _skip_lines(reader)
        commands.append(_command(reader))


_TIME_OPTION: Final = re.compile(r"-p(?=\s)")


def _command(reader: Reader) -> Command:
    reader.count_command()
    reader.skip_blanks()
    if reader.text.startswith("((", reader.at):
        reader.check_bash()
        return _arithmetic(reader)
    if reader.accept("("):
        return _grouped(reader, ")", isolated=True)
    word = _reserved_ahead(reader)
    if not word:
        return _simple(reader)
    compound = _COMPOUNDS.get(word)
    if compound is None:
        raise reader.fail(f"{quote(word)} is not in its place, or not supported")
    if word in ("[[", "function"):
        reader.check_bash()
    reader.accept(word)
    reader.depth += 1
    if reader.depth > _MAX_COMPOUND:
        raise reader.fail("it is nested too deeply")
    command = compound(reader)
    reader.depth -= 1
    return command


_MAX_COMPOUND: Final = 32


def _grouped(reader: Reader, end: str, *, isolated: bool) -> Subshell:
    reader.depth += 1
    if reader.depth > _MAX_COMPOUND:
        raise reader.fail("it is nested too deeply")
    body = _script(reader, ")" if isolated else "")
    if not (reader.accept(")") if isolated else _accept_word(reader, "}")):
        raise reader.fail(f"{quote(end)} is missing")
    if not body.items:
        raise reader.fail("a group without commands")
    reader.depth -= 1
    return Subshell(body, _redirects(reader), isolated)


def _braces(reader: Reader) -> Subshell:
    return _grouped(reader, "}", isolated=False)


def _if(reader: Reader) -> If:
    arms, otherwise = [_arm(reader)], None
    while _accept_word(reader, "elif"):
        arms.append(_arm(reader))
    if _accept_word(reader, "else"):
        otherwise = _script(reader, "")
    _expect_word(reader, "fi")
    return If(tuple(arms), otherwise, _redirects(reader))


def _arm(reader: Reader) -> tuple[Script, Script]:
    condition = _script(reader, "")
    _expect_word(reader, "then")
    return condition, _script(reader, "")


def _while(reader: Reader) -> While:
    condition = _script(reader, "")
    return While(condition, _do(reader), _redirects(reader))


def _do(reader: Reader) -> Script:
    _expect_word(reader, "do")
    body = _script(reader, "")
    _expect_word(reader, "done")
    return body


def _for(reader: Reader) -> Command:
    reader.skip_blanks()
    if reader.text.startswith("((", reader.at):
        counting = _arithmetic(reader)
        _end_of_head(reader)
        return While(_only(counting), _do(reader), _redirects(reader))
    name = _plain_name(reader)
    words: list[Word] | None = None
    _skip_lines(reader)
    if _FOR_IN.match(reader.text, reader.at):
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
    return For(name, None if words is None else tuple(words), _do(reader), _redirects(reader))


_FOR_IN: Final = re.compile(r"in(?=[\s;])")


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
    _skip_lines(reader)
    if subject is None or not _FOR_IN.match(reader.text, reader.at):
        raise reader.fail("'in' is missing")
    reader.at += 2
    arms: list[tuple[tuple[Word, ...], Script]] = []
    while True:
        _skip_lines(reader)
        if _accept_word(reader, "esac"):
            return Case(subject, tuple(arms), _redirects(reader))
        arms.append((_patterns(reader), _script(reader, "")))
        if not any(reader.accept(end) for end in (";;&", ";;", ";&")) and _reserved_ahead(reader) != "esac":
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
    return _body_of(reader, name)


def _body_of(reader: Reader, name: Word) -> Function:
    if not _FUNCTION_NAME.match(name.source):
        raise reader.fail("a function needs a plain name")
    _skip_lines(reader)
    body = _command(reader)
    if isinstance(body, Simple | Function):
        raise reader.fail("the body of a function is a compound command")
    return Function(name.source, body)


def _condition(reader: Reader) -> Condition:
    words: list[Word] = []
    while True:
        _skip_lines(reader)
        if _CONDITION_END.match(reader.text, reader.at):
            reader.at += 2
            return Condition(tuple(words), _redirects(reader))
        substitution = reader.peek(2) in ("<(", ">(")
        mark = None if substitution else next((mark for mark in _CONDITION_MARKS if reader.accept(mark)), None)
        word = Word((Text(mark, quoted=True),), mark) if mark else reader.word()
        if word is None:
            raise reader.fail("a condition is not closed")
        words.append(word)


def _arithmetic(reader: Reader) -> Command:
    """Return `(( … ))`; where it does not close like one, two subshells are read."""
    inner = reader.arithmetic(2)
    if inner is None:
        reader.accept("(")
        return _grouped(reader, ")", isolated=True)
    return ArithmeticCommand(inner, _redirects(reader))


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


def _simple(reader: Reader) -> Command:
    assignments: list[Assignment] = []
    words: list[Word] = []
    redirects: list[Redirect] = []
    while True:
        reader.skip_blanks()
        if redirect := _redirect(reader):
            redirects.append(redirect)
        elif not words and (assignment := _assignment(reader)):
            assignments.append(assignment)
        elif (word := reader.word()) is not None:
            words.append(word)
            if len(words) == 1 and not assignments and not redirects and _is_definition(reader):
                return _body_of(reader, word)
        else:
            break
    if not (assignments or words or redirects):
        raise reader.fail("a command is missing")
    return Simple(tuple(assignments), tuple(words), tuple(redirects))


def _is_definition(reader: Reader) -> bool:
    """Move past the brackets of `name ()` and tell whether they were there."""
    brackets = _BRACKETS.match(reader.text, reader.at)
    if brackets:
        reader.at = brackets.end()
    return brackets is not None


_BRACKETS: Final = re.compile(r"[ \t]*\([ \t]*\)")


def _assignment(reader: Reader) -> Assignment | None:
    head = _ASSIGNMENT.match(reader.text, reader.at)
    if not head:
        return None
    reader.at = head.end()
    replaces = head[2] is None and not head[3]
    if reader.accept("("):
        return Assignment(head[1], _elements(reader), replaces)
    word = reader.word() if reader.peek() not in " \t\n" else None
    return Assignment(head[1], word or Word((), ""), replaces)


def _elements(reader: Reader) -> tuple[Word, ...]:
    elements: list[Word] = []
    while True:
        _skip_lines(reader)
        if reader.accept(")"):
            return tuple(elements)
        element = reader.word()
        if element is None:
            raise reader.fail("an array is not closed")
        elements.append(element)


def _redirects(reader: Reader) -> tuple[Redirect, ...]:
    redirects: list[Redirect] = []
    while True:
        reader.skip_blanks()
        redirect = _redirect(reader)
        if redirect is None:
            return tuple(redirects)
        redirects.append(redirect)


def _redirect(reader: Reader) -> Redirect | None:
    start = reader.at
    descriptor = _DESCRIPTOR.match(reader.text, reader.at)
    if descriptor:
        reader.at = descriptor.end()
    operator = next((operator for operator in _REDIRECTS if reader.accept(operator)), None)
    if operator is None or (operator in "<>" and reader.peek() == "("):
        reader.at = start
        return None
    reader.check_not_continued()
    if operator in ("<<", "<<-"):
        return reader.heredoc(operator)
    reader.skip_blanks()
    word = reader.word()
    if word is None:
        raise reader.fail("a redirection without a file")
    named = descriptor[0].strip("{}") if descriptor and descriptor[0].startswith("{") else ""
    return Redirect(operator, word, named)
