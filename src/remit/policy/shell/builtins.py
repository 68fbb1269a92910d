"""What the commands that are built into bash do.

Each takes the run, the world and the words after its name, and returns the worlds after it. A builtin that is not here
is treated as a program that nobody knows.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from remit.policy.call import Effect
from remit.policy.paths import join, refuse_text
from remit.policy.shell.environment import is_steering
from remit.policy.shell.world import Field, Mystery, Output, Value, World, as_value

if TYPE_CHECKING:
    from remit.policy.shell.run import Outcome, Run

    Builtin: TypeAlias = Callable[[Run, World, Sequence[Field]], Outcome]

__all__ = ["BUILTINS", "SHELL_SETTINGS"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)\Z", re.DOTALL)
_FILE_TESTS: Final = frozenset("-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -G -L -N -O -S".split())
_PAIR_TESTS: Final = frozenset("-nt -ot -ef".split())
_NUMBER_TESTS: Final = frozenset("-eq -ne -lt -le -gt -ge".split())
_SET_LETTERS: Final = frozenset("abefhnuvxBCET")
SHELL_SETTINGS: Final = frozenset("errexit nounset pipefail xtrace verbose noclobber noglob".split())
_SHOPT: Final = frozenset("nullglob globstar dotglob failglob".split())
_READ_VALUES: Final = frozenset("-a -d -i -n -N -p -t -u".split())


def _outcome(run: "Run", *worlds: World, output: Output = Output()) -> "Outcome":  # noqa: B008 - a constant
    return run.outcome(worlds, worlds, output)


def _nothing(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    """Words that are only text."""
    return _outcome(run, world)


def _cd(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    words = [field for field in fields if field.text not in ("-L", "-P", "-e", "-@", "--") or field.kind != "exact"]
    back = world.variables.get("OLDPWD")
    if len(words) == 1 and words[0].text == "-" and isinstance(back, str):
        words = [Field(back, "exact", "-")]
    if len(words) > 1 or any(field.kind == "exact" and field.text.startswith("-") for field in words):
        # `cd -` goes back to a place that other commands chose.
        run.trace.doubt(words[0].source, "the directory it changes to is not known before it runs")
        return _lost(run, world)
    if not words:
        words = [Field(run.trace.files.home or "~", "exact", "cd")]
    target = words[0]
    if target.kind != "exact" or (world.cwd is None and not target.text.startswith("/")) or refuse_text(target.text):
        run.file("read", target, world.cwd)
        return _lost(run, world)
    run.file("read", target, world.cwd)
    path = join(world.cwd or "/", target.text)
    if run.crosses(path, upwards=False):
        return _lost(run, world)
    logical = _without_dots(path)
    look = run.trace.files.look(path)
    if "CDPATH" in world.variables and not look.exists and target.text[:1] not in ("/", "."):
        run.trace.doubt(target.source, "CDPATH may lead it elsewhere")
    moved = world.with_variable("OLDPWD", world.cwd or Mystery("any", "", "$OLDPWD"))
    entered = [moved._replace(cwd=logical)]
    if run.trace.files.look(logical).path != look.path:
        entered.append(moved._replace(cwd=look.path))
    for place in entered:
        run.enter(place.cwd)
    failed = () if look.exists and look.is_directory and not look.refusal else (world,)
    return run.outcome(tuple(entered), failed, Output())


def _without_dots(path: str) -> str:
    kept: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del kept[-1:]
        elif name not in ("", "."):
            kept.append(name)
    return "/" + "/".join(kept)


def _lost(run: "Run", world: World) -> "Outcome":
    """The working directory is no longer known."""
    run.enter(None)
    return _outcome(run, world.with_variable("OLDPWD", Mystery("any", "", "$OLDPWD"))._replace(cwd=None))


def _popd(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    return _lost(run, world)


def _shift(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    count = int(fields[0].text) if fields and fields[0].kind == "exact" and fields[0].text.isdigit() else 1
    known = world.arguments is not None and (not fields or (fields[0].kind == "exact" and len(fields[0].text) < 4))
    after = world._replace(arguments=world.arguments[count:] if known and world.arguments is not None else None)
    # More than there are shifts nothing.
    return _outcome(run, after, world)


def _pushd(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if not fields or fields[0].text[:1] in ("+", "-"):
        return _popd(run, world, fields)
    return _cd(run, world, fields)


def _declare(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    for field in fields:
        assigned = _ASSIGNED.match(field.text)
        if field.kind == "exact" and re.match(r"[-+][A-Za-z]+\Z", field.text):
            if set(field.text) & set("in"):
                run.trace.doubt(field.source, "a variable that is evaluated when it is used", unbounded=True)
        elif assigned:
            known = field.kind == "exact" and not assigned[2]
            value: Value = assigned[3] if known else Mystery("any", "", f"${assigned[1]}")
            if is_steering(assigned[1]):
                run.trace.doubt(field.source, f"{assigned[1]} changes what programs run, load or contact", unbounded=True)
            run.trace.add(Effect("setenv", assigned[1], field.source))
            world = world.with_variable(assigned[1], value)
        elif field.kind != "exact" or not _NAME.match(field.text):
            run.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
    return _outcome(run, world)


def _unset(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    functions = dict(world.functions)
    for field in fields:
        if field.kind != "exact" or not (_NAME.match(field.text) or field.text in ("-f", "-v")):
            run.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
        functions.pop(field.text, None)
        world = world.with_variable(field.text, Mystery("any", "", f"${field.text}"))
    return _outcome(run, world._replace(functions=functions))


def _read(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
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
            skip = field.text in _READ_VALUES or (field.text[-1:] in "adinNptu" and len(field.text) > 2)
        elif field.kind != "exact" or not _NAME.match(field.text) or is_steering(field.text):
            run.trace.doubt(field.source, "a variable whose name is not known before it runs", unbounded=True)
        else:
            names += 1
            world = world.with_variable(field.text, value if names == 1 else Mystery("any", "", "read"))
    if names > 1:
        for field in fields:
            if _NAME.match(field.text):
                world = world.with_variable(field.text, Mystery("any", "", "read"))
    return _outcome(run, world)


def _set(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    ahead = list(fields)
    while ahead:
        field = ahead.pop(0)
        text = field.text
        if field.kind == "exact" and text == "--":
            return _outcome(run, world._replace(arguments=tuple(as_value(each) for each in ahead)))
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
    return _outcome(run, world)


def _shopt(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    for field in fields:
        if field.kind != "exact" or not (field.text in ("-s", "-u", "-q", "-p") or field.text in _SHOPT):
            run.trace.doubt(field.source, "a setting of the shell that changes how commands are read", unbounded=True)
    return _outcome(run, world)


def _source(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if not fields or fields[0].kind != "exact" or fields[0].text.startswith(("/dev/", "-")) or world.cwd is None:
        run.trace.doubt(fields[0].source if fields else "source", "a script that is not known before it runs", unbounded=True)
        return _outcome(run, world)
    name = fields[0]
    if "/" not in name.text and not run.trace.files.look(f"{world.cwd}/{name.text}").exists:
        run.trace.doubt(name.source, "a script that is looked for in PATH", unbounded=True)
    look = run.file("read", name, world.cwd)
    if look is not None:
        run.check_not_written(look.path, name.source)
    run.note_code()
    variables: dict[str, Value] = {each: Mystery("any", "", f"${each}") for each in (*world.variables, "CDPATH")}
    return _outcome(run, world._replace(variables=variables))


def _eval(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if any(field.kind != "exact" for field in fields):
        run.trace.doubt("eval", "a command that is not known before it runs", unbounded=True)
        return _outcome(run, world)
    return run.nested(" ".join(field.text for field in fields), world)


def _exec(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if fields and fields[0].text.startswith("-"):
        run.trace.doubt(fields[0].source, "an option of exec that is not known here", unbounded=True)
    return run.command(fields, world, functions=False)


def _command(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if fields and fields[0].kind == "exact" and fields[0].text in ("-v", "-V"):
        return _outcome(run, world)
    rest = fields[1:] if fields and fields[0].text in ("--", "-p") else fields
    return run.command(rest, world, functions=False)


def _trap(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    words = [field for field in fields if field.text != "--"]
    if not words or words[0].text in ("-", "", "-p", "-l") and words[0].kind == "exact":
        return _outcome(run, world)
    if words[0].kind != "exact" or any(word.text in ("DEBUG", "RETURN", "ERR") for word in words):
        run.trace.doubt(words[0].source, "a command that runs at any time", unbounded=True)
    else:
        # It runs later, when other commands have changed what is known now.
        run.trap(words[0].text)
    return _outcome(run, world)


def _alias(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if any("=" in field.text or field.kind != "exact" for field in fields):
        run.trace.doubt(fields[0].source, "a new meaning for a command name", unbounded=True)
    return _outcome(run, world)


def _refuse_words(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if fields:
        run.trace.doubt(fields[0].source, "this use of a builtin is not known here", unbounded=True)
    return _outcome(run, world)


def _let(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    for field in fields:
        if field.kind != "exact" or not re.fullmatch(r"[A-Za-z0-9_+*/%<>=!&|^~ ()-]*", field.text):
            run.trace.doubt(field.source, "arithmetic on a value that may hold commands", unbounded=True)
        for name in set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", field.text)):
            value = world.variables.get(name, "0")
            if not (isinstance(value, str) and re.fullmatch(r"-?[0-9]*", value)) and getattr(value, "kind", "") != "number":
                run.trace.doubt(name, "arithmetic on a value that may hold commands", unbounded=True)
            world = world.with_variable(name, Mystery("number", "", ""))
    return _outcome(run, world)


def _exit(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if len(fields) > 1:
        return _outcome(run, world)
    return run.outcome((), (), Output())


def _echo(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    plain = all(field.kind == "exact" for field in fields) and not (fields and fields[0].text.startswith("-"))
    text = " ".join(field.text for field in fields) + "\n" if plain else None
    return _outcome(run, world, output=Output(text))


def _printf(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    if fields and (fields[0].kind == "unknown" or fields[0].text == "-v"):
        name = fields[1] if len(fields) > 1 else fields[0]
        if fields[0].text != "-v" or name.kind != "exact" or not _NAME.match(name.text) or is_steering(name.text):
            run.trace.doubt(name.source, "a variable whose name is not known before it runs", unbounded=True)
        return _outcome(run, world.with_variable(name.text, Mystery("any", "", "printf")))
    text = None
    if all(field.kind == "exact" for field in fields) and fields:
        form, rest = fields[0].text, [field.text for field in fields[1:]]
        if form in ("%s", "%s\\n", "%s\\0", "%s ") and rest:
            end = {"%s": "", "%s\\n": "\n", "%s\\0": "\0", "%s ": " "}[form]
            text = "".join(word + end for word in rest)
        elif "%" not in form and "\\" not in form.replace("\\n", "").replace("\\0", "") and not rest:
            text = form.replace("\\n", "\n").replace("\\0", "\0")
    return _outcome(run, world, output=Output(text))


def _pwd(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    return _outcome(run, world, output=Output(f"{world.cwd}\n" if world.cwd is not None else None))


def _kill(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    run.side("state_change")
    return _outcome(run, world)


def _hash(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    return _refuse_words(run, world, [field for field in fields if field.text != "-r" or field.kind != "exact"])


def _mapfile(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    for field in fields:
        if field.kind != "exact" or field.text.startswith(("-C", "-c")):
            run.trace.doubt(field.source, "this use of a builtin is not known here", unbounded=True)
        elif _NAME.match(field.text):
            world = world.with_variable(field.text, Mystery("any", "", "mapfile"))
    return _outcome(run, world)


def _getopts(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    for name in [*(field.text for field in fields[1:2]), "OPTARG", "OPTIND"]:
        world = world.with_variable(name, Mystery("any", "", "getopts"))
    return _refuse_words(run, world, [field for field in fields[:2] if field.kind != "exact"])


def _test(run: "Run", world: World, fields: Sequence[Field], *, evaluates: bool = False) -> "Outcome":
    """Note the files whose state is looked at. `[[` evaluates what it compares as numbers."""
    for index, field in enumerate(fields):
        following = fields[index + 1] if index + 1 < len(fields) else None
        if field.kind == "unknown" and not field.source.startswith('"') and not evaluates:
            run.trace.doubt(field.source, "it may come to a test of a file")
        if field.kind != "exact" or following is None:
            continue
        if field.text in _FILE_TESTS and following.text not in ("=", "==", "!=", "-a", "-o", "]"):
            run.file("read", following, world.cwd)
        elif field.text in _PAIR_TESTS and index:
            run.file("read", fields[index - 1], world.cwd)
            run.file("read", following, world.cwd)
        elif field.text in ("-v", "-R") and not (following.kind == "exact" and _NAME.match(following.text)):
            run.trace.doubt(following.source, "a variable whose name is not known before it runs", unbounded=True)
        elif field.text in _NUMBER_TESTS and evaluates and index:
            _check_numbers(run, world, (fields[index - 1], following))
    return _outcome(run, world)


def _check_numbers(run: "Run", world: World, fields: Sequence[Field]) -> None:
    for field in fields:
        plain = field.kind == "exact" and re.fullmatch(r"-?[0-9]*", field.text)
        value: Any = world.variables.get(field.text) if field.kind == "exact" else None
        known = isinstance(value, str) and re.fullmatch(r"-?[0-9]*", value)
        if not (plain or known or (field.kind == "pattern" and set(field.text) <= set("*"))):
            run.trace.doubt(field.source, "arithmetic on a value that may hold commands", unbounded=True)


def _condition(run: "Run", world: World, fields: Sequence[Field]) -> "Outcome":
    return _test(run, world, fields, evaluates=True)


_QUIET: Final = (
    ":", "true", "false", "break", "continue", "return", "wait", "jobs", "fg", "bg", "disown", "dirs", "type",
    "umask", "ulimit", "times", "help", "unalias", "suspend", "logout", "caller",
)  # fmt: skip
BUILTINS: Final[dict[str, "Builtin"]] = {
    **dict.fromkeys(_QUIET, _nothing),
    **dict.fromkeys(("export", "declare", "local", "readonly", "typeset"), _declare),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(("history", "enable", "bind", "complete", "compgen", "compopt", "fc"), _refuse_words),
    **dict.fromkeys(("test", "["), _test),
    **dict.fromkeys(("command", "builtin"), _command),
    "[[": _condition,
    "alias": _alias,
    "cd": _cd,
    "echo": _echo,
    "eval": _eval,
    "exec": _exec,
    "exit": _exit,
    "getopts": _getopts,
    "hash": _hash,
    "kill": _kill,
    "let": _let,
    "popd": _popd,
    "printf": _printf,
    "pushd": _pushd,
    "pwd": _pwd,
    "read": _read,
    "set": _set,
    "shift": _shift,
    "shopt": _shopt,
    "trap": _trap,
    "unset": _unset,
}
