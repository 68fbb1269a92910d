"""Installation planner for Gemini CLI, which runs command hooks with timeouts in milliseconds.

The hooks have no names, so that settings cannot turn them off by name. Gemini CLI blocks a call only if the hook exits
with 2, so the hook command turns every failure into that.
"""

import json
import sys
from pathlib import Path
from typing import Final, NoReturn

from remit.assistants.install.advice import describe_protected, describe_unprotected, in_folder
from remit.assistants.install.files import shorten_path
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import (
    Entry,
    FileChange,
    HookConnection,
    InstallTarget,
    JsonEdit,
    Plan,
    RegisteredEvent,
)
from remit.assistants.install.reading import read_settings
from remit.assistants.records import Level
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

_SETTINGS: Final = "settings.json"
_SWITCH: Final = "hooksConfig"
_EVENTS: Final = (
    RegisteredEvent("BeforeTool", 30_000, is_tool_event=True),
    RegisteredEvent("AfterTool", 30_000, is_tool_event=True),
    RegisteredEvent("SessionStart", 30_000),
    RegisteredEvent("SessionEnd", 5_000),
)
_UNTRUSTED: Final = "`gemini --skip-trust` in a folder that it does not trust: it reads no settings from there then"
_BELOW: Final = (
    "Gemini CLI started in another folder, in one below, or with --worktree: it does not read these settings"
)
_TURNED_OFF: Final = (
    f"{_SWITCH} in any settings: it turns hooks off; in managed settings it can turn off the hooks of Remit by name"
)
_AS_ONE: Final = "Subagents apart from the one that starts them: its hooks do not get the caller, so all count as one"


class GeminiPlanner:
    """Makes installation plans for Gemini CLI."""

    name = "gemini"
    title = "Gemini CLI"
    program = "gemini"
    variable = "GEMINI_CLI_HOME"
    levels: tuple[Level, ...] = ("local", "user", "managed")

    def reads(self, target: InstallTarget) -> tuple[str, ...]:
        """Return the settings files for a target."""
        return tuple(map(str, _settings_files(target)))

    def plan(self, target: InstallTarget, wire: HookConnection) -> Plan:
        """Return the plan for a target."""
        _check_enabled(target, wire)
        local = (_BELOW, _UNTRUSTED) if in_folder(target) else ()
        return Plan(
            form="command",
            changes=_changes(target, wire),
            guards=_guards(target),
            protected=describe_protected(self.title, target),
            not_protected=describe_unprotected(self.title, *local, _TURNED_OFF, _AS_ONE),
            steps=_steps(target),
        )


def _changes(target: InstallTarget, wire: HookConnection) -> tuple[FileChange, ...]:
    path = _settings(target)
    if target.level != "managed":
        return (JsonEdit(str(path), _entries(wire)),)
    moved, script = for_everyone(wire, path.parent)
    return (script, JsonEdit(str(path), _entries(moved), PUBLIC))


def _entries(wire: HookConnection) -> tuple[Entry, ...]:
    return tuple(Entry(("hooks", event.name), _group(event, wire)) for event in _EVENTS)


def _group(event: RegisteredEvent, wire: HookConnection) -> JSON:
    return event.group({"type": "command", "command": wire.command(), "timeout": event.timeout})


def _check_enabled(target: InstallTarget, wire: HookConnection) -> None:
    """Raise if settings turn off all hooks, or Remit's: a hook without a name is identified by its command."""
    for path in _settings_files(target):
        switch = read_settings(path, with_comments=True).get(_SWITCH)
        if not isinstance(switch, dict):
            continue
        if switch.get("enabled", True) is not True:
            _refuse("enabled", f"is not true in {shorten_path(path)}, so no hook would run: take it out first")
        if wire.protection in json.dumps(switch.get("disabled")):
            _refuse(
                "disabled",
                f"names the hooks of Remit in {shorten_path(path)}, so they would not run: take them out of it first",
            )


def _settings_files(target: InstallTarget) -> tuple[Path, ...]:
    here = (Path(target.folder, ".gemini", _SETTINGS),) if target.folder else ()
    return (_machine(target) / _SETTINGS, _user(target) / _SETTINGS, *here)


def _refuse(name: str, problem: str) -> NoReturn:
    raise FieldInvalid(problem, place=f"{_SWITCH}.{name}")


def _steps(target: InstallTarget) -> tuple[str, ...]:
    if not in_folder(target):
        return ()
    return (
        "Keep these lines of .gemini/settings.json out of version control: they name programs of this machine",
        "Start Gemini CLI here once and trust the folder: it reads no settings of a folder that it does not trust",
    )


def _guards(target: InstallTarget) -> tuple[str, ...]:
    user = _user(target)
    steering = (_SETTINGS, "trustedFolders.json", "extensions", "commands", "agents", "policies", "skills", ".env")
    here = str(Path(target.folder, ".gemini")) if target.folder else "**/.gemini"
    return (*(str(user / name) for name in steering), here, str(_machine(target)))


def _settings(target: InstallTarget) -> Path:
    if target.level == "managed":
        return _machine(target) / _SETTINGS
    if not in_folder(target):
        return _user(target) / _SETTINGS
    if target.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(target.folder, ".gemini", _SETTINGS)


def _user(target: InstallTarget) -> Path:
    return Path(target.config or target.user_home, ".gemini")


def _machine(target: InstallTarget) -> Path:
    usual = "/Library/Application Support/GeminiCli" if sys.platform == "darwin" else "/etc/gemini-cli"
    return Path(target.managed or usual)
