"""Installation planner for Claude Code.

A hook is a command that exits with 2 if Remit does not answer, so that every version of Claude Code blocks the call.
The token is in no file that Claude Code can read: the command reads it from the Remit home. Shared settings contain no
path of this machine; the command in them uses the home of the user who runs it. Shell commands in skills run without a
hook, so the plan turns them off.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.assistants.claude_code.layers import DISABLED, NO_SHELL_IN_SKILLS, find_obstacles
from remit.assistants.install.acceptance import SettingsReader, find_invalid, format_path
from remit.assistants.install.files import shorten_path
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import (
    Entry,
    FileChange,
    HookConnection,
    InstallTarget,
    JsonEdit,
    Member,
    OwnFile,
    Plan,
    RegisteredEvent,
)
from remit.assistants.install.reading import read_settings
from remit.assistants.records import Level
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

# The first version that runs managed hooks with `--bare`, and that blocks if an HTTP hook with `onFailure` fails.
BLOCKS_ON_FAILURE: Final = (2, 1, 295)
OLDEST_TESTED: Final = (2, 1, 197)
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)+")
_BEFORE_CALL: Final = "PreToolUse"
_EVENTS: Final = (
    RegisteredEvent(_BEFORE_CALL, 30, is_tool_event=True),
    RegisteredEvent("PostToolUse", 30, is_tool_event=True),
    RegisteredEvent("PostToolUseFailure", 30, is_tool_event=True),
    RegisteredEvent("SubagentStart", 30),
    RegisteredEvent("SubagentStop", 30),
    RegisteredEvent("SessionStart", 30),
    # All hooks of this event together get 1.5 seconds, or the longest timeout among them.
    RegisteredEvent("SessionEnd", 5),
)
_FILES: Final[Mapping[Level, str]] = {
    "local": "settings.local.json",
    "project": "settings.json",
    "user": "settings.json",
    "managed": "managed-settings.d/remit.json",
}
# Files and folders in a settings folder that change what Claude Code does, or what it runs without a hook.
_GUARDED_NAMES: Final = (
    "settings.json", "settings.local.json",
    "agents", "commands", "hooks", "output-styles", "plugins", "rules", "skills", "workflows",
)  # fmt: skip
_OUTSIDE: Final = (
    "What programs do that it may run: a test that it writes runs unseen, with your rights",
    "Sessions that run already: restart Claude Code",
)
_BYPASSED: Final = "`claude --bare`, `claude --safe-mode`, and options of it that turn hooks off"
_OVERRULED: Final = "A folder whose own settings turn hooks off, or commands in skills on: they count more than yours"
_BARE: Final = "`claude --bare` of versions before {0}, which runs no hooks at all"


class ClaudeCodePlanner:
    """Makes installation plans for Claude Code."""

    name = "claude-code"
    title = "Claude Code"
    program = "claude"
    variable = "CLAUDE_CONFIG_DIR"
    levels: tuple[Level, ...] = ("local", "project", "user", "managed")

    def reads(self, target: InstallTarget) -> tuple[str, ...]:
        """Return its settings files, and the folder of managed settings."""
        layers = _layers(target)
        drop_ins = layers.pop("managed").parent
        return (*map(str, layers.values()), str(drop_ins.parent / "managed-settings.json"), str(drop_ins))

    def plan(self, target: InstallTarget, wire: HookConnection) -> Plan:
        """Return the plan for a target."""
        obstacles = find_obstacles(_layers(target), target.level)
        _check_accepted(target)
        return Plan(
            form="command",
            changes=_changes(target, wire),
            guards=_guards(target),
            protected=_describe_protected(target),
            not_protected=_describe_unprotected(target),
            steps=_steps(target),
            warnings=(*obstacles, *_warnings(target)),
        )


def _check_accepted(target: InstallTarget) -> None:
    """Raise if Claude Code would ignore the settings file, and with it the hooks."""
    path = _layers(target)[target.level]
    if target.level == "managed":
        return
    overwritten = {member.where[0] for member in _members(target)}
    settings = {name: value for name, value in read_settings(path).items() if name not in overwritten}
    for where in find_invalid(SettingsReader(ClaudeCodePlanner.name, target.version), settings):
        problem = "is not a value that Claude Code accepts, so it would ignore the whole file: correct it first"
        raise FieldInvalid(problem, place=f"{shorten_path(path)} {format_path(where)}")


def parse_version(text: str) -> tuple[int, ...]:
    """Parse a version into a tuple of numbers; empty if the text has none."""
    found = _NUMBERS.search(text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _changes(target: InstallTarget, wire: HookConnection) -> tuple[FileChange, ...]:
    path = str(_layers(target)[target.level])
    if target.level != "managed":
        command = wire.shared_command() if target.level == "project" else wire.command()
        entries = tuple(Entry(("hooks", name), group) for name, group in _groups(command).items())
        return (JsonEdit(path, entries, PUBLIC if target.level == "project" else 0o600, _members(target)),)
    moved, script = for_everyone(wire, _managed_folder(target))
    groups: dict[str, JSON] = {name: [group] for name, group in _groups(moved.command()).items()}
    settings = {"allowManagedHooksOnly": True, NO_SHELL_IN_SKILLS: True, "hooks": groups}
    return (script, OwnFile(path, json.dumps(settings, indent=2) + "\n", PUBLIC))


def _members(target: InstallTarget) -> tuple[Member, ...]:
    """Return the members to set besides the hooks."""
    return (
        Member((NO_SHELL_IN_SKILLS,), value=True),
        # Overrides the project settings in the repository.
        *((Member((DISABLED,), value=False),) if target.level == "local" else ()),
    )


def _groups(command: str) -> dict[str, JSON]:
    """Return a hook group for each event."""
    return {event.name: _group(event, command) for event in _EVENTS}


def _group(event: RegisteredEvent, command: str) -> JSON:
    hook: dict[str, JSON] = {"type": "command", "command": command, "timeout": event.timeout}
    if event.name == _BEFORE_CALL:
        hook["onFailure"] = "block"
    return event.group(hook)


def _layers(target: InstallTarget) -> dict[Level, Path]:
    """Return the settings files for a target, lowest precedence first."""
    layers: dict[Level, Path] = {"user": _user(target) / _FILES["user"]}
    if target.folder is not None:
        layers |= {level: Path(target.folder, ".claude", _FILES[level]) for level in ("project", "local")}
    elif target.level in ("project", "local"):
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return layers | {"managed": _managed_folder(target) / _FILES["managed"]}


def _user(target: InstallTarget) -> Path:
    return Path(target.config or Path(target.user_home, ".claude"))


def _managed_folder(target: InstallTarget) -> Path:
    usual = "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"
    return Path(target.managed or usual)


def _guards(target: InstallTarget) -> tuple[str, ...]:
    """Return the guarded paths: user settings, and settings in any folder, because nested ones are read too."""
    own = tuple(str(_user(target) / name) for name in _GUARDED_NAMES)
    anywhere = ("**/.mcp.json", *(f"**/.claude/{name}" for name in _GUARDED_NAMES))
    here = () if target.folder is None else tuple(str(Path(target.folder, guard[3:])) for guard in anywhere)
    return (*own, str(Path(target.user_home, ".claude.json")), str(_managed_folder(target)), *here, *anywhere)


def _describe_protected(target: InstallTarget) -> tuple[str, ...]:
    where = (
        f"Claude Code started in {target.folder}"
        if target.level in ("local", "project")
        else "Claude Code, wherever it is started"
    )
    if target.level == "managed":
        where = "Claude Code of the user who runs the Hub; that of every other user of this machine runs nothing"
    return (
        f"{where}: every tool call of it and of its subagents is decided on first",
        "If Remit does not answer, nothing runs",
        "Shell commands in skills and custom commands, for which it calls no hook, do not run at all",
        "Its settings, its hooks and your profile: it may not change them",
    )


def _describe_unprotected(target: InstallTarget) -> tuple[str, ...]:
    below = f"Claude Code started in another folder, or in one below: it does not read {_FILES[target.level]} from here"
    return (
        *((below,) if target.level in ("local", "project") else ()),
        *((_OVERRULED,) if target.level == "user" else ()),
        _BARE.format(_format_version(BLOCKS_ON_FAILURE)) if target.level == "managed" else _BYPASSED,
        *_OUTSIDE,
    )


def _steps(target: InstallTarget) -> tuple[str, ...]:
    table: Mapping[Level, tuple[str, ...]] = {
        "local": ("Keep .claude/settings.local.json out of version control: it names programs of this machine",),
        "project": (
            "Everyone who works here: run `remit protect claude-code --settings project` once. Until then Claude Code"
            " runs nothing here. The hooks look for the home in $REMIT_HOME, else in ~/.remit",
        ),
    }
    return table.get(target.level, ())


def _warnings(target: InstallTarget) -> tuple[str, ...]:
    version = parse_version(target.version)
    if not version:
        return ("Claude Code was not found, so its version is not known",)
    if version < OLDEST_TESTED:
        return (f"Claude Code {target.version} is older than any that this was tried with: update it",)
    return ()
