"""Installation planner for Codex CLI, which runs command hooks only once they are trusted.

Invariants: only entries that Codex knows are written, because it ignores all hooks if one is unknown. Input to running
programs is turned off, because Codex calls no hook for it.
"""

import json
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from remit.assistants.install.advice import describe_protected, describe_unprotected, in_folder
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import (
    Entry,
    FileChange,
    HookConnection,
    InstallTarget,
    JsonEdit,
    Plan,
    RegisteredEvent,
    TomlBlock,
)
from remit.assistants.install.tomltext import remove_blocks
from remit.assistants.install.trust import list_hooks, trust_settings
from remit.assistants.records import Level
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, InputError

_TERMINAL: Final = "unified_exec_tty"
_HOOKS: Final = "hooks"
_OFF: Final = f"[features]\n{_TERMINAL} = false\n"
_EVENTS: Final = (
    RegisteredEvent("PreToolUse", 30, is_tool_event=True),
    RegisteredEvent("PostToolUse", 30, is_tool_event=True),
    RegisteredEvent("SubagentStart", 30),
    RegisteredEvent("SubagentStop", 30),
    RegisteredEvent("SessionStart", 30),
    # Codex limits the timeout of this event to this value, and warns about a longer one at every start.
    RegisteredEvent("SessionEnd", 3),
)
_WITHOUT_HOOKS: Final = "Searches of the web and pictures: the provider of the model makes them, and no hook is asked"
_TURNED_OFF: Final = (
    "`codex --disable hooks`, and features.hooks = false in any settings; managed settings hold there too"
)
_BELOW: Final = (
    "Codex started in another folder, in one below that is in no repository with this one, or with --worktree"
)
_MOVED: Final = "Changes to {path}: Codex trusts a hook by its place there; run `remit protect codex` again"


class CodexPlanner:
    """Makes installation plans for Codex CLI."""

    name = "codex"
    title = "Codex CLI"
    program = "codex"
    variable = "CODEX_HOME"
    levels: tuple[Level, ...] = ("local", "user", "managed")

    def reads(self, target: InstallTarget) -> tuple[str, ...]:
        """Return the settings files that can turn features off."""
        own = () if target.level == "managed" else (_folder(target),)
        return tuple(str(folder / "config.toml") for folder in (_user(target), *own))

    def plan(self, target: InstallTarget, wire: HookConnection) -> Plan:
        """Return the plan for a target: hooks, and the settings that make Codex trust them."""
        if target.level == "managed":
            return self._managed(target, wire)
        folder = _folder(target)
        settings = folder / "config.toml"
        own = _features(settings, wire)
        features = {**_features(_user(target) / "config.toml", wire), **own}
        if features.get(_HOOKS) is False:
            raise FieldInvalid("hooks are turned off, so none would run: take that out first", place="features.hooks")
        entries = tuple(Entry(("hooks", event.name), _group(event, wire)) for event in _EVENTS)
        turned_off: tuple[FileChange, ...] = () if own else (TomlBlock(str(settings), "terminal", _OFF),)
        is_open = bool(own) and features.get(_TERMINAL) is not False
        return Plan(
            form="command",
            changes=(JsonEdit(str(folder / "hooks.json"), entries), *turned_off),
            guards=_guards(target),
            protected=describe_protected(self.title, target),
            not_protected=self._not_protected(target, _MOVED.format(path=folder / "hooks.json")),
            steps=_steps(target),
            warnings=(_by_hand(settings),) if is_open else (),
            settle=partial(_trust_hooks, target, wire),
        )

    def _managed(self, target: InstallTarget, wire: HookConnection) -> Plan:
        folder = _machine(target)
        moved, script = for_everyone(wire, folder)
        text = _tables(moved) + f"{_OFF}{_HOOKS} = true\n"
        return Plan(
            form="command",
            changes=(script, TomlBlock(str(folder / "requirements.toml"), "hooks", text, PUBLIC)),
            guards=_guards(target),
            protected=describe_protected(self.title, target),
            not_protected=self._not_protected(target),
        )

    def _not_protected(self, target: InstallTarget, *others: str) -> tuple[str, ...]:
        weaker = () if target.level == "managed" else (_TURNED_OFF, *others)
        return describe_unprotected(self.title, *((_BELOW,) if in_folder(target) else ()), *weaker, _WITHOUT_HOOKS)


def _trust_hooks(target: InstallTarget, wire: HookConnection) -> tuple[FileChange, ...]:
    """Return the change that makes Codex trust the hooks, which must be written by now."""
    hooks = list_hooks(target.program, target.folder or target.user_home)
    text = trust_settings(hooks, wire.protection, len(_EVENTS))
    return (TomlBlock(str(_user(target) / "config.toml"), "trust", text),) if text else ()


def _group(event: RegisteredEvent, wire: HookConnection) -> JSON:
    return event.group({"type": "command", "command": wire.command(), "timeout": event.timeout})


def _tables(wire: HookConnection) -> str:
    """Return the hooks as TOML."""
    lines = list[str]()
    for event in _EVENTS:
        lines += [f"[[hooks.{event.name}]]", *(['matcher = "*"'] if event.is_tool_event else [])]
        lines += [f"[[hooks.{event.name}.hooks]]", 'type = "command"', f"timeout = {event.timeout}"]
        lines += [f"command = {json.dumps(wire.command())}", ""]
    return "\n".join(lines) + "\n"


def _features(path: Path, wire: HookConnection) -> Mapping[str, Any]:
    """Return the features in a settings file, without Remit's. Empty if it cannot be parsed, which is refused later."""
    try:
        features = tomllib.loads(remove_blocks(path.read_bytes(), wire.protection).decode("utf-8")).get("features")
    except (OSError, InputError):
        return {}
    return features if isinstance(features, dict) else {}


def _by_hand(path: Path) -> str:
    shown = "/".join(path.parts[-2:])
    return (
        f"{shown} has features of its own, to which nothing can be added: write {_TERMINAL} = false there yourself."
        " Until then Codex types into programs that run, and asks no hook about what"
    )


def _steps(target: InstallTarget) -> tuple[str, ...]:
    if not in_folder(target):
        return ()
    return ("Keep .codex/hooks.json out of version control: it names programs of this machine",)


def _guards(target: InstallTarget) -> tuple[str, ...]:
    user = _user(target)
    steering = (user / "hooks.json", user / "config.toml", user / "rules", user / "plugins", user / "AGENTS.md")
    here = str(Path(target.folder, ".codex")) if target.folder else "**/.codex"
    return (*map(str, steering), here, str(_machine(target)))


def _folder(target: InstallTarget) -> Path:
    if not in_folder(target):
        return _user(target)
    if target.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(target.folder, ".codex")


def _user(target: InstallTarget) -> Path:
    return Path(target.config or Path(target.user_home, ".codex"))


def _machine(target: InstallTarget) -> Path:
    return Path(target.managed or "/etc/codex")
