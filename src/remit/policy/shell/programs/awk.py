"""Judges awk programs: `system`, pipes, `getline` and printing to a file.

The program is split into tokens. Strings and regular expressions are distinguished from code only where that is
certain, so that no code can hide in them.
"""

import re
from typing import Final, NamedTuple

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.evaluate.state import Output

_TOKEN: Final = re.compile(
    r"(?P<string>\"(?:[^\"\\\n]|\\.)*\")|(?P<comment>#[^\n]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9.]+)"
    r"|(?P<space>[ \t\r]+|\\\n)|(?P<mark>\|\||\|&|>>|>=|<=|==|!=|&&|[\s\S])"
)
_REGEX: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:\^?\]?)(?:[^\]\\\n]|\\.)*\])*/")
_HIDES: Final = re.compile(r"/[^/\n\"#]*[\"#]")
_REACHES: Final = re.compile(r"[\"#]|system|getline|print")
_MAX_TOKENS: Final = 4000
_STREAMS: Final = frozenset(("/dev/stdout", "/dev/stderr", "/dev/stdin", "-"))
# Words that reach files or code that the program does not show.
_REACHING: Final = frozenset(("@", "ARGV", "ARGC"))
_STATEMENT_ENDS: Final = frozenset((";", "\n", "}", "{"))


# A newline after one of these does not end the statement.
_GOES_ON: Final = frozenset((",", "&&", "||", "do", "else"))
_KEYWORDS: Final = frozenset("print printf return case in if while for do else delete exit getline".split())


class _Token(NamedTuple):
    """A token of the program."""

    kind: str
    text: str


_END: Final = _Token("end", "")


class _Awk:
    """Judges the tokens in one pass."""

    def __init__(self, invocation: ProgramCall, text: str, source: str) -> None:
        self.invocation = invocation
        self.source = source
        self.tokens = _tokens(text)
        # The depth of brackets inside `print`; None elsewhere.
        self.printing: int | None = None

    def judge(self) -> None:
        if len(self.tokens) > _MAX_TOKENS:
            self._doubt("an awk program that is too long to analyse")
            return
        for index, token in enumerate(self.tokens):
            if token.text in _REACHING:
                self._doubt("an awk program that loads or calls others, or chooses its files")
            elif token.kind == "name":
                self._name(index, token.text)
            elif token.kind == "mark":
                self._mark(index, token.text)

    def at(self, index: int) -> _Token:
        """Return the token at an index; outside of the program an empty one."""
        return self.tokens[index] if 0 <= index < len(self.tokens) else _END

    def _doubt(self, reason: str) -> None:
        self.invocation.trace.doubt(self.source, reason, unbounded=True)

    def _name(self, index: int, name: str) -> None:
        if name in ("print", "printf"):
            self.printing = 0
        elif name == "system":
            alone = self.at(index + 1).text == "(" and self.at(index + 3).text == ")"
            self._command(self.at(index + 2) if alone else _END)
        elif name == "getline":
            self._getline(index)

    def _getline(self, index: int) -> None:
        if self.at(index + 1).text == "<":
            self._file("read", index + 2)
            return
        for following in self.tokens[index + 1 :]:
            if following.text == "<":
                self._doubt("a file that awk reads is not known before it runs")
            if following.text in _STATEMENT_ENDS:
                return

    def _mark(self, index: int, mark: str) -> None:
        if mark in ("|", "|&"):
            self._pipe(index)
        elif mark in _STATEMENT_ENDS and not (mark == "\n" and self.at(index - 1).text in _GOES_ON):
            self.printing = None
        elif self.printing is not None:
            if mark in (">", ">>") and self.printing <= 0:
                self._file("write", index + 1)
            self.printing += {"(": 1, ")": -1}.get(mark, 0)

    def _pipe(self, index: int) -> None:
        if self.at(index + 1).text == "getline":
            alone = self.at(index - 2).text in ("", "{", ";", "(", "\n", "while", "if", "!")
            self._command(self.at(index - 1) if alone else _END)
        else:
            ends = self.at(index + 2).text in ("", "}", ";", "\n")
            self._command(self.at(index + 1) if ends else _END)

    def _command(self, token: _Token) -> None:
        if token.kind != "string" or "\\" in token.text:
            self._doubt("a command that awk runs is not known before it runs")
        else:
            state = self.invocation.state._replace(stdin=Output())
            self.invocation.evaluator.child(token.text[1:-1], state, posix=True)

    def _file(self, role: str, index: int) -> None:
        token, then = self.at(index), self.at(index + 1)
        joined = then.kind in ("string", "name", "number") or then.text in ("(", "$")
        if token.kind != "string" or "\\" in token.text or joined:
            self._doubt("a file that awk touches is not known before it runs")
        elif token.text[1:-1] not in _STREAMS:
            self.invocation.file(role, Field(token.text[1:-1], "exact", self.source))


def _tokens(text: str) -> list[_Token]:
    """Split a program into tokens; a slash starts a regular expression only where a division is impossible."""
    tokens: list[_Token] = []
    at = 0
    while at < len(text) and len(tokens) <= _MAX_TOKENS:
        before = tokens[-1] if tokens else _END
        divides = before.kind in ("name", "number", "string") and before.text not in _KEYWORDS
        divides = divides or before.text in (")", "]", "$")
        if divides and text[at] == "/" and _HIDES.match(text, at):
            # It could also be a regular expression with a quote in it.
            return [_Token("mark", "@")]
        regex = None if divides or text[at] != "/" else _REGEX.match(text, at)
        if regex and before.text in ("+", "-") and _REACHES.search(regex[0]):
            # Not every awk reads a regular expression here; otherwise this is code.
            return [_Token("mark", "@")]
        found = regex or _TOKEN.match(text, at)
        if found is None:
            break
        at = found.end()
        kind = "regex" if regex else str(found.lastgroup)
        if kind not in ("space", "comment"):
            tokens.append(_Token(kind, found[0]))
    return tokens


def judge_awk(invocation: ProgramCall, text: str, source: str) -> None:
    """Record the files and commands of an awk program."""
    _Awk(invocation, text, source).judge()
