"""Hooks of others that are asked about a call as well: they can change it once it was decided on.

All layers of settings are looked through in which an assistant finds hooks, plugins that are installed included. Not
seen are hooks in the text of skills and agents, and what options of the command line name.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.doctor.settings import Hook, hooks_in, parse_settings, read_settings
from remit.assistants.install.plan import Place

__all__ = ["hooks_of_others"]

_MAX_FILES: Final = 2000
_SUPPORT: Final = "/Library/Application Support/"


class _Layers(NamedTuple):
    """Where an assistant finds hooks: patterns below each folder, and the events in which a call can be changed."""

    events: tuple[str, ...]
    # Below the folder of the user's settings.
    user: tuple[str, ...]
    # Below the folder that it is started in.
    here: tuple[str, ...]
    machine: tuple[str, ...]
    # The folder of the user's settings, from home on.
    home: str
    # That of the whole machine, and on macOS.
    root: str
    root_on_mac: str
    # Whether a variable of the environment names what is above the folder of the user's settings.
    config_is_above: bool = False


_LAYERS: Final[Mapping[str, _Layers]] = {
    "claude-code": _Layers(
        events=("PreToolUse", "PermissionRequest"),
        user=("settings.json", "plugins/cache/*/*/*/hooks/hooks.json"),
        here=(".claude/settings.json", ".claude/settings.local.json"),
        machine=("managed-settings.json", "managed-settings.d/*.json"),
        home=".claude",
        root="/etc/claude-code",
        root_on_mac=_SUPPORT + "ClaudeCode",
    ),
    "codex": _Layers(
        events=("PreToolUse", "PermissionRequest"),
        user=("hooks.json", "config.toml"),
        here=(".codex/hooks.json", ".codex/config.toml"),
        machine=("requirements.toml", "config.toml", "hooks.json"),
        home=".codex",
        root="/etc/codex",
        root_on_mac="/etc/codex",
    ),
    "gemini": _Layers(
        events=("BeforeTool",),
        user=("settings.json", "extensions/*/hooks/hooks.json"),
        here=(".gemini/settings.json",),
        machine=("settings.json",),
        home=".gemini",
        root="/etc/gemini-cli",
        root_on_mac=_SUPPORT + "GeminiCli",
        config_is_above=True,
    ),
    "copilot": _Layers(
        events=("preToolUse", "permissionRequest"),
        user=("hooks/*.json", "settings.json", "config.json"),
        here=(".github/hooks/*.json", ".claude/settings.json", ".claude/settings.local.json"),
        machine=("policy.d/*.json",),
        home=".copilot",
        root="/etc/github-copilot",
        root_on_mac=_SUPPORT + "github-copilot",
    ),
}


def hooks_of_others(assistant: str, places: Sequence[Place], ours: Collection[Hook]) -> list[Hook]:
    """Return the hooks in these places that can change a call, and that are not among `ours`."""
    if assistant not in _LAYERS:
        return []
    layers = _LAYERS[assistant]
    events = [event.lower() for event in layers.events]
    files = dict.fromkeys(path for place in places for path in islice(_files(layers, place), _MAX_FILES))
    # The same hook in another file asks the same, and is asked once.
    known = [hook._replace(path="") for hook in ours]
    found = (hook for path in files for hook in _in_file(assistant, path))
    return [hook for hook in found if hook.event.lower() in events and hook._replace(path="") not in known]


def _files(layers: _Layers, place: Place) -> Iterator[str]:
    """Yield the files of all layers that count in a place."""
    usual = Path(place.user_home, layers.home)
    named = Path(place.config, layers.home) if layers.config_is_above else Path(place.config)
    machine = layers.root_on_mac if sys.platform == "darwin" else layers.root
    below = [(named if place.config else usual, layers.user), (Path(place.managed or machine), layers.machine)]
    if place.folder is not None:
        below.append((Path(place.folder), layers.here))
    for folder, patterns in below:
        yield from (str(path) for pattern in patterns for path in sorted(folder.glob(pattern)))


def _in_file(assistant: str, path: str) -> Iterator[Hook]:
    data = read_settings(path)
    if data is not None:
        yield from hooks_in(assistant, parse_settings(path, data), path)
