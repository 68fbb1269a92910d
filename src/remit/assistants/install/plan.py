"""Installation plans: which files of an assistant change and how, which paths it may not write to, and known limits.

There is one planner for each assistant. Planners write nothing; `install.py` carries plans out and undoes them.
Invariant: everything that a plan adds to a file can be found again, because it contains the id of the protection. The
exception are members that are set to a value: for them, the record of the protection has the former value.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from remit.assistants.records import HookForm, Level
from remit.claims.strictjson import JSON

# How long the hook command waits for the Hub. The timeouts of hooks in the settings of assistants are longer.
DEADLINE_S: Final = 20
# The script exits with 2 after it has printed a reason. After any other failure nothing was printed yet.
_BLOCK_ON_FAILURE: Final = (
    "{run} || {{ [ $? -eq 2 ] || echo 'Remit: the hook could not run, so nothing is let through."
    " Look at: remit doctor {assistant}' >&2; exit 2; }}"
)
# The command in settings that several users share.
_SHARED: Final = 'python3 -I -S -B "${{REMIT_HOME:-$HOME/.remit}}/protections/hook.py" {protection}'


class InstallTarget(NamedTuple):
    """Where an assistant is to be protected: the settings level, the folder, and what is known of the installation."""

    level: Level
    # Absolute, with symbolic links resolved. None covers every folder that the assistant is started in.
    folder: str | None
    # The home directory of the user, absolute.
    user_home: str
    # The settings folder of the assistant, if an environment variable names one.
    config: str = ""
    # Replaces the folder of machine-wide settings, for tests.
    managed: str = ""
    # The installed version of the assistant; empty if unknown.
    version: str = ""
    # The path of its executable; empty if it was not found.
    program: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookConnection:
    """How the hooks of one protection connect to the Hub."""

    protection: str
    assistant: str
    # The URL that hooks post to; it contains the protection id.
    url: str
    # Hooks authenticate to the Hub with the token; the Hub authenticates its responses with the key `proof`.
    token: str = field(repr=False)
    proof: str = field(repr=False)
    # The file in the home from which the hook command and plugins read this. Only its owner may read it.
    path: str
    # The interpreter and the script that the hook command runs.
    python: str
    script: str

    def command(self) -> str:
        """Return the shell command of a hook. It blocks the call after any failure, including a missing interpreter."""
        run = shlex.join([self.python, "-I", "-S", "-B", self.script, self.path])
        return _BLOCK_ON_FAILURE.format(run=run, assistant=self.assistant)

    def shared_command(self) -> str:
        """Return the command for settings that several users share: each runs the script in their own home."""
        return _BLOCK_ON_FAILURE.format(run=_SHARED.format(protection=self.protection), assistant=self.assistant)

    def with_script_in(self, folder: str) -> "HookConnection":
        """Return a copy whose script is in another folder, where every user of the machine can run it."""
        return replace(self, script=str(Path(folder, "hook.py")))

    def content(self, deadline_s: int = DEADLINE_S) -> dict[str, JSON]:
        """Return the content of its file. `deadline_s` must be shorter than the hook timeout of the assistant."""
        return {
            "url": self.url,
            "token": self.token,
            "proof": self.proof,
            "assistant": self.assistant,
            "deadline_s": deadline_s,
        }


class RegisteredEvent(NamedTuple):
    """A hook event that Remit registers for. Events of tool calls are registered for all tools."""

    name: str
    # In the unit that the assistant uses.
    timeout: int
    is_tool_event: bool = False

    def group(self, hook: Mapping[str, JSON]) -> JSON:
        """Return the entry of a hook in the settings, for assistants that group hooks by a matcher."""
        return {"matcher": "*", "hooks": [dict(hook)]} if self.is_tool_event else {"hooks": [dict(hook)]}


class Entry(NamedTuple):
    """A value to append to an array in a JSON file. Missing arrays and objects on the path are created."""

    where: tuple[str, ...]
    # A string in it must contain the protection id.
    value: JSON


class Member(NamedTuple):
    """A member of an object in a JSON file, and the value to set it to."""

    # Member names from the root; not empty.
    where: tuple[str, ...]
    value: JSON


class JsonEdit(NamedTuple):
    """Entries and members for a JSON file of the user or the assistant. All other bytes of the file are kept."""

    path: str
    entries: tuple[Entry, ...]
    # The mode of the file if it is created.
    mode: int = 0o600
    members: tuple[Member, ...] = ()


class TomlBlock(NamedTuple):
    """Lines to append to a TOML file of the user or the assistant, between two marker comments.

    A block of the same name is replaced.
    """

    path: str
    # Lower-case letters, digits and dashes.
    name: str
    text: str
    mode: int = 0o600


class OwnFile(NamedTuple):
    """A file that only Remit writes, and that must contain the protection id. Files of others are never overwritten."""

    path: str
    text: str
    mode: int = 0o600


FileChange: TypeAlias = JsonEdit | TomlBlock | OwnFile


class Plan(NamedTuple):
    """The changes to make, and sentences for the user about them, without a full stop at the end."""

    form: HookForm
    changes: tuple[FileChange, ...]
    # Paths that the assistant may not write to: files, whether they exist or not, and folders with their content.
    guards: tuple[str, ...]
    protected: tuple[str, ...]
    not_protected: tuple[str, ...]
    # What the user still has to do.
    steps: tuple[str, ...] = ()
    # Findings that weaken the protection.
    warnings: tuple[str, ...] = ()
    # Called after the changes are written; returns further changes.
    settle: Callable[[], tuple[FileChange, ...]] | None = None


class Planner(Protocol):
    """Makes installation plans for one assistant."""

    @property
    def name(self) -> str:
        """Return the assistant's name in commands and paths."""

    @property
    def title(self) -> str:
        """Return the assistant's display name."""

    @property
    def program(self) -> str:
        """Return the name of its executable."""

    @property
    def variable(self) -> str:
        """Return the environment variable that names its settings folder, or an empty string."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Return the settings levels that hooks can be written to, the default first."""

    def reads(self, target: InstallTarget) -> tuple[str, ...]:
        """Return the files and folders that `plan` searches for settings that keep hooks from running."""

    def plan(self, target: InstallTarget, wire: HookConnection) -> Plan:
        """Return the plan for a target. Raises `FieldInvalid` if the assistant cannot be protected there."""
