"""Builtins that change variables, parameters and settings.

Each takes the run, the world and the words after its name, and returns the worlds after it. A variable whose name is
not known could be any, so it is a doubt.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from remit.policy.call import Effect
from remit.policy.shell.environment import is_steering
from remit.policy.shell.world import Field, Mystery, Outcome, Output, Value, World, as_value

if TYPE_CHECKING:
    from remit.policy.shell.commands import Commands

__all__ = ["NAME", "SHELL_SETTINGS", "VARIABLE_BUILTINS", "after"]

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
SHELL_SETTINGS: Final = frozenset("errexit nounset pipefail xtrace verbose noclobber noglob".split())
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)\Z", re.DOTALL)
_SET_LETTERS: Final = frozenset("abefhnuvxBCET")
_READ_VALUES: Final = frozenset("-a -d -i -n -N -p -t -u".split())
_NOTHING: Final = Output()


def after(*worlds: World, output: Output = _NOTHING) -> Outcome:
    """Return the outcome of a command that may succeed or fail in these worlds."""
    return Outcome(worlds, worlds, output)


def _declare(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    for field in fields:
        assigned = _ASSIGNED.match(field.text)
        if field.kind == "exact" and re.match(r"[-+][A-Za-z]+\Z", field.text):
            if set(field.text) & set("in"):
                run.trace.doubt(field.source, "a variable that is evaluated when it is used", unbounded=True)
        elif assigned:
            known = field.kind == "exact" and not assigned[2]
            value: Value = assigned[3] if known else Mystery("any", "", f"${assigned[1]}")
            if is_steering(assigned[1]):
                run.trace.doubt(
                    field.source, f"{assigned[1]} changes what programs run, load or contact", unbounded=True
                )
            run.trace.add(Effect("setenv", assigned[1], field.source))
            world = world.with_variable(assigned[1], value)
        elif field.kind != "exact" or not NAME.match(field.text):
            run.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
    return after(world)


def _unset(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    functions = dict(world.functions)
    for field in fields:
        if field.kind != "exact" or not (NAME.match(field.text) or field.text in ("-f", "-v")):
            run.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
        functions.pop(field.text, None)
        world = world.with_variable(field.text, Mystery("any", "", f"${field.text}"))
    return after(world._replace(functions=functions))


def _read(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    value: Value = Mystery("any", "", "read")
    given = world.stdin
    if given is not None and len(given.below) == 1 and run.is_plain(given):
        value = Mystery("below", given.below[0], "read")
    skip, names = False, 0
    for field in fields:
        if skip:
            skip = False
            if field.kind != "exact":
                run.trace.doubt(field.source, "an option of read that is not known before it runs")
        elif field.kind == "exact" and field.text.startswith("-"):
            skip = field.text in _READ_VALUES or (field.text[-1:] in "adinNptu" and field.text[2:] != "")
        elif field.kind != "exact" or not NAME.match(field.text) or is_steering(field.text):
            run.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
        else:
            names += 1
            world = world.with_variable(field.text, value if names == 1 else Mystery("any", "", "read"))
    if names > 1:
        for field in fields:
            if NAME.match(field.text):
                world = world.with_variable(field.text, Mystery("any", "", "read"))
    return after(world)


def _set(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    ahead = list(fields)
    while ahead:
        field = ahead.pop(0)
        text = field.text
        if field.kind == "exact" and text == "--":
            return after(world._replace(arguments=tuple(as_value(each) for each in ahead)))
        if field.kind != "exact" or text[:1] not in ("-", "+") or not set(text[1:]) <= _SET_LETTERS | {"o"}:
            run.trace.doubt(field.source, "a setting of the shell that is not known here", unbounded=True)
            continue
        if "o" in text:
            word = ahead.pop(0) if ahead else Field("", "exact", "set")
            if word.text not in SHELL_SETTINGS:
                run.trace.doubt(word.source, "a setting of the shell that is not known here", unbounded=True)
            if word.text == "errexit":
                world = world._replace(strict=text.startswith("-"))
        if "e" in text:
            world = world._replace(strict=text.startswith("-"))
    return after(world)


def _shift(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    count = int(fields[0].text) if fields and fields[0].kind == "exact" and fields[0].text.isdigit() else 1
    known = world.arguments is not None and (not fields or (fields[0].kind == "exact" and not fields[0].text[3:]))
    shifted = world._replace(arguments=world.arguments[count:] if known and world.arguments is not None else None)
    # More than there are shifts nothing.
    return after(shifted, world)


def _let(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    for field in fields:
        if field.kind != "exact" or not re.fullmatch(r"[A-Za-z0-9_+*/%<>=!&|^~ ()-]*", field.text):
            run.trace.doubt(field.source, "arithmetic on a value that may hold commands", unbounded=True)
        for name in set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", field.text)):
            value = world.variables.get(name, "0")
            if (
                not (isinstance(value, str) and re.fullmatch(r"-?[0-9]*", value))
                and getattr(value, "kind", "") != "number"
            ):
                run.trace.doubt(name, "arithmetic on a value that may hold commands", unbounded=True)
            world = world.with_variable(name, Mystery("number", "", ""))
    return after(world)


def _printf(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if fields and (fields[0].kind == "unknown" or fields[0].text == "-v"):
        name = fields[1] if len(fields) > 1 else fields[0]
        if fields[0].text != "-v" or name.kind != "exact" or not NAME.match(name.text) or is_steering(name.text):
            run.trace.doubt(name.source, "a variable whose name is not known before it runs", unbounded=True)
        return after(world.with_variable(name.text, Mystery("any", "", "printf")))
    text = None
    if all(field.kind == "exact" for field in fields) and fields:
        form, rest = fields[0].text, [field.text for field in fields[1:]]
        if form in ("%s", "%s\\n", "%s\\0", "%s ") and rest:
            end = {"%s": "", "%s\\n": "\n", "%s\\0": "\0", "%s ": " "}[form]
            text = "".join(word + end for word in rest)
        elif "%" not in form and "\\" not in form.replace("\\n", "").replace("\\0", "") and not rest:
            text = form.replace("\\n", "\n").replace("\\0", "\0")
    return after(world, output=Output(text))


def _mapfile(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    for field in fields:
        if field.kind != "exact" or field.text.startswith(("-C", "-c")):
            run.trace.doubt(field.source, "this use of a builtin is not known here", unbounded=True)
        elif NAME.match(field.text):
            world = world.with_variable(field.text, Mystery("any", "", "mapfile"))
    return after(world)


def _getopts(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    for name in [*(field.text for field in fields[1:2]), "OPTARG", "OPTIND"]:
        world = world.with_variable(name, Mystery("any", "", "getopts"))
    for field in fields[:2]:
        if field.kind != "exact":
            run.trace.doubt(field.source, "this use of a builtin is not known here", unbounded=True)
    return after(world)


VARIABLE_BUILTINS: Final = {
    **dict.fromkeys(("export", "declare", "local", "readonly", "typeset"), _declare),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    "getopts": _getopts,
    "let": _let,
    "printf": _printf,
    "read": _read,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
}
