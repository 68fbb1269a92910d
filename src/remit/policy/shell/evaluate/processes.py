"""Judges the builtin `kill`: it stops jobs of the same script, or processes of the machine.

A script may stop what it has started itself: `kill %1`, `kill $!`, `kill $pid` after `pid=$!`, `kill $(jobs -p)`. Every
other process is a resource of the machine, `process://4242`; one that is not known before it runs may be any.
"""

import re
from collections.abc import Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import Evaluator
from remit.policy.shell.evaluate.state import LAST_JOB, Outcome, ShellState
from remit.policy.stops import JOB, NUMBERS, kill_targets, process_number

_PARAMETER: Final = re.compile(r'(")?-?\$(?:(?P<name>!|\w+)|\{(?P<braced>!|\w+)\})(?(1)")')
_JOBS: Final = re.compile(r'(")?\$\(jobs -p\)(?(1)")')
# Programs that print process ids, with options that make them print nothing else.
_FINDERS: Final = re.compile(
    r"(\")?\$\((?P<program>pgrep|pidof)(?: -[fxnoi]+)?(?: (?:[\w./@:-]+|'[^'\n]*'|\"[^\"$`\\\n]*\"))\)(?(1)\")"
)
_EVERYONE: Final = -1


def judge_kill(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    """Record the processes that are stopped."""
    targets = tuple(_target(field, state, last=field is fields[-1]) for field in fields)
    evaluator.trace.spawned.builtin("kill", fields, targets)
    words = kill_targets(targets)
    for word in words:
        if word is None:
            evaluator.trace.manage("process", None, "kill")
        elif not word.startswith(JOB):
            number = process_number(word)
            name = word if number is None else None if number == _EVERYONE else str(number)
            evaluator.trace.manage("process", name, word)
    if words:
        evaluator.side("state_change")
    return Outcome((state,), (state,))


def _target(field: Field, state: ShellState, *, last: bool) -> str | None:
    """Return a word in the form of `Launched.targets`."""
    if field.kind == "exact":
        return field.text
    if _is_job(field, state):
        return JOB
    finder = _FINDERS.fullmatch(field.source)
    found = finder is not None and finder["program"] not in state.functions
    # A last word cannot be an option that changes the meaning of the others.
    alone = last and field.kind == "unknown" and not field.splits and not field.text
    return NUMBERS if _is_number(field) or found or alone else None


def _is_number(field: Field) -> bool:
    """Return whether a word is an unknown number, which expansion turns into a pattern."""
    return field.kind == "pattern" and field.text in ("*", "-*") and "*" not in field.source


def _is_job(field: Field, state: ShellState) -> bool:
    if "IFS" in state.variables and not field.source.startswith('"'):
        return False  # it may be split into other process ids
    if _JOBS.fullmatch(field.source):
        return "jobs" not in state.functions
    parameter = _PARAMETER.fullmatch(field.source)
    if parameter is None:
        return False
    name = parameter["name"] or parameter["braced"]
    return _is_number(field) and (name == "!" or state.variables.get(name) == LAST_JOB)
