"""Checks the settings layers of Claude Code for values that keep hooks from running, or weaken them.

Invariant: hooks that would not run are not written, and a layer that cannot be parsed is treated as one that turns them
off. Only files are checked, not command-line options or settings that an organization distributes remotely.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.claude_code.environment import check_environment
from remit.assistants.install.files import shorten_path
from remit.assistants.install.reading import read_settings
from remit.assistants.records import Level
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

DISABLED: Final = "disableAllHooks"
# Unless this is true, Claude Code runs shell commands in skills and custom commands without calling a hook.
NO_SHELL_IN_SKILLS: Final = "disableSkillShellExecution"
_MANAGED_ONLY: Final = "allowManagedHooksOnly"


class _Required(NamedTuple):
    """A member that Remit sets besides the hooks."""

    where: tuple[str, ...]
    is_valid: Callable[[JSON], bool]
    # What happens if a layer of higher precedence has another value.
    consequence: str


_REQUIRED: Final = (_Required((NO_SHELL_IN_SKILLS,), lambda value: value is True, "commands in skills run unasked"),)


def find_obstacles(layers: Mapping[Level, Path], level: Level) -> tuple[str, ...]:
    """Return warnings about what weakens hooks of a level. Raises `FieldInvalid` if they would not run.

    `layers` are the settings files, lowest precedence first.
    """
    read = {layer: read_settings(path) for layer, path in layers.items() if layer != "managed"}
    managed = _read_managed(layers["managed"])
    if level != "managed" and any(one.get(_MANAGED_ONLY) is True for one in managed.values()):
        raise FieldInvalid(f"{_MANAGED_ONLY} is set for this machine: only managed hooks run", place="--settings")
    settings = {**{str(path): read[layer] for layer, path in layers.items() if layer in read}, **managed}
    _check_enabled(settings, level)
    for path, values in settings.items():
        check_environment(values, shorten_path(path), shared=level == "project")
    return _find_overrides(settings, str(layers[level]))


def _find_overrides(settings: Mapping[str, Mapping[str, JSON]], path: str) -> tuple[str, ...]:
    """Return warnings about files of higher precedence than `path` that override a required member."""
    stronger = list(settings)[list(settings).index(path) + 1 :]
    warnings = list[str]()
    for required in _REQUIRED:
        values = [(one, value) for one in stronger for value in _values(settings[one], required.where)]
        if values and not required.is_valid(values[-1][1]):
            name, shown = ".".join(required.where), shorten_path(values[-1][0])
            warnings.append(f"{name} is not as it must be in {shown}, which counts more: {required.consequence}")
    return tuple(warnings)


def _values(settings: Mapping[str, JSON], where: tuple[str, ...]) -> tuple[JSON, ...]:
    """Return the value of a member as a tuple of one; empty if it is missing."""
    value: JSON = dict(settings)
    for name in where:
        if not isinstance(value, dict) or name not in value:
            return ()
        value = value[name]
    return (value,)


def _check_enabled(settings: Mapping[str, Mapping[str, JSON]], level: Level) -> None:
    """Raise if hooks are turned off. The file of highest precedence decides; managed hooks always run."""
    switches = [(path, one[DISABLED]) for path, one in settings.items() if DISABLED in one]
    if level != "managed" and switches and switches[-1][1] is True:
        problem = f"{DISABLED} is true, so no hook would run: take it out first"
        raise FieldInvalid(problem, place=shorten_path(switches[-1][0]))


def _read_managed(ours: Path) -> dict[str, Mapping[str, JSON]]:
    """Return the managed settings, lowest precedence first, including Remit's own file even if it does not exist."""
    folder = ours.parent
    try:
        paths = [folder.parent / "managed-settings.json", *sorted({*folder.glob("*.json"), ours})]
    except OSError:
        paths = [ours]
    return {str(path): read_settings(path) for path in paths}
