"""Tracks what a script has downloaded, where it was saved, and which of it is run.

A file counts as downloaded if a program of `downloads.toml` saves it, or if another program derives it from a download
by copying, moving, unpacking, compiling or printing. Programs without a table are covered too: every word of a command
that may name a file counts as one.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, Literal, NamedTuple

from msgspec import Struct, convert

from remit.policy.field import Field
from remit.policy.files import join, without_dots

# The prefix of the reason of a doubt; the name of the downloading program follows.
RUNS_DOWNLOAD: Final = "it runs what the same command downloads with "
# Stands for a directory that is not known before the script runs. Nothing is read there.
UNKNOWN_PLACE: Final = "/unknown-directory"
# Limits for one script: words of a command, records, names for one file, and comparisons in all.
_MAX_FIELDS: Final = 128
_MAX_NAMED: Final = 64
_MAX_ALIASES: Final = 16
_MAX_EFFORT: Final = 500_000
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_./@+,=-]")
_REMOTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?!/|\.{1,2}/)[^/\s]+:")
_LOCAL: Final = re.compile(r"[./~]|\Z")
_RECURSES: Final = r"-[A-Za-z]*[arR][A-Za-z]*|--recursive|--archive|sync|mirror|rsync"


class _Fetch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way in which a program downloads, as described in `downloads.toml`."""

    programs: tuple[str, ...]
    words: tuple[str, ...] = ()
    saves: Literal["url", "clone", "copy", "folder"] = "url"
    into: tuple[str, ...] = ()
    named_if: str = ""
    named_unless: str = ""
    whole_if: str = ""


class _Unpack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a program unpacks an archive: the options for the directory, and those with which it does not unpack."""

    programs: tuple[str, ...]
    into: tuple[str, ...] = ()
    unless: str = "(?!)"


class _Tables(NamedTuple):
    fetches: Mapping[str, tuple[_Fetch, ...]]
    unpacks: Mapping[str, _Unpack]
    runs: frozenset[str]


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    given = tomllib.loads(
        package_files("remit.policy.shell.evaluate").joinpath("downloads.toml").read_text(encoding="utf-8")
    )
    fetches: dict[str, tuple[_Fetch, ...]] = {}
    for fetch in convert(given["fetch"], list[_Fetch]):
        for program in fetch.programs:
            fetches[program] = (*fetches.get(program, ()), fetch)
    unpacks = {program: row for row in convert(given["unpack"], list[_Unpack]) for program in row.programs}
    return _Tables(fetches, unpacks, frozenset(given["runs"]["programs"]))


@lru_cache(maxsize=1)
def fetchers() -> frozenset[str]:
    """Return the programs that always download."""
    rows = _tables().fetches.items()
    return frozenset(name for name, uses in rows if any(not use.words and use.saves != "copy" for use in uses))


def may_download(name: str, fields: Sequence[Field]) -> bool:
    """Return whether a program may download with these words."""
    rows = _tables().fetches.get(name)
    return rows is not None and any(not fetch.words or _has_word(fields, fetch.words[-1]) for fetch in rows)


def _has_word(fields: Sequence[Field], wanted: str) -> bool:
    names = _alternatives(wanted)[1]
    return any(field.text in names for field in fields)


def starts_with_words(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the operands of a command begin with these words; `|` separates alternatives in a word.

    The word after an option may be its value or the next operand; whichever fits is used.
    """
    at, optional = 0, False
    for word in words:
        if at == len(wanted):
            return True
        if _is_option(word):
            optional = "=" not in word
        elif _is_one_of(word, wanted[at]):
            at, optional = at + 1, False
        elif optional:
            optional = False
        else:
            return False
    return at == len(wanted)


def _is_option(text: str) -> bool:
    return text.startswith("-") and len(text) > 1


def _is_one_of(word: str, wanted: str) -> bool:
    negated, names, globs = _alternatives(wanted)
    return (word in names or any(fnmatchcase(word, glob) for glob in globs)) != negated


@lru_cache(maxsize=512)
def _alternatives(wanted: str) -> tuple[bool, frozenset[str], tuple[str, ...]]:
    """Return whether the alternatives are negated, all of them, and those with wildcards."""
    words = wanted.removeprefix("!").split("|")
    return wanted.startswith("!"), frozenset(words), tuple(word for word in words if "*" in word)


def place_of(field: Field, cwd: str | None) -> str:
    """Return the path that a word stands for; an unknown one gets a placeholder made from its source text."""
    if field.kind in ("exact", "below"):
        return without_dots(join(cwd or UNKNOWN_PLACE, field.text))
    source = _NOT_PLAIN.sub("-", re.sub(r"[\"'{}]", "", field.source))
    return without_dots(f"{UNKNOWN_PLACE}/{source}")


class _Named(NamedTuple):
    """Files saved to one of several directories under one of several names (None for any name)."""

    folders: frozenset[str]
    names: frozenset[str] | None
    program: str

    def holds(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return (folder or "/") in self.folders and (self.names is None or name in self.names)


class ProgramRun(NamedTuple):
    """One program with its words, and the files that it touches as far as they are known.

    `stdin` is the program that downloaded its standard input. `read` and `written` are the files that its table names;
    without a table, each word may be a written file.
    """

    name: str
    fields: Sequence[Field]
    cwd: str | None
    stdin: str = ""
    read: Collection[str] = ()
    written: Collection[str] = ()
    is_known: bool = True

    @property
    def here(self) -> str:
        """Return the working directory, or its placeholder."""
        return self.cwd or UNKNOWN_PLACE

    @property
    def operands(self) -> list[Field]:
        """Return the words that are not options; they include the values of options."""
        return [field for field in self.fields if not _is_option(field.text)]

    def folders(self, options: Sequence[str]) -> list[str]:
        """Return the directories that options name, or else the working directory."""
        return [place_of(value, self.cwd) for value in _option_values(self.fields, options)] or [self.here]


class Downloads:
    """The files and directories that a script has downloaded, with the program for each."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        """Start empty; `aliases` are the links that the script creates."""
        self._aliases = aliases
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._named: list[_Named] = []
        self._last = ""
        self._effort = 0
        # How often something was downloaded, or a download was read.
        self.count = 0

    def since(self, count: int) -> str:
        """Return the program of the last download since the count had this value, or ""."""
        return self._last if self.count != count else ""

    def use(self, program: str) -> None:
        """Record that a command downloads something, or reads a download."""
        self._last = program
        self.count += 1

    def add(self, path: str, program: str) -> None:
        """Record a file that contains a download."""
        self._files[path] = program

    def add_folder(self, path: str, program: str) -> None:
        """Record a directory in which every file may be a download."""
        self._folders[path] = program

    def program_for(self, path: str) -> str:
        """Return the program that downloaded a file or directory, or ""."""
        if not self.count:
            return ""
        paths = [path]
        for each in paths:
            self._effort += 1 + len(self._aliases) + len(self._named)
            if self._effort > _MAX_EFFORT:
                # Above the limit everything counts as downloaded.
                return self._last
            found = self._files.get(each) or self.program_for_folder(each)
            found = found or next((named.program for named in self._named if named.holds(each)), "")
            if found:
                return found
            for name, target in self._aliases.items():
                if target and (each == name or each.startswith(name + "/")):
                    meant = target + each[len(name) :]
                    if meant not in paths and len(paths) < _MAX_ALIASES:
                        paths.append(meant)
        return ""

    def program_for_folder(self, path: str) -> str:
        """Return the program that downloaded a whole directory or one of its parents, or ""."""
        while self._folders and path:
            if path in self._folders:
                return self._folders[path]
            path = path.rpartition("/")[0]
        return ""

    def program_below(self, folder: str) -> str:
        """Return the program that downloaded something in a directory, or ""."""
        inside = folder.rstrip("/") + "/"
        paths = (*self._files.items(), *self._folders.items())
        below = next((program for path, program in paths if path.startswith(inside)), "")
        named = next((named.program for named in self._named if folder in named.folders), "")
        return self.program_for(folder) or below or named

    def program_for_word(self, field: Field, cwd: str | None) -> str:
        """Return the program that downloaded the file that a word names, or ""."""
        if not self.count:
            return ""
        if field.kind == "pattern":
            fixed = re.split(r"[*?\[]", field.text, maxsplit=1)[0].rpartition("/")[0]
            return self.program_below(without_dots(join(cwd or UNKNOWN_PLACE, fixed)))
        place = place_of(field, cwd)
        return self.program_below(place) if field.kind == "below" else self.program_for(place)

    # Commands

    def track(self, command: ProgramRun) -> str:
        """Record the downloads of one command; return the program whose download it runs.

        Return "" if it runs none, or if the table of the program already covers that.
        """
        fetch = self._fetch(command)
        if fetch is not None:
            self.use(command.name)
            self._save(fetch, command)
            return ""
        if not self.count:
            return ""
        words = {place_of(value, command.cwd): None for value in _values(command.fields[:_MAX_FIELDS])}
        given = {path: program for path in (*command.read, *words) if (program := self.program_for(path))}
        program = command.stdin or next(iter(given.values()), "")
        if not program:
            return ""
        self.use(program)
        self._unpack(command, program)
        for path in (*command.written, *(() if command.is_known else words)):
            self._make(path, given, command.here, program)
        return program if command.name in _tables().runs and given else ""

    @staticmethod
    def _fetch(command: ProgramRun) -> _Fetch | None:
        rows = _tables().fetches.get(command.name, ())
        texts = [field.text for field in command.fields] if rows else []
        for fetch in rows:
            if starts_with_words(texts, fetch.words) and (fetch.saves != "copy" or _copies_here(texts)):
                return fetch
        return None

    def _save(self, fetch: _Fetch, command: ProgramRun) -> None:
        for path in command.written:
            if path != command.here:
                self.add(path, command.name)
        if fetch.saves == "clone":
            self._clone(fetch, command)
        elif fetch.saves == "copy":
            self._copy(command)
        elif fetch.saves == "folder":
            for folder in command.folders(fetch.into):
                self.add_folder(folder, command.name)
        else:
            self._save_urls(fetch, command)

    def _save_urls(self, fetch: _Fetch, command: ProgramRun) -> None:
        values, here, program = list(_values(command.fields[:_MAX_FIELDS])), command.here, command.name
        sent = frozenset(command.read) - frozenset(command.written)
        places = frozenset(place_of(value, here) for value in values if not _is_url(value)) - sent
        names = {value.text for value in values if value.kind == "exact" and value.text and "/" not in value.text}
        for path in places - {here}:
            self.add(path, program)
        if fetch.whole_if and _any_word(command.fields, fetch.whole_if):
            for folder in places or {here}:
                self.add_folder(folder, program)
            self._name(places | {here}, None, program)
        named = not fetch.named_if or _any_word(command.fields, fetch.named_if)
        if named and not (fetch.named_unless and _any_word(command.fields, fetch.named_unless)):
            urls = [value for value in values if _is_url(value) or value.kind != "exact"]
            ends = {_last_part(value) for value in urls} or {"index.html"}
            self._name(places | {here}, None if None in ends else names.union(filter(None, ends)), program)
        elif names:
            # The directory and the file name may be two words.
            self._name(places, names, program)

    def _name(self, folders: frozenset[str], names: set[str] | None, program: str) -> None:
        self._named.append(_Named(folders, None if names is None else frozenset(names), program))
        if len(self._named) > _MAX_NAMED:
            # Merge the records into one that covers them all.
            every = [named.names for named in self._named]
            known = frozenset[str]().union(*(names for names in every if names is not None))
            folders = frozenset[str]().union(*(named.folders for named in self._named))
            self._named = [_Named(folders, None if None in every else known, program)]

    def _clone(self, fetch: _Fetch, command: ProgramRun) -> None:
        """Record the directory of a cloned repository; a repository on this machine is not a download."""
        operands = command.operands[len(fetch.words) :]
        exact = [at for at, field in enumerate(operands) if field.kind == "exact" and _is_remote(field, command.name)]
        remote = next(iter(exact or [at for at, field in enumerate(operands) if field.kind != "exact"]), None)
        if remote is None:
            return
        last = _last_part(operands[remote])
        if len(operands) > remote + 1:
            self.add_folder(place_of(operands[remote + 1], command.cwd), command.name)
        elif last:
            self.add_folder(f"{command.here}/{last.removesuffix('.git')}", command.name)

    def _copy(self, command: ProgramRun) -> None:
        target, program = command.operands[-1], command.name
        sources = [field for field in command.operands[:-1] if _REMOTE.match(field.text)]
        if not sources:
            sources, target = [target], Field(".", "exact", ".")
        place = place_of(target, command.cwd)
        is_tree = _any_word(command.fields, _RECURSES)
        for source in sources:
            path = source.text.partition(":")[2]
            name = path.rstrip("/").rpartition("/")[2]
            if is_tree and name and not path.endswith("/"):
                self.add_folder(f"{place}/{name}", program)
            if (is_tree and (path.endswith("/") or place != command.here)) or "*" in name or not name:
                self.add_folder(place, program)
            self.add(f"{place}/{name}", program)
        if place != command.here:
            self.add(place, program)

    def _unpack(self, command: ProgramRun, program: str) -> None:
        unpack = _tables().unpacks.get(command.name)
        if unpack is not None and not _any_word(_dashed(command.fields), unpack.unless):
            for folder in command.folders(unpack.into):
                self.add_folder(folder, program)

    def _make(self, path: str, given: Mapping[str, str], here: str, program: str) -> None:
        """Record a file that is derived from downloads."""
        for source in given:
            # In a directory, a copy keeps the name of its source.
            self.add(f"{path}/{source.rpartition('/')[2]}", program)
            if self.program_for_folder(source) and source != path:
                self.add_folder(path, program)
        if path != here:
            self.add(path, program)


def _values(fields: Sequence[Field]) -> Iterator[Field]:
    """Yield each word, and the value attached to an option."""
    for field in fields:
        if not field.text.startswith("-") or field.kind not in ("exact", "unknown"):
            yield field
        elif "=" in field.text:
            yield field._replace(text=field.text.partition("=")[2], source=field.source.partition("=")[2])
        elif field.text[2:] and not field.text.startswith("--"):
            yield field._replace(text=field.text[2:], source=field.source[2:])


def _option_values(fields: Sequence[Field], options: Sequence[str]) -> Iterator[Field]:
    """Yield the values of options, attached or not; the option may be the last letter of a cluster."""
    for at, field in enumerate(fields):
        for option in options:
            short = len(option) == 2  # noqa: PLR2004 - a dash and a letter
            if field.text == option or (short and re.fullmatch(rf"-[A-Za-z]*{option[1]}", field.text)):
                if at + 1 < len(fields):
                    yield fields[at + 1]
            elif field.text.startswith(f"{option}=") or (short and field.text.startswith(option)):
                yield field._replace(
                    text=field.text[len(option) :].removeprefix("="), source=field.source[len(option) :]
                )


def _any_word(fields: Sequence[Field], pattern: str) -> bool:
    return any(re.fullmatch(pattern, field.text) for field in fields)


def _dashed(fields: Sequence[Field]) -> list[Field]:
    """Return the options; the first word may be one without a dash, as in `tar xzf`."""
    first = [fields[0]._replace(text=f"-{fields[0].text}")] if fields and fields[0].text.isalpha() else []
    return [*first, *(field for field in fields if _is_option(field.text))]


def _is_url(field: Field) -> bool:
    return "://" in field.text or "://" in field.source


def _last_part(field: Field) -> str | None:
    """Return the last component of the path of a URL, or None if it is not known before the script runs."""
    text = field.text if field.kind == "exact" else field.source.strip("\"'")
    last = re.split(r"[?#]", text, maxsplit=1)[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return last if not _NOT_PLAIN.search(last) else None


def _is_remote(field: Field, program: str) -> bool:
    if program in ("gh", "glab"):
        return "/" in field.text
    return _REMOTE.match(field.text) is not None and _LOCAL.match(field.text) is None


def _copies_here(texts: Sequence[str]) -> bool:
    """Return whether something is copied from another host to this one."""
    operands = [text for text in texts if not _is_option(text)]
    remote = [_REMOTE.match(text) is not None for text in operands]
    return any(remote) and (not remote[-1] or (len(operands) == 1 and remote[0]))
