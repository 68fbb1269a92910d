"""Little languages inside commands: what a script for sed, awk, jq or a database would touch.

Each reader looks for everything that leaves the program: files, commands, modules. It hides nothing it does not
understand: doubt is noted, and text that is only data passes.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from remit.policy.shell.python import judge_python
from remit.policy.shell.world import Field
from remit.policy.sql import judge_sql

if TYPE_CHECKING:
    from remit.policy.shell.invoke import Invocation

__all__ = ["LANGUAGES", "judge_awk", "judge_jq", "judge_sed"]


def judge_jq(invocation: "Invocation", text: str, source: str) -> None:
    """Note the modules that a jq program loads; everything else it can do is print."""
    if re.search(r"\b(?:import|include|input_filename|get_search_list|modulemeta)\b", text):
        invocation.trace.doubt(source, "a jq program that loads modules")


def _judge_yq(invocation: "Invocation", text: str, source: str) -> None:
    if re.search(r"\b(?:load\w*|eval|env\w*|strenv|split_doc|system|import|include)\b|@", text):
        invocation.trace.doubt(source, "a yq expression that loads files")


# sed

_SED_ADDRESS: Final = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+)")
_SED_BRACKET: Final = re.compile(r"\[\^?\]?(?:\[[:.=][^\]\n]*[:.=]\]|[^\]\n])*\]")
_SED_PLAIN: Final = frozenset("=dDgGhHnNpPxzF")


class _Sed:
    """Goes through a script once. `at` is the place, `text` the script."""

    def __init__(self, invocation: "Invocation", text: str, source: str) -> None:
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
        """Move past one delimiter and the expression up to the next one, which brackets protect."""
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
        while self.at < len(self.text) and self.text[self.at] not in ";\n}":
            self.at += 1

    def _text_lines(self) -> None:
        """Move past the text of `a`, `i` or `c`, which goes on while lines end in a backslash."""
        while self._line().endswith("\\") and self.at < len(self.text):
            self.at += 1

    def _file(self, role: str, name: str) -> bool:
        if name not in ("/dev/stdout", "/dev/stderr", "/dev/stdin"):
            self.invocation.file(role, Field(name, "exact", self.source))
        return True

    def _shell(self, command: str) -> bool:
        if not command:
            self.invocation.trace.doubt(self.source, "sed runs what it finds as commands", unbounded=True)
        else:
            self.invocation.run.nested(command, self.invocation.world, posix=True)
        return True


def judge_sed(invocation: "Invocation", text: str, source: str) -> None:
    """Note the files and commands of a sed script; an empty one may be the value of another system's option."""
    if not text.strip():
        invocation.trace.doubt(source, "an empty sed script, which not every sed takes for one", unbounded=True)
    _Sed(invocation, text, source).judge()


# awk

_AWK_TOKEN: Final = re.compile(
    r"(?P<string>\"(?:[^\"\\\n]|\\.)*\")|(?P<comment>#[^\n]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9.]+)"
    r"|(?P<space>[ \t\r]+|\\\n)|(?P<mark>\|\||\|&|>>|>=|<=|==|!=|&&|[\s\S])"
)
_AWK_REGEX: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:\^?\]?)(?:[^\]\\\n]|\\.)*\])*/")
_MAX_TOKENS: Final = 4000
_AWK_PRINTS: Final = frozenset(("print", "printf"))


def judge_awk(invocation: "Invocation", text: str, source: str) -> None:
    """Note the files and commands of an awk program: `system`, pipes, `getline` and printing to a file."""
    tokens = _awk_tokens(text)
    if len(tokens) > _MAX_TOKENS:
        invocation.trace.doubt(source, "a longer awk program than we follow", unbounded=True)
        return
    printing, depth = False, 0
    for index, (kind, token) in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ("end", "")
        after = tokens[index + 2] if index + 2 < len(tokens) else ("end", "")
        if kind == "name" and token in _AWK_PRINTS:
            printing, depth = True, 0
        elif kind == "name" and token == "system":
            constant = tokens[index + 2] if following[1] == "(" else ("end", "")
            closes = index + 3 < len(tokens) and tokens[index + 3][1] == ")"
            _awk_command(invocation, constant if closes else ("end", ""), source)
        elif token in ("|", "|&"):
            _awk_pipe(invocation, tokens, index, source)
        elif token in ("@", "ARGV", "ARGC"):
            invocation.trace.doubt(source, "an awk program that loads or calls others", unbounded=True)
        elif token == "getline" and following[1] == "<":
            _awk_file(invocation, "read", after, tokens[index + 3 : index + 4], source)
        elif token == "getline" and following[0] in ("name", "mark") and _awk_reads_after(tokens[index + 1 :]):
            invocation.trace.doubt(source, "a file that awk reads is not known before it runs")
        elif printing and token in (">", ">>") and depth <= 0:
            _awk_file(invocation, "write", following, tokens[index + 2 : index + 3], source)
        elif token in ("(", ")"):
            depth += 1 if token == "(" else -1
        elif token in (";", "\n", "}", "{"):
            printing = False


def _awk_reads_after(tokens: list[tuple[str, str]]) -> bool:
    """Tell whether `getline name < file` follows."""
    for kind, token in tokens:
        if token == "<":
            return True
        if kind not in ("name", "number") and token not in ("$", "[", "]"):
            return False
    return False


def _awk_tokens(text: str) -> list[tuple[str, str]]:
    """Return the tokens; a slash starts an expression only where a division cannot stand."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text) and len(tokens) <= _MAX_TOKENS:
        before = tokens[-1] if tokens else ("mark", "")
        if text[at] == "/" and not (before[0] in ("name", "number", "string") or before[1] in (")", "]", "$")):
            if regex := _AWK_REGEX.match(text, at):
                tokens.append(("regex", "/"))
                at = regex.end()
                continue
        token = _AWK_TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        kind = str(token.lastgroup)
        if kind not in ("space", "comment"):
            tokens.append((kind, token[0]))
    return tokens


def _awk_pipe(invocation: "Invocation", tokens: list[tuple[str, str]], index: int, source: str) -> None:
    following = tokens[index + 1] if index + 1 < len(tokens) else ("end", "")
    if following[1] == "getline":
        before = tokens[index - 1] if index else ("end", "")
        alone = index < 2 or tokens[index - 2][1] in ("{", ";", "(", "\n", "while", "if", "!")
        _awk_command(invocation, before if alone else ("end", ""), source)
    else:
        ends = index + 2 >= len(tokens) or tokens[index + 2][1] in ("}", ";", "\n")
        _awk_command(invocation, following if ends else ("end", ""), source)


def _awk_command(invocation: "Invocation", token: tuple[str, str], source: str) -> None:
    if token[0] != "string" or "\\" in token[1]:
        invocation.trace.doubt(source, "a command that awk runs is not known before it runs", unbounded=True)
    else:
        invocation.run.nested(token[1][1:-1], invocation.world, posix=True)


def _awk_file(
    invocation: "Invocation", role: str, token: tuple[str, str], then: list[tuple[str, str]], source: str
) -> None:
    joined = (bool(then) and then[0][0] in ("string", "name", "number")) or (then and then[0][1] in ("(", "$"))
    if token[0] != "string" or "\\" in token[1] or joined:
        invocation.trace.doubt(source, "a file that awk touches is not known before it runs")
    elif (name := token[1][1:-1]) not in ("/dev/stdout", "/dev/stderr", "/dev/stdin", "-"):
        invocation.file(role, Field(name, "exact", source))


def _judge_sql(invocation: "Invocation", text: str, source: str) -> None:
    judge_sql(invocation.trace, text, source)


LANGUAGES: Final[dict[str, Callable[["Invocation", str, str], None]]] = {
    "awk": judge_awk,
    "jq": judge_jq,
    "python": judge_python,
    "sed": judge_sed,
    "sql": _judge_sql,
    "yq": _judge_yq,
}
