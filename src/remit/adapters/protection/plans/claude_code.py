"""Claude Code: where its hooks are written, in which form they block when Remit cannot be asked, and what stays open.

Keeps this invariant: every version that is met gets a form that blocks a call if the Hub does not answer. Versions that
know `onFailure` get HTTP hooks; for all others, and for one that is not known, a command that ends with 2 by itself.
What no hook is asked about, the commands in skills, is turned off beside them; and the Hub is asked past any proxy.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from remit.adapters.hooks.script import script_text
from remit.adapters.protection.plan import Added, Change, Entry, Form, Level, Member, Place, Plan, Whole, Wire
from remit.adapters.protection.plans.claude_environment import ENVIRONMENT, NO_PROXY, left_out
from remit.adapters.protection.plans.claude_layers import DISABLED, NO_SHELL_IN_SKILLS, find_obstacles
from remit.adapters.protection.plans.reading import read_settings
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["BLOCKS_ON_FAILURE", "OLDEST_TRIED", "TOKEN_VARIABLE", "ClaudeCode", "version_of"]

# The first version whose HTTP hooks can be told to block when they fail.
BLOCKS_ON_FAILURE: Final = (2, 1, 295)
OLDEST_TRIED: Final = (2, 1, 197)
TOKEN_VARIABLE: Final = "REMIT_HOOK_TOKEN"  # noqa: S105 - the name of a variable
_PUBLIC: Final = 0o644
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)+")


class _Event(NamedTuple):
    """An event that is hooked; one of a tool is matched for all tools."""

    name: str
    timeout_s: int
    of_tool: bool = False
    # Claude Code asks no HTTP hook there.
    only_command: bool = False


_ASKING: Final = "PreToolUse"
_EVENTS: Final = (
    _Event(_ASKING, 30, of_tool=True),
    _Event("PostToolUse", 30, of_tool=True),
    _Event("PostToolUseFailure", 30, of_tool=True),
    _Event("SubagentStart", 30),
    _Event("SubagentStop", 30),
    _Event("SessionStart", 30, only_command=True),
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
_OVERRULED: Final = (
    "A folder whose own settings turn hooks off, commands in skills on, or send hooks to a proxy: they count more than"
    " yours"
)
_DIVERTED: Final = "Settings of one user that send hooks to a proxy, which answers in the Hub's place"
_IMPOSTOR: Final = "A program of yours that answers in the Hub's place while it is down: over HTTP nobody can tell"
_BARE: Final = "`claude --bare` of versions before {0}, which runs no hooks at all"


class ClaudeCode:
    """The planner of Claude Code."""

    name = "claude-code"
    title = "Claude Code"
    program = "claude"
    variable = "CLAUDE_CONFIG_DIR"
    levels: tuple[Level, ...] = ("local", "project", "user", "managed")

    def plan(self, place: Place, wire: Wire) -> Plan:
        """Return the hooks for a place."""
        form = _form(place)
        obstacles = find_obstacles(_layers(place), place.level)
        return Plan(
            form=form,
            changes=_changes(place, wire, form),
            guards=_guards(place),
            protected=_protected(place, form),
            not_protected=_not_protected(place, form),
            steps=_steps(place),
            warnings=(*obstacles, *_warnings(place)),
        )


def version_of(text: str) -> tuple[int, ...]:
    """Return a version as numbers that compare; nothing for a text without one."""
    found = _NUMBERS.search(text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _form(place: Place) -> Form:
    if version_of(place.version) >= BLOCKS_ON_FAILURE:
        return "http"
    if place.level == "project":
        known = f"it is {place.version}" if place.version else "it was not found: name it with --claude"
        needed = _shown(BLOCKS_ON_FAILURE)
        raise FieldInvalid(f"shared settings need Claude Code {needed} or later, and {known}", place="--settings")
    return "command"


def _changes(place: Place, wire: Wire, form: Form) -> tuple[Change, ...]:
    path = str(_layers(place)[place.level])
    if place.level != "managed":
        entries = tuple(Entry(("hooks", name), group) for name, group in _groups(place, wire, form).items())
        mode = _PUBLIC if place.level == "project" else 0o600
        is_secret = form == "http" and place.level != "project"
        return (Added(path, entries, mode, _members(place, wire, form), is_secret),)
    moved = wire.moved(str(_managed(place) / "remit"))
    groups = {name: [group] for name, group in _groups(place, moved, form).items()}
    beside = {ENVIRONMENT: _unproxied(place, wire)} if form == "http" else {}
    settings = {"allowManagedHooksOnly": True, NO_SHELL_IN_SKILLS: True, **beside, "hooks": groups}
    # Everyone on the machine runs these hooks, so everyone reads them; only root can write there.
    return (
        Whole(moved.script, script_text(wire.protection), _PUBLIC),
        Whole(moved.path, json.dumps(moved.content()) + "\n", _PUBLIC),
        Whole(path, json.dumps(settings, indent=2) + "\n", _PUBLIC),
    )


def _members(place: Place, wire: Wire, form: Form) -> tuple[Member, ...]:
    """Return what is set beside hooks. What a folder shares with others says nothing of the hosts of this machine."""
    unproxied = _unproxied(place, wire) if form == "http" and place.level != "project" else {}
    return (
        Member((NO_SHELL_IN_SKILLS,), value=True),
        # What a repository brings along counts less than this.
        *((Member((DISABLED,), value=False),) if place.level == "local" else ()),
        *(Member((ENVIRONMENT, name), hosts) for name, hosts in unproxied.items()),
    )


def _unproxied(place: Place, wire: Wire) -> dict[str, str]:
    hosts = left_out(read_settings(_layers(place)[place.level]), place.unproxied, wire.url)
    return dict.fromkeys(NO_PROXY, hosts)


def _groups(place: Place, wire: Wire, form: Form) -> dict[str, JSON]:
    """Return one group of hooks for each event. Shared settings name no file of this machine, so no command."""
    events = [event for event in _EVENTS if not (event.only_command and place.level == "project")]
    return {event.name: _group(event, _hook(event, place, wire, form)) for event in events}


def _group(event: _Event, hook: dict[str, JSON]) -> JSON:
    return {"matcher": "*", "hooks": [hook]} if event.of_tool else {"hooks": [hook]}


def _hook(event: _Event, place: Place, wire: Wire, form: Form) -> dict[str, JSON]:
    blocking: dict[str, JSON] = {"onFailure": "block"} if event.name == _ASKING else {}
    if form == "command" or event.only_command:
        return {"type": "command", "command": wire.command(), "timeout": event.timeout_s, **blocking}
    hook: dict[str, JSON] = {"type": "http", "url": wire.url, "timeout": event.timeout_s, **blocking}
    if place.level == "project":
        return hook | {"headers": {"Authorization": f"Bearer ${TOKEN_VARIABLE}"}, "allowedEnvVars": [TOKEN_VARIABLE]}
    return hook | {"headers": {"Authorization": f"Bearer {wire.token}"}}


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


def _protected(place: Place, form: Form) -> tuple[str, ...]:
    where = f"Claude Code started in {place.folder}" if place.level in ("local", "project") else "Claude Code, wherever"
    if place.level == "managed":
        where = "Claude Code of every user of this machine"
    asked = "over HTTP" if form == "http" else "by a command"
    return (
        f"{where}: every tool call of it and of its subagents is decided on first ({asked})",
        "If Remit does not answer, nothing runs",
        "Commands inside of skills and custom commands, which it asks nobody about, do not run at all",
        "Its settings, its hooks and your profile: it may not change them",
    )


def _not_protected(place: Place, form: Form) -> tuple[str, ...]:
    below = f"Claude Code started in another folder, or in one below: it does not read {_FILES[place.level]} from here"
    return (
        *((below,) if place.level in ("local", "project") else ()),
        *((_OVERRULED,) if place.level == "user" else ()),
        *((_DIVERTED,) if place.level == "project" else ()),
        _BARE.format(_shown(BLOCKS_ON_FAILURE)) if place.level == "managed" else _BYPASSED,
        *((_IMPOSTOR,) if form == "http" else ()),
        *_OUTSIDE,
    )


def _steps(place: Place) -> tuple[str, ...]:
    table: Mapping[Level, tuple[str, ...]] = {
        "local": ("Keep .claude/settings.local.json out of version control: a token for hooks is in it",),
        "project": (f"Everyone who works here: export {TOKEN_VARIABLE}=$(remit token hook), and protect once",),
    }
    return table.get(place.level, ())


def _warnings(place: Place) -> tuple[str, ...]:
    version = version_of(place.version)
    if not version:
        return (
            "Claude Code was not found, so its version is not known: the form was chosen that all versions block by",
        )
    if version < OLDEST_TRIED:
        return (f"Claude Code {place.version} is older than any that this was tried with: update it",)
    return ()
