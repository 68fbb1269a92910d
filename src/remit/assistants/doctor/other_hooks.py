"""Finds hooks that Remit did not write and that can change a call after Remit has decided on it.

All settings layers of an assistant are searched, including installed plugins, up to `_MAX_FILES` files per target.
Hooks in the text of skills and agents, and those from command-line options, are not found.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.doctor.settings import Hook, hooks_in, parse_settings, read_settings
from remit.assistants.install.plan import InstallTarget

_MAX_FILES: Final = 2000
_SUPPORT: Final = "/Library/Application Support/"


class _Layers(NamedTuple):
    """Where an assistant reads hooks from, as glob patterns."""

    # The hook events in which a call can be changed.
    events: tuple[str, ...]
    # Below the user settings folder.
    user: tuple[str, ...]
    # Below the project folder.
    project: tuple[str, ...]
    # Below the machine-wide settings folder.
    machine: tuple[str, ...]
    # The user settings folder, relative to the home directory.
    user_folder: str
    # The machine-wide settings folder, on Linux and on macOS.
    machine_folder: str
    machine_folder_on_mac: str
    # Whether `InstallTarget.config` is the parent of the user settings folder, as with GEMINI_CLI_HOME.
    config_is_parent: bool = False


_LAYERS: Final[Mapping[str, _Layers]] = {
    "claude-code": _Layers(
        events=("PreToolUse", "PermissionRequest"),
        user=("settings.json", "plugins/cache/*/*/*/hooks/hooks.json"),
        project=(".claude/settings.json", ".claude/settings.local.json"),
        machine=("managed-settings.json", "managed-settings.d/*.json"),
        user_folder=".claude",
        machine_folder="/etc/claude-code",
        machine_folder_on_mac=_SUPPORT + "ClaudeCode",
    ),
    "codex": _Layers(
        events=("PreToolUse", "PermissionRequest"),
        user=("hooks.json", "config.toml"),
        project=(".codex/hooks.json", ".codex/config.toml"),
        machine=("requirements.toml", "config.toml", "hooks.json"),
        user_folder=".codex",
        machine_folder="/etc/codex",
        machine_folder_on_mac="/etc/codex",
    ),
    "gemini": _Layers(
        events=("BeforeTool",),
        user=("settings.json", "extensions/*/hooks/hooks.json"),
        project=(".gemini/settings.json",),
        machine=("settings.json",),
        user_folder=".gemini",
        machine_folder="/etc/gemini-cli",
        machine_folder_on_mac=_SUPPORT + "GeminiCli",
        config_is_parent=True,
    ),
    "copilot": _Layers(
        events=("preToolUse", "permissionRequest"),
        user=("hooks/*.json", "settings.json", "config.json"),
        project=(".github/hooks/*.json", ".claude/settings.json", ".claude/settings.local.json"),
        machine=("policy.d/*.json",),
        user_folder=".copilot",
        machine_folder="/etc/github-copilot",
        machine_folder_on_mac=_SUPPORT + "github-copilot",
    ),
}


def find_other_hooks(assistant: str, targets: Sequence[InstallTarget], ours: Collection[Hook]) -> list[Hook]:
    """Return the hooks for these targets that can change a call and are not among `ours`."""
    if assistant not in _LAYERS:
        return []
    layers = _LAYERS[assistant]
    events = [event.lower() for event in layers.events]
    files = dict.fromkeys(path for target in targets for path in islice(_files(layers, target), _MAX_FILES))
    # A copy of one of our hooks in another file does no harm.
    known = [hook._replace(path="") for hook in ours]
    found = (hook for path in files for hook in _in_file(assistant, path))
    return [hook for hook in found if hook.event.lower() in events and hook._replace(path="") not in known]


def _files(layers: _Layers, target: InstallTarget) -> Iterator[str]:
    """Yield the settings files of all layers for a target."""
    default = Path(target.user_home, layers.user_folder)
    configured = Path(target.config, layers.user_folder) if layers.config_is_parent else Path(target.config)
    machine = layers.machine_folder_on_mac if sys.platform == "darwin" else layers.machine_folder
    searched = [
        (configured if target.config else default, layers.user),
        (Path(target.managed or machine), layers.machine),
    ]
    if target.folder is not None:
        searched.append((Path(target.folder), layers.project))
    for folder, patterns in searched:
        yield from (str(path) for pattern in patterns for path in sorted(folder.glob(pattern)))


def _in_file(assistant: str, path: str) -> Iterator[Hook]:
    data = read_settings(path)
    if data is not None:
        yield from hooks_in(assistant, parse_settings(path, data), path)
