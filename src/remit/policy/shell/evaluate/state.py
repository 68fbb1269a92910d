"""The state of a shell while a script is evaluated: working directory, variables and functions.

A `ShellState` is one possible state. Where a script may take two paths there are two states, and each command is
evaluated in all of them. A value that cannot be known is `Unknown`, with the word that caused it; it is never guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.policy.field import Field
from remit.policy.shell.parse.syntax import Command

MAX_STATES: Final = 16


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known: a whole number, a plain word, a path below a known directory, or anything.

    A plain word has letters, digits, dots, dashes and underscores, and does not start with a dash or a dot.

    This is not a NamedTuple like the other classes, because a tuple of values is an array.
    """

    kind: Literal["number", "plain", "below", "any"]
    text: str
    cause: str
    # The directory that a relative path starts at.
    cwd: str | None = None
    # It may be a symbolic link.
    linked: bool = False
    # It is a file name without a directory, so it may look like an option.
    bare: bool = False
    # It is not empty.
    filled: bool = False


Value: TypeAlias = "str | Unknown | tuple[Value, ...]"
NUMBER: Final = Unknown("number", "", "")
PLAIN: Final = Unknown("plain", "", "")
# An array with unknown elements.
ARRAY: Final = Unknown("any", "", "[@]")
# The process id of the last background command.
LAST_JOB: Final = Unknown("number", "", "$!")


class Output(NamedTuple):
    """The output of a command, where it is known: an exact text, or paths below directories."""

    text: str | None = None
    below: tuple[str, ...] = ()
    # The paths are separated by NUL, so no file name can be split into two.
    separated: bool = False
    # The paths are regular files, so none of them is a symbolic link.
    regular: bool = False
    number: bool = False
    # One word of letters, digits, dots, dashes and underscores that does not start with a dash or a dot.
    plain: bool = False
    # The directory that relative paths start at.
    cwd: str | None = None
    # Which paths below the directories, as in `Effect.picks`.
    picks: str = "**"
    # They are file names without a directory, so they may look like options.
    bare: bool = False
    # The program that downloaded it; empty if it was not downloaded.
    downloaded: str = ""
    # It is the content of a file that the script has not downloaded.
    local: bool = False


# The standard input of a process substitution, which runs concurrently with other commands.
CONCURRENT: Final = Output()

# Variables that bash makes readonly.
_FIXED: Final = frozenset("BASHOPTS BASH_VERSINFO EUID PPID SHELLOPTS UID".split())


class ShellState(NamedTuple):
    """One possible state of the shell."""

    cwd: str | None
    variables: Mapping[str, Value]
    functions: Mapping[str, Command]
    # `set -e` is on: a failed command ends the script.
    strict: bool = False
    # The positional parameters, if they are known.
    arguments: tuple[Value, ...] | None = None
    # The content of standard input; None if nothing was redirected to it.
    stdin: Output | None = None
    # The shell may be another one than bash.
    posix: bool = False
    # Whether the shell expands braces; None if that is not known.
    braces: bool | None = True
    # A function is running, and these are its local variables.
    in_function: bool = False
    local: frozenset[str] = frozenset()
    # A descriptor may be closed, so any redirection may fail.
    rewired: bool = False

    def is_fixed(self, name: str) -> bool:
        """Return whether setting a variable is, or may be, an error."""
        return f"{name}!" in self.variables or name in _FIXED

    def with_variable(self, name: str, value: Value) -> "ShellState":
        """Return the state after a variable is set."""
        if self.is_fixed(name):
            # A readonly variable, or one that may be.
            value = Unknown("any", "", f"${name}")
        elif isinstance(value, str) and (isinstance(known := self.variables.get(name), tuple) or known == ARRAY):
            # An assignment to the name of an array changes its first element only.
            value = ARRAY
        if self.variables.get(name) == value:
            return self
        return self._replace(variables={**self.variables, name: value})


class Outcome(NamedTuple):
    """The states after success and after failure, and the output if it is known."""

    succeeded: tuple[ShellState, ...]
    failed: tuple[ShellState, ...]
    output: Output = Output()

    @property
    def all(self) -> tuple[ShellState, ...]:
        """Return the states after success and failure, without duplicates."""
        first, second = self.succeeded, self.failed
        same = first is second or (len(first) == len(second) == 1 and first[0] is second[0])
        return first if same else merge_states(first, second)


def as_value(field: Field) -> Value:
    """Return the value of a variable that is set to this word."""
    if field.kind == "exact" and (field.quoted or not field.text.startswith("~")):
        return field.text
    if field.kind == "below":
        return Unknown("below", field.text, field.source, field.cwd, field.linked, field.bare, field.filled)
    return Unknown("any", "", field.source)


def as_arguments(fields: Sequence[Field]) -> tuple[Value, ...] | None:
    """Return the positional parameters for these words, or None if their number is not known."""
    several = any(field.splits or field.kind == "pattern" for field in fields)
    return None if several else tuple(as_value(field) for field in fields)


def merge_states(*groups: Iterable[ShellState]) -> tuple[ShellState, ...]:
    """Return the states of all groups without duplicates; too many are replaced by their `common_state`."""
    states: list[ShellState] = []
    for group in groups:
        for state in group:
            if not any(state is other or state == other for other in states):
                states.append(state)
    return tuple(states) if len(states) <= MAX_STATES else (common_state(states),)


def common_state(states: Sequence[ShellState]) -> ShellState:
    """Return one state with only the knowledge that all of these states share."""
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
            # The function differs between the states, so calling it is a doubt.
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
    """Return the states with the standard input from before a redirection."""
    stdin = before[0].stdin if before else None
    return tuple(state if state.stdin is stdin else state._replace(stdin=stdin) for state in states)
