"""Reading words: quotes, expansions and here-documents, exactly as bash reads them.

Keeps this invariant: what is not understood is refused (`ShellUnparsed`), never skipped. Each character is looked at a
bounded number of times, so the work is linear in the text. Commands are read by `grammar.py`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from remit.errors import ShellUnparsed, quote
from remit.policy.shell.syntax import (
    Arithmetic,
    Parameter,
    Part,
    ProcessSubstitution,
    Redirect,
    Script,
    Substitution,
    Text,
    Word,
)

__all__ = ["MAX_COMMANDS", "MAX_DEPTH", "MAX_LENGTH", "MAX_PARTS", "MAX_WORDS", "Reader"]

MAX_LENGTH: Final = 65_536
MAX_DEPTH: Final = 32
MAX_COMMANDS: Final = 256
MAX_WORDS: Final = 4000
MAX_PARTS: Final = 1000

_PLAIN: Final = re.compile(r"[^\s\\'\"`$;&|<>()]+")
# White space that bash does not split words at (a carriage return, say) belongs to the word.
_ODD_SPACE: Final = re.compile(r"[^\S \t\n]+")
_IN_DOUBLE: Final = re.compile(r'[^\\"`$\n]+')
_IN_HEREDOC: Final = re.compile(r"[^\\`$]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL_NAME: Final = re.compile(r"[0-9@*#?$!-]")
_BRACED_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_SUBSCRIPT: Final = re.compile(r"\[(@|\*|[A-Za-z0-9_]+)\]")
_OPERATOR: Final = re.compile(r":[-=+?]|[-=+?]|##|#|%%|%|//|/[#%]?|\^\^|\^|,,|,|@|:")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)+")
_ANSI: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))|([^\\]+)",
    re.DOTALL,
)
_ANSI_LETTERS: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")


class Reader:
    """A position in the text of a script, with the here-documents that are still to come."""

    def __init__(
        self, text: str, parse_script: Callable[["Reader", str], Script], depth: int = 0, *, posix: bool = False
    ) -> None:
        if depth > MAX_DEPTH:
            raise ShellUnparsed("it is nested too deeply", "")
        self.text = text
        self.at = 0
        self.depth = depth
        self.commands = 0
        self.posix = posix
        self._words = 0
        self._parse_script = parse_script
        self._heredocs: list[tuple[list[Part], str, bool, bool]] = []

    # Looking and moving

    def peek(self, length: int = 1) -> str:
        """Return the next characters without moving."""
        return self.text[self.at : self.at + length]

    def accept(self, token: str) -> bool:
        """Move past `token` if it comes next, and tell whether it did."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def skip_blanks(self) -> None:
        """Move past spaces, tabs, continued lines and a comment."""
        if blank := _BLANK.match(self.text, self.at):
            self.at = blank.end()
        if self.peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def fail(self, why: str) -> ShellUnparsed:
        """Return the error that names what cannot be read here."""
        return ShellUnparsed(why, self.text[self.at : self.at + 40].split("\n")[0])

    def check_bash(self) -> None:
        """Refuse a form that other shells read differently, where one of them may be the reader."""
        if self.posix:
            raise self.fail("it is not certain that bash reads it")

    # Words

    def word(self) -> Word | None:
        """Return the word that starts here, or None where none does."""
        start = self.at
        parts: list[Part] = []
        self._words += 1
        if self._words > MAX_WORDS:
            raise ShellUnparsed(f"it has more than {MAX_WORDS} words", "")
        while self.at < len(self.text):
            mark = self.text[self.at]
            if len(parts) > MAX_PARTS:
                raise ShellUnparsed(f"a word has more than {MAX_PARTS} parts", "")
            if mark in _ENDS_WORD and not (mark in "<>" and self.peek(2) in ("<(", ">(")):
                break
            if plain := _PLAIN.match(self.text, self.at) or _ODD_SPACE.match(self.text, self.at):
                parts.append(Text(plain[0], quoted=False))
                self.at = plain.end()
            elif mark in "<>":
                self.check_bash()
                self.at += 2
                parts.append(ProcessSubstitution(self._nested(")")))
            else:
                self._quoted_or_expanded(mark, parts)
        if self.at == start:
            return None
        return Word(tuple(parts), self.text[start : self.at])

    def _quoted_or_expanded(self, mark: str, parts: list[Part]) -> None:
        if mark == "'":
            parts.append(Text(self._until("'"), quoted=True))
        elif mark == '"':
            self.at += 1
            parts.extend(self._double_quoted())
        elif mark == "\\":
            self._escaped(parts)
        elif mark == "`":
            parts.append(self._backticks(quoted=False))
        else:
            self._dollar(parts, quoted=False)

    def _until(self, end: str) -> str:
        """Return what stands between the quote here and the next `end`."""
        close = self.text.find(end, self.at + 1)
        if close < 0:
            raise self.fail("a quote is not closed")
        inner = self.text[self.at + 1 : close]
        self._check_no_heredoc(inner)
        self.at = close + 1
        return inner

    def _check_no_heredoc(self, inner: str) -> None:
        if self._heredocs and "\n" in inner:
            raise self.fail("a here-document starts within another construct")

    def _escaped(self, parts: list[Part]) -> None:
        if self.at + 1 >= len(self.text):
            raise self.fail("it ends with a backslash")
        following = self.text[self.at + 1]
        if following != "\n":
            parts.append(Text(following, quoted=True))
        self.at += 2

    def _double_quoted(self) -> list[Part]:
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
        return parts or [Text("", quoted=True)]

    def _in_double(self, parts: list[Part], escapable: str) -> None:
        mark = self.text[self.at]
        if mark == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            if following != "\n":
                parts.append(Text(following if following and following in escapable else mark + following, quoted=True))
            self.at += 2
        elif mark == "`":
            parts.append(self._backticks(quoted=True))
        elif mark == "$":
            self._dollar(parts, quoted=True)
        else:
            self._check_no_heredoc(mark)
            parts.append(Text(mark, quoted=True))
            self.at += 1

    def _backticks(self, *, quoted: bool) -> Substitution:
        """Return the substitution here; inside it a backslash only protects a few characters."""
        inner, at = [], self.at + 1
        while (mark := self.text[at : at + 1]) != "`":
            if not mark:
                raise self.fail("a backtick is not closed")
            protected = '\\`$"' if quoted else "\\`$"
            if mark == "\\" and self.text[at + 1 : at + 2] in tuple(protected):
                at += 1
                mark = self.text[at]
            inner.append(mark)
            at += 1
        source = "".join(inner)
        self.count_command()
        self._check_no_heredoc(source)
        reader = Reader(source, self._parse_script, self.depth + 1, posix=self.posix)
        script = self._parse_script(reader, "")
        self._count(reader.commands)
        self.at = at + 1
        return Substitution(script, quoted)

    def _nested(self, end: str) -> Script:
        """Return the script from here to `end`, which is consumed."""
        if self._heredocs:
            raise self.fail("a here-document starts within another construct")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("it is nested too deeply")
        script = self._parse_script(self, end)
        if not self.accept(end):
            raise self.fail(f"{quote(end)} is missing")
        if self._heredocs:
            raise self.fail("a here-document is not closed")
        self.depth -= 1
        return script

    def _count(self, commands: int) -> None:
        self.commands += commands
        if self.commands > MAX_COMMANDS:
            raise ShellUnparsed(f"it has more than {MAX_COMMANDS} commands", "")

    def count_command(self) -> None:
        """Count one more command and refuse a script that has too many."""
        self._count(1)

    # Expansions

    def _dollar(self, parts: list[Part], *, quoted: bool) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if self.text.startswith("$((", self.at) and (inner := self.arithmetic(3)) is not None:
            parts.append(Arithmetic(inner))
        elif after == "(":
            self.at += 2
            parts.append(Substitution(self._nested(")"), quoted))
        elif after == "[":
            raise self.fail("an old form of arithmetic")
        elif after == "{":
            parts.append(self._braced(quoted=quoted))
        elif after == "'" and not quoted:
            self.check_bash()
            parts.append(Text(self._ansi_c(), quoted=True))
        elif after == '"' and not quoted:
            self.at += 2
            parts.extend(self._double_quoted())
        elif name := _NAME.match(self.text, self.at + 1) or _SPECIAL_NAME.match(self.text, self.at + 1):
            parts.append(Parameter(name[0], "", None, quoted))
            self.at = name.end()
            self.check_not_continued()
        else:
            parts.append(Text("$", quoted=True))
            self.at += 1
            self.check_not_continued()

    def check_not_continued(self) -> None:
        """Refuse a continued line in the middle of a token: bash joins it before it reads the token."""
        if self.peek(2) == "\\\n":
            raise self.fail("a line that is continued within a token")

    def _arithmetic_end(self, start: int) -> int | None:
        """Return where the arithmetic that starts at `start` closes, or None where it is not arithmetic.

        Quotes and comments would need a second grammar: with them the text is read as nested commands, which either
        succeeds with every command seen or is refused.
        """
        depth, at = 0, start
        for mark in _PAREN.finditer(self.text, start):
            at = mark.start()
            if mark[0] == "(":
                depth += 1
            elif mark[0] != ")":
                return None
            elif depth:
                depth -= 1
            else:
                return at if self.text.startswith("))", at) else None
        raise self.fail("a bracket is not closed")

    def arithmetic(self, opening: int) -> Word | None:
        """Move past `((…))` and return what is inside, or stay and return None where it does not close as one."""
        end = self._arithmetic_end(self.at + opening)
        if end is None:
            return None
        word = self._inner_word(self.at + opening, end)
        self.at = end + 2
        return word

    def _inner_word(self, start: int, end: int) -> Word:
        """Return the text between two places, read as in double quotes, so that its expansions are seen."""
        return self._subreader(self.text[start:end]).as_double_quoted()

    def _subreader(self, text: str) -> "Reader":
        self._check_no_heredoc(text)
        return _Counted(text, self)

    def as_double_quoted(self) -> Word:
        """Return all of the text with its expansions, quotes standing for themselves, as in a here-document."""
        parts: list[Part] = []
        while self.at < len(self.text):
            if plain := _IN_HEREDOC.match(self.text, self.at):
                parts.append(Text(plain[0], quoted=True))
                self.at = plain.end()
            else:
                self._in_double(parts, "\\`$")
        return Word(tuple(parts), self.text)

    def _ansi_c(self) -> str:
        """Return the text of `$'…'` with its escapes resolved."""
        at = self.at + 2
        close = _ANSI_END.match(self.text, at)
        if not close:
            raise self.fail("a quote is not closed")
        self._check_no_heredoc(close[0])
        pieces = [self._ansi_piece(piece) for piece in _ANSI.finditer(close[1])]
        self.at = close.end()
        # A NUL ends the string in bash; nobody needs one.
        text = "".join(pieces)
        if "\0" in text:
            raise self.fail("a NUL character")
        return text

    def _ansi_piece(self, piece: re.Match[str]) -> str:
        octal, hexa, short, long, letter, plain = piece.groups()
        if plain is not None:
            return str(plain)
        if letter is not None:
            if letter == "c":
                raise self.fail("a control character")
            return _ANSI_LETTERS.get(letter, "\\" + letter)
        code = int(octal, 8) & 0xFF if octal else int(hexa or short or long, 16)
        if (octal or hexa) and code > 0x7F or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self.fail("bytes that are not characters")
        return chr(code)

    def _braced(self, *, quoted: bool) -> Parameter:
        """Return `${…}`; forms whose value cannot be followed keep their operator, so that it is not followed."""
        self.at += 2
        indirect = self.peek() == "!" and self.peek(2) != "!}"
        length = self.peek() == "#" and self.peek(2) != "#}"
        self.at += indirect or length
        name = _BRACED_NAME.match(self.text, self.at)
        if not name:
            raise self.fail("an expansion that is not understood")
        self.at = name.end()
        subscript = _SUBSCRIPT.match(self.text, self.at)
        if subscript:
            self.at = subscript.end()
        operator, operand = self._operator(quoted=quoted)
        prefix = "!" if indirect else "#" if length else ""
        return Parameter(name[0], prefix + (subscript[0] if subscript else "") + operator, operand, quoted)

    def _operator(self, *, quoted: bool) -> tuple[str, Word | None]:
        if self.accept("}"):
            return "", None
        operator = _OPERATOR.match(self.text, self.at)
        if not operator:
            raise self.fail("an expansion that is not understood")
        self.at = operator.end()
        return operator[0], self._operand(quoted=quoted)

    def _operand(self, *, quoted: bool) -> Word:
        """Return the word up to the closing brace, which is consumed."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("it is nested too deeply")
        start, parts = self.at, list[Part]()
        while not self.accept("}"):
            if self.at >= len(self.text):
                raise self.fail("an expansion is not closed")
            mark = self.text[self.at]
            if plain := _IN_OPERAND.match(self.text, self.at):
                self._check_no_heredoc(plain[0])
                parts.append(Text(plain[0], quoted=quoted))
                self.at = plain.end()
            elif not quoted:
                self._quoted_or_expanded(mark, parts)
            elif mark in "'\"":
                # Inside double quotes bash reads these in more than one way.
                raise self.fail("quotes inside an expansion")
            elif mark == "\\":
                parts.append(Text(self.peek(2), quoted=True))
                self.at += 2
            else:
                self._in_double(parts, "")
        self.depth -= 1
        return Word(tuple(parts), self.text[start : self.at - 1])

    # Here-documents

    def heredoc(self, operator: str) -> Redirect:
        """Return the redirection whose text comes after the end of this line; its parts arrive with that line."""
        self.skip_blanks()
        delimiter = self.word()
        texts = [part for part in delimiter.parts if isinstance(part, Text)] if delimiter else []
        end = "".join(part.value for part in texts)
        if delimiter is None or len(texts) != len(delimiter.parts) or "\n" in delimiter.source:
            raise self.fail("a here-document without a plain end mark")
        parts: list[Part] = []
        self._heredocs.append((parts, end, any(part.quoted for part in texts), operator == "<<-"))
        return Redirect("<<", Word(parts, delimiter.source))

    def newline(self) -> bool:
        """Move past the end of a line and the here-documents that start there; tell whether there was one."""
        if not self.accept("\n"):
            return False
        coming, self._heredocs = self._heredocs, []
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
            # bash joins continued lines before it looks for the end mark; nobody needs one.
            if not literal and line.endswith("\\"):
                raise self.fail("a continued line in a here-document")
            lines.append(line + "\n")
        text = "".join(lines)
        return [Text(text, quoted=True)] if literal else self._subreader(text).as_double_quoted().parts

    def check_finished(self) -> None:
        """Refuse a script whose here-documents never came."""
        if self._heredocs:
            raise self.fail("a here-document is not closed")


class _Counted(Reader):
    """A reader of a part of another's text: commands found in it count there."""

    def __init__(self, text: str, outer: Reader) -> None:
        super().__init__(text, outer._parse_script, outer.depth + 1, posix=outer.posix)  # noqa: SLF001 - one reader in two parts
        self._outer = outer

    def count_command(self) -> None:
        self._outer.count_command()


_PAREN: Final = re.compile(r"[()'\"`#\\\n]")
_ANSI_END: Final = re.compile(r"((?:[^\\']|\\.)*)'", re.DOTALL)
_IN_OPERAND: Final = re.compile(r"[^\\'\"`$}]+")
