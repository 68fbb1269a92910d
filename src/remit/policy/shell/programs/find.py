"""Judges find: the directories it searches, what it runs on the results, and its output."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from remit.policy.field import Field
from remit.policy.files import join
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.evaluate.state import Output

_FIND_FILES: Final = {
    "-fprint": "write", "-fprint0": "write", "-fls": "write", "-newer": "read", "-anewer": "read", "-cnewer": "read",
    "-samefile": "read", "-fprintf": "write",
}  # fmt: skip
_FIND_DATA: Final = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size -mtime -atime "
    "-ctime -mmin -amin -cmin -maxdepth -mindepth -perm -user -group -uid -gid -links -inum -lname "
    "-ilname -fstype -printf -regextype -used".split()
)
_FIND_PLAIN: Final = frozenset(
    "-print -print0 -ls -prune -quit -empty -depth -d -mount -xdev -follow -daystart -noleaf -executable "
    "-readable -writable -true -false -not -a -and -o -or ( ) ! , -nouser -nogroup -warn -nowarn "
    "-ignore_readdir_race -noignore_readdir_race".split()
)
# With these operators, a test of names does not hold for all results.
_FIND_MIXES: Final = frozenset("-o -or , ! -not (".split())
_FIND_RUNS: Final = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_NEWER: Final = re.compile(r"-newer[aBcm][aBcmt]\Z")


class _Find:
    """One find command: first the directories, then the expression."""

    def __init__(self, invocation: ProgramCall, fields: Sequence[Field]) -> None:
        self.invocation = invocation
        self.trace = invocation.trace
        self.ahead = list(reversed(fields))
        self.roots: list[str] = []
        # By root: the directory that the results are relative to.
        self.starts: dict[str, str | None] = {}
        # The last components of the roots, as written.
        self.given: list[str] = []
        self.words: set[str] = set()
        self.follows = False
        self.regular = False
        self.name = "*"

    def judge(self) -> None:
        self._start()
        self._expression()
        if self.follows or "-follow" in self.words:
            for root in self.roots:
                self.trace.follow_links(root, "find")
        quiet = self.words & {"-printf", "-ls", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-quit"}
        if not quiet:
            separated = "-print0" in self.words
            regular = self.regular and not self.words & {"-o", "-or", ",", "!", "-not"} and not self.follows
            self.invocation.output = Output(
                None, tuple(self.roots), separated, regular, cwd=self.invocation.cwd, picks=self._picks()
            )

    def _start(self) -> None:
        while self.ahead and self.ahead[-1].text in ("-H", "-L", "-P"):
            self.follows = self.ahead.pop().text == "-L"
        given: list[Field] = []
        while self.ahead and not _starts_expression(self.ahead[-1]):
            given.append(self.ahead.pop())
        for field in given or [Field(".", "exact", "find")]:
            self._root(field)

    def _root(self, field: Field) -> None:
        resolved = self.invocation.file("read", field)
        self.given.append(field.text.rstrip("/").rpartition("/")[2] if field.kind == "exact" else "")
        if resolved is not None:
            self.roots.append(resolved.path)
        elif field.kind == "below":
            self.roots.append(field.text)
        elif field.kind == "pattern" and self.invocation.cwd is not None:
            fixed = re.split(r"[*?\[]", field.text, maxsplit=1)[0].rpartition("/")[0]
            self.roots.append(self.trace.files.resolve(join(self.invocation.cwd, fixed)).path)
        if self.roots and not (field.kind == "exact" and field.text.startswith("/")):
            self.starts[self.roots[-1]] = self.invocation.cwd

    def _expression(self) -> None:
        while self.ahead:
            field = self.ahead.pop()
            word = field.text
            self.words.add(word)
            if field.kind in ("unknown", "below"):
                self.trace.doubt(field.source, "it may be an action of find", unbounded=True)
            elif word in _FIND_RUNS:
                self._run(in_place=word in ("-execdir", "-okdir"))
            elif word == "-delete":
                self._delete()
            elif word in _FIND_FILES or _NEWER.match(word):
                self._file(word)
            elif word in _FIND_DATA:
                self._data(word)
            elif word not in _FIND_PLAIN:
                self.trace.doubt(field.source, "this part of find is not known here", unbounded=True)

    def _picks(self) -> str:
        """Return `Effect.picks` for all results."""
        return f"**/{self.name}" if not self.words & _FIND_MIXES else "**"

    def _delete(self) -> None:
        picks = self._picks()
        for root in self.roots:
            self.trace.touch_beneath("delete", root, "-delete", picks)
            # The root itself is deleted only if its name, as given or resolved, matches.
            if any(fnmatchcase(name, picks[3:] or "*") for name in (root.rpartition("/")[2], ".", *self.given)):
                self.trace.touch("delete", root, None, "-delete")
            self.invocation.evaluator.changes.unsure.add(root)

    def _data(self, word: str) -> None:
        value = self.ahead.pop() if self.ahead else Field("", "exact", word)
        if word == "-name" and value.kind == "exact" and not set("[\\/") & set(value.text):
            self.name = value.text
        if value.kind == "unknown" and value.splits:
            self.trace.doubt(value.source, "it may expand to several words", unbounded=True)
        if word == "-type" and value.text == "f":
            self.regular = True

    def _file(self, word: str) -> None:
        if self.ahead and not word.endswith("t"):
            self.invocation.file(_FIND_FILES.get(word, "read"), self.ahead.pop())
        elif self.ahead:
            value = self.ahead.pop()
            if word in _FIND_FILES:
                self.invocation.file(_FIND_FILES[word], value)
        if word == "-fprintf" and self.ahead:
            self.ahead.pop()

    def _run(self, *, in_place: bool) -> None:
        words: list[Field] = []
        while self.ahead:
            field = self.ahead.pop()
            if field.kind == "exact" and (
                field.text == ";" or (field.text == "+" and words and words[-1].text == "{}")
            ):
                break
            words.append(field)
        evaluator, state = (
            self.invocation.evaluator,
            self.invocation.state._replace(cwd=self.invocation.cwd, stdin=Output()),
        )
        if not self.regular or self.words & {"-o", "-or", ",", "!", "-not"}:
            evaluator.check_links(self.roots, "find")
        for root in self.roots:
            start = None if in_place else self.starts.get(root)
            inner = [_filled(field, root, self._picks(), start) for field in words]
            evaluator.command(inner, state._replace(cwd=None) if in_place else state, prefix="find")


def _starts_expression(field: Field) -> bool:
    return field.kind == "exact" and (field.text.startswith("-") or field.text in ("(", ")", "!", ","))


def _filled(field: Field, root: str, picks: str, start: str | None) -> Field:
    """Return a word with `{}` replaced by a path below `root`, which may be relative to `start`."""
    if "{}" not in field.text:
        return field
    behind = field.text[2:] if field.text.startswith("{}") else "{}"
    whole = behind[:1] in ("", "/") and "{}" not in behind and ".." not in behind and field.kind == "exact"
    # With text after the braces it is another name than the one that was found.
    named = picks if field.text == "{}" else "**"
    if not whole:
        return Field("", "unknown", field.source, splits=True)
    return Field(root, "below", field.source, picks=named, cwd=start, filled=True)


def judge_find(invocation: ProgramCall, fields: Sequence[Field]) -> None:
    """Judge the words of find."""
    _Find(invocation, fields).judge()
