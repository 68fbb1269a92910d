"""Judges a command line, or a program in an embedded language.

This is where evaluating commands and judging programs are connected.
"""

from remit.errors import ShellUnparsed
from remit.policy.shell.evaluate.script import ScriptEvaluator
from remit.policy.shell.evaluate.state import ShellState
from remit.policy.shell.programs.handlers import judge_words
from remit.policy.shell.programs.invoke import Invocation
from remit.policy.shell.programs.languages import LANGUAGES
from remit.policy.shell.tables import Program
from remit.policy.trace import Trace


def judge_script(trace: Trace, text: str, cwd: str | None, *, posix: bool = False) -> None:
    """Record the effects of the command line `text`, started in `cwd`."""
    ScriptEvaluator(trace, judge_words).judge(text, cwd, posix=posix)


def judge_program(trace: Trace, language: str, text: str, cwd: str | None) -> None:
    """Record the effects of a program in an embedded language such as Python or awk."""
    evaluator = ScriptEvaluator(trace, judge_words)
    invocation = Invocation(evaluator, ShellState(cwd, {}, {}), Program(name=language))
    try:
        LANGUAGES[language](invocation, text, language)
    except ShellUnparsed as error:
        trace.unparsed(error.word, error.reason)
