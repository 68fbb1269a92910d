"""What the commands that are built into bash do.

Each takes the run, the world and the words after its name, and returns the worlds after it. A builtin that is not here
is treated as a program that nobody knows.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from remit.policy.files import join, refuse_text, without_dots
from remit.policy.shell.downloads import place_of
from remit.policy.shell.processes import judge_kill
from remit.policy.shell.variables import NAME, VARIABLE_BUILTINS, after
from remit.policy.shell.world import Field, Mystery, Outcome, Output, Value, World

if TYPE_CHECKING:
    from remit.policy.shell.commands import Commands

    Builtin: TypeAlias = Callable[[Commands, World, Sequence[Field]], Outcome]

__all__ = ["BUILTINS"]

_FILE_TESTS: Final = frozenset("-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -G -L -N -O -S".split())
_PAIR_TESTS: Final = frozenset("-nt -ot -ef".split())
_NUMBER_TESTS: Final = frozenset("-eq -ne -lt -le -gt -ge".split())
# Limits of the shell that keep no ordinary command from running, and from which value on.
_HARMLESS_LIMITS: Final = {"c": 0, "m": 0, "n": 256, "s": 1024, "t": 10, "v": 1_000_000}
_HIDDEN_TOO: Final = "dotglob"
_SHOPT: Final = frozenset(("globstar", _HIDDEN_TOO))


def _nothing(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    """Words that are only text."""
    return after(world)


def _cd(run: "Commands", world: World, fields: Sequence[Field], *, prints: bool = False) -> Outcome:
    words = list(fields)
    while words and words[0].kind == "exact" and words[0].text in ("-L", "-P", "--"):
        words.pop(0)
    back = world.variables.get("OLDPWD")
    if len(words) == 1 and words[0].text == "-" and isinstance(back, str):
        words = [Field(back, "exact", "-")]
        prints = True
    if len(words) > 1 or any(field.kind == "exact" and field.text.startswith("-") for field in words):
        # `cd -` goes back to a place that other commands chose.
        run.trace.doubt(words[0].source, "the directory it changes to is not known before it runs")
        return _lost(run, world, words[0])
    if not words:
        words = [Field(run.trace.files.home or "~", "unknown" if "HOME" in world.variables else "exact", "cd")]
    target = words[0]
    if target.kind != "exact" or (world.cwd is None and not target.text.startswith("/")) or refuse_text(target.text):
        run.file("read", target, world.cwd)
        return _lost(run, world, target)
    run.file("read", target, world.cwd)
    path = join(world.cwd or "/", target.text)
    if run.changes.crosses(path, upwards=False) and not run.symbolic:
        return _lost(run, world)
    logical = without_dots(path)
    look = run.trace.files.look(path)
    if "CDPATH" in world.variables and not look.exists and target.text[:1] not in ("/", "."):
        run.trace.doubt(target.source, "CDPATH may lead it elsewhere")
    moved = world.with_variable("OLDPWD", world.cwd or Mystery("any", "", "$OLDPWD"))
    entered = [moved._replace(cwd=logical)]
    if run.trace.files.look(logical).path != look.path:
        entered.append(moved._replace(cwd=look.path))
    for place in entered:
        run.enter(place.cwd)
    certain = look.is_directory and not look.refusal and run.changes.is_certain(look.path)
    # Where it cannot print the directory or set these variables, it has moved all the same.
    moves = prints or "CDPATH" in world.variables or world.is_fixed("PWD") or world.is_fixed("OLDPWD")
    return Outcome(tuple(entered), (*(() if certain else (world,)), *(entered if moves else ())))


def _lost(run: "Commands", world: World, target: Field | None = None) -> Outcome:
    """The working directory is no longer known."""
    place = place_of(target, world.cwd) if run.symbolic and target is not None else None
    run.enter(place)
    return after(world.with_variable("OLDPWD", Mystery("any", "", "$OLDPWD"))._replace(cwd=place))


def _popd(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    return _lost(run, world)


def _pushd(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if not fields or fields[0].text[:1] in ("+", "-"):
        return _popd(run, world, fields)
    return _cd(run, world, fields, prints=True)


def _shopt(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    for field in fields:
        if field.kind != "exact" or not (field.text in ("-s", "-u", "-q", "-p") or field.text in _SHOPT):
            run.trace.doubt(field.source, "a setting of the shell that changes how commands are read", unbounded=True)
        run.trace.hidden |= field.text == _HIDDEN_TOO
    return after(world)


def _source(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    run.trace.launches.builtin("source", fields)
    if not fields or fields[0].kind != "exact" or fields[0].text.startswith(("/dev/", "-")) or world.cwd is None:
        program = run.changes.downloads.program_for_word(fields[0], world.cwd) or run.substituted if fields else ""
        if program:
            run.changes.run_download(fields[0].source, program, starts=False)
        run.trace.doubt(
            fields[0].source if fields else "source", "a script that is not known before it runs", unbounded=True
        )
        return after(world)
    name = fields[0]
    if "/" not in name.text and not run.trace.files.look(f"{world.cwd}/{name.text}").exists:
        run.trace.doubt(name.source, "a script that is looked for in PATH", unbounded=True)
    look = run.file("read", name, world.cwd)
    if look is not None:
        run.changes.run(look.path, name.source)
    run.note_code()
    variables: dict[str, Value] = {each: Mystery("any", "", f"${each}") for each in (*world.variables, "CDPATH")}
    return after(world._replace(variables=variables))


def _eval(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if any(field.kind != "exact" for field in fields):
        if run.substituted:
            run.changes.run_download("eval", run.substituted, starts=False)
        run.trace.doubt("eval", "a command that is not known before it runs", unbounded=True)
        return after(world)
    words = [field.text for field in fields]
    return run.nested(" ".join(words[1:] if words[:1] == ["--"] else words), world)


def _exec(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if fields and fields[0].text.startswith("-"):
        run.trace.doubt(fields[0].source, "an option of exec that is not known here", unbounded=True)
    return run.command(fields, world, functions=False)


def _command(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if fields and fields[0].kind == "exact" and fields[0].text in ("-v", "-V"):
        return after(world)
    rest = fields[1:] if fields and fields[0].text in ("--", "-p") else fields
    return run.command(rest, world, functions=False)


def _trap(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    words = [field for field in fields if field.text != "--"]
    if not words or (words[0].text in ("-", "", "-p", "-l") and words[0].kind == "exact"):
        return after(world)
    signals = {word.text.upper().removeprefix("SIG") if word.kind == "exact" else "" for word in words[1:]}
    if words[0].kind != "exact" or signals & {"", "DEBUG", "RETURN", "ERR"}:
        run.trace.doubt(words[0].source, "a command that runs at any time", unbounded=True)
    else:
        # It runs later, when other commands have changed what is known now.
        run.trap(words[0].text, world, anytime=not signals <= {"EXIT", "0"})
    return after(world)


def _alias(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if any("=" in field.text or field.kind != "exact" for field in fields):
        run.trace.doubt(fields[0].source, "a new meaning for a command name", unbounded=True)
    return after(world)


def _refuse_words(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if fields:
        run.trace.doubt(fields[0].source, "this use of a builtin is not known here", unbounded=True)
    return after(world)


def _exit(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    number = len(fields) == 1 and fields[0].numbered and fields[0].text == "*" and "IFS" not in world.variables
    plain = len(fields) == 1 and fields[0].kind == "exact" and fields[0].text.isdigit()
    return Outcome((), ()) if not fields or number or plain else after(world)


def _leave(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    """`return`, `break` and `continue`: what follows may run or not."""
    run.leave(world)
    return after(world)


def _flagged(letters: str) -> "Builtin":
    """Return a builtin whose words are job numbers, names and these options, and that changes nothing."""
    known = re.compile(rf"-[{letters}]+\Z|[A-Za-z0-9_%+.-]*\Z")

    def builtin(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
        for field in fields:
            number = field.numbered and field.text == "*"
            exact = field.kind == "exact" and known.match(field.text) and not _refuses(field.text, letters)
            if not (number or exact):
                reason = "this use of a builtin is not known here"
                run.trace.doubt(field.source, reason, unbounded=True, starts=False)
        return after(world)

    return builtin


_report_limits: Final = _flagged("SHabcdefiklmnpqrstuvxPRT")


def _ulimit(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    """Doubt limits under which a command may fail that would not fail otherwise: what it prints is not known then."""
    resource = "f"
    for field in fields:
        letters = field.text[1:].strip("SH") if field.text.startswith("-") else ""
        resource = letters or resource
        enough = field.text.isdigit() and all(
            letter in _HARMLESS_LIMITS and int(field.text[:18]) >= _HARMLESS_LIMITS[letter] for letter in resource
        )
        if not (enough or field.text.isalpha() or field.text.startswith("-")):
            run.trace.doubt(field.source, "a limit under which commands may fail", unbounded=True, starts=False)
    return _report_limits(run, world, fields)


def _refuses(text: str, letters: str) -> bool:
    return text.startswith("-") and not set(text[1:]) <= set(letters)


def _echo(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    plain = all(field.kind == "exact" for field in fields) and not (fields and fields[0].text.startswith("-"))
    # Other shells read escapes in what they print.
    plain = plain and not (world.posix and any("\\" in field.text for field in fields))
    text = " ".join(field.text for field in fields) + "\n" if plain else None
    return after(world, output=Output(text))


def _pwd(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    if fields:
        return after(world)
    return after(world, output=Output(f"{world.cwd}\n" if world.cwd is not None else None))


def _hash(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    return _refuse_words(run, world, [field for field in fields if field.text != "-r" or field.kind != "exact"])


def _test(run: "Commands", world: World, fields: Sequence[Field], *, evaluates: bool = False) -> Outcome:
    """Note the files whose state is looked at. `[[` evaluates what it compares as numbers."""
    for index, field in enumerate(fields):
        following = fields[index + 1] if index + 1 < len(fields) else None
        if field.kind == "unknown" and field.splits and not evaluates:
            run.trace.doubt(field.source, "it may come to a test of a file")
        if field.kind == "unknown" and "-v".startswith(field.text) and following is not None and "[" in following.text:
            run.trace.doubt(field.source, "it may be a test that evaluates what follows", unbounded=True)
        if field.kind != "exact" or following is None:
            continue
        if field.text in _FILE_TESTS and following.text not in ("=", "==", "!=", "-a", "-o", "]"):
            run.file("read", following, world.cwd)
        elif field.text in _PAIR_TESTS and index:
            run.file("read", fields[index - 1], world.cwd)
            run.file("read", following, world.cwd)
        elif field.text in ("-v", "-R") and not (following.kind == "exact" and NAME.match(following.text)):
            run.trace.doubt(following.source, "a variable whose name is not known before it runs", unbounded=True)
        elif field.text in _NUMBER_TESTS and evaluates and index:
            _check_numbers(run, world, (fields[index - 1], following))
    return after(world)


def _check_numbers(run: "Commands", world: World, fields: Sequence[Field]) -> None:
    for field in fields:
        plain = field.kind == "exact" and re.fullmatch(r"-?[0-9]*", field.text)
        value: Any = world.variables.get(field.text) if field.kind == "exact" else None
        known = isinstance(value, str) and re.fullmatch(r"-?[0-9]*", value)
        if not (plain or known or (field.kind == "pattern" and set(field.text) <= set("*"))):
            run.trace.doubt(field.source, "arithmetic on a value that may hold commands", unbounded=True)


def _condition(run: "Commands", world: World, fields: Sequence[Field]) -> Outcome:
    return _test(run, world, fields, evaluates=True)


_QUIET: Final = (":", "true", "false", "help", "unalias", "type")
BUILTINS: Final[dict[str, "Builtin"]] = {
    **VARIABLE_BUILTINS,
    **dict.fromkeys(_QUIET, _nothing),
    **dict.fromkeys(("break", "continue", "return"), _leave),
    **dict.fromkeys(("fg", "bg", "times", "suspend", "logout", "caller", "umask"), _flagged("S")),
    "dirs": _flagged("lpv"),
    "disown": _flagged("ahr"),
    "jobs": _flagged("lnprs"),
    "ulimit": _ulimit,
    "wait": _flagged("fn"),
    **dict.fromkeys(("source", "."), _source),
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
    "hash": _hash,
    "kill": judge_kill,
    "popd": _popd,
    "pushd": _pushd,
    "pwd": _pwd,
    "shopt": _shopt,
    "trap": _trap,
}
