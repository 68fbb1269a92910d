"""Judges sed scripts: files of `r`, `R`, `w` and `W`, and commands of `e`.

The whole script is parsed, so that a letter in an expression or a text is not taken for a command.
"""

import re
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall

_SED_ADDRESS: Final = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+)")
_MAX_SCRIPT: Final = 16_384
_SED_BRACKET: Final = re.compile(r"\[\^?\]?(?:\[[:.=][^\]\n]*[:.=]\]|[^\]\n])*\]")
_SED_PLAIN: Final = frozenset("=dDgGhHnNpPxzF")


# A backslash that is not itself escaped.
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")


class _Sed:
    """Parses a script in one pass. `at` is the position, `text` the script."""

    def __init__(self, invocation: ProgramCall, text: str, source: str) -> None:
        self.invocation = invocation
        self.text = text
        self.at = 0
        self.source = source

    def judge(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in " \t\n;{}":
                self.at += 1
            elif not self._command():
                self.invocation.trace.doubt(self.source, "a sed script that is not understood", unbounded=True)
                return

    def _command(self) -> bool:
        while self._address():
            self._skip(" \t")
            if self.text[self.at : self.at + 1] == ",":
                self.at += 1
        self._skip(" \t!")
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter in _SED_PLAIN or letter in "{}":
            return letter != ""
        return self._longer(letter)

    def _longer(self, letter: str) -> bool:
        if letter in "rRwW":
            return self._file("read" if letter in "rR" else "write", self._line().strip())
        if letter == "e":
            return self._shell(self._line().strip())
        if letter in "aic":
            self._text_lines()
        elif letter in "btT:lLqQv":
            self._label()
        elif letter == "#":
            self._line()
        elif letter == "s":
            return self._substitute()
        elif letter == "y":
            return self._transliterate()
        else:
            return False
        return True

    def _skip(self, marks: str) -> None:
        while self.text[self.at : self.at + 1] and self.text[self.at] in marks:
            self.at += 1

    def _address(self) -> bool:
        if plain := _SED_ADDRESS.match(self.text, self.at):
            self.at = plain.end()
            return True
        self._skip(" \t")
        mark = self.text[self.at : self.at + 1]
        if mark == "\\" and self.at + 1 < len(self.text):
            self.at += 1
        elif mark != "/":
            return False
        if not self._delimited():
            return False
        while self.text[self.at : self.at + 1] in ("I", "M"):
            self.at += 1
        return True

    def _delimited(self) -> bool:
        """Consume one delimiter and the expression up to the next one; brackets protect a delimiter."""
        mark = self.text[self.at : self.at + 1]
        if mark in ("", "\n", "\\"):
            return False
        self.at += 1
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "[" and mark != "[" and (bracket := _SED_BRACKET.match(self.text, self.at)):
                self.at = bracket.end()
                continue
            self.at += 2 if here == "\\" else 1
            if here == mark:
                return True
        return False

    def _up_to_plain(self, mark: str) -> bool:
        while self.at < len(self.text):
            here = self.text[self.at]
            self.at += 2 if here == "\\" else 1
            if here == mark:
                return True
        return False

    def _transliterate(self) -> bool:
        mark = self.text[self.at : self.at + 1]
        self.at += 1
        return mark not in ("", "\n", "\\") and self._up_to_plain(mark) and self._up_to_plain(mark)

    def _substitute(self) -> bool:
        mark = self.text[self.at : self.at + 1]
        if not self._delimited() or not self._up_to_plain(mark):
            return False
        while self.at < len(self.text) and self.text[self.at] not in ";}\n":
            flag = self.text[self.at]
            self.at += 1
            if flag == "w":
                return self._file("write", self._line().strip())
            if flag == "e":
                self.invocation.trace.doubt(self.source, "sed runs what it finds as commands", unbounded=True)
            elif flag not in "gpIiMm0123456789 \t#":
                return False
        return True

    def _line(self) -> str:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line, self.at = self.text[self.at : end], end
        return line

    def _label(self) -> None:
        self._skip(" \t")
        while self.at < len(self.text) and self.text[self.at] not in "; \t\n}":
            self.at += 1

    def _text_lines(self) -> None:
        """Consume the text of `a`, `i` or `c`, which continues while lines end in a backslash."""
        while _CONTINUED.search(self._line()) and self.at < len(self.text):
            self.at += 1

    def _file(self, role: str, name: str) -> bool:
        if name not in ("/dev/stdout", "/dev/stderr", "/dev/stdin"):
            self.invocation.file(role, Field(name, "exact", self.source))
        return True

    def _shell(self, command: str) -> bool:
        if not command:
            self.invocation.trace.doubt(self.source, "sed runs what it finds as commands", unbounded=True)
        else:
            self.invocation.evaluator.child(command, self.invocation.state, posix=True)
        return True


def judge_sed(invocation: ProgramCall, text: str, source: str) -> None:
    """Record the files and commands of a sed script; an empty one may be the value of `-i` on BSD."""
    if len(text) > _MAX_SCRIPT:
        invocation.trace.doubt(source, "a sed script that is too long to analyse", unbounded=True)
        return
    if not text.strip():
        invocation.trace.doubt(
            source, "an empty sed script, which some versions read as the value of an option", unbounded=True
        )
    _Sed(invocation, text, source).judge()
