"""What the builtin `kill` would stop: jobs of the same script, or processes of the machine.

A script may stop what it has started itself: `kill %1`, `kill $!`, `kill $pid` after `pid=$!`, `kill $(jobs -p)`. Every
other process is a resource of the machine, `process://4242`; one that is not known before it runs may be any.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from remit.policy.shell.world import LAST_JOB, Field, Outcome, World
from remit.policy.stops import JOB, NUMBERS, killed, process_number

if TYPE_CHECKING:
    from remit.policy.shell.commands import Commands

__all__ = ["judge_kill"]

_PARAMETER: Final = re.compile(r'(")?-?\$(?:(?P<name>!|\w+)|\{(?P<braced>!|\w+)\})(?(1)")')
_JOBS: Final = re.compile(r'(")?\$\(jobs -p\)(?(1)")')
# Programs that print numbers of processes, with options that make them print nothing else.
_FINDERS: Final = re.compile(
    r"(\")?\$\((?P<program>pgrep|pidof)(?: -[fxnoi]+)?(?: (?:[\w./@:-]+|'[^'\n]*'|\"[^\"$`\\\n]*\"))\)(?(1)\")"
)
_EVERYONE: Final = -1


def judge_kill(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    """Note the processes that are stopped."""
    targets = tuple(_target(field, world, last=field is fields[-1]) for field in fields)
    run.trace.launches.builtin("kill", fields, targets)
    words = killed(targets)
    for word in words:
        if word is None:
            run.trace.manage("process", None, "kill")
        elif not word.startswith(JOB):
            number = process_number(word)
            name = word if number is None else None if number == _EVERYONE else str(number)
            run.trace.manage("process", name, word)
    if words:
        run.side("state_change")
    return Outcome((world,), (world,))


def _target(field: Field, world: World, *, last: bool) -> str | None:
    """Return a word as `Launched.targets` holds it."""
    if field.kind == "exact":
        return field.text
    if _is_job(field, world):
        return JOB
    finder = _FINDERS.fullmatch(field.source)
    found = finder is not None and finder["program"] not in world.functions
    # A single word behind all others can be no option that changes what they mean.
    alone = last and field.kind == "unknown" and not field.splits and not field.text
    return NUMBERS if _is_number(field) or found or alone else None


def _is_number(field: Field) -> bool:
    """Tell whether a word is a number that is not known, as expansion makes a pattern of it."""
    return field.kind == "pattern" and field.text in ("*", "-*") and "*" not in field.source


def _is_job(field: Field, world: World) -> bool:
    if "IFS" in world.variables and not field.source.startswith('"'):
        return False  # it may be split into numbers of others
    if _JOBS.fullmatch(field.source):
        return "jobs" not in world.functions
    parameter = _PARAMETER.fullmatch(field.source)
    if parameter is None:
        return False
    name = parameter["name"] or parameter["braced"]
    return _is_number(field) and (name == "!" or world.variables.get(name) == LAST_JOB)
