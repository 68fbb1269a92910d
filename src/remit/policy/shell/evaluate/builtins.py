"""The builtins of bash.

Each function takes the evaluator, the state and the words after the name, and returns the outcome. A builtin that is
not here is treated as an unknown program.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from remit.policy.field import Field
from remit.policy.files import join, refuse_text, without_dots
from remit.policy.shell.evaluate.context import Builtin, Evaluator
from remit.policy.shell.evaluate.downloads import place_of
from remit.policy.shell.evaluate.processes import judge_kill
from remit.policy.shell.evaluate.settings import NAME
from remit.policy.shell.evaluate.state import Outcome, Output, ShellState, Unknown, Value
from remit.policy.shell.evaluate.variables import VARIABLE_BUILTINS, outcome_of

_FILE_TESTS: Final = frozenset("-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -G -L -N -O -S".split())
_PAIR_TESTS: Final = frozenset("-nt -ot -ef".split())
_NUMBER_TESTS: Final = frozenset("-eq -ne -lt -le -gt -ge".split())
# Limits that no ordinary command reaches, with the smallest harmless value.
_HARMLESS_LIMITS: Final = {"c": 0, "m": 0, "n": 256, "s": 1024, "t": 10, "v": 1_000_000}
_HIDDEN_TOO: Final = "dotglob"
_SHOPT: Final = frozenset(("globstar", _HIDDEN_TOO))


def _nothing(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    """A builtin whose words are only text."""
    return outcome_of(state)


def _cd(evaluator: Evaluator, state: ShellState, fields: Sequence[Field], *, prints: bool = False) -> Outcome:
    words = list(fields)
    while words and words[0].kind == "exact" and words[0].text in ("-L", "-P", "--"):
        words.pop(0)
    back = state.variables.get("OLDPWD")
    if len(words) == 1 and words[0].text == "-" and isinstance(back, str):
        words = [Field(back, "exact", "-")]
        prints = True
    if len(words) > 1 or any(field.kind == "exact" and field.text.startswith("-") for field in words):
        # `cd -` goes to a directory that other commands have chosen.
        evaluator.trace.doubt(words[0].source, "the directory it changes to is not known before it runs")
        return _lose_cwd(evaluator, state, words[0])
    if not words:
        words = [Field(evaluator.trace.files.home or "~", "unknown" if "HOME" in state.variables else "exact", "cd")]
    target = words[0]
    if target.kind != "exact" or (state.cwd is None and not target.text.startswith("/")) or refuse_text(target.text):
        evaluator.file("read", target, state.cwd)
        return _lose_cwd(evaluator, state, target)
    evaluator.file("read", target, state.cwd)
    path = join(state.cwd or "/", target.text)
    if evaluator.changes.crosses(path, upwards=False) and not evaluator.symbolic:
        return _lose_cwd(evaluator, state)
    logical = without_dots(path)
    resolved = evaluator.trace.files.resolve(path)
    if "CDPATH" in state.variables and not resolved.exists and target.text[:1] not in ("/", "."):
        evaluator.trace.doubt(target.source, "CDPATH may lead it elsewhere")
    moved = state.with_variable("OLDPWD", state.cwd or Unknown("any", "", "$OLDPWD"))
    entered = [moved._replace(cwd=logical)]
    if evaluator.trace.files.resolve(logical).path != resolved.path:
        entered.append(moved._replace(cwd=resolved.path))
    for place in entered:
        evaluator.enter(place.cwd)
    certain = resolved.is_directory and not resolved.refusal and evaluator.changes.is_certain(resolved.path)
    # The directory changes even if it cannot be printed or stored in these variables.
    moves = prints or "CDPATH" in state.variables or state.is_fixed("PWD") or state.is_fixed("OLDPWD")
    return Outcome(tuple(entered), (*(() if certain else (state,)), *(entered if moves else ())))


def _lose_cwd(evaluator: Evaluator, state: ShellState, target: Field | None = None) -> Outcome:
    """Return the outcome with an unknown working directory."""
    place = place_of(target, state.cwd) if evaluator.symbolic and target is not None else None
    evaluator.enter(place)
    return outcome_of(state.with_variable("OLDPWD", Unknown("any", "", "$OLDPWD"))._replace(cwd=place))


def _popd(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    return _lose_cwd(evaluator, state)


def _pushd(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if not fields or fields[0].text[:1] in ("+", "-"):
        return _popd(evaluator, state, fields)
    return _cd(evaluator, state, fields, prints=True)


def _shopt(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    for field in fields:
        if field.kind != "exact" or not (field.text in ("-s", "-u", "-q", "-p") or field.text in _SHOPT):
            evaluator.trace.doubt(
                field.source, "a setting of the shell that changes how commands are read", unbounded=True
            )
        evaluator.trace.hidden |= field.text == _HIDDEN_TOO
    return outcome_of(state)


def _source(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    evaluator.trace.spawned.builtin("source", fields)
    if not fields or fields[0].kind != "exact" or fields[0].text.startswith(("/dev/", "-")) or state.cwd is None:
        program = (
            evaluator.changes.downloads.program_for_word(fields[0], state.cwd) or evaluator.substituted
            if fields
            else ""
        )
        if program:
            evaluator.changes.run_download(fields[0].source, program, starts=False)
        evaluator.trace.doubt(
            fields[0].source if fields else "source", "a script that is not known before it runs", unbounded=True
        )
        return outcome_of(state)
    name = fields[0]
    if "/" not in name.text and not evaluator.trace.files.resolve(f"{state.cwd}/{name.text}").exists:
        evaluator.trace.doubt(name.source, "a script that is looked for in PATH", unbounded=True)
    resolved = evaluator.file("read", name, state.cwd)
    if resolved is not None:
        evaluator.changes.run(resolved.path, name.source)
    evaluator.record_code()
    variables: dict[str, Value] = {each: Unknown("any", "", f"${each}") for each in (*state.variables, "CDPATH")}
    return outcome_of(state._replace(variables=variables))


def _eval(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if any(field.kind != "exact" for field in fields):
        if evaluator.substituted:
            evaluator.changes.run_download("eval", evaluator.substituted, starts=False)
        evaluator.trace.doubt("eval", "a command that is not known before it runs", unbounded=True)
        return outcome_of(state)
    words = [field.text for field in fields]
    return evaluator.evaluate_nested(" ".join(words[1:] if words[:1] == ["--"] else words), state)


def _exec(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if fields and fields[0].text.startswith("-"):
        evaluator.trace.doubt(fields[0].source, "an option of exec that is not known here", unbounded=True)
    return evaluator.command(fields, state, functions=False)


def _command(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if fields and fields[0].kind == "exact" and fields[0].text in ("-v", "-V"):
        return outcome_of(state)
    rest = fields[1:] if fields and fields[0].text in ("--", "-p") else fields
    return evaluator.command(rest, state, functions=False)


def _trap(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    words = [field for field in fields if field.text != "--"]
    if not words or (words[0].text in ("-", "", "-p", "-l") and words[0].kind == "exact"):
        return outcome_of(state)
    signals = {word.text.upper().removeprefix("SIG") if word.kind == "exact" else "" for word in words[1:]}
    if words[0].kind != "exact" or signals & {"", "DEBUG", "RETURN", "ERR"}:
        evaluator.trace.doubt(words[0].source, "a command that runs at any time", unbounded=True)
    else:
        # It runs later, when the state may be another one.
        evaluator.trap(words[0].text, state, anytime=not signals <= {"EXIT", "0"})
    return outcome_of(state)


def _alias(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if any("=" in field.text or field.kind != "exact" for field in fields):
        evaluator.trace.doubt(fields[0].source, "a new meaning for a command name", unbounded=True)
    return outcome_of(state)


def _refuse_words(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if fields:
        evaluator.trace.doubt(fields[0].source, "this use of a builtin is not known here", unbounded=True)
    return outcome_of(state)


def _exit(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    number = len(fields) == 1 and fields[0].numbered and fields[0].text == "*" and "IFS" not in state.variables
    plain = len(fields) == 1 and fields[0].kind == "exact" and fields[0].text.isdigit()
    return Outcome((), ()) if not fields or number or plain else outcome_of(state)


def _leave(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    """`return`, `break` and `continue`: later commands may or may not run."""
    evaluator.leave(state)
    return outcome_of(state)


def _make_flag_builtin(letters: str) -> "Builtin":
    """Return a builtin that changes nothing and takes job numbers, names and these options."""
    known = re.compile(rf"-[{letters}]+\Z|[A-Za-z0-9_%+.-]*\Z")

    def builtin(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
        for field in fields:
            number = field.numbered and field.text == "*"
            exact = field.kind == "exact" and known.match(field.text) and not _refuses(field.text, letters)
            if not (number or exact):
                reason = "this use of a builtin is not known here"
                evaluator.trace.doubt(field.source, reason, unbounded=True, starts=False)
        return outcome_of(state)

    return builtin


_report_limits: Final = _make_flag_builtin("SHabcdefiklmnpqrstuvxPRT")


def _ulimit(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    """Record a doubt about limits that make later commands fail, because their output is then not known."""
    resource = "f"
    for field in fields:
        letters = field.text[1:].strip("SH") if field.text.startswith("-") else ""
        resource = letters or resource
        enough = field.text.isdigit() and all(
            letter in _HARMLESS_LIMITS and int(field.text[:18]) >= _HARMLESS_LIMITS[letter] for letter in resource
        )
        if not (enough or field.text.isalpha() or field.text.startswith("-")):
            evaluator.trace.doubt(field.source, "a limit under which commands may fail", unbounded=True, starts=False)
    return _report_limits(evaluator, state, fields)


def _refuses(text: str, letters: str) -> bool:
    return text.startswith("-") and not set(text[1:]) <= set(letters)


def _echo(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    plain = all(field.kind == "exact" for field in fields) and not (fields and fields[0].text.startswith("-"))
    # Other shells interpret escapes in the output.
    plain = plain and not (state.posix and any("\\" in field.text for field in fields))
    text = " ".join(field.text for field in fields) + "\n" if plain else None
    return outcome_of(state, output=Output(text))


def _pwd(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    if fields:
        return outcome_of(state)
    return outcome_of(state, output=Output(f"{state.cwd}\n" if state.cwd is not None else None))


def _hash(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    return _refuse_words(evaluator, state, [field for field in fields if field.text != "-r" or field.kind != "exact"])


def _test(evaluator: Evaluator, state: ShellState, fields: Sequence[Field], *, evaluates: bool = False) -> Outcome:
    """Record the files that are tested. `[[` evaluates numbers as arithmetic."""
    for index, field in enumerate(fields):
        following = fields[index + 1] if index + 1 < len(fields) else None
        if field.kind == "unknown" and field.splits and not evaluates:
            evaluator.trace.doubt(field.source, "it may expand to a file test")
        if field.kind == "unknown" and "-v".startswith(field.text) and following is not None and "[" in following.text:
            evaluator.trace.doubt(field.source, "it may be a test that evaluates what follows", unbounded=True)
        if field.kind != "exact" or following is None:
            continue
        if field.text in _FILE_TESTS and following.text not in ("=", "==", "!=", "-a", "-o", "]"):
            evaluator.file("read", following, state.cwd)
        elif field.text in _PAIR_TESTS and index:
            evaluator.file("read", fields[index - 1], state.cwd)
            evaluator.file("read", following, state.cwd)
        elif field.text in ("-v", "-R") and not (following.kind == "exact" and NAME.match(following.text)):
            evaluator.trace.doubt(following.source, "a variable whose name is not known before it runs", unbounded=True)
        elif field.text in _NUMBER_TESTS and evaluates and index:
            _check_numbers(evaluator, state, (fields[index - 1], following))
    return outcome_of(state)


def _check_numbers(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> None:
    for field in fields:
        plain = field.kind == "exact" and re.fullmatch(r"-?[0-9]*", field.text)
        value: Any = state.variables.get(field.text) if field.kind == "exact" else None
        known = isinstance(value, str) and re.fullmatch(r"-?[0-9]*", value)
        if not (plain or known or (field.kind == "pattern" and set(field.text) <= set("*"))):
            evaluator.trace.doubt(field.source, "arithmetic on a value that may hold commands", unbounded=True)


def _condition(evaluator: Evaluator, state: ShellState, fields: Sequence[Field]) -> Outcome:
    return _test(evaluator, state, fields, evaluates=True)


_QUIET: Final = (":", "true", "false", "help", "unalias", "type")
BUILTINS: Final[dict[str, "Builtin"]] = {
    **VARIABLE_BUILTINS,
    **dict.fromkeys(_QUIET, _nothing),
    **dict.fromkeys(("break", "continue", "return"), _leave),
    **dict.fromkeys(("fg", "bg", "times", "suspend", "logout", "caller", "umask"), _make_flag_builtin("S")),
    "dirs": _make_flag_builtin("lpv"),
    "disown": _make_flag_builtin("ahr"),
    "jobs": _make_flag_builtin("lnprs"),
    "ulimit": _ulimit,
    "wait": _make_flag_builtin("fn"),
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
