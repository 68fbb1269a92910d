"""What protecting an assistant means, as values: which files change and how, what is guarded, what stays open.

A planner knows one assistant and writes nothing. `installing.py` carries a plan out, and takes it back.
Keeps this invariant: everything that a plan puts into a file can be found again. It names the protection; or it is a
member that is set, and then the home knows what it was before.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.strictjson import JSON

__all__ = [
    "DEADLINE_S",
    "Added",
    "Block",
    "Change",
    "Entry",
    "Form",
    "Level",
    "Member",
    "Place",
    "Plan",
    "Planner",
    "Whole",
    "Wire",
]

Level: TypeAlias = Literal["local", "project", "user", "managed"]
Form: TypeAlias = Literal["http", "command", "plugin"]
# How long our command waits for the Hub. Hooks of assistants are given more.
DEADLINE_S: Final = 20
# 2 is what the script itself ends with, after it has said why; any other failure has said nothing yet.
_WRAPPED: Final = (
    "{run} || {{ [ $? -eq 2 ] || echo 'Remit: the hook could not run, so nothing is let through."
    " Look at: remit doctor {assistant}' >&2; exit 2; }}"
)


_SHARED: Final = 'python3 -I -S -B "${{REMIT_HOME:-$HOME/.remit}}/protections/hook.py" {protection}'


class Place(NamedTuple):
    """Where an assistant is to be protected."""

    level: Level
    # Absolute and without links; None is wherever the assistant is started.
    folder: str | None
    # What `~` stands for, absolute.
    user_home: str
    # The folder of the assistant's own settings, where a variable of the environment names one.
    config: str = ""
    # Instead of the folder for the whole machine: only for trying things out.
    managed: str = ""
    # Of the assistant that is installed; empty where that is not known.
    version: str = ""
    # The path of its program; empty where it was not found.
    program: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How hooks of one protection reach the Hub."""

    protection: str
    assistant: str
    # The whole address that hooks post to, with the protection in it.
    url: str
    # What hooks show to the Hub, and the key by which the Hub proves itself to them.
    token: str = field(repr=False)
    proof: str = field(repr=False)
    # The file in the home that says this to our command and our plugins. Only its owner reads it.
    path: str
    # What runs the command: an interpreter and the script.
    python: str
    script: str

    def command(self) -> str:
        """Return the shell command of a hook that blocks whatever goes wrong, an interpreter that is gone included."""
        run = shlex.join([self.python, "-I", "-S", "-B", self.script, self.path])
        return _WRAPPED.format(run=run, assistant=self.assistant)

    def shared_command(self) -> str:
        """Return the same for a file that is shared with others: each runs the script of their own home."""
        return _WRAPPED.format(run=_SHARED.format(protection=self.protection), assistant=self.assistant)

    def with_script_in(self, folder: str) -> "Wire":
        """Return the same with the script in another folder, where every user of the machine can run it."""
        return replace(self, script=str(Path(folder, "hook.py")))

    def content(self, deadline_s: int = DEADLINE_S) -> dict[str, JSON]:
        """Return what its file says: `deadline_s` must be shorter than the patience of the assistant."""
        return {
            "url": self.url,
            "token": self.token,
            "proof": self.proof,
            "assistant": self.assistant,
            "deadline_s": deadline_s,
        }


class Entry(NamedTuple):
    """A value at the end of an array in a JSON file; arrays and objects on the way are made where they are missing."""

    where: tuple[str, ...]
    # Some text in it must hold the id of the protection.
    value: JSON


class Member(NamedTuple):
    """A member of an object in a JSON file and the value that it must have, whatever it has now."""

    # Not empty: the names on the way to it, its own the last.
    where: tuple[str, ...]
    value: JSON


class Added(NamedTuple):
    """Entries and members for a JSON file that is not ours: all other bytes of it stay."""

    path: str
    entries: tuple[Entry, ...]
    # Of a file that is made.
    mode: int = 0o600
    members: tuple[Member, ...] = ()


class Block(NamedTuple):
    """Lines at the end of a TOML file that is not ours, between two marks; a second one of this name replaces it."""

    path: str
    # Small letters, digits and dashes.
    name: str
    text: str
    mode: int = 0o600


class Whole(NamedTuple):
    """A file of ours alone, which must name the protection somewhere; a file of others is never overwritten."""

    path: str
    text: str
    mode: int = 0o600


Change: TypeAlias = Added | Block | Whole


class Plan(NamedTuple):
    """What is to be done, and what people are told of it: sentences without a closing stop."""

    form: Form
    changes: tuple[Change, ...]
    # Absolute paths that the assistant may not write to: files, there or not yet, and folders with all in them.
    guards: tuple[str, ...]
    protected: tuple[str, ...]
    not_protected: tuple[str, ...]
    # What a person has to do still.
    steps: tuple[str, ...] = ()
    # What was found that weakens it.
    warnings: tuple[str, ...] = ()
    # Asked once the changes are written: what is left to change then.
    settle: Callable[[], tuple[Change, ...]] | None = None


class Planner(Protocol):
    """What is known of one assistant."""

    @property
    def name(self) -> str:
        """Return its name in commands and paths."""

    @property
    def title(self) -> str:
        """Return its name for people."""

    @property
    def program(self) -> str:
        """Return the name of its program."""

    @property
    def variable(self) -> str:
        """Return the variable of the environment that names the folder of its settings, or nothing."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Return where its hooks can be written, the usual place first."""

    def reads(self, place: Place) -> tuple[str, ...]:
        """Return the files, and the folders of such files, in which `plan` looks for what keeps hooks from running."""

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return what protects the assistant there; `FieldInvalid` says why that cannot be."""
