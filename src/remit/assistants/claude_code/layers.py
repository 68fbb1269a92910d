"""The layers of Claude Code's settings: what in any of them would keep hooks from running, or weaken them.

Keeps this invariant: hooks that would not run are not written, and a layer that is not understood counts as one that
turns them off. Only what stands in files is seen here; options of the command line and what a company sends are not.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.claude_code.environment import check_environment
from remit.assistants.install.plan import Level
from remit.assistants.install.reading import read_settings, shown_path
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["DISABLED", "NO_SHELL_IN_SKILLS", "find_obstacles"]

DISABLED: Final = "disableAllHooks"
# Where it is not true, Claude Code runs commands that stand in skills and custom commands, and asks no hook about them.
NO_SHELL_IN_SKILLS: Final = "disableSkillShellExecution"
_MANAGED_ONLY: Final = "allowManagedHooksOnly"


class _Kept(NamedTuple):
    """What is set beside hooks: which value does, and what follows where a stronger layer says another."""

    where: tuple[str, ...]
    does: Callable[[JSON], bool]
    else_: str


_KEPT: Final = (_Kept((NO_SHELL_IN_SKILLS,), lambda value: value is True, "commands in skills run unasked"),)


def find_obstacles(layers: Mapping[Level, Path], level: Level) -> tuple[str, ...]:
    """Return what weakens hooks of a level; `FieldInvalid` says that they would not run, or not ask the Hub.

    `layers` are the settings files, the weakest first.
    """
    read = {layer: read_settings(path) for layer, path in layers.items() if layer != "managed"}
    managed = _managed(layers["managed"])
    if level != "managed" and any(settings.get(_MANAGED_ONLY) is True for settings in managed.values()):
        raise FieldInvalid(f"{_MANAGED_ONLY} is set for this machine: only managed hooks run", place="--settings")
    everything = {**{str(path): read[layer] for layer, path in layers.items() if layer in read}, **managed}
    _check_enabled(everything, level)
    for path, settings in everything.items():
        check_environment(settings, shown_path(path), shared=level == "project")
    return _overruled(everything, str(layers[level]))


def _overruled(settings: Mapping[str, Mapping[str, JSON]], path: str) -> tuple[str, ...]:
    """Return what is said in files stronger than the one at `path`, against what is written there beside hooks."""
    stronger = list(settings)[list(settings).index(path) + 1 :]
    warnings = list[str]()
    for kept in _KEPT:
        said = [(one, value) for one in stronger for value in _said(settings[one], kept.where)]
        if said and not kept.does(said[-1][1]):
            name, shown = ".".join(kept.where), shown_path(said[-1][0])
            warnings.append(f"{name} is not as it must be in {shown}, which counts more: {kept.else_}")
    return tuple(warnings)


def _said(settings: Mapping[str, JSON], where: tuple[str, ...]) -> tuple[JSON, ...]:
    """Return the value of a member, if it is there."""
    value: JSON = dict(settings)
    for name in where:
        if not isinstance(value, dict) or name not in value:
            return ()
        value = value[name]
    return (value,)


def _check_enabled(settings: Mapping[str, Mapping[str, JSON]], level: Level) -> None:
    """Raise if the strongest file that says something about it turns hooks off; managed ones run nevertheless."""
    said = [(path, one[DISABLED]) for path, one in settings.items() if DISABLED in one]
    if level != "managed" and said and said[-1][1] is True:
        problem = f"{DISABLED} is true, so no hook would run: take it out first"
        raise FieldInvalid(problem, place=shown_path(said[-1][0]))


def _managed(ours: Path) -> dict[str, Mapping[str, JSON]]:
    """Return the settings for the whole machine, the weakest first; the file of ours is among them, there or not."""
    folder = ours.parent
    try:
        paths = [folder.parent / "managed-settings.json", *sorted({*folder.glob("*.json"), ours})]
    except OSError:
        paths = [ours]
    return {str(path): read_settings(path) for path in paths}
