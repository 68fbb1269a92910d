"""Determines where copied, moved and linked files are placed, and which paths their new names lead to.

A file is placed in a directory under its own name. A directory given by an option is always one; with other options the
target is never one, and the file replaces it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.files import ResolvedPath, join, without_dots
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.tables import Arguments, Program

_MAX_MATCHES: Final = 64
_NO_NAMES: Final = frozenset(("", ".", ".."))


def land(invocation: ProgramCall, program: Program, arguments: Arguments, given: Sequence[tuple[str, Field]]) -> None:
    """Record the files that are written at the target, including where links of these names lead."""
    *sources, target = [field for _, field in given]
    named = [value for name, _, value in arguments.options if name in program.into_by and value is not None]
    if named:
        sources, target = [*sources, target], named[-1]
    if target.kind != "exact":
        return
    folder = invocation.trace.files.resolve(join(invocation.cwd or "/", target.text))
    for source in _named_sources(invocation, sources, folder):
        name = source.text.rstrip("/").rpartition("/")[2] if source.kind == "exact" else "*"
        places = landing_places(invocation, folder, name)
        if named:
            places = [f"{folder.path}/{name}" if name not in _NO_NAMES else folder.path]
        elif arguments.has(program.not_into):
            places = [folder.path]
        for place in places:
            if source.kind == "exact":
                _land_at(invocation, source, place, lands=place != folder.path)
            elif place != folder.path:
                invocation.trace.touch_beneath("write", folder.path, source.source)


def _named_sources(invocation: ProgramCall, sources: Sequence[Field], target: ResolvedPath) -> Iterator[Field]:
    """Yield the sources, with a wildcard replaced by its matches: each of them may be a link that moves along."""
    files = invocation.trace.files
    for source in sources:
        directory, slash, name = source.text.rpartition("/")
        fixed = source.kind == "pattern" and not any(mark in directory for mark in "*?[")
        start = files.resolve(join(invocation.cwd or "/", directory or ("/" if slash else ".")))
        matches = files.expand(start.path, name) if fixed and not start.refusal else ()
        if source.kind == "exact" or not files.reads_disk:
            yield source
        elif fixed and matches is not None and len(matches) <= _MAX_MATCHES:
            yield from (source._replace(text=f"{directory}{slash}{match}", kind="exact") for match in matches)
        else:
            yield source
            invocation.evaluator.changes.alias(target.path, None)


def landing_places(invocation: ProgramCall, target: ResolvedPath, name: str) -> list[str]:
    """Return the paths at which a file of this name may be placed.

    It is placed in the target if that is a directory, or replaces it. For a directory that the same command creates or
    removes, both are possible.
    """
    if name in _NO_NAMES:
        return [target.path]
    made = invocation.trace.files.is_made(target.path, invocation.made_before)
    stays = target.is_directory and invocation.evaluator.changes.is_certain(target.path)
    inside = [f"{target.path}/{name}"] if target.is_directory or made else []
    return inside if stays else [*inside, target.path]


def _land_at(invocation: ProgramCall, source: Field, path: str, *, lands: bool) -> None:
    trace = invocation.trace
    if lands:
        trace.touch("write", path, None, source.source)
        if invocation.suffix:
            trace.touch("write", backup_name(path, invocation.suffix), None, source.source)
    _unfold(invocation, source, path)
    if (lands and trace.files.reads_disk) or trace.files.resolve(path).is_directory:
        # A link below the target would redirect the write.
        trace.follow_links(path, source.source, role="write")
    invocation.evaluator.changes.alias(path, _alias_target(invocation, source))


def _unfold(invocation: ProgramCall, source: Field, landing: str) -> None:
    """Record that a folder is copied with its content; a missing folder may be created by the same script."""
    files = invocation.trace.files
    resolved = files.resolve(join(invocation.cwd or "/", source.text))
    if files.reads_disk and (resolved.is_directory or not resolved.exists):
        invocation.trace.touch_beneath("write", landing, source.source)


def _alias_target(invocation: ProgramCall, source: Field) -> str | None:
    """Return the path that a copy or new name leads to, or None: a moved link may lead elsewhere."""
    path = join(invocation.cwd or "/", source.text)
    resolved = invocation.trace.files.resolve(path)
    survey = invocation.trace.survey(resolved.path) if resolved.is_directory else None
    plain = resolved.path == without_dots(path) and (
        not resolved.is_directory or (survey is not None and not survey.links)
    )
    changes = invocation.evaluator.changes
    made = any(name.startswith(without_dots(path) + "/") for name in changes.aliases)
    return path if plain and not made and not changes.crosses(path, upwards=False) else None


def backup_name(text: str, suffix: str) -> str:
    """Return the name of a backup: with the suffix, or with the stars of the suffix replaced by the name."""
    folder, slash, name = text.rpartition("/")
    return folder + slash + (suffix.replace("*", name) if "*" in suffix else name + suffix)
