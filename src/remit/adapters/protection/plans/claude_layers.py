"""The layers of Claude Code's settings: what in any of them would keep hooks from running.

Keeps this invariant: hooks that would not run are not written. Only what stands in files is seen here; options of the
command line and what a company sends are not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.adapters.protection.jsontext import BOM
from remit.adapters.protection.plan import Level
from remit.claims.strictjson import JSON, parse_json
from remit.errors import FieldInvalid, InputError

__all__ = ["find_obstacles"]

_DISABLED: Final = "disableAllHooks"
_MANAGED_ONLY: Final = "allowManagedHooksOnly"
_ALLOWED_URLS: Final = "allowedHttpHookUrls"


def find_obstacles(layers: Mapping[Level, Path], level: Level) -> tuple[str, ...]:
    """Return what weakens hooks of a level; `FieldInvalid` says that they would not run at all.

    `layers` are the settings files, the weakest first.
    """
    read = {layer: _read(path) for layer, path in layers.items() if layer != "managed"}
    managed = _managed(layers["managed"].parent)
    if level != "managed" and any(settings.get(_MANAGED_ONLY) is True for settings in managed.values()):
        raise FieldInvalid(f"{_MANAGED_ONLY} is set for this machine: only managed hooks run", place="--settings")
    _check_enabled({**{str(path): read[layer] for layer, path in layers.items() if layer in read}, **managed}, level)
    both = [*read.values(), *managed.values()]
    return (f"{_ALLOWED_URLS} is set: see that it lets the Hub's address through",) * any(
        _ALLOWED_URLS in settings for settings in both
    )


def _check_enabled(settings: Mapping[str, Mapping[str, JSON]], level: Level) -> None:
    """Raise if the strongest file that says something about it turns hooks off; managed ones run nevertheless."""
    said = [(path, one[_DISABLED]) for path, one in settings.items() if _DISABLED in one]
    if level != "managed" and said and said[-1][1] is True:
        shown = "/".join(Path(said[-1][0]).parts[-2:])
        raise FieldInvalid(f"{_DISABLED} is true, so no hook would run: take it out first", place=shown)


def _managed(folder: Path) -> dict[str, Mapping[str, JSON]]:
    try:
        paths = [folder.parent / "managed-settings.json", *sorted(folder.glob("*.json"))]
    except OSError:
        paths = []
    return {str(path): _read(path) for path in paths}


def _read(path: Path) -> Mapping[str, JSON]:
    """Return what a settings file says; one that cannot be read says nothing, to Claude Code neither."""
    try:
        if not path.is_file():
            return {}
        value = parse_json(path.read_bytes().removeprefix(BOM.encode("utf-8")))
    except (OSError, InputError):
        return {}
    return value if isinstance(value, dict) else {}
