"""Judges xargs: the words it reads are appended to a command, which is judged like any other."""

import re
from collections.abc import Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.evaluate.state import Output
from remit.policy.shell.tables import Program, parse_arguments

_XARGS: Final = Program(
    name="xargs",
    flags=frozenset("-0 --null -r --no-run-if-empty -t --verbose -x --exit --help --version -o --open-tty".split()),
    options={
        "-d": "delimiter", "--delimiter": "delimiter", "-I": "data", "--replace": "data?", "-n": "data",
        "--max-args": "data",
        "-P": "data", "--max-procs": "data", "-L": "data", "--max-lines": "data?", "-s": "data", "--max-chars": "data",
        "-E": "data", "--eof": "data?", "-a": "file", "--arg-file": "file",
    },
    posix=True,
)  # fmt: skip

_APART: Final = frozenset("-n --max-args -L --max-lines -P --max-procs -s --max-chars".split())


def judge_xargs(invocation: ProgramCall, fields: Sequence[Field]) -> None:
    """Judge the words of xargs."""
    arguments = parse_arguments(_XARGS, fields)
    for field in arguments.unknown:
        invocation.trace.doubt(field.source, "this option of xargs is not known here", unbounded=True)
    given = {name: value for name, _, value in arguments.options}
    command = list(arguments.operands) or [Field("echo", "exact", "xargs")]
    mark = given.get("-I") or given.get("--replace") or (Field("{}", "exact", "{}") if "--replace" in given else None)
    items = _items(invocation, given, lines=mark is not None)
    state = invocation.state._replace(stdin=Output())
    evaluator = invocation.evaluator
    if mark is not None and (given.keys() & _APART or {"-I", "--replace"} <= given.keys()):
        invocation.trace.doubt("xargs", "options of which only the last counts", unbounded=True)
    if mark is not None:
        for item in items or [Field("", "unknown", mark.source)]:
            evaluator.command([_placed(field, mark.text, item) for field in command], state, prefix="xargs")
        return
    evaluator.command([*command, *items], state, prefix="xargs")
    if _APART.intersection(given):
        # Each item may be the only one, and could then have another meaning.
        for item in items:
            evaluator.command([*command, item], state, prefix="xargs")


def _placed(field: Field, mark: str, item: Field) -> Field:
    if not mark or mark not in field.text:
        return field
    if item.kind == "exact" and field.kind == "exact":
        return field._replace(text=field.text.replace(mark, item.text))
    behind = field.text[len(mark) :] if field.text.startswith(mark) else mark
    if item.kind == "below" and behind[:1] in ("", "/") and mark not in behind and ".." not in behind:
        return item
    return Field(field.text.partition(mark)[0], "unknown", field.source)


def _items(invocation: ProgramCall, given: dict[str, Field | None], *, lines: bool) -> list[Field]:
    """Return the words that xargs reads: exact ones, paths below a directory, or unknown."""
    unknown = [Field("", "unknown", "xargs", splits=True)]
    source = invocation.state.stdin
    if "-a" in given or "--arg-file" in given:
        named = given.get("-a") or given.get("--arg-file")
        if named is not None:
            invocation.file("read", named)
        return unknown
    if source is None:
        return []
    null = "-0" in given or "--null" in given
    delimiter = given.get("-d") or given.get("--delimiter")
    # Any other separator than a newline splits file names.
    cuts = delimiter is not None and (delimiter.kind != "exact" or delimiter.text not in ("\n", "\\n"))
    if source.text is not None and delimiter is None:
        if null:
            return [Field(item, "exact", item) for item in source.text.split("\0") if item]
        if not re.search(r"['\"\\]", source.text):
            items = source.text.split("\n") if lines else re.split(r"[ \t\n]+", source.text)
            return [Field(item.lstrip(" \t"), "exact", item) for item in items if item.strip(" \t")]
    whole = not cuts and (source.separated if null else invocation.evaluator.is_plain(source))
    if source.below and whole and source.cwd == invocation.cwd:
        if not source.regular:
            invocation.evaluator.check_links(source.below, "xargs")
        listed = Field("", "below", "xargs", cwd=source.cwd, picks=source.picks, bare=source.bare)
        return [listed._replace(text=directory) for directory in source.below]
    return unknown
