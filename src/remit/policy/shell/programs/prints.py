"""The output of some programs, if it is known: for `$(…)`, loops and pipes.

A list of files below a known directory is as useful as the directory itself. The output of programs that are not here
is unknown.
"""

import re
from collections.abc import Callable
from typing import Final

from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.evaluate.state import Output
from remit.policy.shell.tables import Arguments

_NOTHING: Final = Output()
# Date formats whose output cannot be a path or an option.
_DATE: Final = re.compile(
    r"\+(?:%[YmdHMSsjyuVUWaAbBF]|[A-Za-z0-9_])(?:%[0^#]?[YmdHMSsjyNuVUWaAbBZzF]|[A-Za-z0-9_-])*\Z"
)
_DIGITS: Final = re.compile(r"\+(?:%[YmdHMSsjyNuVUW]|[0-9])+\Z")
# Options that keep lines whole.
_WHOLE_LINES: Final = {
    "cat": re.compile(r"(?!)"),
    "head": re.compile(r"-n|--lines|-[0-9]+"),
    "sort": re.compile(r"-[rnuVhf]+|--reverse|--unique|--numeric-sort"),
    "tac": re.compile(r"(?!)"),
    "tail": re.compile(r"-n|--lines|-[0-9]+"),
    "uniq": re.compile(r"-[udi]"),
}
_FILTERING: Final = frozenset(
    "-v -E -F -i -w -x -e --invert-match --extended-regexp --fixed-strings --ignore-case".split()
)


def _passed(invocation: ProgramCall, arguments: Arguments) -> Output:
    """Return whole lines of standard input, possibly fewer or in another order."""
    name = invocation.program.name
    known = all(_WHOLE_LINES[name].fullmatch(option) for option, _, _ in arguments.options)
    if arguments.operands or not known:
        return _NOTHING
    given = invocation.state.stdin or _NOTHING
    return given if name == "cat" else given._replace(text=None)


def _filtered(invocation: ProgramCall, arguments: Arguments) -> Output:
    names = {name for name, _, _ in arguments.options}
    if names & {"-l", "-L", "--files-with-matches", "--files-without-match"} and names & {"-r", "--recursive"}:
        start = 0 if names & {"-e", "-f", "--regexp", "--file"} else 1
        return _below(invocation, arguments, start, {"-Z", "--null"} & names)
    if len(arguments.operands) == 1 and names <= _FILTERING and invocation.state.stdin is not None:
        return invocation.state.stdin._replace(text=None)
    return _NOTHING


def _below(invocation: ProgramCall, arguments: Arguments, start: int, separated: object) -> Output:
    """Return regular files below the directories that the operands name."""
    directories: list[str] = []
    for field in arguments.operands[start:]:
        if field.kind != "exact" or invocation.cwd is None:
            return _NOTHING
        directories.append(
            invocation.trace.files.resolve(
                f"{invocation.cwd}/{field.text}" if field.text[:1] != "/" else field.text
            ).path
        )
    if not directories and invocation.cwd is not None:
        directories.append(invocation.cwd)
    bare = not arguments.operands[start:]
    return Output(None, tuple(directories), bool(separated), regular=True, cwd=invocation.cwd, bare=bare)


def _ripgrep(invocation: ProgramCall, arguments: Arguments) -> Output:
    names = {name for name, _, _ in arguments.options}
    listing = names & {"-l", "--files-with-matches", "--files-without-match"}
    if names & {"-L", "--follow"} or not (listing or "--files" in names):
        return _NOTHING
    start = 0 if "--files" in names or names & {"-e", "--regexp", "-f", "--file"} else 1
    return _below(invocation, arguments, start, names & {"-0", "--null"})


def _git_files(invocation: ProgramCall, arguments: Arguments) -> Output:
    if invocation.cwd is None or arguments.has(
        ("-s", "--stage", "-t", "-v", "-f", "--format", "--full-name", "-u", "--unmerged")
    ):
        return _NOTHING
    return Output(None, (invocation.cwd,), arguments.has(("-z",)), cwd=invocation.cwd, bare=True)


def _ls(invocation: ProgramCall, arguments: Arguments) -> Output:
    relative = all(
        field.kind in ("exact", "pattern") and field.text[:1] not in ("/", ".", "~") for field in arguments.operands
    )
    if (
        invocation.cwd is None
        or not relative
        or any(name not in ("-1", "-r", "-t", "-d") for name, _, _ in arguments.options)
    ):
        return _NOTHING
    return Output(None, (invocation.cwd,), cwd=invocation.cwd, bare=True)


def _counted(invocation: ProgramCall, arguments: Arguments) -> Output:
    return Output(number=not arguments.operands and len(arguments.options) == 1)


def _number(invocation: ProgramCall, arguments: Arguments) -> Output:
    return Output(number=all(field.kind == "exact" for field in arguments.operands) and not arguments.options)


def _date(invocation: ProgramCall, arguments: Arguments) -> Output:
    plain = len(arguments.operands) == 1 and arguments.operands[0].kind == "exact"
    if not plain:
        return _NOTHING
    text = arguments.operands[0].text
    return Output(number=_DIGITS.match(text) is not None, plain=_DATE.match(text) is not None)


def _basename(invocation: ProgramCall, arguments: Arguments) -> Output:
    texts = [field.text.rstrip("/") for field in arguments.operands if field.kind == "exact"]
    if arguments.options or len(texts) != len(arguments.operands) or not 1 <= len(texts) <= 2 or not texts[0]:  # noqa: PLR2004
        return _NOTHING
    name = texts[0].rpartition("/")[2]
    return Output((name.removesuffix(texts[1]) if len(texts) > 1 and name != texts[1] else name) + "\n")


def _dirname(invocation: ProgramCall, arguments: Arguments) -> Output:
    if arguments.options or len(arguments.operands) != 1 or arguments.operands[0].kind != "exact":
        return _NOTHING
    text = arguments.operands[0].text
    folder, slash, _ = text.rstrip("/").rpartition("/")
    return Output((folder.rstrip("/") or "/" if slash or text.startswith("/") else ".") + "\n")


PRINTS: Final[dict[str, Callable[[ProgramCall, Arguments], Output]]] = {
    **dict.fromkeys(("cat", "sort", "uniq", "head", "tail", "tac"), _passed),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _filtered),
    **dict.fromkeys(("nproc", "seq"), _number),
    "basename": _basename,
    "date": _date,
    "dirname": _dirname,
    "git ls-files": _git_files,
    "ls": _ls,
    "rg": _ripgrep,
    "wc": _counted,
}
