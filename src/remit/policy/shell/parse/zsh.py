"""Finds what zsh reads differently, in a command that is judged as bash reads it.

Some assistants run commands in the user's own shell, which is zsh on macOS. In `a=(x y); cat ${a[1]}` bash reads `y`,
and zsh `x`. Each form with another meaning in zsh is reported, whatever its value, and makes the call a doubt. Where
zsh only stops earlier, as at a glob without matches, bash does everything that zsh does: that is not reported.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from remit.errors import ShellUnparsed
from remit.policy.shell.parse.grammar import parse_script
from remit.policy.shell.parse.syntax import (
    AndOr,
    Arithmetic,
    ArithmeticCommand,
    Assignment,
    Case,
    Condition,
    For,
    Function,
    Parameter,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Text,
    Word,
)

# A word of the text, and the difference.
_Difference: TypeAlias = tuple[str, str]
_Words: TypeAlias = Sequence[str | None]

# Variables with a meaning in zsh only: tied arrays, associative arrays, and those that run or mark commands.
_SPECIAL: Final = frozenset(
    "path cdpath fpath manpath mailpath module_path argv ARGC status pipestatus histchars HISTCHARS NULLCMD "
    "READNULLCMD TMPPREFIX ZDOTDIR IFS prompt psvar signals functions aliases commands options parameters builtins "
    "reswords dirstack nameddirs userdirs jobdirs jobtexts jobstates history historywords modules".split()
)
_HOOKS: Final = re.compile(
    r"TRAP\w+|chpwd|precmd|preexec|periodic|zshexit|zshaddhistory|zsh_directory_name|command_not_found_handler"
)
# Precommand modifiers of zsh, reserved words of zsh, and an assignment to a positional parameter.
_MODIFIERS: Final = frozenset("- noglob nocorrect repeat foreach end float integer private always".split())
_NUMBERED: Final = re.compile(r"\d+\+?=")
# After a name without braces: a subscript, or a path modifier. After `$#` and `$`: an expansion of zsh.
_AFTER_NAME: Final = re.compile(r"\[|:[acehlopPqQrstuxAgfFwWS&]")
_AFTER_COUNT: Final = re.compile(r"[\w$@*?#!-]")
_AFTER_DOLLAR: Final = re.compile(r"[=~^+#]")
# Operators that both shells read alike; a slice only with numbers.
_DEFAULTS: Final = frozenset(("-", ":-", "=", ":=", "?", ":?", "+", ":+"))
_PATTERNS: Final = frozenset(("#", "##", "%", "%%", "/", "//"))
_LISTS: Final = frozenset(("[@]", "[*]", "#[@]", "#[*]"))
_SLICE: Final = re.compile(r" *-?\d+(?::\d+)?|\d+(?::-?\d+)?")
_PATTERN_MARKS: Final = re.compile(r"[(|<^~#]")
# What bash splits, or matches against file names.
_SPLIT: Final = re.compile(r"[\s*?\[]")
# In words: `=name`, the path of a command; `~[name]`, a directory; `**`, recursion; a tilde after `=` or `:`.
_WORD_START: Final = re.compile(r"=.|~\[")
_INNER_TILDE: Final = re.compile(r"[=:]~")
_RANGE: Final = re.compile(r"\d*-\d*")
_NUMBER_AND_BOTH: Final = re.compile(r"\d&>")
_ODD_NUMBER: Final = re.compile(r"(?<![\w.#])0\d|(?<!\d)#")
_QUOTED: Final = re.compile(r"\$\"|\$'((?:[^'\\]|\\.)*)'|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_ODD_ESCAPE: Final = re.compile(r"(?:[^\\]|\\[abefnrtvE\\'\"0-7x])*\\[^abefnrtvE\\'\"0-7x]", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_DECLARED: Final = re.compile(r"([A-Za-z_]\w*)\+?=")

_SPECIAL_NAME: Final = "a variable that has a meaning of its own in zsh"
_PATTERN: Final = "a pattern that zsh reads in another way"
_REDIRECTION: Final = "a redirection that zsh reads in another way"


def zsh_differences(text: str) -> dict[str, str]:
    """Return what zsh reads differently: words of the text with the difference."""
    try:
        script = parse_script(text)
    except ShellUnparsed:
        return {}  # a script that cannot be parsed is a doubt already
    found = dict(_Differences(script).all())
    return {**found, "&>": _REDIRECTION} if _NUMBER_AND_BOTH.search(text) else found


class _Differences:
    """Walks all parts of a script, knowing which variables it sets."""

    def __init__(self, script: Script) -> None:
        self._nodes = tuple(_nodes(script))
        self._used = Counter(node.name for node in self._nodes if isinstance(node, Parameter))
        self._arrays = {node.name for node in self._nodes if isinstance(node, Assignment) and _is_array(node)}
        self._split = _split_variables(self._nodes)
        self._whole = {id(word) for node in self._nodes for word in _whole_words(node)}
        self._sets_positional = any(
            isinstance(node, Function) or (isinstance(node, Simple) and _name_of(node) == "set") for node in self._nodes
        )

    def all(self) -> Iterator[_Difference]:
        for node in self._nodes:
            check = self._checks.get(type(node))
            if check is not None:
                yield from check(self, node)

    def _word(self, word: Word) -> Iterator[_Difference]:
        if any(map(_is_odd, _QUOTED.finditer(word.source))):
            yield word.source, "a quotation that zsh reads in another way"
        for part, after in zip_longest(word.parts, word.parts[1:]):
            behind = after.value if isinstance(after, Text) else "$" if after is not None else ""
            if isinstance(part, Parameter) and self._is_other(part, behind, splits=id(word) not in self._whole):
                yield word.source, f"zsh expands {part.name} in another way"
            elif isinstance(part, Text) and part.value.endswith("$") and _AFTER_DOLLAR.match(behind):
                yield word.source, "zsh expands what is behind the dollar sign"
        plain = _plain(word)
        expands = _literal(word) is None
        if expands and any("{" in text for text in plain):
            yield word.source, "zsh expands braces after variables"
        if any(map(_INNER_TILDE.search, plain)) or (expands and word.source.startswith("~") and "/" not in plain[0]):
            yield word.source, "a tilde that zsh reads in another way"

    def _is_other(self, part: Parameter, behind: str, *, splits: bool) -> bool:
        """Return whether an expansion has another value in zsh."""
        if part.bare and (_AFTER_COUNT if part.name == "#" else _AFTER_NAME).match(behind):
            return part.name not in "?$!-"
        if part.operator in _LISTS:
            return False
        if part.name in self._arrays or part.name in _SPECIAL or _has_other_operator(part):
            return True
        if part.quoted or not splits:
            return False
        if part.operator in _DEFAULTS and part.operand is not None and _has_split(part.operand):
            return True
        positional = part.name.isdigit() or part.name in "@*"
        return part.name in self._split or (positional and self._sets_positional)

    def _simple(self, command: Simple) -> Iterator[_Difference]:
        given = [_literal(word) for word in command.words]
        for assignment in command.assignments:
            if assignment.name in _SPECIAL and (assignment.name, given[:1]) != ("IFS", ["read"]):
                yield assignment.name, _SPECIAL_NAME
        for word in command.words:
            if word.source == "}":
                yield word.source, "it ends a block in zsh"
            elif any("**" in text for text in _plain(word)) or _starts_oddly(word):
                yield word.source, _PATTERN
        if len(command.redirects) > 1 and any(_RANGE.fullmatch(each.word.source) for each in command.redirects):
            yield command.redirects[0].word.source, _PATTERN
        yield from _called(given)

    def _pipeline(self, pipeline: Pipeline) -> Iterator[_Difference]:
        """Yield what the last command of a pipeline changes in the shell (zsh runs it there) and what `echo` prints."""
        *before, last = pipeline.commands
        if not before:
            return
        inside = tuple(_nodes(last))
        own = Counter(node.name for node in inside if isinstance(node, Parameter))
        if any(self._used[name] > own[name] for node in inside for name in _assigned(node)):
            yield "|", "the last command of a pipe sets a variable, which zsh keeps"
        if any(_leaves(node) for node in inside):
            yield "|", "the last command of a pipe changes the shell itself in zsh"
        if any(_prints_escapes(node) for node in _nodes(before)):
            yield "echo", "zsh prints what a backslash stands for"

    def _list(self, item: AndOr) -> Iterator[_Difference]:
        if item.background and item.rest:
            yield "&", "zsh runs only the last part of the list in the background"

    def _function(self, function: Function) -> Iterator[_Difference]:
        if _HOOKS.fullmatch(function.name):
            yield function.name, "zsh calls a function of this name by itself"

    def _for(self, loop: For) -> Iterator[_Difference]:
        if loop.name in _SPECIAL:
            yield loop.name, _SPECIAL_NAME

    def _arithmetic(self, expression: Arithmetic | ArithmeticCommand) -> Iterator[_Difference]:
        if _ODD_NUMBER.search(expression.word.source or _text(expression.word)):
            yield expression.word.source, "numbers that zsh reads in another way"

    def _redirect(self, redirect: Redirect) -> Iterator[_Difference]:
        if redirect.word.source.startswith("!"):
            yield redirect.word.source, _REDIRECTION

    def _condition(self, condition: Condition) -> Iterator[_Difference]:
        for word in condition.words:
            if any("(" in text for text in _plain(word)):
                yield word.source, _PATTERN

    _checks: Final[dict[type, Callable[..., Iterator[_Difference]]]] = {
        AndOr: _list,
        Arithmetic: _arithmetic,
        ArithmeticCommand: _arithmetic,
        Condition: _condition,
        For: _for,
        Function: _function,
        Pipeline: _pipeline,
        Redirect: _redirect,
        Simple: _simple,
        Word: _word,
    }


def _nodes(value: object) -> Iterator[Any]:
    """Yield every node of a syntax tree; scripts of substitutions come where they are written."""
    ahead = [value]
    while ahead:
        node = ahead.pop()
        if isinstance(node, tuple | list):
            if hasattr(node, "_fields"):
                yield node
            ahead.extend(reversed(node[:1] if isinstance(node, Script) else node))


def _plain(word: Word) -> list[str]:
    """Return the unquoted texts of a word."""
    return [part.value for part in word.parts if isinstance(part, Text) and not part.quoted]


def _text(word: Word) -> str:
    return "".join(part.value for part in word.parts if isinstance(part, Text))


def _literal(word: Word) -> str | None:
    return _text(word) if all(isinstance(part, Text) for part in word.parts) else None


def _name_of(command: Simple) -> str | None:
    return _literal(command.words[0]) if command.words else ""


def _is_array(assignment: Assignment) -> bool:
    return not isinstance(assignment.value, Word) or bool(assignment.subscript)


def _is_odd(quoted: "re.Match[str]") -> bool:
    """Return whether zsh reads a quoted text differently: `$"…"`, and escapes in `$'…'` that only bash knows."""
    return quoted[0] == '$"' or (quoted[1] is not None and _ODD_ESCAPE.match(quoted[1]) is not None)


def _starts_oddly(word: Word) -> bool:
    first = word.parts[0] if word.parts else None
    return isinstance(first, Text) and not first.quoted and _WORD_START.match(first.value) is not None


def _has_split(word: Word) -> bool:
    return any(isinstance(part, Text) and _SPLIT.search(part.value) for part in word.parts)


def _has_other_operator(part: Parameter) -> bool:
    """Return whether the operator of an expansion has another meaning in zsh."""
    if part.operand is None or not part.operator:
        return part.operator not in ("", "#")
    if part.operator == ":":
        return _SLICE.fullmatch(part.operand.source) is None or part.name in "@*"
    if part.operator in _PATTERNS:
        # In zsh the value of a variable is not a pattern, and parentheses group.
        varies = any(isinstance(inner, Parameter) and not inner.quoted for inner in part.operand.parts)
        return varies or any(map(_PATTERN_MARKS.search, _plain(part.operand)))
    return part.operator not in _DEFAULTS


def _split_variables(nodes: Sequence[Any]) -> frozenset[str]:
    """Return the variables whose values bash would split or match, and zsh would not."""
    values: dict[str, list[Word]] = {}
    found: set[str] = set()
    has_text = any(isinstance(node, Redirect) and node.operator.startswith("<<") for node in nodes)
    for node in nodes:
        match node:
            case Assignment(name, Word() as word):
                values.setdefault(name, []).append(word)
            case For(name, words):
                values.setdefault(name, []).extend(word for word in words or () if len(_plain(word)) < len(word.parts))
            case Simple(_, words) if _name_of(node) in _SETS_VARIABLES:
                for word in words[1:]:
                    declared = _DECLARED.match(word.source)
                    if declared is not None:
                        values.setdefault(declared[1], []).append(word)
                    elif has_text or _name_of(node) == "printf":
                        found.update(_NAME.findall(word.source))
    while True:
        more = {name for name, words in values.items() if any(_is_split(word, found) for word in words)} - found
        if not more:
            return frozenset(found)
        found |= more


def _is_split(word: Word, found: set[str]) -> bool:
    """Return whether a value may contain what bash splits, given the variables that do."""
    return _has_split(word) or any(
        part.name in found or part.operand is not None for part in word.parts if isinstance(part, Parameter)
    )


def _whole_words(node: object) -> Sequence[Word]:
    """Return the words of a node that no shell splits."""
    match node:
        case Assignment(_, Word() as word) | Case(word) | Arithmetic(word) | ArithmeticCommand(word):
            return (word,)
        case Condition(words):
            return words
        case Redirect(operator, word) if operator.startswith("<<"):
            return (word,)
    return ()


def _assigned(node: object) -> Sequence[str]:
    """Return the names that a node assigns."""
    match node:
        case For(name) | Assignment(name) | Parameter(name, "=") | Parameter(name, ":="):
            return (name,)
        case Arithmetic(word) | ArithmeticCommand(word):
            return _NAME.findall(word.source or _text(word))
        case Simple(_, words) if _name_of(node) in _SETS_VARIABLES:
            return [name for word in words[1:] for name in _NAME.findall(word.source)]
    return ()


def _leaves(node: object) -> bool:
    """Return whether a command changes shell state other than variables: options, functions, aliases."""
    if isinstance(node, Simple):
        name = _name_of(node)
        return name is None or name in _CHANGES_SHELL
    return isinstance(node, Function)


def _prints_escapes(node: object) -> bool:
    return isinstance(node, Simple) and _name_of(node) == "echo" and any("\\" in _text(word) for word in node.words)


def _called(given: _Words) -> Iterator[_Difference]:
    """Yield the differences of a command, by its literal words."""
    while len(given) > 1 and given[0] in ("command", "builtin", "exec", "time"):
        given = given[1:]
    name = given[0] if given else None
    if name is None:
        return
    if name in _MODIFIERS or _NUMBERED.match(name):
        yield name, "a word that begins a command in zsh"
    if name in _BUILTINS and _BUILTINS[name](given[1:]):
        yield name, "a builtin that works in another way in zsh"
    if name == "eval":
        yield from _evaluated(given[1:])


def _evaluated(given: _Words) -> Iterator[_Difference]:
    texts = [word for word in given if word is not None]
    if len(texts) != len(given) or _SPLIT.search("".join(texts).replace(" ", "")):
        yield "eval", "in zsh, an error ends only the text that is evaluated"
    else:
        yield from zsh_differences(" ".join(texts)).items()


def _always(given: _Words) -> bool:  # noqa: ARG001 - whatever the words are
    return True


def _options_but(*same: str) -> Callable[[_Words], bool]:
    """Return a test for other options of a builtin than these."""
    return lambda given: any(word is not None and word[:1] in ("-", "+") and word not in same for word in given)


def _cd(given: _Words) -> bool:
    operands = [word for word in given if word not in ("-P", "-L", "--")]
    return len(operands) > 1 or any(re.match(r"[-+]\d", word or "") for word in operands)


def _set(given: _Words) -> bool:
    """Return whether `set` has other options than those for errors and tracing."""
    options = given[: given.index("--")] if "--" in given else given
    return any(word is None or (word[:1] in ("-", "+") and not re.fullmatch(r"[-+][eux]*o?", word)) for word in options)


_SETS_VARIABLES: Final = frozenset("read export declare typeset local readonly printf getopts let unset".split())
_CHANGES_SHELL: Final = frozenset(
    "cd pushd popd set shopt alias unalias trap eval source . exec hash enable exit return unset umask ulimit shift "
    "break continue mapfile readarray".split()
)
_BUILTINS: Final[Mapping[str, Callable[[_Words], bool]]] = {
    **dict.fromkeys(
        "shopt mapfile readarray enable hash help bind complete compgen compopt caller history fc getopts let alias "
        "unalias trap disown suspend pushd popd dirs".split(),
        _always,
    ),
    "cd": _cd,
    "set": _set,
    "read": _options_but("-r"),
    "export": _options_but("-p"),
    "declare": _options_but("-x", "-g", "-r", "-i", "-p"),
    "typeset": _options_but("-x", "-g", "-r", "-i", "-p"),
    "local": _options_but("-x", "-r", "-i"),
    "readonly": _options_but("-p"),
    "unset": _options_but("-f", "-v"),
    "jobs": _options_but("-p", "-l"),
}
