"""What builtins, programs and languages may use of the evaluator that calls them.

`Evaluator` is passed to builtins, and `ProgramCall` to everything that judges the words of a program. The classes that
implement them are above this module, so that the functions they call do not import them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from remit.claims.mission import MachineKind
from remit.claims.types import SideEffectClass
from remit.policy.field import Field
from remit.policy.files import ResolvedPath
from remit.policy.shell.evaluate.changes import Changes
from remit.policy.shell.evaluate.state import Outcome, Output, ShellState
from remit.policy.shell.tables import Arguments, Program
from remit.policy.trace import Trace


class Evaluator(Protocol):
    """Evaluates commands, and records their effects."""

    trace: Trace
    changes: Changes
    # Give each unknown directory a name of its own, taken from the word that leads to it.
    symbolic: bool
    # Programs that would run what they read from standard input.
    readers: set[str]
    # The program that downloads something in a substitution of the current command.
    substituted: str
    # Variables that are set for programs, and those whose text may contain commands.
    passed_variables: set[str]
    unsafe_variables: set[str]
    # Functions that the script unsets.
    undefined: set[str]

    def command(
        self, fields: Sequence[Field], state: ShellState, prefix: str = "", *, functions: bool = True
    ) -> Outcome:
        """Judge one command: a function, a builtin or a program."""
        ...

    def evaluate_nested(self, text: str, state: ShellState, *, posix: bool = False) -> Outcome:
        """Evaluate a script inside a command; `posix` if the shell may be another one than bash."""
        ...

    def child(self, text: str, state: ShellState, *, posix: bool) -> Outcome:
        """Evaluate a script that another shell runs: without functions, and with unknown variables."""
        ...

    def trap(self, text: str, state: ShellState, *, anytime: bool) -> None:
        """Record a command that runs at the end of the script, or at any time."""
        ...

    def leave(self, state: ShellState) -> None:
        """Record a state in which a function or loop may be left early."""
        ...

    def enter(self, cwd: str | None) -> None:
        """Record a possible working directory of the script."""
        ...

    def file(self, role: str, field: Field, cwd: str | None) -> ResolvedPath | None:
        """Record the effects of a role on the file that a word names."""
        ...

    def check_links(self, directories: Sequence[str], source: str) -> None:
        """Record the targets of links below directories, for a program that opens every file there."""
        ...

    def arguments_of_code(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Record the arguments of project code that are paths or URLs outside of the project, or contain one."""
        ...

    def files_of_tool(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Record the arguments of an undescribed tool that are, or look like, files here: it may change them."""
        ...

    def side(self, side_effect: SideEffectClass) -> None:
        """Record a side effect that no effect implies."""
        ...

    def escalate(self, name: str) -> None:
        """Record that a program gets superuser privileges."""
        ...

    def record_code(self, *, starts: bool = True) -> None:
        """Record that project code runs, which static policy cannot restrict; not `starts` if it only runs later."""
        ...

    def project_code(self, program: Program, cwd: str | None) -> None:
        """Record that a program runs the code in the working directory."""
        ...

    def reads_own(self) -> bool:
        """Return whether the program being judged reads files that the script has written, or output of another one."""
        ...

    def is_plain(self, output: Output) -> bool:
        """Return whether no file name below the directories can be split, or read as an option."""
        ...


Builtin: TypeAlias = Callable[[Evaluator, ShellState, Sequence[Field]], Outcome]


class ProgramCall(Protocol):
    """One program with its words, in one state."""

    evaluator: Evaluator
    trace: Trace
    state: ShellState
    program: Program
    arguments: Arguments
    # The working directory of the program, which an option may have chosen.
    cwd: str | None
    moved: bool
    output: Output
    # Whether data is sent to the contacted hosts.
    sends: bool
    # An option such as `--dry-run` keeps the program from changing anything.
    looks: bool
    # The suffix of the backup of an overwritten file.
    suffix: str
    # git takes files from a given tree, whose directories may differ from those of the work tree.
    tree: bool
    # The positional parameters of a script that is given as text.
    positional: Sequence[Field] | None
    # How many names the script has created before.
    made_before: int

    def file(self, role: str, field: Field) -> ResolvedPath | None:
        """Record the effects of a role on a file."""
        ...

    def manage(self, kind: MachineKind, name: str | None, source: str) -> None:
        """Record that state of the machine is used or changed, unless the program changes nothing."""
        ...

    def exists(self, text: str) -> bool:
        """Return whether a file of that name exists."""
        ...

    def standard_input(self, program: Program) -> None:
        """Judge the content of standard input as code that the program runs."""
        ...


# Judges the words of a known program.
WordsJudge: TypeAlias = Callable[[Evaluator, ShellState, Program, Sequence[Field]], ProgramCall]
