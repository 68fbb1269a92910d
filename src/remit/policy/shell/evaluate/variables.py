"""Builtins that change variables, parameters and settings.

Each function takes the evaluator, the state and the words after the name, and returns the outcome. A variable whose
name is not known could be any variable, so it is a doubt.
"""

import re
from collections.abc import Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import Builtin, Evaluator
from remit.policy.shell.evaluate.environment import judge_calculation, judge_export, judge_setting
from remit.policy.shell.evaluate.expand import arithmetic_settings
from remit.policy.shell.evaluate.settings import NAME, SHELL_SETTINGS, is_steering
from remit.policy.shell.evaluate.state import NUMBER, Outcome, Output, ShellState, Unknown, Value, as_arguments

_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)\Z", re.DOTALL)
_SET_LETTERS: Final = frozenset("abefhnuvxCET")
_READ_FLAGS: Final = re.compile(r"-[ers]*[adinNptu]?\Z")
_FLAGS: Final = re.compile(r"[-+][A-Za-z]+\Z")
_KNOWN_FLAGS: Final = "xrapfF"
# With these options a declaration prints; not every shell then sets variables.
_PRINTS: Final = frozenset("pfF")
# Without it, programs are not found.
_SEARCHED: Final = "PATH"
# `cd` sets them, and fails if they are readonly.
_SET_BY_CD: Final = frozenset(("PWD", "OLDPWD"))
_LOCAL: Final = frozenset(("local", "declare", "typeset"))
_NOT_FOUND: Final = "without PATH, programs are not found, and print nothing"
_NOTHING: Final = Output()


def outcome_of(*states: ShellState, output: Output = _NOTHING) -> Outcome:
    """Return the outcome of a command that may succeed or fail in these states."""
    return Outcome(states, states, output)


def _make_declaration(builtin: str) -> Builtin:
    """Return the builtin `export`, `declare`, `local`, `readonly` or `typeset`."""

    def declare(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
        flags = "".join(field.text[1:] for field in fields if field.kind == "exact" and _FLAGS.match(field.text))
        names = [field for field in fields if field.kind != "exact" or not _FLAGS.match(field.text)]
        if set(flags) - set(_KNOWN_FLAGS) or ("f" in flags and names):
            evaluator.trace.doubt(
                builtin, "a declaration that changes how values or functions are read", unbounded=True
            )
        if _PRINTS.intersection(flags) and any("=" in field.text or field.kind != "exact" for field in names):
            evaluator.trace.doubt(
                builtin, "with this option it prints what is declared, and may set nothing", unbounded=True
            )
        for field in names:
            state = _declare_variable(evaluator, state, field)
            name = field.text.partition("=")[0].removesuffix("+")
            _record_export(evaluator, state, name, field.source, exports=builtin == "export" or "x" in flags)
            lost = builtin == "local" and not state.in_function
            if lost or (builtin != "export" and "=" not in field.text):
                # `local` outside of a function fails, and without a value the variable may stay unset.
                state = state.with_variable(name, Unknown("any", "", f"${name}"))
            if name == _SEARCHED and builtin in _LOCAL and "=" not in field.text:
                evaluator.trace.doubt(field.source, _NOT_FOUND, unbounded=True)
            if builtin == "readonly" or "r" in flags:
                if name in _SET_BY_CD:
                    evaluator.trace.doubt(field.source, "cd can no longer set it, and fails", unbounded=True)
                state = state._replace(variables={**state.variables, f"{name}!": "1"})
            if builtin in _LOCAL and state.in_function:
                state = state._replace(local=state.local | {name})
        return outcome_of(state)

    return declare


def _record_export(evaluator: Evaluator, state: ShellState, name: str, source: str, *, exports: bool) -> None:
    """Record the files that a variable names, if a declaration exports it."""
    value = state.variables.get(name)
    if exports and isinstance(value, str):
        judge_export(evaluator, name, value, state.cwd, source)


def _declare_variable(evaluator: Evaluator, state: ShellState, field: Field) -> ShellState:
    assigned = _ASSIGNED.match(field.text)
    if assigned:
        known = field.kind == "exact" and not assigned[2] and "~" not in assigned[3][:1] and ":~" not in assigned[3]
        if assigned[3].startswith("("):
            evaluator.trace.doubt(field.source, "a list in a declaration, which is expanded twice", unbounded=True)
        value: Value = assigned[3] if known else Unknown("any", "", f"${assigned[1]}")
        judge_setting(evaluator, assigned[1], value if isinstance(value, str) else None, state.cwd, field.source)
        return state.with_variable(assigned[1], value)
    if field.kind != "exact" or not NAME.match(field.text):
        evaluator.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
    return state


def _unset(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    functions = dict(state.functions)
    chosen = fields[0].text if fields and fields[0].text in ("-f", "-v") else ""
    for field in fields[1:] if chosen else fields:
        if field.kind != "exact" or not NAME.match(field.text):
            evaluator.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
        elif chosen == "-f":
            functions.pop(field.text, None)
            evaluator.undefined.add(field.text)
        elif field.text in functions and not chosen:
            evaluator.trace.doubt(field.source, "it may mean a function or a variable", unbounded=True)
        else:
            if field.text == _SEARCHED:
                evaluator.trace.doubt(field.source, _NOT_FOUND, unbounded=True)
            state = state.with_variable(field.text, Unknown("any", "", f"${field.text}"))
    return outcome_of(state._replace(functions=functions))


def _read(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    value: Value = Unknown("any", "", "read")
    given = state.stdin
    if given is not None and len(given.below) == 1 and given.cwd == state.cwd and evaluator.is_plain(given):
        value = Unknown("below", given.below[0], "read", given.cwd, linked=not given.regular, bare=given.bare)
    names: list[str] = []
    if _reads_pieces(fields):
        # The next reader gets the rest of the input.
        value, state = Unknown("any", "", "read"), state._replace(stdin=Output() if given is not None else None)
    ahead = list(fields)
    while ahead:
        field = ahead.pop(0)
        option = field.kind == "exact" and field.text.startswith("-")
        if option and not _READ_FLAGS.match(field.text):
            evaluator.trace.doubt(field.source, "an option of read that is not known here", unbounded=True)
        elif option and field.text[-1] in "adinNptu" and ahead:
            following = ahead.pop(0)
            names.extend([following.text] * 2 if field.text[-1] == "a" else [])
            if field.text[-1] == "a" and (not NAME.match(following.text) or is_steering(following.text)):
                evaluator.trace.doubt(
                    following.source, "a variable whose name is not known before it runs", unbounded=True
                )
        elif not option and (field.kind != "exact" or not NAME.match(field.text) or is_steering(field.text)):
            evaluator.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
        elif not option:
            names.append(field.text)
    for name in names:
        state = state.with_variable(name, value if len(names) == 1 else Unknown("any", "", "read"))
    return outcome_of(state)


def _reads_pieces(fields: Sequence[Field]) -> bool:
    """Return whether `read` may take less or more than a line (`-n`, `-d`, `-t`)."""
    for at, field in enumerate(fields):
        letters = set(field.text[1:]) if field.text.startswith("-") else set()
        following = fields[at + 1 : at + 2]
        null = field.text.endswith("d") and any(each.kind == "exact" and not each.text for each in following)
        if letters & set("nNt") or ("d" in letters and not null):
            return True
    return False


def _set(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    ahead = list(fields)
    while ahead:
        field = ahead.pop(0)
        text = field.text
        if field.kind == "exact" and text == "--":
            return outcome_of(state._replace(arguments=as_arguments(ahead)))
        if field.kind != "exact" or text[:1] not in ("-", "+") or not set(text[1:]) <= _SET_LETTERS | {"o"}:
            evaluator.trace.doubt(field.source, "a setting of the shell that is not known here", unbounded=True)
            continue
        if "o" in text:
            word = ahead.pop(0) if ahead else Field("", "exact", "set")
            if word.text not in SHELL_SETTINGS:
                evaluator.trace.doubt(word.source, "a setting of the shell that is not known here", unbounded=True)
            if word.text == "errexit":
                state = state._replace(strict=text.startswith("-"))
        if "e" in text:
            state = state._replace(strict=text.startswith("-"))
    return outcome_of(state)


def _shift(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    count = int(fields[0].text) if fields and re.fullmatch(r"[0-9]{1,3}", fields[0].text) else 1
    known = state.arguments is not None and (not fields or (fields[0].kind == "exact" and not fields[0].text[3:]))
    shifted = state._replace(arguments=state.arguments[count:] if known and state.arguments is not None else None)
    # A shift by more than the number of parameters does nothing.
    return outcome_of(shifted, state)


def _let(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    for field in fields:
        if field.kind != "exact" or not re.fullmatch(r"[A-Za-z0-9_+*/%<>=!&|^~ ()-]*", field.text):
            evaluator.trace.doubt(field.source, "arithmetic on a value that may hold commands", unbounded=True)
        for name in set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", field.text)):
            value = state.variables.get(name, "0")
            if (
                not (isinstance(value, str) and re.fullmatch(r"-?[0-9]*", value))
                and getattr(value, "kind", "") != "number"
            ):
                evaluator.trace.doubt(name, "arithmetic on a value that may hold commands", unbounded=True)
        for name in arithmetic_settings(field.text):
            judge_calculation(evaluator, name, state.cwd)
            state = state.with_variable(name, NUMBER)
    return outcome_of(state)


def _printf(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if fields and fields[0].kind == "exact" and fields[0].text == "--":
        return outcome_of(state, output=Output(_printed(fields[1:])))
    first = fields[0] if fields else Field("", "exact", "printf")
    if first.kind == "exact" and first.text == "-v" and len(fields) > 1:
        name = fields[1]
        if name.kind != "exact" or not NAME.match(name.text) or is_steering(name.text):
            evaluator.trace.doubt(name.source, "a variable whose name is not known before it runs", unbounded=True)
        return outcome_of(state.with_variable(name.text, Unknown("any", "", "printf")))
    if (first.kind == "unknown" and not first.text) or first.text.startswith("-"):
        evaluator.trace.doubt(first.source, "it may be an option of printf", unbounded=True, starts=False)
    return outcome_of(state, output=Output(_printed(fields)))


def _printed(fields: Sequence[Field]) -> str | None:
    """Return the output of printf for the most common formats."""
    if not fields or any(field.kind != "exact" for field in fields):
        return None
    form, rest = fields[0].text, [field.text for field in fields[1:]]
    ends = {"%s": "", "%s\\n": "\n", "%s\\0": "\0", "%s ": " "}
    if form in ends and rest:
        return "".join(word + ends[form] for word in rest)
    plain = re.sub(r"\\0(?![0-7])", "\0", form.replace("\\n", "\n"))
    return plain if "%" not in form and "\\" not in plain and not rest else None


def _mapfile(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    ahead = list(fields)
    name = "MAPFILE"
    while ahead:
        field = ahead.pop(0)
        if field.kind == "exact" and field.text in ("-d", "-n", "-O", "-s", "-u") and ahead:
            ahead.pop(0)
        elif field.kind == "exact" and NAME.match(field.text):
            name = field.text
        elif field.kind != "exact" or field.text != "-t":
            evaluator.trace.doubt(field.source, "this use of a builtin is not known here", unbounded=True)
    if is_steering(name):
        evaluator.trace.doubt(name, "it changes what programs run, load or contact", unbounded=True)
    return outcome_of(state.with_variable(name, Unknown("any", "", "mapfile")))


def _getopts(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    for name in [*(field.text for field in fields[1:2]), "OPTARG", "OPTIND"]:
        state = state.with_variable(name, Unknown("any", "", "getopts"))
    for field in fields[:2]:
        named = field is fields[0] or (NAME.match(field.text) and not is_steering(field.text))
        if field.kind != "exact" or not named:
            evaluator.trace.doubt(field.source, "this use of a builtin is not known here", unbounded=True)
    return outcome_of(state)


VARIABLE_BUILTINS: Final = {
    **{name: _make_declaration(name) for name in ("export", "declare", "local", "readonly", "typeset")},
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    "getopts": _getopts,
    "let": _let,
    "printf": _printf,
    "read": _read,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
}
