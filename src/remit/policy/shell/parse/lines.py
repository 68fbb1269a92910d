"""Parses what is between commands: line ends, reserved words and redirections."""

import re
from typing import Final

from remit.errors import quote
from remit.policy.shell.parse.syntax import Redirect, Text, Word
from remit.policy.shell.parse.words import Reader

_RESERVED: Final = frozenset(
    "if then elif else fi for while until do done case esac { } ! [[ function select time coproc".split()
)
_REDIRECT: Final = re.compile(
    r"(?P<descriptor>(?:[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})(?=[<>]))?(?P<operator>&>>|<<<|<<-|<<|<>|<&|>>|>\||>&|&>|<|>)"
)
# Other shells read `&>` as `&` and `>`: the command runs in the background, and another one follows.
_AFTER_AND_REDIRECT: Final = re.compile(r"[\n;)&]|\|\||\Z")
_EMPTY_LINES: Final = re.compile(r"[ \t\n]+")
_WORD_AHEAD: Final = re.compile(r"(?:[a-z]+|[{}!]|\[\[)(?=[ \t\n;&|<>()]|\Z)")


def skip_lines(reader: Reader) -> None:
    """Consume blanks, comments and line ends."""
    while True:
        if not reader.pending and (empty := _EMPTY_LINES.match(reader.text, reader.at)):
            reader.at = empty.end()
        reader.skip_blanks()
        if not reader.newline():
            return


def reserved_ahead(reader: Reader) -> str:
    """Return the next reserved word, or "". A word with a quote or an expansion is never reserved."""
    ahead = _WORD_AHEAD.match(reader.text, reader.at)
    return ahead[0] if ahead and ahead[0] in _RESERVED else ""


def accept_word(reader: Reader, word: str) -> bool:
    """Consume a reserved word if it comes next, and return whether it did."""
    reader.skip_blanks()
    return reserved_ahead(reader) == word and reader.accept(word)


def expect_word(reader: Reader, word: str) -> None:
    """Consume a reserved word, or refuse the script if anything else comes next."""
    skip_lines(reader)
    if not accept_word(reader, word):
        raise reader.fail(f"{quote(word)} is missing")


def read_redirects(reader: Reader) -> tuple[Redirect, ...]:
    """Parse the redirections after a compound command."""
    redirects: list[Redirect] = []
    while True:
        reader.skip_blanks()
        redirect = read_redirect(reader)
        if redirect is None:
            return tuple(redirects)
        redirects.append(redirect)


def read_redirect(reader: Reader) -> Redirect | None:
    """Parse the redirection that starts here; return None if none does."""
    found = _REDIRECT.match(reader.text, reader.at)
    if found is None:
        return None
    operator, descriptor = found["operator"], found["descriptor"] or ""
    if len(descriptor) > 1:
        # Other shells take only one digit as descriptor, and read the rest, or `{name}`, as a word.
        reader.check_bash()
    if operator in "<>" and reader.text.startswith("(", found.end()):
        # A process substitution is a word.
        return None
    reader.at = found.end()
    reader.check_not_continued()
    if operator in ("<<", "<<-"):
        return reader.heredoc(operator)._replace(descriptor=descriptor)
    if operator in ("<&", ">&") and reader.accept("-"):
        # Text directly after the dash is a word of the command.
        return Redirect(operator, Word((Text("-", quoted=True),), "-"), descriptor)
    reader.skip_blanks()
    word = reader.word()
    if word is None:
        raise reader.fail("a redirection without a target")
    if operator.startswith("&"):
        reader.skip_blanks()
        if not _AFTER_AND_REDIRECT.match(reader.text, reader.at):
            reader.check_bash()
    return Redirect(operator, word, descriptor)
