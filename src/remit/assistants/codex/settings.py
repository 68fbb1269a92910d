"""Codex CLI: command hooks, which it runs once they are trusted, and no input that it asks no hook about.

Keeps these invariants: nothing is written that it would not read, because one entry of a kind that it does not know
makes it drop all of them; and input to a running program, about which it asks no hook, is turned off.
"""

import json
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from remit.assistants.install.advice import in_folder, not_held, protected
from remit.assistants.install.machine import PUBLIC, for_everyone
from remit.assistants.install.plan import Entry, FileChange, JsonEdit, Level, Place, Plan, TomlBlock, Wire
from remit.assistants.install.tomltext import remove_blocks
from remit.assistants.install.trust import ask_hooks, trusting
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, InputError

__all__ = ["CodexPlanner"]

_TERMINAL: Final = "unified_exec_tty"
_HOOKS: Final = "hooks"
_OFF: Final = f"[features]\n{_TERMINAL} = false\n"


class _Event(NamedTuple):
    """An event that is hooked; one of a tool is matched for all tools."""

    name: str
    timeout_s: int
    of_tool: bool = False


_EVENTS: Final = (
    _Event("PreToolUse", 30, of_tool=True),
    _Event("PostToolUse", 30, of_tool=True),
    _Event("SubagentStart", 30),
    _Event("SubagentStop", 30),
    _Event("SessionStart", 30),
    # It cuts a longer time down to this, and says so at every start.
    _Event("SessionEnd", 3),
)
_UNSEEN: Final = "Searches of the web and pictures: the provider of the model makes them, and no hook is asked"
_TURNED_OFF: Final = (
    "`codex --disable hooks`, and features.hooks = false in any settings; managed settings hold there too"
)
_BELOW: Final = (
    "Codex started in another folder, in one below that is in no repository with this one, or with --worktree"
)
_MOVED: Final = "Changes to {path}: Codex trusts a hook by its place there; run `remit protect codex` again"


class CodexPlanner:
    """The planner of Codex CLI."""

    name = "codex"
    title = "Codex CLI"
    program = "codex"
    variable = "CODEX_HOME"
    levels: tuple[Level, ...] = ("local", "user", "managed")

    def reads(self, place: Place) -> tuple[str, ...]:
        """Return the settings that name features."""
        own = () if place.level == "managed" else (_folder(place),)
        return tuple(str(folder / "config.toml") for folder in (_user(place), *own))

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return the hooks for a place, and what makes Codex trust them."""
        if place.level == "managed":
            return self._managed(place, wire)
        folder = _folder(place)
        settings = folder / "config.toml"
        own = _features(settings, wire)
        features = {**_features(_user(place) / "config.toml", wire), **own}
        if features.get(_HOOKS) is False:
            raise FieldInvalid("hooks are turned off, so none would run: take that out first", place="features.hooks")
        entries = tuple(Entry(("hooks", event.name), _group(event, wire)) for event in _EVENTS)
        turned_off: tuple[FileChange, ...] = () if own else (TomlBlock(str(settings), "terminal", _OFF),)
        is_open = bool(own) and features.get(_TERMINAL) is not False
        return Plan(
            form="command",
            changes=(JsonEdit(str(folder / "hooks.json"), entries), *turned_off),
            guards=_guards(place),
            protected=protected(self.title, place),
            not_protected=self._open(place, _MOVED.format(path=folder / "hooks.json")),
            steps=_steps(place),
            warnings=(_by_hand(settings),) if is_open else (),
            settle=partial(_settled, place, wire),
        )

    def _managed(self, place: Place, wire: Wire) -> Plan:
        folder = _machine(place)
        moved, script = for_everyone(wire, folder)
        text = _tables(moved) + f"{_OFF}{_HOOKS} = true\n"
        return Plan(
            form="command",
            changes=(script, TomlBlock(str(folder / "requirements.toml"), "hooks", text, PUBLIC)),
            guards=_guards(place),
            protected=protected(self.title, place),
            not_protected=self._open(place),
        )

    def _open(self, place: Place, *others: str) -> tuple[str, ...]:
        weaker = () if place.level == "managed" else (_TURNED_OFF, *others)
        return not_held(self.title, *((_BELOW,) if in_folder(place) else ()), *weaker, _UNSEEN)


def _settled(place: Place, wire: Wire) -> tuple[FileChange, ...]:
    """Return the trust in the hooks that are written by now, as Codex itself names them."""
    told = ask_hooks(place.program, place.folder or place.user_home)
    text = trusting(told, wire.protection, len(_EVENTS))
    return (TomlBlock(str(_user(place) / "config.toml"), "trust", text),) if text else ()


def _group(event: _Event, wire: Wire) -> JSON:
    hook: JSON = {"type": "command", "command": wire.command(), "timeout": event.timeout_s}
    return {"matcher": "*", "hooks": [hook]} if event.of_tool else {"hooks": [hook]}


def _tables(wire: Wire) -> str:
    """Return the hooks as TOML."""
    lines = list[str]()
    for event in _EVENTS:
        lines += [f"[[hooks.{event.name}]]", *(['matcher = "*"'] if event.of_tool else [])]
        lines += [f"[[hooks.{event.name}.hooks]]", 'type = "command"', f"timeout = {event.timeout_s}"]
        lines += [f"command = {json.dumps(wire.command())}", ""]
    return "\n".join(lines) + "\n"


def _features(path: Path, wire: Wire) -> Mapping[str, Any]:
    """Return the features that a settings file names, ours left out; one that cannot be read is refused later."""
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


def _steps(place: Place) -> tuple[str, ...]:
    if not in_folder(place):
        return ()
    return ("Keep .codex/hooks.json out of version control: it names programs of this machine",)


def _guards(place: Place) -> tuple[str, ...]:
    user = _user(place)
    steering = (user / "hooks.json", user / "config.toml", user / "rules", user / "plugins", user / "AGENTS.md")
    here = str(Path(place.folder, ".codex")) if place.folder else "**/.codex"
    return (*map(str, steering), here, str(_machine(place)))


def _folder(place: Place) -> Path:
    if not in_folder(place):
        return _user(place)
    if place.folder is None:
        raise FieldInvalid("needs a folder: name it with --scope", place="--settings")
    return Path(place.folder, ".codex")


def _user(place: Place) -> Path:
    return Path(place.config or Path(place.user_home, ".codex"))


def _machine(place: Place) -> Path:
    return Path(place.managed or "/etc/codex")
