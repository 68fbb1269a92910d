"""Judges the words of a known program: by its table, or by a function of its own."""

from collections.abc import Callable, Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import Evaluator, ProgramCall
from remit.policy.shell.evaluate.state import ShellState
from remit.policy.shell.programs.find import judge_find
from remit.policy.shell.programs.invoke import Invocation
from remit.policy.shell.programs.ln import judge_ln
from remit.policy.shell.programs.tar import judge_tar
from remit.policy.shell.programs.xargs import judge_xargs
from remit.policy.shell.tables import Program

# Programs whose words are a language of their own; a table names the function as its `handler`.
HANDLERS: Final[dict[str, Callable[[ProgramCall, Sequence[Field]], None]]] = {
    "find": judge_find,
    "ln": judge_ln,
    "tar": judge_tar,
    "xargs": judge_xargs,
}


def judge_words(evaluator: Evaluator, state: ShellState, program: Program, fields: Sequence[Field]) -> ProgramCall:
    """Record the effects of a program; return the call, with its output and working directory."""
    invocation = Invocation(evaluator, state, program)
    if len(fields) == 1 and fields[0].kind == "exact" and fields[0].text == "--version":
        # It prints its version and does nothing else; the program itself may be project code.
        if program.runs:
            evaluator.record_code()
    elif program.handler:
        invocation.check_wildcards(program, fields)
        HANDLERS[program.handler](invocation, fields)
    else:
        invocation.judge(program, fields)
    return invocation
