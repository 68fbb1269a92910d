"""Copilot CLI: command hooks in a file of ours.

A failing hook blocks there, but one that takes too long does not: our command gives up well before. Hooks of a folder
count only where the folder is trusted, which it is not in a session without a person; so the usual place is the user's.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.assistants.install.advice import in_folder, not_held, protected
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import FileChange, Level, OwnFile, Place, Plan, Wire
from remit.assistants.install.reading import read_settings, shown_path
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["CopilotPlanner"]

_SWITCH: Final = "disableAllHooks"
_EVENTS: Final[Mapping[str, int]] = {
    "preToolUse": 30,
    "postToolUse": 30,
    "postToolUseFailure": 30,
    "subagentStart": 30,
    "subagentStop": 30,
    "sessionStart": 30,
    "sessionEnd": 5,
}
_UNTRUSTED: Final = (
    "`copilot -p` without --trust-folder, and folders that are not trusted: hooks of a folder do not run"
)
_TURNED_OFF: Final = f"{_SWITCH} in settings or in another file of hooks; managed settings hold there too"


class CopilotPlanner:
    """The planner of Copilot CLI."""

    name = "copilot"
    title = "Copilot CLI"
    program = "copilot"
    variable = "COPILOT_HOME"
    levels: tuple[Level, ...] = ("user", "local", "managed")

    def reads(self, place: Place) -> tuple[str, ...]:
        """Return the settings of the user, and the folder of hooks."""
        return (*map(str, _settings(place)), str(_hooks(place)))

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return the hooks for a place."""
        weaker = () if place.level == "managed" else (_TURNED_OFF,)
        if weaker:
            _check_enabled(place)
        return Plan(
            form="command",
            changes=_changes(place, wire),
            guards=_guards(place),
            protected=protected(self.title, place),
            not_protected=not_held(self.title, *((_UNTRUSTED,) if in_folder(place) else ()), *weaker),
            steps=_steps(place),
        )


def _changes(place: Place, wire: Wire) -> tuple[FileChange, ...]:
    path = _hooks(place) / "remit.json"
    if place.level != "managed":
        return (OwnFile(str(path), _text(wire)),)
    moved, script = for_everyone(wire, _machine(place))
    return (script, OwnFile(str(path), _text(moved), PUBLIC))


def _text(wire: Wire) -> str:
    hooks: dict[str, JSON] = {
        event: [{"type": "command", "bash": wire.command(), "timeoutSec": timeout_s}]
        for event, timeout_s in _EVENTS.items()
    }
    return json.dumps({"version": 1, "hooks": hooks}, indent=2) + "\n"


def _check_enabled(place: Place) -> None:
    """Raise if a file that counts here turns hooks off."""
    for path in (*_settings(place), *sorted(_hooks(place).glob("*.json"))):
        # It begins its own file with comments.
        if read_settings(path, with_comments=True).get(_SWITCH, False) is not False:
            problem = f"{_SWITCH} is not false, so no hook would run: take it out first"
            raise FieldInvalid(problem, place=shown_path(path))


def _steps(place: Place) -> tuple[str, ...]:
    if not in_folder(place):
        return ()
    return (
        "Keep .github/hooks/remit.json out of version control: it names programs of this machine",
        "Start Copilot CLI here once and trust the folder",
    )


def _guards(place: Place) -> tuple[str, ...]:
    steering = ("hooks", "settings.json", "config.json", "mcp-config.json", "agents", "skills", "plugins")
    names = (
        ".github/hooks",
        ".github/copilot",
        ".github/agents",
        ".claude/settings.json",
        ".claude/settings.local.json",
    )
    here = (str(Path(place.folder, name)) if place.folder else f"**/{name}" for name in names)
    return (*(str(_user(place) / name) for name in steering), *here, str(_machine(place)))


def _settings(place: Place) -> tuple[Path, ...]:
    return tuple(_user(place) / name for name in ("settings.json", "config.json"))


def _hooks(place: Place) -> Path:
    """Return the folder whose files of hooks are read."""
    if place.level == "managed":
        return _machine(place) / "policy.d"
    if not in_folder(place):
        return _user(place) / "hooks"
    if place.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(place.folder, ".github", "hooks")


def _user(place: Place) -> Path:
    return Path(place.config or Path(place.user_home, ".copilot"))


def _machine(place: Place) -> Path:
    usual = "/Library/Application Support/github-copilot" if sys.platform == "darwin" else "/etc/github-copilot"
    return Path(place.managed or usual)
