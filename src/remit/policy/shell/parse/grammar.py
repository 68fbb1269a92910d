"""Parses a script: lists, pipelines and simple commands.

`parse_script` returns the whole script or raises `ShellUnparsed`; there are no partial results. The grammar is that of
bash. `words.py` parses words, `compounds.py` compound commands.
"""

import re
from typing import Final, Literal

from remit.errors import ShellUnparsed
from remit.policy.shell.parse.compounds import read_compound, read_function_body
from remit.policy.shell.parse.cursor import MAX_LENGTH, Cursor
from remit.policy.shell.parse.lines import accept_word, read_redirect, reserved_ahead, skip_lines
from remit.policy.shell.parse.syntax import AndOr, Assignment, Command, Pipeline, Redirect, Script, Simple, Word
from remit.policy.shell.parse.words import Reader

# Words that end the preceding list.
_CLOSERS: Final = frozenset("then elif else fi do done esac }".split())
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[A-Za-z0-9_@*]*\])?(\+?)=")
# Where an assignment is possible, bash reads a name with a subscript up to the closing bracket, including blanks.
_SUBSCRIPT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_ELEMENT: Final = re.compile(r"\[(?![0-9]*\]=)")
_TIME_OPTION: Final = re.compile(r"-p(?=\s)")
_AFTER_ARRAY: Final = ("", " ", "\t", "\n", ";", "&", "|", "<", ">", ")")
_BRACKETS: Final = re.compile(r"[ \t]*\([ \t]*\)")


def parse_script(text: str, *, posix: bool = False) -> Script:
    """Parse `text` as bash would.

    With `posix`, syntax that other shells read differently is refused.
    """
    if len(text) > MAX_LENGTH:
        raise ShellUnparsed(f"it is longer than {MAX_LENGTH} characters", "")
    if "\0" in text:
        raise ShellUnparsed("it holds a NUL character", "")
    reader = Reader(text, _read_script, posix=posix)
    script = _script(reader, "")
    reader.check_finished()
    return script._replace(substitutions=tuple(reader.counts.substitutions))


def _read_script(cursor: Cursor, end: str) -> Script:
    if not isinstance(cursor, Reader):
        raise TypeError("scripts are read by a Reader")
    return _script(cursor, end)


def _script(reader: Reader, end: str) -> Script:
    """Parse the lists up to `end` or a word that closes a compound command, which is not consumed."""
    items: list[AndOr] = []
    while True:
        skip_lines(reader)
        if _at_end(reader, end):
            return Script(tuple(items))
        first = _pipeline(reader)
        rest: list[tuple[Literal["&&", "||"], Pipeline]] = []
        while joint := _joint(reader):
            skip_lines(reader)
            rest.append((joint, _pipeline(reader)))
        background = _separator(reader, end)
        items.append(AndOr(first, tuple(rest), background))


def _at_end(reader: Reader, end: str) -> bool:
    if reader.at >= len(reader.text) or (end and reader.peek() == end):
        return True
    return reader.peek(2) == ";;" or reader.peek(2) == ";&" or reserved_ahead(reader) in _CLOSERS


def _joint(reader: Reader) -> Literal["&&", "||"] | None:
    reader.skip_blanks()
    return "&&" if reader.accept("&&") else "||" if reader.accept("||") else None


def _separator(reader: Reader, end: str) -> bool:
    """Consume the separator after a list; return whether the list runs in the background."""
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
    raise reader.fail("unexpected text")


def _pipeline(reader: Reader) -> Pipeline:
    negated = False
    while True:
        reader.skip_blanks()
        if accept_word(reader, "!"):
            reader.count_word()
            negated = True
        elif accept_word(reader, "time"):
            reader.count_word()
            reader.check_bash()
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
        skip_lines(reader)
        commands.append(_command(reader))


def _command(reader: Reader) -> Command:
    reader.count_command()
    reader.skip_blanks()
    return read_compound(reader) or _simple(reader)


_CONTINUED: Final = re.compile(r"[^'\"$`]*\\\n")


def _simple(reader: Reader) -> Command:
    assignments: list[Assignment] = []
    words: list[Word] = []
    redirects: list[Redirect] = []
    while True:
        reader.skip_blanks()
        if redirect := read_redirect(reader):
            redirects.append(redirect)
        elif not words and (assignment := _assignment(reader)):
            assignments.append(assignment)
        elif (word := reader.word()) is not None:
            words.append(word)
            if len(words) == 1 and _CONTINUED.match(word.source):
                # bash joins the lines before it looks for keywords and assignments.
                raise reader.fail("a line that is continued within the name of a command")
            if len(words) == 1 and not assignments and not redirects and _is_definition(reader):
                return read_function_body(reader, word)
        else:
            break
    if not (assignments or words or redirects):
        raise reader.fail("a command is missing")
    return Simple(tuple(assignments), tuple(words), tuple(redirects))


def _is_definition(reader: Reader) -> bool:
    """Consume the brackets of `name ()` and return whether they were there."""
    brackets = _BRACKETS.match(reader.text, reader.at)
    if brackets:
        reader.at = brackets.end()
    return brackets is not None


def _assignment(reader: Reader) -> Assignment | None:
    head = _ASSIGNMENT.match(reader.text, reader.at)
    if not head:
        if _SUBSCRIPT.match(reader.text, reader.at):
            raise reader.fail("a subscript that is not plain")
        return None
    if head[2] or head[3]:
        reader.check_bash()
    if head[2] and not head[2].strip("[]"):
        raise reader.fail("a subscript that is not plain")
    reader.at = head.end()
    replaces = head[2] is None and not head[3]
    if reader.accept("("):
        if head[2]:
            raise reader.fail("a list as one element of an array")
        elements = _elements(reader)
        if reader.peek() not in _AFTER_ARRAY:
            raise reader.fail("something follows an array")
        return Assignment(head[1], elements, replaces, "")
    word = reader.word() if reader.peek() not in " \t\n" else None
    return Assignment(head[1], word or Word((), ""), replaces, (head[2] or "").strip("[]"))


def _elements(reader: Reader) -> tuple[Word, ...]:
    elements: list[Word] = []
    while True:
        skip_lines(reader)
        if reader.accept(")"):
            return tuple(elements)
        if _ELEMENT.match(reader.text, reader.at):
            raise reader.fail("a subscript that is not plain")
        element = reader.word()
        if element is None:
            raise reader.fail("an array is not closed")
        elements.append(element)
