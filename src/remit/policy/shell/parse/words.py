"""Parses words: quotes, escapes and here-documents, exactly as bash does.

Text that is not understood is refused (`ShellUnparsed`), never skipped. `expansions.py` parses expansions in words,
`grammar.py` commands.
"""

import re
from collections.abc import Sequence
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.shell.parse.cursor import MAX_PARTS
from remit.policy.shell.parse.expansions import Expansions
from remit.policy.shell.parse.syntax import Part, ProcessSubstitution, Redirect, Text, Word

_PLAIN: Final = re.compile(r"[^\s\\'\"`$;&|<>()]+")
# White space that bash does not split at, such as a carriage return, belongs to the word.
_ODD_SPACE: Final = re.compile(r"[^\S \t\n]+")
_IN_DOUBLE: Final = re.compile(r'[^\\"`$\n]+')
_IN_TEXT: Final = re.compile(r"[^\\`$]+")
_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")


class Reader(Expansions):
    """Parses words and here-documents."""

    def word(self) -> Word | None:
        """Parse the word that starts here; return None if none does."""
        start = self.at
        parts: list[Part] = []
        self.count_word()
        while self.at < len(self.text):
            mark = self.text[self.at]
            if mark in _ENDS_WORD and not (mark in "<>" and self.peek(2) in ("<(", ">(")):
                break
            if len(parts) > MAX_PARTS:
                raise ShellUnparsed(f"a word has more than {MAX_PARTS} parts", "")
            if plain := _PLAIN.match(self.text, self.at) or _ODD_SPACE.match(self.text, self.at):
                parts.append(Text(plain[0], quoted=False))
                self.at = plain.end()
            elif mark in "<>":
                self.check_bash()
                self.at += 2
                script = self.nested(")")
                if not script.items:
                    raise self.fail("an empty process substitution")
                parts.append(ProcessSubstitution(script))
            else:
                self.read_quoted(mark, parts, doubled=False)
        return Word(tuple(parts), self.text[start : self.at]) if self.at > start else None

    def read_quoted(self, mark: str, parts: list[Part], *, doubled: bool) -> None:
        """Parse the quote, escape or expansion that starts with `mark`; `doubled` inside double quotes."""
        if mark == "$":
            self.dollar(parts, quoted=doubled)
        elif mark == "`":
            parts.append(self.backticks(quoted=doubled))
        elif mark == "'":
            parts.append(Text(self._single_quoted(), quoted=True))
        elif mark == '"':
            self.at += 1
            parts.extend(self.double_quoted())
        else:
            self._escaped(parts)

    def _single_quoted(self) -> str:
        close = self.text.find("'", self.at + 1)
        if close < 0:
            raise self.fail("a quote is not closed")
        inner = self.text[self.at + 1 : close]
        self.check_one_line(inner)
        self.at = close + 1
        return inner

    def _escaped(self, parts: list[Part]) -> None:
        if self.at + 1 >= len(self.text):
            raise self.fail("it ends with a backslash")
        following = self.text[self.at + 1]
        if following != "\n":
            parts.append(Text(following, quoted=True))
        self.at += 2

    def double_quoted(self) -> list[Part]:
        """Return the parts up to the closing double quote; an empty string is a part too."""
        parts: list[Part] = []
        while not self.accept('"'):
            if self.at >= len(self.text):
                raise self.fail("a quote is not closed")
            if plain := _IN_DOUBLE.match(self.text, self.at):
                parts.append(Text(plain[0], quoted=True))
                self.at = plain.end()
            else:
                self._in_double(parts, '\\"`$')
            if len(parts) > MAX_PARTS:
                raise ShellUnparsed(f"a word has more than {MAX_PARTS} parts", "")
        return parts or [Text("", quoted=True)]

    def _in_double(self, parts: list[Part], escapable: str) -> None:
        """Parse one mark where quotes are ordinary characters; a backslash escapes only `escapable` characters."""
        mark = self.text[self.at]
        if mark == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            if following != "\n":
                protected = following and following in escapable
                parts.append(Text(following if protected else mark + following, quoted=True))
            self.at += 2
        elif mark in "`$":
            self.read_quoted(mark, parts, doubled=True)
        else:
            self.check_one_line(mark)
            parts.append(Text(mark, quoted=True))
            self.at += 1

    def within(self, text: str) -> "Reader":
        """Return a reader for a part of the text that shares the counters."""
        self.check_one_line(text)
        return Reader(text, self.read_script, posix=self.posix, outer=self)

    def as_text(self) -> Word:
        """Parse the whole text with its expansions and with quotes as ordinary characters, as in a here-document."""
        parts: list[Part] = []
        while self.at < len(self.text):
            if plain := _IN_TEXT.match(self.text, self.at):
                parts.append(Text(plain[0], quoted=True))
                self.at = plain.end()
            else:
                self._in_double(parts, "\\`$")
            if len(parts) > MAX_PARTS:
                raise ShellUnparsed(f"a text has more than {MAX_PARTS} parts", "")
        return Word(tuple(parts), self.text)

    def heredoc(self, operator: str) -> Redirect:
        """Parse the operator of a here-document; its parts are filled in after the end of this line."""
        self.skip_blanks()
        delimiter = self.word()
        texts = [part for part in delimiter.parts if isinstance(part, Text)] if delimiter else []
        end = "".join(part.value for part in texts)
        if delimiter is None or len(texts) != len(delimiter.parts) or "\n" in delimiter.source:
            raise self.fail("a here-document without a plain end mark")
        parts: list[Part] = []
        self.pending.append((parts, end, any(part.quoted for part in texts), operator == "<<-"))
        return Redirect("<<", Word(parts, delimiter.source))

    def newline(self) -> bool:
        """Consume the end of a line and the here-documents after it; return whether there was one."""
        if not self.accept("\n"):
            return False
        coming, self.pending = self.pending, []
        for parts, end, literal, tabs in coming:
            parts.extend(self._body(end, literal=literal, tabs=tabs))
        return True

    def _body(self, end: str, *, literal: bool, tabs: bool) -> Sequence[Part]:
        lines: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise self.fail("a here-document is not closed")
            close = self.text.find("\n", self.at)
            close = len(self.text) if close < 0 else close
            line = self.text[self.at : close].lstrip("\t") if tabs else self.text[self.at : close]
            self.at = min(close + 1, len(self.text))
            if line == end:
                break
            if self.substituted and line.startswith(end):
                # bash ends the text here if a bracket follows, and reads the rest of the line as commands.
                raise self.fail("a line in a substitution that begins like the end of a here-document")
            # bash joins continued lines before it looks for the delimiter. Rare, so it is refused.
            if not literal and line.endswith("\\"):
                raise self.fail("a continued line in a here-document")
            lines.append(line + "\n")
        text = "".join(lines)
        return [Text(text, quoted=True)] if literal else self.within(text).as_text().parts

    def check_finished(self) -> None:
        """Refuse a script with a pending here-document, or with text left over."""
        if self.pending:
            raise self.fail("a here-document is not closed")
        if self.at < len(self.text):
            raise self.fail("unexpected text")
