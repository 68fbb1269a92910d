"""The syntax tree of a shell script.

Words keep their quoting until they are expanded, because quoting decides what is split, matched or taken for an option.
`words.py` and `grammar.py` parse text into these types, `evaluate/script.py` evaluates them.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias


class Text(NamedTuple):
    """Literal text. Braces, globs and a tilde in it are active unless it is quoted."""

    value: str
    quoted: bool


class Parameter(NamedTuple):
    """`$name` or `${name<operator><operand>}`."""

    name: str
    operator: str
    operand: "Word | None"
    quoted: bool
    # Written without braces, so that characters after it could become part of the name.
    bare: bool = False


class Substitution(NamedTuple):
    """`$(…)` or backticks."""

    script: "Script"
    quoted: bool


class ProcessSubstitution(NamedTuple):
    """`<(…)` or `>(…)`."""

    script: "Script"


class Arithmetic(NamedTuple):
    """An arithmetic expression, as a word with the expansions in it."""

    word: "Word"


Part: TypeAlias = Text | Parameter | Substitution | ProcessSubstitution | Arithmetic


class Word(NamedTuple):
    """One word as written. The parts of a here-document are filled in when the parser reaches its text."""

    parts: Sequence[Part]
    source: str


class Assignment(NamedTuple):
    """`name=value`, `name+=value`, `name[index]=value` or `name=(…)`."""

    name: str
    value: Word | tuple[Word, ...]
    # False for `+=` and for one element of an array, which keep the rest of the old value.
    replaces: bool
    # The index of the element, which the shell evaluates.
    subscript: str = ""


class Redirect(NamedTuple):
    """One redirection; for a here-document or here-string the word is its text."""

    operator: str
    word: Word
    # The descriptor before the operator: a number, or a variable that receives one (`{name}>file`).
    descriptor: str = ""


class Simple(NamedTuple):
    """Assignments, words and redirections."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class Subshell(NamedTuple):
    """`( … )`, or `{ … }` if it is not isolated."""

    body: "Script"
    redirects: tuple[Redirect, ...]
    isolated: bool


class If(NamedTuple):
    """`if … then … elif … else … fi`."""

    arms: tuple[tuple["Script", "Script"], ...]
    otherwise: "Script | None"
    redirects: tuple[Redirect, ...]


class While(NamedTuple):
    """`while` or `until`: both parts may run any number of times."""

    condition: "Script"
    body: "Script"
    redirects: tuple[Redirect, ...]


class For(NamedTuple):
    """`for name in words`; None as words means the positional parameters."""

    name: str
    words: tuple[Word, ...] | None
    body: "Script"
    redirects: tuple[Redirect, ...]


class Case(NamedTuple):
    """`case word in pattern) … ;; esac`; any arm may run."""

    word: Word
    arms: tuple[tuple[tuple[Word, ...], "Script"], ...]
    redirects: tuple[Redirect, ...]


class Function(NamedTuple):
    """A function definition; the body runs when it is called."""

    name: str
    body: "Command"


class Condition(NamedTuple):
    """`[[ … ]]`: words and operators in the order written."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class ArithmeticCommand(NamedTuple):
    """`(( … ))`."""

    word: Word
    redirects: tuple[Redirect, ...]


Command: TypeAlias = Simple | Subshell | If | While | For | Case | Function | Condition | ArithmeticCommand


class Pipeline(NamedTuple):
    """Commands joined by pipes."""

    commands: tuple[Command, ...]
    negated: bool


class AndOr(NamedTuple):
    """Pipelines joined by `&&` and `||`, and whether the whole runs in the background."""

    first: Pipeline
    rest: tuple[tuple[Literal["&&", "||"], Pipeline], ...]
    background: bool


class Script(NamedTuple):
    """Lists in the order they run."""

    items: tuple[AndOr, ...]
    # For the script of a whole text: the scripts of all substitutions in it, inner ones first.
    substitutions: "tuple[Script, ...]" = ()
