"""What tar would do: which way files go, where `-C` leads, and options that run or write anything."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from remit.policy.shell.programs import Program, parse_arguments
from remit.policy.shell.world import Field

if TYPE_CHECKING:
    from remit.policy.shell.invoke import Invocation

__all__ = ["judge_tar"]

_TAR_REFUSED: Final = dict.fromkeys(
    "--to-command --checkpoint-action -I --use-compress-program --rsh-command --rmt-command -F --info-script "
    "--new-volume-script -T --files-from --pax-option".split(),
    "can run other commands or write anywhere with it",
)
_TAR: Final = Program(
    name="tar",
    flags=frozenset(
        "-c --create -x --extract --get -t --list -r --append -u --update -A --catenate --concatenate -d "
        "--diff --compare --delete -z --gzip --gunzip --ungzip -j --bzip2 -J --xz --lzma --lzip --lzop "
        "--zstd -Z --compress -a --auto-compress -v --verbose -k --keep-old-files --skip-old-files "
        "--keep-newer-files --overwrite -m --touch -p --preserve-permissions --same-permissions -s "
        "--same-owner --no-same-owner --no-same-permissions -o -O --to-stdout --wildcards --no-wildcards "
        "--anchored --no-anchored --ignore-case --exclude-vcs --exclude-vcs-ignores --exclude-backups "
        "--exclude-caches --no-recursion --recursion --numeric-owner --totals -S --sparse -h "
        "--dereference --hard-dereference -l --check-links -W --verify --one-file-system "
        "--no-overwrite-dir --unlink-first -U --recursive-unlink --remove-files --force-local -w "
        "--interactive --show-transformed-names --utc --full-time -R --block-number --no-auto-compress "
        "--xattrs --acls --selinux --help --version -P --absolute-names --delay-directory-restore -i "
        "--ignore-zeros -B --read-full-records --overwrite-dir --no-check-device".split()
    ),
    options={
        "-f": "data", "--file": "data", "-C": "data", "--directory": "data", "--exclude": "data", "--strip-components": "data",
        "--strip": "data", "-X": "data", "--exclude-from": "data", "--owner": "data", "--group": "data", "--mode": "data",
        "--sort": "data", "--format": "data", "-H": "data", "-b": "data", "--blocking-factor": "data", "--record-size": "data",
        "--transform": "data", "--xform": "data", "-g": "data", "--listed-incremental": "data", "--one-top-level": "data?", "--checkpoint": "data?", "-L": "data",
        "--tape-length": "data", "--suffix": "data", "--backup": "data?", "--warning": "data", "--exclude-tag": "data",
        "--index-file": "data", "-N": "data", "--newer-mtime": "data", "--quoting-style": "data", "--occurrence": "data?",
        "--level": "data", "-K": "data", "--starting-file": "data", "--add-file": "data", "-V": "data", "--label": "data",
        "--mtime": "data", "--exclude-ignore": "data", "--newer": "data", "--after-date": "data", "--clamp-mtime": "data?",
    },
    deny=_TAR_REFUSED,
)  # fmt: skip
_TAR_ROLES: Final = {
    "-X": "read", "--exclude-from": "read", "-g": "edit", "--listed-incremental": "edit", "--index-file": "write",
    "--one-top-level": "write", "--add-file": "read",
}  # fmt: skip
_DATES: Final = frozenset(("--mtime", "-N", "--newer", "--newer-mtime", "--after-date"))


def judge_tar(invocation: "Invocation", fields: Sequence[Field]) -> None:
    """Note what the words come to."""
    trace, cwd = invocation.trace, invocation.cwd
    arguments = parse_arguments(_TAR, _dashed(fields))
    for field in arguments.unknown:
        trace.doubt(field.source, "this option of tar is not known here", unbounded=True)
    names = {name for name, _, _ in arguments.options}
    extracts = bool(names & {"-x", "--extract", "--get"})
    creates = bool(
        names & {"-c", "--create", "-r", "--append", "-u", "--update", "-A", "--catenate", "--concatenate", "--delete"}
    )
    lands = not names & {"-O", "--to-stdout"}
    if extracts and names & {"-P", "--absolute-names", "--transform", "--xform"}:
        trace.doubt("tar", "it can write anywhere when names are taken as they are or changed", unbounded=True)
    bases = [cwd]
    for name, role, value in arguments.options:
        if role == "refused":
            trace.doubt(name, f"tar {_TAR_REFUSED[name]}", unbounded=True)
        elif value is None:
            continue
        elif name in ("-C", "--directory"):
            look = invocation.file("read", value)
            bases.append(look.path if look is not None else None)
        elif name in ("-f", "--file"):
            _archive(invocation, value, "edit" if creates else "read", forced="--force-local" in names)
        elif name in _TAR_ROLES:
            invocation.run.file(_TAR_ROLES[name], value, bases[-1])
        elif name in _DATES and value.text[:1] in ("/", "."):
            invocation.file("read", value)
    reached = bases if len(bases) == 1 else bases[1:] if _leads(fields) else bases
    for base in reached:
        if extracts and lands:
            trace.touch("write", ".", base, "tar")
        if creates or names & {"-d", "--diff", "--compare"}:
            for field in arguments.operands:
                look = invocation.run.file("move" if "--remove-files" in names else "read", field, base)
                if look is not None and look.is_directory and names & {"-h", "--dereference"}:
                    trace.follow_links(look.path, field.source)


def _leads(fields: Sequence[Field]) -> bool:
    """Tell whether every `-C` comes before the first file that is archived."""
    texts = [field.text for field in fields]
    last = max(
        (index for index, text in enumerate(texts) if text in ("-C",) or text.startswith("--directory")), default=0
    )
    seen = [index for index, text in enumerate(texts) if index and not text.startswith("-")]
    valued = {
        index + 1
        for index, text in enumerate(texts)
        if re.match(r"-[A-Za-z]*[fCXgbHNKV]\Z", text) or text in _TAR.options
    }
    valued |= {1} if texts and not texts[0].startswith("-") and "f" in texts[0] else set()
    return all(index > last for index in seen if index not in valued)


def _archive(invocation: "Invocation", field: Field, role: str, *, forced: bool) -> None:
    if ":" in field.text and not forced:
        invocation.trace.doubt(field.source, "an archive on another host", unbounded=True)
    else:
        invocation.file(role, field)


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
