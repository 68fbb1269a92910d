"""opencode: a plugin of ours, which asks about every call and blocks it by throwing.

Keeps this invariant: the plugin does nothing while it is loaded, because opencode goes on without a plugin that cannot
be loaded. Address and token are not in it; it reads them from the wire file when it asks.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from remit.assistants.install.advice import in_folder, not_held, protected
from remit.assistants.install.machine import PUBLIC
from remit.assistants.install.plan import Entry, FileChange, JsonEdit, Level, OwnFile, Place, Plan, Wire
from remit.errors import FieldInvalid

__all__ = ["OpencodePlanner", "plugin_text"]

_TEMPLATE: Final = "plugin.js"
_PURE: Final = "`opencode --pure`: it loads no plugins, at no level"
_BELOW: Final = "opencode started in another folder, or attached to a server that runs elsewhere"
_OWN_ASKING: Final = (
    "What opencode asks you about itself: its own permissions say that, whatever the mode of the profile"
)


class OpencodePlanner:
    """The planner of opencode."""

    name = "opencode"
    title = "opencode"
    program = "opencode"
    variable = "XDG_CONFIG_HOME"
    levels: tuple[Level, ...] = ("local", "user", "managed")

    def reads(self, place: Place) -> tuple[str, ...]:  # noqa: ARG002 - others do
        """Return nothing: no file that is looked at keeps plugins from running."""
        return ()

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return the plugin for a place."""
        return Plan(
            form="plugin",
            changes=_changes(place, wire),
            guards=_guards(place),
            protected=protected(self.title, place),
            not_protected=not_held(self.title, *((_BELOW,) if in_folder(place) else ()), _PURE, _OWN_ASKING),
            steps=_steps(place),
        )


def plugin_text(wire: Wire) -> str:
    """Return the plugin of a protection."""
    template = files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return template.replace("@PROTECTION@", wire.protection).replace('"@WIRE@"', json.dumps(wire.path))


def _changes(place: Place, wire: Wire) -> tuple[FileChange, ...]:
    if place.level != "managed":
        return (OwnFile(str(_plugins(place) / f"{_name(wire)}.js"), plugin_text(wire)),)
    folder = _machine(place)
    plugin = folder / "remit" / f"{_name(wire)}.js"
    return (
        OwnFile(str(plugin), plugin_text(wire), PUBLIC),
        JsonEdit(str(folder / "opencode.json"), (Entry(("plugin",), plugin.as_uri()),), PUBLIC),
    )


def _name(wire: Wire) -> str:
    return f"remit-{wire.protection}"


def _steps(place: Place) -> tuple[str, ...]:
    if not in_folder(place):
        return ()
    return ("Keep .opencode/plugin/remit-*.js out of version control: it names a file of this machine",)


def _guards(place: Place) -> tuple[str, ...]:
    names = (".opencode", "opencode.json", "opencode.jsonc")
    here = (str(Path(place.folder, name)) if place.folder else f"**/{name}" for name in names)
    return (str(_user(place)), *here, str(_machine(place)))


def _plugins(place: Place) -> Path:
    if not in_folder(place):
        return _user(place) / "plugin"
    if place.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(place.folder, ".opencode", "plugin")


def _user(place: Place) -> Path:
    return Path(place.config or Path(place.user_home, ".config"), "opencode")


def _machine(place: Place) -> Path:
    usual = "/Library/Application Support/opencode" if sys.platform == "darwin" else "/etc/opencode"
    return Path(place.managed or usual)
