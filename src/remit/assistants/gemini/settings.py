"""Gemini CLI: command hooks, with their patience in milliseconds, and no names that settings could turn them off by.

It runs a call whose hook fails in any other way than with exit code 2, so the command sees to that itself.
"""

import json
import sys
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from remit.assistants.install.advice import in_folder, not_held, protected
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import Entry, FileChange, JsonEdit, Level, Place, Plan, Wire
from remit.assistants.install.reading import read_settings, shown_path
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["GeminiPlanner"]

_SETTINGS: Final = "settings.json"
_SWITCH: Final = "hooksConfig"


class _Event(NamedTuple):
    """An event that is hooked; one of a tool is matched for all tools."""

    name: str
    timeout_ms: int
    of_tool: bool = False


_EVENTS: Final = (
    _Event("BeforeTool", 30_000, of_tool=True),
    _Event("AfterTool", 30_000, of_tool=True),
    _Event("SessionStart", 30_000),
    _Event("SessionEnd", 5_000),
)
_UNTRUSTED: Final = "`gemini --skip-trust` in a folder that it does not trust: it reads no settings from there then"
_BELOW: Final = (
    "Gemini CLI started in another folder, in one below, or with --worktree: it does not read these settings"
)
_TURNED_OFF: Final = (
    f"{_SWITCH} in any settings: it turns hooks off; in managed settings it can name ours to be left out"
)
_AS_ONE: Final = "Subagents apart from the one that starts them: Gemini CLI does not tell who calls, so all are one"


class GeminiPlanner:
    """The planner of Gemini CLI."""

    name = "gemini"
    title = "Gemini CLI"
    program = "gemini"
    variable = "GEMINI_CLI_HOME"
    levels: tuple[Level, ...] = ("local", "user", "managed")

    def reads(self, place: Place) -> tuple[str, ...]:
        """Return the settings that count in a place."""
        return tuple(map(str, _counting(place)))

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return the hooks for a place."""
        _check_enabled(place, wire)
        local = (_BELOW, _UNTRUSTED) if in_folder(place) else ()
        return Plan(
            form="command",
            changes=_changes(place, wire),
            guards=_guards(place),
            protected=protected(self.title, place),
            not_protected=not_held(self.title, *local, _TURNED_OFF, _AS_ONE),
            steps=_steps(place),
        )


def _changes(place: Place, wire: Wire) -> tuple[FileChange, ...]:
    path = _settings(place)
    if place.level != "managed":
        return (JsonEdit(str(path), _entries(wire)),)
    moved, script = for_everyone(wire, path.parent)
    return (script, JsonEdit(str(path), _entries(moved), PUBLIC))


def _entries(wire: Wire) -> tuple[Entry, ...]:
    return tuple(Entry(("hooks", event.name), _group(event, wire)) for event in _EVENTS)


def _group(event: _Event, wire: Wire) -> JSON:
    hook: JSON = {"type": "command", "command": wire.command(), "timeout": event.timeout_ms}
    return {"matcher": "*", "hooks": [hook]} if event.of_tool else {"hooks": [hook]}


def _check_enabled(place: Place, wire: Wire) -> None:
    """Raise if settings that count here turn hooks off, all or ours by the command that is their name."""
    for path in _counting(place):
        switch = read_settings(path, with_comments=True).get(_SWITCH)
        if not isinstance(switch, dict):
            continue
        if switch.get("enabled", True) is not True:
            _refuse("enabled", f"is not true in {shown_path(path)}, so no hook would run: take it out first")
        if wire.protection in json.dumps(switch.get("disabled")):
            _refuse(
                "disabled", f"names our hooks in {shown_path(path)}, so they would not run: take them out of it first"
            )


def _counting(place: Place) -> tuple[Path, ...]:
    here = (Path(place.folder, ".gemini", _SETTINGS),) if place.folder else ()
    return (_machine(place) / _SETTINGS, _user(place) / _SETTINGS, *here)


def _refuse(name: str, problem: str) -> NoReturn:
    raise FieldInvalid(problem, place=f"{_SWITCH}.{name}")


def _steps(place: Place) -> tuple[str, ...]:
    if not in_folder(place):
        return ()
    return (
        "Keep these lines of .gemini/settings.json out of version control: they name programs of this machine",
        "Start Gemini CLI here once and trust the folder: it reads no settings of a folder that it does not trust",
    )


def _guards(place: Place) -> tuple[str, ...]:
    user = _user(place)
    steering = (_SETTINGS, "trustedFolders.json", "extensions", "commands", "agents", "policies", "skills", ".env")
    here = str(Path(place.folder, ".gemini")) if place.folder else "**/.gemini"
    return (*(str(user / name) for name in steering), here, str(_machine(place)))


def _settings(place: Place) -> Path:
    if place.level == "managed":
        return _machine(place) / _SETTINGS
    if not in_folder(place):
        return _user(place) / _SETTINGS
    if place.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(place.folder, ".gemini", _SETTINGS)


def _user(place: Place) -> Path:
    return Path(place.config or place.user_home, ".gemini")


def _machine(place: Place) -> Path:
    usual = "/Library/Application Support/GeminiCli" if sys.platform == "darwin" else "/etc/gemini-cli"
    return Path(place.managed or usual)
