"""Parses expansions: parameters, substitutions, arithmetic and `$'…'`.

An expansion is parsed to its end by the rules of bash, or the script is refused. `expand.py` evaluates expansions.
"""

import re
from abc import abstractmethod
from typing import Final

from remit.errors import quote
from remit.policy.shell.parse.cursor import Cursor
from remit.policy.shell.parse.syntax import Arithmetic, Parameter, Part, Script, Substitution, Text, Word

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_BRACED_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_SUBSCRIPT: Final = re.compile(r"\[(@|\*|[A-Za-z0-9_]+)\]")
_OPERATOR: Final = re.compile(r":[-=+?]|[-=+?]|##|#|%%|%|//|/[#%]?|\^\^|\^|,,|,|@|:")
_IN_OPERAND: Final = re.compile(r"[^\\'\"`$}]+")
_PROCESS: Final = re.compile(r"[<>]\(")
# The operators that take a pattern begin with one of these.
_TAKE_PATTERNS: Final = frozenset("#%/^,")
_ESCAPED_IN_OPERAND: Final = frozenset('$`"\\}')
_PAREN: Final = re.compile(r"[()'\"`#\\\n]")
_ANSI_END: Final = re.compile(r"((?:[^\\']|\\.)*)'", re.DOTALL)
_ANSI: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))|([^\\]+)",
    re.DOTALL,
)
_ANSI_LETTERS: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_LAST_BYTE: Final = 0x7F
_LAST_CHARACTER: Final = 0x10FFFF


class Expansions(Cursor):
    """Parses everything that starts with a dollar sign or a backtick."""

    @abstractmethod
    def read_quoted(self, mark: str, parts: list[Part], *, doubled: bool) -> None:
        """Parse the quote, escape or expansion that starts with `mark`; `doubled` inside double quotes."""

    @abstractmethod
    def double_quoted(self) -> list[Part]:
        """Return the parts up to the closing double quote."""

    @abstractmethod
    def within(self, text: str) -> "Expansions":
        """Return a reader for a part of the text."""

    @abstractmethod
    def as_text(self) -> Word:
        """Parse the whole text with its expansions and with quotes as ordinary characters, as in a here-document."""

    @abstractmethod
    def check_finished(self) -> None:
        """Refuse a script with text left over."""

    def nested(self, end: str) -> Script:
        """Parse the script from here to `end`, which is consumed."""
        if self.pending:
            raise self.fail("a here-document starts within another construct")
        self.count_command()
        self.deepen()
        self.substituted += 1
        script = self.read_script(self, end)
        self.substituted -= 1
        if not self.accept(end):
            raise self.fail(f"{quote(end)} is missing")
        if self.pending:
            raise self.fail("a here-document is not closed")
        self.depth -= 1
        self.counts.substitutions.append(script)
        return script

    def backticks(self, *, quoted: bool) -> Substitution:
        """Parse backticks, in which a backslash escapes only a few characters."""
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
        if quoted and '"' in source and "{" in source:
            # bash looks for braces first, and takes such a quote for the closing one.
            raise self.fail("quotes and braces inside quoted backticks")
        self.count_command()
        self.check_one_line(source)
        reader = self.within(source)
        script = self.read_script(reader, "")
        reader.check_finished()
        self.counts.substitutions.append(script)
        self.at = at + 1
        return Substitution(script, quoted)

    def dollar(self, parts: list[Part], *, quoted: bool) -> None:
        """Parse what starts with a dollar sign; alone it is an ordinary character."""
        after = self.text[self.at + 1 : self.at + 2]
        if self.text.startswith("$((", self.at) and (inner := self.arithmetic(3)) is not None:
            parts.append(Arithmetic(inner))
        elif after == "(":
            self.at += 2
            parts.append(Substitution(self.nested(")"), quoted))
        elif after == "[":
            raise self.fail("an old form of arithmetic")
        elif after == "{":
            parts.append(self._braced(quoted=quoted))
        elif after == "'" and not quoted:
            self.check_bash()
            parts.append(Text(self._ansi_c(), quoted=True))
        elif after == '"' and not quoted:
            self.check_bash()
            self.at += 2
            parts.extend(self.double_quoted())
        elif name := _NAME.match(self.text, self.at + 1):
            parts.append(Parameter(name[0], "", None, quoted, bare=True))
            self.at = name.end()
            self.check_not_continued()
        else:
            parts.append(Text("$", quoted=True))
            self.at += 1
            self.check_not_continued()

    def _arithmetic_end(self, start: int) -> int | None:
        """Return where the arithmetic that starts at `start` ends, or None if it is not arithmetic.

        Quotes and comments in it would need a second grammar, so they are refused, unless no `))` follows.
        """
        depth, at = 0, start
        for mark in _PAREN.finditer(self.text, start):
            at = mark.start()
            if mark[0] == "(":
                depth += 1
            elif mark[0] != ")":
                if "))" in self.text[at:]:
                    raise self.fail("quotes or comments inside arithmetic")
                return None
            elif depth:
                depth -= 1
            else:
                return at if self.text.startswith("))", at) else None
        raise self.fail("a bracket is not closed")

    def arithmetic(self, opening: int) -> Word | None:
        """Consume `((…))` and return its content, or return None and stay if it is not arithmetic."""
        end = self._arithmetic_end(self.at + opening)
        if end is None:
            return None
        word = self.within(self.text[self.at + opening : end]).as_text()
        self.at = end + 2
        return word

    def _ansi_c(self) -> str:
        """Return the text of `$'…'` with its escapes resolved."""
        at = self.at + 2
        close = _ANSI_END.match(self.text, at)
        if not close:
            raise self.fail("a quote is not closed")
        self.check_one_line(close[0])
        pieces = [self._ansi_piece(piece) for piece in _ANSI.finditer(close[1])]
        self.at = close.end()
        # A NUL ends the string in bash. Rare, so it is refused.
        text = "".join(pieces)
        if "\0" in text:
            raise self.fail("a NUL character")
        return text

    def _ansi_piece(self, piece: re.Match[str]) -> str:
        octal, hexa, short, long, letter, plain = piece.groups()
        if plain is not None:
            return str(plain)
        if letter is not None:
            if letter in "cxuU":
                raise self.fail("an escape that shells read differently")
            return _ANSI_LETTERS.get(letter, "\\" + letter)
        code = int(octal, 8) & 0xFF if octal else int(hexa or short or long, 16)
        byte = (octal or hexa) and code > _LAST_BYTE
        if byte or code > _LAST_CHARACTER or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - surrogates
            raise self.fail("bytes that are not characters")
        return chr(code)

    def _braced(self, *, quoted: bool) -> Parameter:
        """Parse `${…}`. Forms that cannot be evaluated keep their operator, so their value is unknown."""
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
        return operator[0], self._operand(quoted=quoted, pattern=operator[0][0] in _TAKE_PATTERNS)

    def _operand(self, *, quoted: bool, pattern: bool) -> Word:
        """Parse the word up to the closing brace, which is consumed.

        Double quotes around the expansion do not quote the text of a pattern.
        """
        self.deepen()
        start, parts = self.at, list[Part]()
        while not self.accept("}"):
            if self.at >= len(self.text):
                raise self.fail("an expansion is not closed")
            mark = self.text[self.at]
            if plain := _IN_OPERAND.match(self.text, self.at):
                self.check_one_line(plain[0])
                if _PROCESS.search(plain[0]):
                    raise self.fail("a process substitution inside an expansion")
                if "{" in plain[0] and not quoted:
                    # bash may pair such a brace with another one than intended.
                    raise self.fail("a brace inside an expansion")
                parts.append(Text(plain[0], quoted=quoted and not pattern))
                self.at = plain.end()
            elif quoted and mark in "'\"":
                # Inside double quotes, bash reads these in different ways.
                raise self.fail("quotes inside an expansion")
            elif quoted and mark == "\\":
                following = self.peek(2)[1:]
                if following != "\n":
                    protected = pattern or following in _ESCAPED_IN_OPERAND
                    parts.append(Text(following if protected else mark + following, quoted=True))
                self.at += 2
            else:
                self.read_quoted(mark, parts, doubled=quoted)
        self.depth -= 1
        return Word(tuple(parts), self.text[start : self.at - 1])
