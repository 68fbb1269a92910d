"""Installation planner for opencode: a plugin that asks the Hub about each call, and throws to block it.

Invariant: the plugin does nothing while it is loaded, because opencode continues without a plugin that fails to load.
It does not contain URL and token; it reads them from the wire file for each request.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from remit.assistants.install.advice import describe_protected, describe_unprotected, in_folder
from remit.assistants.install.machine import PUBLIC
from remit.assistants.install.plan import (
    Entry,
    FileChange,
    HookConnection,
    InstallTarget,
    JsonEdit,
    OwnFile,
    Plan,
)
from remit.assistants.records import Level
from remit.errors import FieldInvalid

_TEMPLATE: Final = "plugin.js"
_PURE: Final = "`opencode --pure`: it loads no plugins, at no level"
_BELOW: Final = "opencode started in another folder, or attached to a server that runs elsewhere"
_OWN_PROMPTS: Final = (
    "The prompts of opencode itself: its own permissions decide on them, whatever the mode of the profile"
)


class OpencodePlanner:
    """Makes installation plans for opencode."""

    name = "opencode"
    title = "opencode"
    program = "opencode"
    variable = "XDG_CONFIG_HOME"
    levels: tuple[Level, ...] = ("local", "user", "managed")

    def reads(self, target: InstallTarget) -> tuple[str, ...]:  # noqa: ARG002 - part of the interface
        """Return nothing: no settings file keeps plugins from running."""
        return ()

    def plan(self, target: InstallTarget, wire: HookConnection) -> Plan:
        """Return the plan for a target."""
        return Plan(
            form="plugin",
            changes=_changes(target, wire),
            guards=_guards(target),
            protected=describe_protected(self.title, target),
            not_protected=describe_unprotected(
                self.title, *((_BELOW,) if in_folder(target) else ()), _PURE, _OWN_PROMPTS
            ),
            steps=_steps(target),
        )


def plugin_text(wire: HookConnection) -> str:
    """Return the source of the plugin for a protection."""
    template = files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return template.replace("@PROTECTION@", wire.protection).replace('"@WIRE@"', json.dumps(wire.path))


def _changes(target: InstallTarget, wire: HookConnection) -> tuple[FileChange, ...]:
    if target.level != "managed":
        return (OwnFile(str(_plugins(target) / f"{_name(wire)}.js"), plugin_text(wire)),)
    folder = _machine(target)
    plugin = folder / "remit" / f"{_name(wire)}.js"
    return (
        OwnFile(str(plugin), plugin_text(wire), PUBLIC),
        JsonEdit(str(folder / "opencode.json"), (Entry(("plugin",), plugin.as_uri()),), PUBLIC),
    )


def _name(wire: HookConnection) -> str:
    return f"remit-{wire.protection}"


def _steps(target: InstallTarget) -> tuple[str, ...]:
    if not in_folder(target):
        return ()
    return ("Keep .opencode/plugin/remit-*.js out of version control: it names a file of this machine",)


def _guards(target: InstallTarget) -> tuple[str, ...]:
    names = (".opencode", "opencode.json", "opencode.jsonc")
    here = (str(Path(target.folder, name)) if target.folder else f"**/{name}" for name in names)
    return (str(_user(target)), *here, str(_machine(target)))


def _plugins(target: InstallTarget) -> Path:
    if not in_folder(target):
        return _user(target) / "plugin"
    if target.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(target.folder, ".opencode", "plugin")


def _user(target: InstallTarget) -> Path:
    return Path(target.config or Path(target.user_home, ".config"), "opencode")


def _machine(target: InstallTarget) -> Path:
    usual = "/Library/Application Support/opencode" if sys.platform == "darwin" else "/etc/opencode"
    return Path(target.managed or usual)
