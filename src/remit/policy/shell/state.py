"""What is known while a script is followed: the working directory, the variables and the functions.

A `ShellState` is one way things may stand. Where a script may go two ways there are two worlds, and each command is judged
in all of them. Values that cannot be known are `Unknown`, with the word that caused it: never a guess.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.policy.shell.syntax import Command

__all__ = [
    "ARRAY",
    "CONCURRENT",
    "LAST_JOB",
    "MAX_STATES",
    "NUMBER",
    "PLAIN",
    "Field",
    "Outcome",
    "Output",
    "ShellState",
    "Unknown",
    "Value",
    "as_arguments",
    "as_value",
    "common_state",
    "merge_states",
    "restore_stdin",
]

MAX_STATES: Final = 16


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known: a whole number, a plain word, a path below a known directory, or anything.

    A plain word has letters, digits, dots, dashes and underscores, and does not start with a dash or a dot.

    Not a tuple like its neighbours: a tuple of values is an array.
    """

    kind: Literal["number", "plain", "below", "any"]
    text: str
    cause: str
    # Where a path below a directory starts, if it is relative.
    cwd: str | None = None
    # It may be a link.
    linked: bool = False
    # It is a name in the working directory, with nothing before it, so that it may look like an option.
    bare: bool = False
    # It is not empty.
    filled: bool = False


Value: TypeAlias = "str | Unknown | tuple[Value, ...]"
NUMBER: Final = Unknown("number", "", "")
PLAIN: Final = Unknown("plain", "", "")
# An array of which nothing is known.
ARRAY: Final = Unknown("any", "", "[@]")
# The number of the last command that the script started in the background.
LAST_JOB: Final = Unknown("number", "", "$!")


class Field(NamedTuple):
    """One word after expansion.

    `exact`: the text itself. `pattern`: a glob. `below`: some path below the directory `text`. `unknown`: anything that
    starts with `text`, and possibly several words.
    """

    text: str
    kind: Literal["exact", "pattern", "below", "unknown"]
    source: str
    # It starts with a quote, so that a tilde is only a character.
    quoted: bool = False
    # It may come to several words.
    splits: bool = False
    # Where a path below a directory starts, if it is relative.
    cwd: str | None = None
    # It may be a link.
    linked: bool = False
    # What paths below a directory are meant, as an effect says it.
    picks: str = "**"
    # It is a name in the working directory, with nothing before it, so that it may look like an option.
    bare: bool = False
    # A star in it stands for a number or a plain word, and not for the names of files.
    numbered: bool = False
    # A path below a directory is not empty.
    filled: bool = False


class Output(NamedTuple):
    """What a command prints, where that is known: an exact text, or paths below directories."""

    text: str | None = None
    below: tuple[str, ...] = ()
    # The paths are separated by NUL, so that no name can be taken for two.
    separated: bool = False
    # The paths are regular files, so that none of them is a link.
    regular: bool = False
    number: bool = False
    # One word of letters, digits, dots, dashes and underscores that does not start with a dash or a dot.
    plain: bool = False
    # Where the paths start, if they are relative.
    cwd: str | None = None
    # Which paths they are, as an effect says it.
    picks: str = "**"
    # They are names in the working directory, with nothing before them, so that they may look like options.
    bare: bool = False
    # The program that it was downloaded with, where it was.
    downloaded: str = ""
    # It is a file that was there before the script, or that the script has not downloaded.
    local: bool = False


# What a process substitution reads: it goes on while other commands run.
CONCURRENT: Final = Output()

# Variables that bash itself makes readonly.
_FIXED: Final = frozenset("BASHOPTS BASH_VERSINFO EUID PPID SHELLOPTS UID".split())


class ShellState(NamedTuple):
    """One way things may stand."""

    cwd: str | None
    variables: Mapping[str, Value]
    functions: Mapping[str, Command]
    # `set -e` is on: a failed command ends the script.
    strict: bool = False
    # The positional parameters, where they are known.
    arguments: tuple[Value, ...] | None = None
    # Here-document, pipe or nothing.
    stdin: Output | None = None
    # Another shell than bash may be the reader.
    posix: bool = False
    # The reader expands braces; None where that is not known.
    braces: bool | None = True
    # A function is running, and these variables belong to it.
    in_function: bool = False
    local: frozenset[str] = frozenset()
    # A descriptor may be closed: any redirection may fail.
    rewired: bool = False

    def is_fixed(self, name: str) -> bool:
        """Return whether setting a variable is, or may be, an error."""
        return f"{name}!" in self.variables or name in _FIXED

    def with_variable(self, name: str, value: Value) -> "ShellState":
        """Return the state in which a variable has a value."""
        if self.is_fixed(name):
            # It cannot be changed any more, or not in the way it looks.
            value = Unknown("any", "", f"${name}")
        elif isinstance(value, str) and (isinstance(known := self.variables.get(name), tuple) or known == ARRAY):
            # Only the first element of an array changes.
            value = ARRAY
        if self.variables.get(name) == value:
            return self
        return self._replace(variables={**self.variables, name: value})


class Outcome(NamedTuple):
    """The states after success and after failure, and what was printed where that is known."""

    succeeded: tuple[ShellState, ...]
    failed: tuple[ShellState, ...]
    output: Output = Output()

    @property
    def all(self) -> tuple[ShellState, ...]:
        """Return the states of both ends."""
        first, second = self.succeeded, self.failed
        same = first is second or (len(first) == len(second) == 1 and first[0] is second[0])
        return first if same else merge_states(first, second)


def as_value(field: Field) -> Value:
    """Return what a variable holds that is given this word."""
    if field.kind == "exact" and (field.quoted or not field.text.startswith("~")):
        return field.text
    if field.kind == "below":
        return Unknown("below", field.text, field.source, field.cwd, field.linked, field.bare, field.filled)
    return Unknown("any", "", field.source)


def as_arguments(fields: Sequence[Field]) -> tuple[Value, ...] | None:
    """Return the positional parameters that these words make, or None where it is not known how many they are."""
    several = any(field.splits or field.kind == "pattern" for field in fields)
    return None if several else tuple(as_value(field) for field in fields)


def merge_states(*groups: Iterable[ShellState]) -> tuple[ShellState, ...]:
    """Return the states of all groups once each; when they are too many, what differs becomes unknown."""
    states: list[ShellState] = []
    for group in groups:
        for state in group:
            if not any(state is other or state == other for other in states):
                states.append(state)
    return tuple(states) if len(states) <= MAX_STATES else (common_state(states),)


def common_state(states: Sequence[ShellState]) -> ShellState:
    """Return one state that knows only what all of these agree on."""
    first = states[0]
    names = {name for state in states for name in state.variables}
    variables: dict[str, Value] = {}
    for name in names:
        values = [state.variables.get(name) for state in states]
        agreed = values[0] if all(value == values[0] for value in values) else None
        variables[name] = agreed if agreed is not None else Unknown("any", "", f"${name}")
    functions: dict[str, Command] = {}
    for state in states:
        functions.update(state.functions)
    for name, body in functions.items():
        if any(state.functions.get(name) != body for state in states):
            # A function that is not the same everywhere: calling it is a doubt.
            variables[f"{name}()"] = Unknown("any", "", name)
    return ShellState(
        cwd=first.cwd if all(state.cwd == first.cwd for state in states) else None,
        variables=variables,
        functions=functions,
        strict=all(state.strict for state in states),
        arguments=first.arguments if all(state.arguments == first.arguments for state in states) else None,
        stdin=first.stdin if all(state.stdin == first.stdin for state in states) else Output(),
        posix=any(state.posix for state in states),
        braces=first.braces if all(state.braces == first.braces for state in states) else None,
        in_function=any(state.in_function for state in states),
        local=frozenset().union(*(state.local for state in states)),
        rewired=any(state.rewired for state in states),
    )


def restore_stdin(states: tuple[ShellState, ...], before: tuple[ShellState, ...]) -> tuple[ShellState, ...]:
    """Return the states with the standard input that they had before a redirection."""
    stdin = before[0].stdin if before else None
    return tuple(state if state.stdin is stdin else state._replace(stdin=stdin) for state in states)
