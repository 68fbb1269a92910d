"""Judges tar: the direction of the copy, the directories of `-C`, and options that run or write anything."""

import re
from collections.abc import Sequence
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.programs.roles import apply_role
from remit.policy.shell.tables import Program, parse_arguments

_REFUSED: Final = (
    "--to-command --checkpoint-action -I --use-compress-program --rsh-command --rmt-command -F --info-script "
    "--new-volume-script -T --files-from --pax-option".split()
)
_FLAGS: Final = (
    "-c --create -x --extract --get -t --list -r --append -u --update -A --catenate --concatenate -d --diff --compare "
    "--delete -z --gzip --gunzip --ungzip -j --bzip2 -J --xz --lzma --lzip --lzop --zstd -Z --compress -a "
    "--auto-compress -v --verbose -k --keep-old-files --skip-old-files --keep-newer-files --overwrite -m --touch -p "
    "--preserve-permissions --same-permissions -s --same-owner --no-same-owner --no-same-permissions -o -O --to-stdout "
    "--wildcards --no-wildcards --anchored --no-anchored --ignore-case --exclude-vcs --exclude-vcs-ignores "
    "--exclude-backups --exclude-caches --no-recursion --recursion --numeric-owner --totals -S --sparse -h "
    "--dereference --hard-dereference -l --check-links -W --verify --one-file-system --no-overwrite-dir --unlink-first "
    "-U --recursive-unlink --remove-files --force-local -w --interactive --show-transformed-names --utc --full-time -R "
    "--block-number --no-auto-compress --xattrs --acls --selinux --help --version -P --absolute-names "
    "--delay-directory-restore -i --ignore-zeros -B --read-full-records --overwrite-dir --no-check-device".split()
)
_VALUED: Final = (
    "-f --file -C --directory --exclude --strip-components --strip -X --exclude-from --owner --group --mode --sort "
    "--format -H -b --blocking-factor --record-size -g --listed-incremental -L --tape-length --warning "
    "--exclude-tag --index-file -N --newer-mtime --quoting-style --level -K --starting-file --add-file -V --label "
    "--mtime --newer --after-date --transform --xform".split()
)
_ATTACHED: Final = "--one-top-level --checkpoint --backup --occurrence --clamp-mtime".split()
_TAR: Final = Program(
    name="tar",
    flags=frozenset(_FLAGS),
    options={
        **dict.fromkeys(_VALUED, "data"),
        **dict.fromkeys(_ATTACHED, "data?"),
        **dict.fromkeys(("--suffix", "--exclude-ignore"), "name"),
    },
    deny=dict.fromkeys(_REFUSED, "can run other commands or reach other files with it"),
)
_ROLES: Final = {
    **dict.fromkeys(("-X", "--exclude-from", "--add-file"), "read"),
    **dict.fromkeys(("-g", "--listed-incremental"), "edit"),
    **dict.fromkeys(("--index-file", "--one-top-level"), "write"),
}
_EXTRACTS: Final = frozenset("-x --extract --get".split())
_CREATES: Final = frozenset("-c --create -r --append -u --update -A --catenate --concatenate --delete".split())
_COMPARES: Final = frozenset("-d --diff --compare".split())
_DATES: Final = frozenset("--mtime -N --newer --newer-mtime --after-date".split())
_RENAMES: Final = frozenset("-P --absolute-names --transform --xform".split())


class _Tar:
    """One tar command. `bases` are the directories that names may be relative to, in order."""

    def __init__(self, invocation: ProgramCall, fields: Sequence[Field]) -> None:
        self.invocation = invocation
        self.trace = invocation.trace
        self.fields = fields
        self.arguments = parse_arguments(_TAR, _dashed(fields))
        self.names = {name for name, _, _ in self.arguments.options}
        self.bases: list[str | None] = [invocation.cwd]

    def judge(self) -> None:
        for field in self.arguments.unknown:
            self.trace.doubt(field.source, "this option of tar is not known here", unbounded=True)
        if self.names & _EXTRACTS and self.names & _RENAMES:
            reason = "with options that keep or change the names in the archive it can write anywhere"
            self.trace.doubt("tar", reason, unbounded=True)
        for name, role, value in self.arguments.options:
            if role == "refused":
                self.trace.doubt(name, f"tar {_TAR.refused_options[name]}", unbounded=True)
            elif value is not None and role == "name":
                apply_role(self.invocation, role, value)
            elif value is not None:
                self._option(name, value)
        for base in self.bases[1:] if len(self.bases) > 1 and _leads(self.fields) else self.bases:
            self._files(base)

    def _option(self, name: str, value: Field) -> None:
        if name in ("-C", "--directory"):
            resolved = self.invocation.evaluator.file("read", value, self.bases[-1])
            self.bases.append(resolved.path if resolved is not None else None)
        elif name in ("-f", "--file"):
            self._archive(value)
        elif name in _ROLES:
            self.invocation.evaluator.file(_ROLES[name], value, self.bases[-1])
        elif name in _DATES and value.text[:1] in ("/", "."):
            self.invocation.file("read", value)

    def _archive(self, field: Field) -> None:
        if ":" in field.text and "--force-local" not in self.names:
            self.trace.doubt(field.source, "an archive on another host", unbounded=True)
        else:
            self.invocation.file("edit" if self.names & _CREATES else "read", field)

    def _files(self, base: str | None) -> None:
        if self.names & _EXTRACTS and not self.names & {"-O", "--to-stdout"}:
            self.trace.touch("write", ".", base, "tar")
            evaluator = self.invocation.evaluator
            if base is not None and (evaluator.reads_own() or self.invocation.state.stdin is not None):
                evaluator.changes.unpack(base)
        if not self.names & (_CREATES | _COMPARES):
            return
        for field in self.arguments.operands:
            resolved = self.invocation.evaluator.file("move" if "--remove-files" in self.names else "read", field, base)
            if resolved is not None and resolved.is_directory and self.names & {"-h", "--dereference"}:
                self.trace.follow_links(resolved.path, field.source)


def _leads(fields: Sequence[Field]) -> bool:
    """Return whether every `-C` comes before the first archived file."""
    texts = [field.text for field in fields]
    changes = [index for index, text in enumerate(texts) if text == "-C" or text.startswith("--directory")]
    valued = {index + 1 for index, text in enumerate(texts) if _TAKES_NEXT.match(text) or text in _TAR.options}
    if texts and not texts[0].startswith("-") and "f" in texts[0]:
        valued.add(1)
    files = [index for index, text in enumerate(texts) if index and index not in valued and not text.startswith("-")]
    return bool(changes) and all(index > changes[-1] for index in files)


_TAKES_NEXT: Final = re.compile(r"-[A-Za-z]*[fCXgbHNKV]\Z")


def _dashed(fields: Sequence[Field]) -> list[Field]:
    """Return the words with the old form `tar czf name …` written as options."""
    if not fields or fields[0].kind != "exact" or fields[0].text.startswith("-") or not fields[0].text:
        return list(fields)
    ahead, options = list(fields[1:]), list[Field]()
    for letter in fields[0].text:
        options.append(Field(f"-{letter}", "exact", fields[0].source))
        if f"-{letter}" in _TAR.options and ahead:
            options.append(ahead.pop(0))
    return [*options, *ahead]


def judge_tar(invocation: ProgramCall, fields: Sequence[Field]) -> None:
    """Judge the words of tar."""
    _Tar(invocation, fields).judge()
