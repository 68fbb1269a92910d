"""Claude Code: where its hooks are written, and what stays open.

A hook is a command, which ends with 2 when Remit cannot be asked, so that every version blocks the call. No file that
Claude Code can read holds a token: the command finds it in the home. Shared settings name no path of this machine; the
command in them looks for the home of whoever runs it. What no hook is asked about, the commands in skills, is turned
off beside the hooks.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.claude_code.layers import DISABLED, NO_SHELL_IN_SKILLS, find_obstacles
from remit.assistants.install.acceptance import Reader, named, refused_in
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import Entry, FileChange, JsonEdit, Level, Member, OwnFile, Place, Plan, Wire
from remit.assistants.install.reading import read_settings, shown_path
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["BLOCKS_ON_FAILURE", "OLDEST_TRIED", "ClaudeCodePlanner", "version_of"]

# The first version that runs managed hooks with `--bare`, and blocks when a hook over HTTP fails that asks for it.
BLOCKS_ON_FAILURE: Final = (2, 1, 295)
OLDEST_TRIED: Final = (2, 1, 197)
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)+")


class _Event(NamedTuple):
    """An event that is hooked; one of a tool is matched for all tools."""

    name: str
    timeout_s: int
    of_tool: bool = False


_ASKING: Final = "PreToolUse"
_EVENTS: Final = (
    _Event(_ASKING, 30, of_tool=True),
    _Event("PostToolUse", 30, of_tool=True),
    _Event("PostToolUseFailure", 30, of_tool=True),
    _Event("SubagentStart", 30),
    _Event("SubagentStop", 30),
    _Event("SessionStart", 30),
    # All hooks of it together get a second and a half, or as long as the longest asks for.
    _Event("SessionEnd", 5),
)
_FILES: Final[Mapping[Level, str]] = {
    "local": "settings.local.json",
    "project": "settings.json",
    "user": "settings.json",
    "managed": "managed-settings.d/remit.json",
}
# What steers Claude Code, or lets it run something unasked, in a folder of settings.
_STEERING: Final = (
    "settings.json", "settings.local.json",
    "agents", "commands", "hooks", "output-styles", "plugins", "rules", "skills", "workflows",
)  # fmt: skip
_OUTSIDE: Final = (
    "What programs do that it may run: a test that it writes runs unseen, with your rights",
    "Sessions that run already: start Claude Code anew",
)
_BYPASSED: Final = "`claude --bare`, `claude --safe-mode`, and options of it that turn hooks off"
_OVERRULED: Final = "A folder whose own settings turn hooks off, or commands in skills on: they count more than yours"
_BARE: Final = "`claude --bare` of versions before {0}, which runs no hooks at all"


class ClaudeCodePlanner:
    """The planner of Claude Code."""

    name = "claude-code"
    title = "Claude Code"
    program = "claude"
    variable = "CLAUDE_CONFIG_DIR"
    levels: tuple[Level, ...] = ("local", "project", "user", "managed")

    def reads(self, place: Place) -> tuple[str, ...]:
        """Return the layers of its settings."""
        layers = _layers(place)
        drop_ins = layers.pop("managed").parent
        return (*map(str, layers.values()), str(drop_ins.parent / "managed-settings.json"), str(drop_ins))

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return the hooks for a place."""
        obstacles = find_obstacles(_layers(place), place.level)
        _check_accepted(place)
        return Plan(
            form="command",
            changes=_changes(place, wire),
            guards=_guards(place),
            protected=_protected(place),
            not_protected=_not_protected(place),
            steps=_steps(place),
            warnings=(*obstacles, *_warnings(place)),
        )


def _check_accepted(place: Place) -> None:
    """Raise if Claude Code drops the file that hooks are to be written to: then it would run none of them."""
    path = _layers(place)[place.level]
    if place.level == "managed":
        return
    set_anyway = {member.where[0] for member in _members(place)}
    said = {name: value for name, value in read_settings(path).items() if name not in set_anyway}
    for where in refused_in(Reader(ClaudeCodePlanner.name, place.version), said):
        problem = "is not a value that Claude Code accepts, so it would drop the whole file: put it right first"
        raise FieldInvalid(problem, place=f"{shown_path(path)} {named(where)}")


def version_of(text: str) -> tuple[int, ...]:
    """Return a version as numbers that compare; nothing for a text without one."""
    found = _NUMBERS.search(text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _changes(place: Place, wire: Wire) -> tuple[FileChange, ...]:
    path = str(_layers(place)[place.level])
    if place.level != "managed":
        command = wire.shared_command() if place.level == "project" else wire.command()
        entries = tuple(Entry(("hooks", name), group) for name, group in _groups(command).items())
        return (JsonEdit(path, entries, PUBLIC if place.level == "project" else 0o600, _members(place)),)
    moved, script = for_everyone(wire, _managed(place))
    groups: dict[str, JSON] = {name: [group] for name, group in _groups(moved.command()).items()}
    settings = {"allowManagedHooksOnly": True, NO_SHELL_IN_SKILLS: True, "hooks": groups}
    return (script, OwnFile(path, json.dumps(settings, indent=2) + "\n", PUBLIC))


def _members(place: Place) -> tuple[Member, ...]:
    """Return what is set beside hooks."""
    return (
        Member((NO_SHELL_IN_SKILLS,), value=True),
        # What a repository brings along counts less than this.
        *((Member((DISABLED,), value=False),) if place.level == "local" else ()),
    )


def _groups(command: str) -> dict[str, JSON]:
    """Return one group of hooks for each event."""
    return {event.name: _group(event, command) for event in _EVENTS}


def _group(event: _Event, command: str) -> JSON:
    hook: dict[str, JSON] = {"type": "command", "command": command, "timeout": event.timeout_s}
    if event.name == _ASKING:
        hook["onFailure"] = "block"
    return {"matcher": "*", "hooks": [hook]} if event.of_tool else {"hooks": [hook]}


def _layers(place: Place) -> dict[Level, Path]:
    """Return the settings files that count in a place, the weakest first."""
    layers: dict[Level, Path] = {"user": _user(place) / _FILES["user"]}
    if place.folder is not None:
        layers |= {level: Path(place.folder, ".claude", _FILES[level]) for level in ("project", "local")}
    elif place.level in ("project", "local"):
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return layers | {"managed": _managed(place) / _FILES["managed"]}


def _user(place: Place) -> Path:
    return Path(place.config or Path(place.user_home, ".claude"))


def _managed(place: Place) -> Path:
    usual = "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"
    return Path(place.managed or usual)


def _guards(place: Place) -> tuple[str, ...]:
    """Return what steers it: the settings of its user, and those of any folder, because it reads nested ones too."""
    own = tuple(str(_user(place) / name) for name in _STEERING)
    anywhere = ("**/.mcp.json", *(f"**/.claude/{name}" for name in _STEERING))
    here = () if place.folder is None else tuple(str(Path(place.folder, guard[3:])) for guard in anywhere)
    return (*own, str(Path(place.user_home, ".claude.json")), str(_managed(place)), *here, *anywhere)


def _protected(place: Place) -> tuple[str, ...]:
    where = f"Claude Code started in {place.folder}" if place.level in ("local", "project") else "Claude Code, wherever"
    if place.level == "managed":
        where = "Claude Code of the user who runs the Hub; that of every other user of this machine runs nothing"
    return (
        f"{where}: every tool call of it and of its subagents is decided on first",
        "If Remit does not answer, nothing runs",
        "Commands inside of skills and custom commands, which it asks nobody about, do not run at all",
        "Its settings, its hooks and your profile: it may not change them",
    )


def _not_protected(place: Place) -> tuple[str, ...]:
    below = f"Claude Code started in another folder, or in one below: it does not read {_FILES[place.level]} from here"
    return (
        *((below,) if place.level in ("local", "project") else ()),
        *((_OVERRULED,) if place.level == "user" else ()),
        _BARE.format(_shown(BLOCKS_ON_FAILURE)) if place.level == "managed" else _BYPASSED,
        *_OUTSIDE,
    )


def _steps(place: Place) -> tuple[str, ...]:
    table: Mapping[Level, tuple[str, ...]] = {
        "local": ("Keep .claude/settings.local.json out of version control: it names programs of this machine",),
        "project": (
            "Everyone who works here: run `remit protect claude-code --settings project` once. Until then Claude Code"
            " runs nothing here. The hooks look for the home in $REMIT_HOME, else in ~/.remit",
        ),
    }
    return table.get(place.level, ())


def _warnings(place: Place) -> tuple[str, ...]:
    version = version_of(place.version)
    if not version:
        return ("Claude Code was not found, so its version is not known",)
    if version < OLDEST_TRIED:
        return (f"Claude Code {place.version} is older than any that this was tried with: update it",)
    return ()
