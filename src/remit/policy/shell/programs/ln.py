"""Judges ln: from then on, a link leads to its target."""

from collections.abc import Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.files import join
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.programs.landing import backup_name, landing_places
from remit.policy.shell.tables import Program, parse_arguments

_LN: Final = Program(
    name="ln",
    flags=frozenset(
        "-s --symbolic -f --force -n --no-dereference -v --verbose -r --relative -T --no-target-directory "
        "-i --interactive -b -P --physical -L --logical --help --version".split()
    ),
    options={"-t": "data", "--target-directory": "data", "-S": "data", "--suffix": "data", "--backup": "data?"},
)


def judge_ln(invocation: ProgramCall, fields: Sequence[Field]) -> None:
    """Judge the words of ln."""
    arguments = parse_arguments(_LN, fields)
    for field in arguments.unknown:
        invocation.trace.doubt(field.source, "this option of ln is not known here", unbounded=True)
    names = {name: value for name, _, value in arguments.options}
    symbolic = bool({"-s", "--symbolic"} & set(names))
    folder = names.get("-t") or names.get("--target-directory")
    sources, last = _operands([*arguments.operands, folder] if folder else arguments.operands)
    suffix = names.get("-S") or names.get("--suffix")
    place = invocation.file("write", last)
    from_here = not symbolic or bool({"-r", "--relative"} & set(names))
    _check_links(invocation, () if symbolic else sources)
    for source in sources:
        if from_here or source.kind != "exact" or source.text.startswith("/"):
            invocation.file("edit", source)
        if source.kind != "exact" or last.kind != "exact" or place is None:
            if not from_here and not source.text.startswith("/"):
                # A relative link starts at its own directory.
                invocation.trace.doubt(last.source, "where this link leads is not known before it runs", unbounded=True)
            continue
        name = source.text.rstrip("/").rpartition("/")[2]
        for link in landing_places(invocation, place, name):
            if link != place.path:
                invocation.trace.touch("write", link, None, last.source)
            if suffix:
                invocation.evaluator.file("write", suffix._replace(text=backup_name(link, suffix.text)), None)
            if symbolic and not source.text.startswith("/"):
                # A relative link starts at its own directory.
                target = join(link.rpartition("/")[0] or "/", source.text)
                invocation.evaluator.file("edit", source._replace(text=target), None)
            else:
                target = join(invocation.cwd or "/", source.text)
            invocation.evaluator.changes.alias(link, target)


def _check_links(invocation: ProgramCall, sources: Sequence[Field]) -> None:
    """Record a doubt about a hard link to a symbolic link, which leads elsewhere from another directory."""
    for source in sources:
        if _may_be_link(invocation, source):
            reason = "it makes another name for a link, which leads elsewhere from there"
            invocation.trace.doubt(source.source, reason, unbounded=True)


def _may_be_link(invocation: ProgramCall, source: Field) -> bool:
    if source.kind != "exact" or invocation.cwd is None:
        return True
    files, path = invocation.trace.files, join(invocation.cwd, source.text).rstrip("/")
    folder, _, name = path.rpartition("/")
    return path in files.links or files.resolve(path).path != f"{files.resolve(folder or '/').path.rstrip('/')}/{name}"


def _operands(given: Sequence[Field]) -> tuple[Sequence[Field], Field]:
    """Return the targets and the place of the links; with one word, that is the working directory."""
    if len(given) > 1:
        return given[:-1], given[-1]
    return given or (Field("", "exact", "ln"),), Field(".", "exact", "ln")
