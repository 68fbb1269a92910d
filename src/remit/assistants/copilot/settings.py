"""Installation planner for Copilot CLI: command hooks in a file that only Remit writes.

A hook that fails blocks the call, but one that times out does not, so the hook command has a shorter timeout. Hooks in
a folder run only if the folder is trusted, and a non-interactive session trusts none, so the default level is `user`.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.assistants.install.advice import describe_protected, describe_unprotected, in_folder
from remit.assistants.install.files import shorten_path
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import FileChange, HookConnection, InstallTarget, OwnFile, Plan
from remit.assistants.install.reading import read_settings
from remit.assistants.records import Level
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

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
    """Makes installation plans for Copilot CLI."""

    name = "copilot"
    title = "Copilot CLI"
    program = "copilot"
    variable = "COPILOT_HOME"
    levels: tuple[Level, ...] = ("user", "local", "managed")

    def reads(self, target: InstallTarget) -> tuple[str, ...]:
        """Return the user settings, and the folder of hook files."""
        return (*map(str, _settings(target)), str(_hooks(target)))

    def plan(self, target: InstallTarget, wire: HookConnection) -> Plan:
        """Return the plan for a target."""
        weaker = () if target.level == "managed" else (_TURNED_OFF,)
        if weaker:
            _check_enabled(target)
        return Plan(
            form="command",
            changes=_changes(target, wire),
            guards=_guards(target),
            protected=describe_protected(self.title, target),
            not_protected=describe_unprotected(self.title, *((_UNTRUSTED,) if in_folder(target) else ()), *weaker),
            steps=_steps(target),
        )


def _changes(target: InstallTarget, wire: HookConnection) -> tuple[FileChange, ...]:
    path = _hooks(target) / "remit.json"
    if target.level != "managed":
        return (OwnFile(str(path), _text(wire)),)
    moved, script = for_everyone(wire, _machine(target))
    return (script, OwnFile(str(path), _text(moved), PUBLIC))


def _text(wire: HookConnection) -> str:
    hooks: dict[str, JSON] = {
        event: [{"type": "command", "bash": wire.command(), "timeoutSec": timeout_s}]
        for event, timeout_s in _EVENTS.items()
    }
    return json.dumps({"version": 1, "hooks": hooks}, indent=2) + "\n"


def _check_enabled(target: InstallTarget) -> None:
    """Raise if a settings or hook file turns hooks off."""
    for path in (*_settings(target), *sorted(_hooks(target).glob("*.json"))):
        # Copilot CLI writes comments at the start of its own file.
        if read_settings(path, with_comments=True).get(_SWITCH, False) is not False:
            problem = f"{_SWITCH} is not false, so no hook would run: take it out first"
            raise FieldInvalid(problem, place=shorten_path(path))


def _steps(target: InstallTarget) -> tuple[str, ...]:
    if not in_folder(target):
        return ()
    return (
        "Keep .github/hooks/remit.json out of version control: it names programs of this machine",
        "Start Copilot CLI here once and trust the folder",
    )


def _guards(target: InstallTarget) -> tuple[str, ...]:
    steering = ("hooks", "settings.json", "config.json", "mcp-config.json", "agents", "skills", "plugins")
    names = (
        ".github/hooks",
        ".github/copilot",
        ".github/agents",
        ".claude/settings.json",
        ".claude/settings.local.json",
    )
    here = (str(Path(target.folder, name)) if target.folder else f"**/{name}" for name in names)
    return (*(str(_user(target) / name) for name in steering), *here, str(_machine(target)))


def _settings(target: InstallTarget) -> tuple[Path, ...]:
    return tuple(_user(target) / name for name in ("settings.json", "config.json"))


def _hooks(target: InstallTarget) -> Path:
    """Return the folder of hook files for a target."""
    if target.level == "managed":
        return _machine(target) / "policy.d"
    if not in_folder(target):
        return _user(target) / "hooks"
    if target.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(target.folder, ".github", "hooks")


def _user(target: InstallTarget) -> Path:
    return Path(target.config or Path(target.user_home, ".copilot"))


def _machine(target: InstallTarget) -> Path:
    usual = "/Library/Application Support/github-copilot" if sys.platform == "darwin" else "/etc/github-copilot"
    return Path(target.managed or usual)
