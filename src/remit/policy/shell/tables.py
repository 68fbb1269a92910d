"""Tables of known programs, and sorting the words of a command line into options and operands.

The tables are in `programs/`; a `Program` is one parsed table. An option that is not in the table is in
`Arguments.unknown`, unless the table says that all other options are harmless.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, Literal, NamedTuple

from msgspec import Struct, convert, structs

from remit.claims.types import SideEffectClass
from remit.policy.field import Field

_REFUSED: Final = "refused"
# Roles after which an interpreter reads no more options of its own.
_ENDS_OPTIONS: Final = frozenset(("javascript", "module", "python", "opaque"))


# A value that looks like a path or URL, for an option that should have no value.
_ELSEWHERE: Final = re.compile(r"\A[/~]|\.\.|://")


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table: the roles of words, and effects that do not depend on the words."""

    name: str = ""
    also: tuple[str, ...] = ()
    # Roles of operands in order; a role that ends in `*` repeats.
    operands: tuple[str, ...] = ()
    # Other roles of operands if an option is given; the first given option counts.
    operands_if: dict[str, tuple[str, ...]] = {}
    # Options that replace the first operand.
    supplied_by: tuple[str, ...] = ()
    # Effects if there is no operand for the repeating role.
    without_operands: tuple[str, ...] = ()
    # Options without a value; `any` means that every option that is not listed is harmless.
    flags: frozenset[str] | Literal["any"] = frozenset()
    # The role of an option's value, or of each of its values.
    options: dict[str, str | tuple[str, ...]] = {}
    # Options that cannot be judged, or the reason why the whole program cannot be.
    deny: dict[str, str] | str = {}
    # Options with which it follows symbolic links below directories; true if it always does.
    follows: tuple[str, ...] | bool = False
    side: SideEffectClass = "none"
    style: Literal["short", "long"] = "short"
    # Options end at the first operand.
    posix: bool = False
    # Hosts that it contacts by itself; `?` for one that the command does not name.
    contacts: tuple[str, ...] = ()
    contacts_if: dict[str, tuple[str, ...]] = {}
    # Options with which it contacts no host.
    offline_if: tuple[str, ...] = ()
    # Whether data is sent to the contacted hosts.
    sends: bool = False
    sends_if: tuple[str, ...] = ()
    # It runs project code, which is controlled by files of these names.
    runs: bool = False
    runs_if: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    # Effects if the joined operands match a pattern: `edit PATH`, `manage RESOURCE`, `refuse REASON`.
    forms: dict[str, str] = {}
    # The program that gets the words after `--`.
    behind: str = ""
    # It takes every environment variable as a setting, whose text becomes part of commands.
    settings: bool = False
    # Effects that it always has, and effects with an option, or without one (`no:-d`).
    touches: tuple[str, ...] = ()
    touches_if: dict[str, tuple[str, ...]] = {}
    # Machine state that it uses or changes if no word names any of that kind: always, and with an option.
    manages: tuple[str, ...] = ()
    manages_if: dict[str, tuple[str, ...]] = {}
    # The language of standard input if there is no operand. With `no_stdin_if`: also if no operand is code, unless one
    # of these options is given.
    stdin: str = ""
    no_stdin_if: tuple[str, ...] = ()
    privilege: bool = False
    # Files are placed in the last operand under their own names, if that is a directory.
    into: bool = False
    # Options that name the target directory, and options with which the last operand is never a directory.
    into_by: tuple[str, ...] = ()
    not_into: tuple[str, ...] = ()
    # It touches everything in a directory, not only the files of a project.
    spreads: bool = False
    # Options with which it changes nothing; they must stand before the first operand.
    looks_if: tuple[str, ...] = ()
    # The program whose table is used instead.
    program: str = ""
    # Options with which the started program does not get the whole environment.
    clears: tuple[str, ...] = ()
    # It replaces each word `@file` by the words of that file.
    at_files: bool = False
    # Refused unless one of these options is given.
    needs: tuple[str, ...] = ()
    # A folder of the project with the tool, which then is not downloaded; a tool that is neither there nor downloaded
    # is any program on the machine.
    unless_local: str = ""
    # Judged by a function instead of a table.
    handler: str = ""
    # The subcommand if none is given.
    default: str = ""
    sub: dict[str, "Program"] = {}
    # A first operand that is not a subcommand is an operand; the list of subcommands is complete.
    open: bool = False
    sub_modules: dict[str, "Program"] = {}

    @property
    def refused_options(self) -> dict[str, str]:
        """Return the options that cannot be judged, with the reason."""
        return self.deny if isinstance(self.deny, dict) else {}

    @property
    def refusal(self) -> str:
        """Return why the program cannot be judged at all, or ""."""
        return self.deny if isinstance(self.deny, str) else ""

    @property
    def is_harmless(self) -> bool:
        """Return whether no option can do more than change the output."""
        return (
            self.flags == "any"
            and not self.deny
            and not self.handler
            and all(role in ("data", "data?") for role in self.options.values())
        )

    def ignores_option(self, text: str) -> bool:
        """Return whether an option only changes the output."""
        if self.flags != "any" or self.handler:
            return False
        matters = (
            *(self.follows if isinstance(self.follows, tuple) else ()),
            *(*self.operands_if, *self.supplied_by, *self.offline_if, *self.sends_if),
            *(name.removeprefix("no:") for name in self.touches_if),
            *(*self.into_by, *self.not_into, *self.looks_if, *self.needs, *self.runs_if, *self.contacts_if),
        )
        arguments = parse_arguments(self, (Field(text, "exact", text),))
        return (
            not arguments.unknown and not any(role for _, role, _ in arguments.options) and not arguments.has(matters)
        )


@lru_cache(maxsize=1)
def _sections() -> Mapping[str, tuple[str, str]]:
    """Return the unparsed section of each program: there are hundreds, and few are needed at a time."""
    sections: dict[str, tuple[str, str]] = {}
    for file in package_files("remit.policy.shell").joinpath("programs").iterdir():
        if file.name.endswith(".toml"):
            parts = _HEADER.split(file.read_text(encoding="utf-8"))
            for quoted, section in zip(parts[1::2], parts[2::2], strict=True):
                name = quoted.strip('"')
                text = sections.get(name, ("", ""))[1] + f"[{quoted}{section}"
                for other in (name, *_ALSO_NAME.findall((_ALSO.match(section) or [""])[0])):
                    sections[other] = (name, text)
                sections[name] = (name, text)
    return sections


# The first part of a table name, and further names in the table itself.
_HEADER: Final = re.compile(r'^\[("[^"]+"|[A-Za-z0-9_-]+)(?=[.\]])', re.MULTILINE)
_ALSO: Final = re.compile(r"\](?:[^\n]*\n(?!\[))*?also = \[[^\]]*\]")
_ALSO_NAME: Final = re.compile(r'"([^"]+)"')


def program_names() -> frozenset[str]:
    """Return the names of all known programs."""
    return frozenset(_sections())


@lru_cache(maxsize=1024)
def known_program(name: str) -> Program | None:
    """Return the table of a program, or None."""
    own, text = _sections().get(name, ("", ""))
    if not text:
        return None
    return _named(convert(tomllib.loads(_sections()[own][1])[own], Program), name)


def _named(program: Program, name: str) -> Program:
    """Return a program and its subcommands with their full names."""
    subs = {word: _named(sub, f"{name} {own}") for own, sub in program.sub.items() for word in (own, *sub.also)}
    modules = {
        word: _named(sub, f"{name} {own}") for own, sub in program.sub_modules.items() for word in (own, *sub.also)
    }
    # The words after a subcommand belong to it, so the options of the program end there.
    return structs.replace(program, name=name, sub=subs, sub_modules=modules, posix=program.posix or bool(subs))


class Arguments(NamedTuple):
    """The sorted words of a command line: options with their roles and values, and operands."""

    options: tuple[tuple[str, str, Field | None], ...]
    operands: tuple[Field, ...]
    # Words that may be an unknown option.
    unknown: tuple[Field, ...]
    # How many operands stand before `--`; None without `--`.
    before: int | None = None

    def has(self, names: Sequence[str]) -> bool:
        """Return whether one of the options was given."""
        return bool(names and self.options) and any(option in names for option, _, _ in self.options)


class _Sorter:
    """Sorts the words in one pass, as getopt does."""

    def __init__(self, program: Program, fields: Sequence[Field]) -> None:
        self.program = program
        self.ahead = list(reversed(fields))
        self.options: list[tuple[str, str, Field | None]] = []
        self.operands: list[Field] = []
        self.unknown: list[Field] = []
        self.before: int | None = None

    def sort(self) -> Arguments:
        while self.ahead:
            field = self.ahead.pop()
            if field.kind == "exact" and field.text == "--":
                self.before = len(self.operands)
                self._rest()
            elif self._is_option(field):
                self._option(field)
            else:
                self.operands.append(field)
                if self.program.posix:
                    self._rest()
        return Arguments(tuple(self.options), tuple(self.operands), tuple(self.unknown), self.before)

    def _rest(self) -> None:
        self.operands.extend(reversed(self.ahead))
        self.ahead.clear()

    def _is_option(self, field: Field) -> bool:
        if field.text[:1] in ("+", "@") and field.text[0] in self.program.refused_options:
            return True
        if field.text == "-" and "-" in self.program.refused_options:
            return True
        if field.kind == "unknown" and (not field.text or field.splits):
            # It may be anything, including an option.
            if not self.program.is_harmless:
                self.unknown.append(field)
            return False
        return field.text.startswith("-") and len(field.text) > 1 and field.kind != "below"

    def _option(self, field: Field) -> None:
        text = field.text
        if text[0] in "+@" or text == "-":
            self.options.append((text[0], _REFUSED, field))
        elif self.program.style == "long" and not text.startswith("--"):
            self._long(field, text)
        elif text.startswith("--"):
            self._long(field, text if self.program.style != "long" else text[1:])
        elif text[2:] and (text in self.program.options or text in self.program.refused_options):
            self._valued(field, text, None)
        elif "=" in text and (name := text.partition("=")[0]) in self.program.options and name[2:]:
            self._valued(field, name, field._replace(text=text.partition("=")[2]))
        elif self.program.flags != "any" and field.text in self.program.flags:
            self.options.append((text, "", None))
        else:
            self._cluster(field)

    def _long(self, field: Field, text: str) -> None:
        name, equals, value = text.partition("=")
        attached = field._replace(text=value) if equals else None
        if attached is None and field.kind == "unknown":
            self.unknown.append(field)
        elif name in self.program.options or name in self.program.refused_options:
            self._valued(field, name, attached)
        elif (self.program.flags == "any" and not self._abbreviates(name)) or (
            self.program.flags != "any" and name in self.program.flags and not _ELSEWHERE.search(value)
        ):
            self.options.append((name, "", attached))
        elif self.program.style == "long" and field.text.startswith("-") and self._number(text):
            self.options.append((name, "", None))
        else:
            self.unknown.append(field)
            self._shortened(field, name, attached)

    def _shortened(self, field: Field, name: str, attached: Field | None) -> None:
        """Treat a prefix of a long option as that option too, as many programs do."""
        flags = () if self.program.flags == "any" else self.program.flags
        meant = [known for known in (*self.program.options, *flags) if name[3:] and known.startswith(name)]
        if len(meant) == 1 and meant[0] in self.program.options:
            self._valued(field, meant[0], attached)
        elif len(meant) == 1:
            self.options.append((meant[0], "", attached))

    def _abbreviates(self, name: str) -> bool:
        """Return whether a long option may be a prefix of one that matters."""
        return any(known.startswith(name) for known in (*self.program.options, *self.program.refused_options))

    def _valued(self, field: Field, name: str, attached: Field | None) -> None:
        role = self.program.options.get(name, _REFUSED)
        if not isinstance(role, str):
            for each in role:
                self.options.append((name, each, self.ahead.pop() if self.ahead else None))
        elif role.endswith("??"):
            # The value may be the next word, which may also be an operand.
            value = attached or (self.ahead[-1] if self.ahead and not self.ahead[-1].text.startswith("-") else None)
            self.options.append((name, role[:-2] if value else "", value))
        elif role.endswith("?"):
            self.options.append((name, role[:-1] if attached else "", attached))
        elif role == _REFUSED:
            self.options.append((name, role, attached or field))
        else:
            value = attached if attached is not None else self.ahead.pop() if self.ahead else None
            self.options.append((name, role if value is not None else "", value))
            if role in _ENDS_OPTIONS and self.program.posix:
                self._rest()

    @staticmethod
    def _number(text: str) -> bool:
        return text[1:].isdigit()

    def _cluster(self, field: Field) -> None:
        """Sort a cluster of short options, the last of which may have its value attached."""
        program, text = self.program, field.text
        if self._number(text) and (program.flags == "any" or "-NUM" in program.flags):
            self.options.append((text, "", None))
            return
        for at in range(1, len(text)):
            name = "-" + text[at]
            role = program.options.get(name)
            if isinstance(role, str) and role.endswith("!"):
                # Its value is the next word, whatever letters follow; these are options too.
                self.options.append((name, role[:-1], self.ahead.pop() if self.ahead else None))
                if text[at + 1 :]:
                    self.unknown.append(field)
                elif role == "shell!":
                    # The words after the code are its parameters.
                    self._rest()
                return
            if name in program.options or name in program.refused_options:
                rest = text[at + 1 :]
                attached = field._replace(text=rest) if rest or field.kind == "unknown" else None
                self._valued(field, name, attached)
                return
            if program.flags != "any" and name not in program.flags:
                self.unknown.append(field)
                return
            self.options.append((name, "", None))
        if field.kind != "exact":
            self.unknown.append(field)


def parse_arguments(program: Program, fields: Sequence[Field]) -> Arguments:
    """Sort the words after a program's name according to its table."""
    return _Sorter(program, fields).sort()


def roles(program: Program, arguments: Arguments) -> Iterator[tuple[str, Field]]:
    """Yield each operand with its role: fixed roles from both ends, the repeating one between."""
    wanted = list(
        next((given for name, given in program.operands_if.items() if arguments.has((name,))), program.operands)
    )
    if wanted and program.supplied_by and arguments.has(program.supplied_by):
        wanted.pop(0)
    given = list(arguments.operands)
    star = next((index for index, role in enumerate(wanted) if role.endswith("*")), None)
    if star is None:
        yield from zip([*wanted, *[""] * (len(given) - len(wanted))], given, strict=False)
        return
    before, after = wanted[:star], wanted[star + 1 :]
    last = max(len(given) - len(after), len(before))
    repeated = wanted[star][:-1]
    for index, field in enumerate(given):
        if index < len(before):
            yield before[index], field
        elif index >= last:
            yield after[index - last], field
        else:
            yield repeated, field
