"""Judges variables that change what programs do.

Most variables only inform the program that reads them. Some choose what it runs, loads or contacts: setting one of
those is a doubt, unless the value is harmless or a list of directories that can be compared with the scope.
"""

import re
from typing import Final

from remit.policy.call import Effect
from remit.policy.field import Field
from remit.policy.shell.evaluate.context import Evaluator
from remit.policy.shell.evaluate.settings import SEARCH_PATHS, is_plain_setting, is_steering

# Names whose values are commands or options: harmless if the value has neither a path nor a command.
_COMMANDS: Final = re.compile(
    r"(?:.*(?:OPTIONS|OPTS?|ARGS|PAGER|WRAPPER|LAUNCHER|PREFIX|COMMAND|CMD|PROG|SHELL|BROWSER|EDITOR|RUNNER))\Z"
)
# Variables whose values are never files, even if they look like one.
_INFORMING: Final = re.compile(
    r"LANG|LC_[A-Z]+|TZ|TERM|CI|NODE_ENV|DEBUG|RUST_LOG|PYTHONWARNINGS|.*(?:VERSION|MODULE|HOST|URL|LEVEL|LOCALE)"
)
# A name with an extension or below a directory, not a number; and the separators between names.
_RELATIVE: Final = re.compile(r"(?!v?\d+(?:\.\w+)*\Z)[\w@+%-]*[/.][\w@+%./-]*")
_PARTS: Final = re.compile(r"[:=,;]")
# Characters that cannot end a word or start a command.
_UNPLAIN: Final = re.compile(r"[^\w ./:=+,@%^\[\]-]")
# bash evaluates their values as arithmetic, which can run commands. A number is harmless.
_EVALUATED: Final = frozenset("RANDOM SECONDS OPTIND LINENO HISTCMD SRANDOM EPOCHSECONDS EPOCHREALTIME BASHPID".split())
_NUMBER: Final = re.compile(r"[0-9]+\Z")


def _counts(name: str, value: str | None) -> bool:
    """Return whether a variable that bash evaluates is set to a number."""
    return name in _EVALUATED and value is not None and _NUMBER.match(value) is not None


def judge_setting(evaluator: Evaluator, name: str, value: str | None, cwd: str | None, source: str) -> None:
    """Record that a variable is set for the shell itself, and possibly for later programs."""
    if is_steering(name) and not _counts(name, value):
        judge_variable(evaluator, name, value, cwd, source)
    else:
        _record_unsafe_value(evaluator, name, value)
        evaluator.trace.add(Effect("setenv", name, source))


def judge_export(evaluator: Evaluator, name: str, value: str, cwd: str | None, source: str) -> None:
    """Record the files that an exported variable names."""
    if "://" not in value and not is_steering(name):
        _touch_paths(evaluator, name, value, cwd, source)


def judge_calculation(evaluator: Evaluator, name: str, cwd: str | None) -> None:
    """Record that arithmetic sets a variable, if that can change what programs or the shell do."""
    if is_steering(name):
        judge_setting(evaluator, name, "0", cwd, name)


def judge_variable(evaluator: Evaluator, name: str, value: str | None, cwd: str | None, source: str) -> None:
    """Record that a variable is set for a program; None is an unknown value."""
    evaluator.passed_variables.add(name)
    _record_unsafe_value(evaluator, name, value)
    # It makes wildcards match hidden names.
    evaluator.trace.hidden |= name == "GLOBIGNORE"
    plain = _counts(name, value) or is_plain_setting(name, value)
    if name in SEARCH_PATHS and value is not None:
        for directory in filter(None, value.split(":")):
            evaluator.trace.touch("read", directory, cwd, source)
        evaluator.record_code(starts=False)
    elif is_steering(name) and not plain:
        evaluator.trace.doubt(source, f"{name} changes what programs run, load or contact", unbounded=True)
    elif _COMMANDS.match(name) and not plain and (value is None or _UNPLAIN.search(value) or "://" in value):
        evaluator.trace.doubt(source, f"{name} may be a command, or options for one", unbounded=True)
    elif _COMMANDS.match(name) and value is not None and not plain:
        words = [Field(word, "exact", source) for word in value.split()]
        evaluator.arguments_of_code(words, cwd)
        evaluator.files_of_tool(words, cwd)
    elif value is not None and "://" not in value:
        _touch_paths(evaluator, name, value, cwd, source)
    evaluator.trace.add(Effect("setenv", name, source))


def _touch_paths(evaluator: Evaluator, name: str, value: str, cwd: str | None, source: str) -> None:
    """Record the files that a value names: a program may read or write them.

    In a value of several words, only words that lead upwards count as paths.
    """
    whole = len(value.split()) <= 1
    for piece in _PARTS.split(value) if whole else value.split():
        if piece.startswith(("/", "~", "../") if whole else "../") or "/../" in piece:
            evaluator.trace.touch("edit", piece, cwd, source)
        elif whole and piece and not _INFORMING.fullmatch(name) and _is_file(evaluator, piece, cwd):
            evaluator.trace.touch("write", piece, cwd, source)


def _is_file(evaluator: Evaluator, text: str, cwd: str | None) -> bool:
    """Return whether a text looks like a relative file name, or names an existing file in `cwd`."""
    if cwd is None or "\0" in text:
        return False
    resolved = evaluator.trace.files.resolve(f"{cwd}/{text}") if not _RELATIVE.fullmatch(text) else None
    return resolved is None or (resolved.exists and not resolved.is_directory)


def _record_unsafe_value(evaluator: Evaluator, name: str, value: str | None) -> None:
    """Record a variable whose value could become several words, or a command, if a command is built from it."""
    if value is not None and (_UNPLAIN.search(value) or " " in value) and not is_plain_setting(name, value):
        evaluator.unsafe_variables.add(name)
    else:
        evaluator.unsafe_variables.discard(name)
