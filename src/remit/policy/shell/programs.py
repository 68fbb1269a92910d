"""What is known about programs, and which words of a command line are options and operands.

The knowledge is in the tables under `programs/`; `Program` is one table, read once. An option that a table does not
list is not guessed at: `Arguments.unknown` names it, unless the table says that every other option is harmless.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, Literal, NamedTuple

from msgspec import Struct, convert, structs

from remit.claims.shapes import SideEffectClass
from remit.policy.shell.state import Field

__all__ = ["Arguments", "Program", "known_program", "parse_arguments", "program_names", "roles"]

_REFUSED: Final = "refused"
# Roles after which an interpreter reads no more options of its own.
_ENDS_OPTIONS: Final = frozenset(("javascript", "module", "python", "opaque"))


# A value that names a place, which an option without a value should not have.
_ELSEWHERE: Final = re.compile(r"\A[/~]|\.\.|://")


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table: the roles of words, and facts that hold whatever the words are."""

    name: str = ""
    also: tuple[str, ...] = ()
    # Roles of positional words in order; one that ends in `*` repeats.
    operands: tuple[str, ...] = ()
    # Other operands when an option is given; the first that is counts.
    operands_if: dict[str, tuple[str, ...]] = {}
    # Options that give what the first operand would have given.
    supplied_by: tuple[str, ...] = ()
    # Effects when no word is left for the role that repeats.
    without_operands: tuple[str, ...] = ()
    # Options without a value; `any`: every option that is not listed is harmless.
    flags: frozenset[str] | Literal["any"] = frozenset()
    # The role of an option's value, or of each of its values.
    options: dict[str, str | tuple[str, ...]] = {}
    # Options that can never be judged, or why the whole program cannot be.
    deny: dict[str, str] | str = {}
    # Options with which it follows links below directories; true where it always does.
    follows: tuple[str, ...] | bool = False
    side: SideEffectClass = "none"
    style: Literal["short", "long"] = "short"
    # Options end at the first operand.
    posix: bool = False
    # Hosts it contacts by itself; `?` for one that the command does not name.
    contacts: tuple[str, ...] = ()
    contacts_if: dict[str, tuple[str, ...]] = {}
    # Options that keep it from contacting anything.
    offline_if: tuple[str, ...] = ()
    # Whether data leaves with what is contacted.
    sends: bool = False
    sends_if: tuple[str, ...] = ()
    # Runs code of the project, steered by files of these names.
    runs: bool = False
    runs_if: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    # Effects that come with operands that have a form when joined: `edit PATH`, `manage RESOURCE`, `refuse REASON`.
    forms: dict[str, str] = {}
    # The program that gets the words behind `--`.
    behind: str = ""
    # It takes every variable of the environment as a setting, whose text ends up in commands.
    settings: bool = False
    # Effects that it always has, and those that come with an option, or without one (`no:-d`).
    touches: tuple[str, ...] = ()
    touches_if: dict[str, tuple[str, ...]] = {}
    # State of the machine that it uses or changes where no word names some of that kind; always, and with an option.
    manages: tuple[str, ...] = ()
    manages_if: dict[str, tuple[str, ...]] = {}
    # The language in which it reads standard input where it has no operand. With the second one: also beside operands
    # that are no code, unless one of these options is given.
    stdin: str = ""
    no_stdin_if: tuple[str, ...] = ()
    privilege: bool = False
    # Files land in the last operand under their own names, where that is a directory.
    into: bool = False
    # Options that name the directory in which they land, and those with which the last operand is never one.
    into_by: tuple[str, ...] = ()
    not_into: tuple[str, ...] = ()
    # It touches whatever is in a directory, and not what belongs together as a project.
    spreads: bool = False
    # Options with which it only looks; they count before the first operand.
    looks_if: tuple[str, ...] = ()
    # Judged by another program's table.
    program: str = ""
    # Options with which the program that it starts has not all variables of the environment.
    clears: tuple[str, ...] = ()
    # It takes the words of a file for each word `@file`, wherever that stands.
    at_files: bool = False
    # Refused unless one of these options is given.
    needs: tuple[str, ...] = ()
    # A folder of the project that holds the tool, which is then not downloaded; a tool that is neither there nor
    # downloaded is a program of the machine.
    unless_local: str = ""
    # Judged by code instead of a table.
    handler: str = ""
    # The sub command when none is given.
    default: str = ""
    sub: dict[str, "Program"] = {}
    # A first operand that is no sub command is an operand: there are no other sub commands.
    open: bool = False
    sub_modules: dict[str, "Program"] = {}

    @property
    def refused_options(self) -> dict[str, str]:
        """Return the options that can never be judged, with the reason."""
        return self.deny if isinstance(self.deny, dict) else {}

    @property
    def refusal(self) -> str:
        """Return why nothing the program does can be judged, or nothing."""
        return self.deny if isinstance(self.deny, str) else ""

    @property
    def is_harmless(self) -> bool:
        """Return whether no option can do anything but change what is printed."""
        return (
            self.flags == "any"
            and not self.deny
            and not self.handler
            and all(role in ("data", "data?") for role in self.options.values())
        )

    def ignores_option(self, text: str) -> bool:
        """Return whether an option changes nothing but what is printed."""
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
    """Return each program's part of the tables, unparsed: a few are needed at a time, and there are hundreds."""
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


# The first part of a table's name, and other names in the program's own table.
_HEADER: Final = re.compile(r'^\[("[^"]+"|[A-Za-z0-9_-]+)(?=[.\]])', re.MULTILINE)
_ALSO: Final = re.compile(r"\](?:[^\n]*\n(?!\[))*?also = \[[^\]]*\]")
_ALSO_NAME: Final = re.compile(r'"([^"]+)"')


def program_names() -> frozenset[str]:
    """Return the names of all programs that are known."""
    return frozenset(_sections())


@lru_cache(maxsize=1024)
def known_program(name: str) -> Program | None:
    """Return what is known about a program."""
    own, text = _sections().get(name, ("", ""))
    if not text:
        return None
    return _named(convert(tomllib.loads(_sections()[own][1])[own], Program), name)


def _named(program: Program, name: str) -> Program:
    """Return a program and its sub commands with their full names, and under all of them."""
    subs = {word: _named(sub, f"{name} {own}") for own, sub in program.sub.items() for word in (own, *sub.also)}
    modules = {
        word: _named(sub, f"{name} {own}") for own, sub in program.sub_modules.items() for word in (own, *sub.also)
    }
    # What follows a sub command belongs to it.
    return structs.replace(program, name=name, sub=subs, sub_modules=modules, posix=program.posix or bool(subs))


class Arguments(NamedTuple):
    """The words of a command line, sorted: options with their roles and values, and operands."""

    options: tuple[tuple[str, str, Field | None], ...]
    operands: tuple[Field, ...]
    # Words that may be an option nobody knows.
    unknown: tuple[Field, ...]
    # How many operands stand before `--`; None where there is none.
    before: int | None = None

    def has(self, names: Sequence[str]) -> bool:
        """Return whether one of the options was given."""
        return bool(names and self.options) and any(option in names for option, _, _ in self.options)


class _Sorter:
    """Goes through the words once, as getopt does."""

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
            # It may be anything, an option included.
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
        """Sort the beginning of a long option as that option too: many programs take it for one."""
        flags = () if self.program.flags == "any" else self.program.flags
        meant = [known for known in (*self.program.options, *flags) if name[3:] and known.startswith(name)]
        if len(meant) == 1 and meant[0] in self.program.options:
            self._valued(field, meant[0], attached)
        elif len(meant) == 1:
            self.options.append((meant[0], "", attached))

    def _abbreviates(self, name: str) -> bool:
        """Return whether a long option may be the beginning of one that matters."""
        return any(known.startswith(name) for known in (*self.program.options, *self.program.refused_options))

    def _valued(self, field: Field, name: str, attached: Field | None) -> None:
        role = self.program.options.get(name, _REFUSED)
        if not isinstance(role, str):
            for each in role:
                self.options.append((name, each, self.ahead.pop() if self.ahead else None))
        elif role.endswith("??"):
            # The value may be the next word, which may be an operand as well.
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
        """Sort short options written together, the last of which may have its value attached."""
        program, text = self.program, field.text
        if self._number(text) and (program.flags == "any" or "-NUM" in program.flags):
            self.options.append((text, "", None))
            return
        for at in range(1, len(text)):
            name = "-" + text[at]
            role = program.options.get(name)
            if isinstance(role, str) and role.endswith("!"):
                # Its value is the next word, whatever letters follow; those would be options too.
                self.options.append((name, role[:-1], self.ahead.pop() if self.ahead else None))
                if text[at + 1 :]:
                    self.unknown.append(field)
                elif role == "shell!":
                    # What follows the text are its parameters.
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
    """Return the words that follow a program's name, sorted as its table says."""
    return _Sorter(program, fields).sort()


def roles(program: Program, arguments: Arguments) -> Iterator[tuple[str, Field]]:
    """Yield each operand with its role: fixed roles from both ends, the repeated one between."""
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
