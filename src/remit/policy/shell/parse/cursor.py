"""A position in the text of a script, with counters for the limits.

All parsers move a `Cursor`. A script with more commands, words or nesting than people write is refused, so that the
work is linear in the length of the text.
"""

import re
from collections.abc import Callable
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.shell.parse.syntax import Part, Script

MAX_LENGTH: Final = 65_536
MAX_DEPTH: Final = 32
MAX_COMMANDS: Final = 256
MAX_WORDS: Final = 4000
MAX_PARTS: Final = 1000
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)+")
# Characters that can start blanks, a continued line or a comment before a word.
_BEFORE_WORDS: Final = frozenset((" ", "\t", "\\", "#"))

ReadScript = Callable[["Cursor", str], Script]


class _Counts:
    """Counters shared by a script and all scripts inside it."""

    def __init__(self) -> None:
        self.commands = 0
        self.words = 0
        self.substitutions: list[Script] = []


class Cursor:
    """A position in a text; `posix` if the shell may be another one than bash."""

    def __init__(self, text: str, read_script: ReadScript, *, posix: bool, outer: "Cursor | None" = None) -> None:
        self.text = text
        self.at = 0
        self.posix = posix
        self.depth: int = 0 if outer is None else outer.depth
        self.read_script = read_script
        # The number of enclosing substitutions, up to the whole text.
        self.substituted: int = 0 if outer is None else outer.substituted
        # Here-documents whose text follows: the list for its parts, the delimiter, literal, tabs stripped.
        self.pending: list[tuple[list[Part], str, bool, bool]] = []
        self.counts: _Counts = _Counts() if outer is None else outer.counts
        if outer is not None:
            self.deepen()

    def peek(self, length: int = 1) -> str:
        """Return the next characters without consuming them."""
        return self.text[self.at : self.at + length]

    def accept(self, token: str) -> bool:
        """Consume `token` if it comes next, and return whether it did."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def skip_blanks(self) -> None:
        """Consume spaces, tabs, continued lines and a comment."""
        if self.text[self.at : self.at + 1] not in _BEFORE_WORDS:
            return
        if blank := _BLANK.match(self.text, self.at):
            self.at = blank.end()
        if self.peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def fail(self, why: str) -> ShellUnparsed:
        """Return the error for text that cannot be parsed at this position."""
        return ShellUnparsed(why, self.text[self.at : self.at + 40].split("\n")[0])

    def check_bash(self) -> None:
        """Refuse syntax that other shells read differently, if the shell may not be bash."""
        if self.posix:
            raise self.fail("the shell that reads it may not be bash")

    def check_not_continued(self) -> None:
        """Refuse a continued line in the middle of a token: bash joins the lines first."""
        if self.peek(2) == "\\\n":
            raise self.fail("a line that is continued within a token")

    def check_one_line(self, inner: str) -> None:
        """Refuse text on several lines while a here-document is pending: bash would look for its text there."""
        if self.pending and "\n" in inner:
            raise self.fail("a here-document starts within another construct")

    def deepen(self) -> None:
        """Enter one more level of nesting, and refuse too many."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("it is nested too deeply")

    def count_command(self) -> None:
        """Count one more command, and refuse too many."""
        self.counts.commands += 1
        if self.counts.commands > MAX_COMMANDS:
            raise ShellUnparsed(f"it has more than {MAX_COMMANDS} commands", "")

    def count_word(self) -> None:
        """Count one more word, and refuse too many."""
        self.counts.words += 1
        if self.counts.words > MAX_WORDS:
            raise ShellUnparsed(f"it has more than {MAX_WORDS} words", "")
