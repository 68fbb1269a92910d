"""Finds what a script changes in the shell that runs it, for tools that use one shell for many calls.

Each call is judged without regard to earlier calls. So a script in a persistent shell must not leave anything behind
that changes the meaning of later commands: a function, an alias, a trap, a setting, a variable that the shell or
programs use, or another working directory. What runs in a subshell, a pipeline or the background leaves nothing behind.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.files import Files, join, refuse_text
from remit.policy.shell.evaluate.settings import is_steering
from remit.policy.shell.parse.grammar import parse_script
from remit.policy.shell.parse.syntax import (
    AndOr,
    Arithmetic,
    ArithmeticCommand,
    Assignment,
    Command,
    For,
    Function,
    Parameter,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Subshell,
    Text,
    Word,
)

# Variables whose values the evaluator relies on, besides those that steer programs.
_TRUSTED: Final = frozenset(
    "PWD OLDPWD DIRSTACK OPTIND OPTARG RANDOM SRANDOM SECONDS LINENO EPOCHSECONDS EPOCHREALTIME UID EUID PPID BASHPID"
    " REPLY COLUMNS LINES".split()
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\+?=")
_EXPANDED: Final = re.compile(r"[*?\[{~]")
_CHANGES_NUMBER: Final = re.compile(r"=|\+\+|--")
# Builtins that run the following builtin or program.
_PREFIXES: Final = frozenset(("command", "builtin"))
_HARMLESS_SETTINGS: Final = frozenset(("errexit", "pipefail", "xtrace", "verbose"))
_HARMLESS_LETTERS: Final = frozenset("exv")
_HARMLESS_DECLARATIONS: Final = frozenset("xpg")
# The start of a script that enters a directory by its absolute path.
ENTERS_AT_ONCE: Final = re.compile(r"\s*cd\s+(?:--\s+)?[\"']?/")

_Check = Callable[[Sequence[str | None]], bool]


def lasting_changes(text: str, base: str | None, files: Files, *, posix: bool) -> dict[str, str]:
    """Return what a script leaves behind: words with a description of the change.

    `base` is the working directory of the shell at the start of every call. A script that cannot be parsed is refused
    elsewhere.
    """
    try:
        script = parse_script(text, posix=posix)
    except ShellUnparsed:
        return {}
    return dict(_Changes(base, files).script(script))


def leaves_at_once(text: str, *, posix: bool) -> bool:
    """Return whether a script first enters a directory by its absolute path: `cd /x && …`."""
    if not ENTERS_AT_ONCE.match(text):
        return False
    try:
        items = parse_script(text, posix=posix).items
    except ShellUnparsed:
        return False
    if len(items) != 1 or any(joint != "&&" for joint, _ in items[0].rest):
        return False
    match items[0].first.commands:
        case (Simple((), words, ()),):
            given = [_literal(word) for word in words if _literal(word) != "--"]
            return given[:1] == ["cd"] and len(given) == 2 and (given[1] or "").startswith("/")  # noqa: PLR2004
    return False


class _Changes:
    """Walks the part of a script that runs in the shell itself."""

    def __init__(self, base: str | None, files: Files) -> None:
        self._base = base
        self._files = files

    def script(self, script: Script) -> Iterator[tuple[str, str]]:
        for item in script.items:
            if not item.background:
                yield from self._list(item)

    def _list(self, item: AndOr) -> Iterator[tuple[str, str]]:
        for pipeline in (item.first, *(following for _, following in item.rest)):
            yield from self._pipeline(pipeline)

    def _pipeline(self, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
        if len(pipeline.commands) == 1:
            yield from self._command(pipeline.commands[0])

    def _command(self, command: Command) -> Iterator[tuple[str, str]]:
        match command:
            case Simple():
                yield from self._simple(command)
                return
            case Function(name):
                yield name, "a function"
                return
            case Subshell(isolated=True):
                return
            case For(name):
                yield from _variable(name)
            case ArithmeticCommand(word):
                yield from _arithmetic(word)
        for part in _parts(command):
            yield from self.script(part) if isinstance(part, Script) else _expansion_changes(part)
        yield from _descriptors(command.redirects)

    def _simple(self, command: Simple) -> Iterator[tuple[str, str]]:
        for word in (*command.words, *(redirect.word for redirect in command.redirects)):
            yield from _expansion_changes(word)
        yield from _descriptors(command.redirects)
        for assignment in command.assignments:
            yield from _value_changes(assignment)
            if not command.words:
                yield from _assignment_changes(assignment)
        given = [_literal(word) for word in command.words]
        while given and given[0] in _PREFIXES:
            del given[0]
            while given and (given[0] or "").startswith("-"):
                del given[0]
        if given:
            yield from self._command_changes(given[0], given[1:], command)

    def _command_changes(
        self, name: str | None, given: Sequence[str | None], command: Simple
    ) -> Iterator[tuple[str, str]]:
        if name is None:
            yield command.words[0].source, "a command whose name is not written out"
        elif name == "eval":
            yield from self._eval_changes(given)
        elif name != "cd":
            yield from _builtin(name, given)
        elif not self._is_base(given):
            yield name, "another working directory"

    def _is_base(self, given: Sequence[str | None]) -> bool:
        """Return whether `cd` goes to the directory that the shell is in at the start of every call."""
        targets = [word for word in given if word not in ("--", "-L", "-P")]
        if self._base is None or len(targets) != 1 or not targets[0] or refuse_text(targets[0]):
            return False
        resolved = self._files.resolve(join(self._base, targets[0]))
        return not resolved.refusal and resolved.path == self._base and targets[0] != "-"

    def _eval_changes(self, given: Sequence[str | None]) -> Iterator[tuple[str, str]]:
        texts = [word for word in given if word is not None]
        try:
            if len(texts) == len(given):
                yield from self.script(parse_script(" ".join(texts)))
                return
        except ShellUnparsed:
            pass
        yield "eval", "evaluated text"


def _parts(value: object) -> Iterator[Script | Word]:
    """Yield the scripts and words of a compound command."""
    if isinstance(value, Script | Word):
        yield value
    elif isinstance(value, tuple):
        for inner in value:
            yield from _parts(inner)


def _descriptors(redirects: Sequence[Redirect]) -> Iterator[tuple[str, str]]:
    for redirect in redirects:
        if redirect.descriptor and not redirect.descriptor.isdigit():
            yield redirect.descriptor, "a file that stays open"


def _literal(word: Word) -> str | None:
    """Return the text of a literal word, or None; of an assignment, at least the name."""
    text = ""
    for part in word.parts:
        if not isinstance(part, Text) or (not part.quoted and part.value != "[" and _EXPANDED.search(part.value)):
            return text if _ASSIGNED.match(text) else None
        text += part.value
    return text


def _is_trusted(name: str) -> bool:
    return name in _TRUSTED or is_steering(name)


def _variable(name: str) -> Iterator[tuple[str, str]]:
    if _is_trusted(name):
        yield name, f"the variable {name}"


def _assignment_changes(assignment: Assignment) -> Iterator[tuple[str, str]]:
    if not isinstance(assignment.value, Word) or assignment.subscript:
        # A later assignment to the name keeps the other elements.
        yield assignment.name, f"the array {assignment.name}"
    yield from _variable(assignment.name)


def _value_changes(assignment: Assignment) -> Iterator[tuple[str, str]]:
    for word in (assignment.value,) if isinstance(assignment.value, Word) else assignment.value:
        yield from _expansion_changes(word)


def _expansion_changes(word: Word) -> Iterator[tuple[str, str]]:
    """Yield the variables that an expansion sets: `${name:=value}`, and assignments in arithmetic."""
    for part in word.parts:
        if isinstance(part, Parameter):
            if part.operator in ("=", ":="):
                yield from _variable(part.name)
            if part.operand is not None:
                yield from _expansion_changes(part.operand)
        elif isinstance(part, Arithmetic):
            yield from _arithmetic(part.word)


def _arithmetic(word: Word) -> Iterator[tuple[str, str]]:
    text = word.source or "".join(part.value for part in word.parts if isinstance(part, Text))
    if _CHANGES_NUMBER.search(text):
        for name in _NAME.findall(text):
            yield from _variable(name)


def _builtin(name: str, given: Sequence[str | None]) -> Iterator[tuple[str, str]]:
    what, leaves = _BUILTINS.get(name, ("", None))
    if leaves is not None and leaves(given):
        yield name, what


def _always(given: Sequence[str | None]) -> bool:  # noqa: ARG001 - independent of the words
    return True


def _with_words(given: Sequence[str | None]) -> bool:
    """Return whether there are more words than options that only print."""
    return any(word not in ("-p", "-l", "-r", "-a", "-n") for word in given)


def _sets(given: Sequence[str | None]) -> bool:
    """Return whether `set` changes more than error handling and tracing."""
    words = list(given)
    while words:
        word = words.pop(0)
        if word is None or word[:1] not in ("-", "+") or not word[1:]:
            return True
        letters = set(word[1:])
        if "o" in letters and words and words.pop(0) not in _HARMLESS_SETTINGS:
            return True
        if letters - {"o"} - _HARMLESS_LETTERS:
            return True
    return False


def _declares(given: Sequence[str | None]) -> bool:
    """Return whether a declaration sets an attribute of a variable, or concerns a trusted variable."""
    for word in given:
        if word is None or (word[:1] in ("-", "+") and set(word[1:]) - _HARMLESS_DECLARATIONS):
            return True
        assigned = _ASSIGNED.match(word)
        if _is_trusted(assigned[1] if assigned else word) or (assigned and ("[" in assigned[0] or "(" in word)):
            return True
    return False


def _fills(given: Sequence[str | None]) -> bool:
    """Return whether a builtin sets a trusted variable, or an array."""
    return any(word is None or word == "-a" or _is_trusted(word) for word in given)


def _fills_by_option(given: Sequence[str | None]) -> bool:
    return given[:1] in ([None], ["-v"], ["-p"]) and _fills(given[1:2])


_BUILTINS: Final[Mapping[str, tuple[str, _Check]]] = {
    "alias": ("an alias", _with_words),
    "hash": ("the remembered path of a program", _with_words),
    "enable": ("a builtin that is replaced or turned off", _with_words),
    "trap": ("a trap", _with_words),
    "bind": ("a key binding", _always),
    "complete": ("a completion", _always),
    "exec": ("a redirection of the shell", _always),
    "source": ("whatever the file defines", _always),
    ".": ("whatever the file defines", _always),
    "pushd": ("another working directory", _always),
    "popd": ("another working directory", _always),
    "shopt": ("a setting of the shell", lambda given: any(word is None or word[:2] in ("-s", "-u") for word in given)),
    "set": ("a setting of the shell", _sets),
    "readonly": ("a variable that cannot be changed", _with_words),
    "export": ("a variable that programs use", _declares),
    "declare": ("a property of a variable", _declares),
    "typeset": ("a property of a variable", _declares),
    "local": ("a property of a variable", _declares),
    "unset": ("an unset variable", _fills),
    "read": ("a variable that the shell itself uses", _fills),
    "getopts": ("a variable that the shell itself uses", _fills),
    "let": (
        "a variable that the shell itself uses",
        lambda given: any(word is None or _is_changed(word) for word in given),
    ),
    "printf": ("a variable that the shell itself uses", _fills_by_option),
    "wait": ("a variable that the shell itself uses", _fills_by_option),
    "mapfile": ("an array", _always),
    "readarray": ("an array", _always),
}


def _is_changed(text: str) -> bool:
    return any(_is_trusted(name) for name in _NAME.findall(text))
