"""Programs whose words form a language of their own: find, xargs, tar, ln and links they make.

What they run goes back to `run.py` and is judged like any other command, with the words that they would add.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from remit.policy.paths import join
from remit.policy.shell.programs import Program, parse_arguments
from remit.policy.shell.world import Field, Output

if TYPE_CHECKING:
    from remit.policy.shell.invoke import Invocation

__all__ = ["HANDLERS"]

# find

_FIND_FILES: Final = {
    "-fprint": "write", "-fprint0": "write", "-fls": "write", "-newer": "read", "-anewer": "read", "-cnewer": "read",
    "-samefile": "read", "-fprintf": "write",
}  # fmt: skip
_FIND_DATA: Final = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size -mtime -atime -ctime -mmin -amin -cmin "
    "-maxdepth -mindepth -perm -user -group -uid -gid -links -inum -lname -ilname -fstype -printf -regextype -used".split()
)
_FIND_PLAIN: Final = frozenset(
    "-print -print0 -ls -prune -quit -empty -depth -d -mount -xdev -follow -daystart -noleaf -executable -readable -writable "
    "-true -false -not -a -and -o -or ( ) ! , -nouser -nogroup -warn -nowarn -ignore_readdir_race -noignore_readdir_race".split()
)
_FIND_RUNS: Final = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_NEWER: Final = re.compile(r"-newer[aBcmt][aBcm]\Z")


class _Find:
    """One find command: where it looks, then what it does with what it finds."""

    def __init__(self, invocation: "Invocation", fields: Sequence[Field]) -> None:
        self.invocation = invocation
        self.trace = invocation.trace
        self.ahead = list(reversed(fields))
        self.roots: list[str] = []
        self.words: set[str] = set()
        self.follows = False
        self.regular = False

    def judge(self) -> None:
        self._start()
        self._expression()
        if self.follows or "-follow" in self.words:
            for root in self.roots:
                self.trace.follow_links(root, "find")
        quiet = self.words & {"-printf", "-ls", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-quit"}
        if not quiet:
            separated = "-print0" in self.words
            regular = self.regular and not self.words & {"-o", "-or", ",", "!", "-not"} and not self.follows
            self.invocation.output = Output(None, tuple(self.roots), separated, regular)

    def _start(self) -> None:
        while self.ahead and self.ahead[-1].text in ("-H", "-L", "-P"):
            self.follows = self.ahead.pop().text == "-L"
        given: list[Field] = []
        while self.ahead and not _starts_expression(self.ahead[-1]):
            given.append(self.ahead.pop())
        for field in given or [Field(".", "exact", "find")]:
            self._root(field)

    def _root(self, field: Field) -> None:
        look = self.invocation.file("read", field)
        if look is not None:
            self.roots.append(look.path)
        elif field.kind == "below":
            self.roots.append(field.text)
        elif field.kind == "pattern" and self.invocation.cwd is not None:
            fixed = re.split(r"[*?\[]", field.text, maxsplit=1)[0].rpartition("/")[0]
            self.roots.append(self.trace.files.look(join(self.invocation.cwd, fixed)).path)

    def _expression(self) -> None:
        while self.ahead:
            field = self.ahead.pop()
            word = field.text
            self.words.add(word)
            if field.kind == "unknown" or (field.kind == "below"):
                self.trace.doubt(field.source, "it may be an action of find", unbounded=True)
            elif word in _FIND_RUNS:
                self._run(in_place=word in ("-execdir", "-okdir"))
            elif word == "-delete":
                for root in self.roots:
                    self.trace.touch_beneath("delete", root, "-delete")
                    self.trace.touch("delete", root, None, "-delete")
            elif word in _FIND_FILES or _NEWER.match(word):
                self._file(word)
            elif word in _FIND_DATA:
                self._data(word)
            elif word not in _FIND_PLAIN:
                self.trace.doubt(field.source, "this part of find is not known here", unbounded=True)

    def _data(self, word: str) -> None:
        value = self.ahead.pop() if self.ahead else Field("", "exact", word)
        if value.kind == "unknown" and not value.source.startswith('"'):
            self.trace.doubt(value.source, "it may come to more than one word", unbounded=True)
        if word == "-type" and value.text == "f":
            self.regular = True

    def _file(self, word: str) -> None:
        if self.ahead and not word.endswith("t"):
            self.invocation.file(_FIND_FILES.get(word, "read"), self.ahead.pop())
        elif self.ahead:
            value = self.ahead.pop()
            if word in _FIND_FILES:
                self.invocation.file(_FIND_FILES[word], value)
        if word == "-fprintf" and self.ahead:
            self.ahead.pop()

    def _run(self, *, in_place: bool) -> None:
        words: list[Field] = []
        while self.ahead:
            field = self.ahead.pop()
            if field.kind == "exact" and (field.text == ";" or (field.text == "+" and words and words[-1].text == "{}")):
                break
            words.append(field)
        run, world = self.invocation.run, self.invocation.world._replace(cwd=self.invocation.cwd, stdin=None)
        if not self.regular or self.words & {"-o", "-or", ",", "!", "-not"}:
            run.check_links(self.roots, "find")
        for root in self.roots:
            inner = [_filled(field, root) for field in words]
            run.command(inner, world._replace(cwd=None) if in_place else world, prefix="find")


def _starts_expression(field: Field) -> bool:
    return field.kind == "exact" and (field.text.startswith("-") or field.text in ("(", ")", "!", ","))


def _filled(field: Field, root: str) -> Field:
    """Return a word with `{}` standing for some path below `root`."""
    if "{}" not in field.text:
        return field
    whole = field.text.startswith("{}") and ".." not in field.text and field.kind == "exact"
    return Field(root, "below", field.source) if whole else Field("", "unknown", field.source)


def _find(invocation: "Invocation", fields: Sequence[Field]) -> None:
    _Find(invocation, fields).judge()


# xargs

_XARGS: Final = Program(
    "xargs",
    flags=frozenset("-0 --null -r --no-run-if-empty -t --verbose -x --exit --help --version -o --open-tty".split()),
    options={
        "-d": "delimiter", "--delimiter": "delimiter", "-I": "data", "--replace": "data", "-n": "data", "--max-args": "data",
        "-P": "data", "--max-procs": "data", "-L": "data", "--max-lines": "data", "-s": "data", "--max-chars": "data",
        "-E": "data", "--eof": "data?", "-a": "file", "--arg-file": "file",
    },
    posix=True,
)  # fmt: skip


def _xargs(invocation: "Invocation", fields: Sequence[Field]) -> None:
    arguments = parse_arguments(_XARGS, fields)
    for field in arguments.unknown:
        invocation.trace.doubt(field.source, "this option of xargs is not known here", unbounded=True)
    given = {name: value for name, _, value in arguments.options}
    command = list(arguments.operands) or [Field("echo", "exact", "xargs")]
    items = _items(invocation, given)
    world = invocation.world._replace(stdin=None)
    mark = given.get("-I") or given.get("--replace")
    if mark is None:
        invocation.run.command([*command, *items], world, prefix="xargs")
        return
    for item in items:
        invocation.run.command([_placed(field, mark.text, item) for field in command], world, prefix="xargs")


def _placed(field: Field, mark: str, item: Field) -> Field:
    if not mark or mark not in field.text:
        return field
    if item.kind == "exact" and field.kind == "exact":
        return field._replace(text=field.text.replace(mark, item.text))
    if field.text.startswith(mark) and item.kind == "below" and ".." not in field.text:
        return item
    return Field(field.text.partition(mark)[0], "unknown", field.source)


def _items(invocation: "Invocation", given: dict[str, Field | None]) -> list[Field]:
    """Return the words that xargs reads: exact ones, paths below a directory, or unknown."""
    unknown = [Field("", "unknown", "xargs")]
    source = invocation.world.stdin
    if "-a" in given or "--arg-file" in given:
        named = given.get("-a") or given.get("--arg-file")
        if named is not None:
            invocation.file("read", named)
        return unknown
    if source is None:
        return []
    null = "-0" in given or "--null" in given
    delimiter = given.get("-d") or given.get("--delimiter")
    if source.text is not None and delimiter is None:
        if null:
            return [Field(item, "exact", item) for item in source.text.split("\0") if item]
        if not re.search(r"['\"\\]", source.text):
            return [Field(item, "exact", item) for item in source.text.split()]
    if source.below and (source.separated if null else invocation.run.is_plain(source)):
        if not source.regular:
            invocation.run.check_links(source.below, "xargs")
        return [Field(directory, "below", "xargs") for directory in source.below]
    return unknown


# tar

_TAR_REFUSED: Final = {
    name: "can run other commands or write anywhere with it"
    for name in (
        "--to-command --checkpoint-action -I --use-compress-program --rsh-command --rmt-command -F --info-script "
        "--new-volume-script -T --files-from --pax-option"
    ).split()
}
_TAR: Final = Program(
    "tar",
    flags=frozenset(
        "-c --create -x --extract --get -t --list -r --append -u --update -A --catenate --concatenate -d --diff --compare --delete "
        "-z --gzip --gunzip --ungzip -j --bzip2 -J --xz --lzma --lzip --lzop --zstd -Z --compress -a --auto-compress -v --verbose "
        "-k --keep-old-files --skip-old-files --keep-newer-files --overwrite -m --touch -p --preserve-permissions --same-permissions "
        "-s --same-owner --no-same-owner --no-same-permissions -o -O --to-stdout --wildcards --no-wildcards --anchored "
        "--no-anchored --ignore-case --exclude-vcs --exclude-vcs-ignores --exclude-backups --exclude-caches --no-recursion "
        "--recursion --numeric-owner --totals -S --sparse -h --dereference --hard-dereference -l --check-links -W --verify "
        "--one-file-system --no-overwrite-dir --unlink-first -U --recursive-unlink --remove-files --force-local -w --interactive "
        "--show-transformed-names --utc --full-time -R --block-number --no-auto-compress --xattrs --acls --selinux --help "
        "--version -P --absolute-names --delay-directory-restore -i --ignore-zeros -B --read-full-records --overwrite-dir --no-check-device".split()
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
    refused_options=_TAR_REFUSED,
)  # fmt: skip
_TAR_ROLES: Final = {
    "-X": "read", "--exclude-from": "read", "-g": "edit", "--listed-incremental": "edit", "--index-file": "write",
    "--one-top-level": "write", "--add-file": "read",
}  # fmt: skip
_DATES: Final = frozenset(("--mtime", "-N", "--newer", "--newer-mtime", "--after-date"))


def _tar(invocation: "Invocation", fields: Sequence[Field]) -> None:
    trace, cwd = invocation.trace, invocation.cwd
    arguments = parse_arguments(_TAR, _dashed(fields))
    for field in arguments.unknown:
        trace.doubt(field.source, "this option of tar is not known here", unbounded=True)
    names = {name for name, _, _ in arguments.options}
    extracts = bool(names & {"-x", "--extract", "--get"})
    creates = bool(names & {"-c", "--create", "-r", "--append", "-u", "--update", "-A", "--catenate", "--concatenate", "--delete"})
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
    last = max((index for index, text in enumerate(texts) if text in ("-C",) or text.startswith("--directory")), default=0)
    seen = [index for index, text in enumerate(texts) if index and not text.startswith("-")]
    valued = {index + 1 for index, text in enumerate(texts) if re.match(r"-[A-Za-z]*[fCXgbHNKV]\Z", text) or text in _TAR.options}
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


# ln

_LN: Final = Program(
    "ln",
    flags=frozenset(
        "-s --symbolic -f --force -n --no-dereference -v --verbose -r --relative -T --no-target-directory -i --interactive -b "
        "-P --physical -L --logical --help --version".split()
    ),
    options={"-t": "data", "--target-directory": "data", "-S": "data", "--suffix": "data", "--backup": "data?"},
)


def _ln(invocation: "Invocation", fields: Sequence[Field]) -> None:
    arguments = parse_arguments(_LN, fields)
    for field in arguments.unknown:
        invocation.trace.doubt(field.source, "this option of ln is not known here", unbounded=True)
    names = {name: value for name, _, value in arguments.options}
    symbolic = bool({"-s", "--symbolic"} & set(names))
    folder = names.get("-t") or names.get("--target-directory")
    *sources, last = [*arguments.operands, folder] if folder else (arguments.operands or (Field("", "exact", "ln"),))
    if not sources:
        sources, last = [last], Field(".", "exact", "ln")
    place = invocation.file("write", last)
    inside = place is not None and place.is_directory
    for source in sources:
        if not symbolic or source.kind != "exact" or source.text.startswith("/") or "-r" in names or "--relative" in names:
            invocation.file("edit", source)
        if source.kind != "exact" or last.kind != "exact" or place is None:
            continue
        name = source.text.rstrip("/").rpartition("/")[2]
        link = f"{place.path}/{name}" if inside else place.path
        if inside:
            invocation.trace.touch("write", link, None, last.source)
        if symbolic and not source.text.startswith("/"):
            # A relative link starts at the directory it stands in.
            target = join(link.rpartition("/")[0] or "/", source.text)
            invocation.run.file("edit", source._replace(text=target), None)
        else:
            target = join(invocation.cwd or "/", source.text)
        invocation.run.alias(link, target)


def _unused(invocation: "Invocation", fields: Sequence[Field]) -> None:
    """`test` and `[` are builtins; started as programs they do the same."""
    invocation.run.command([Field("test", "exact", "test"), *fields], invocation.world, prefix="env")


HANDLERS: Final[dict[str, Callable[["Invocation", Sequence[Field]], None]]] = {
    "[": _unused,
    "find": _find,
    "ln": _ln,
    "tar": _tar,
    "test": _unused,
    "xargs": _xargs,
}
