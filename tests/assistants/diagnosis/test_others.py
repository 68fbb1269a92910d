"""Hooks of others that can change a call, in whatever layer they stand."""

import json
from pathlib import Path
from typing import Any

import pytest

from remit.assistants.doctor.other_hooks import find_other_hooks
from remit.assistants.doctor.settings import Hook
from remit.assistants.install.plan import InstallTarget

LINT: dict[str, Any] = {"type": "command", "command": "lint"}


def place(tmp_path: Path, config: str = "") -> InstallTarget:
    return InstallTarget(
        "local", str(tmp_path / "project"), str(tmp_path / "user"), managed=str(tmp_path / "machine"), config=config
    )


def stands(path: Path, event: str, entry: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {event: [entry]}}), encoding="utf-8")


@pytest.mark.parametrize(
    ("assistant", "event", "name"),
    [
        ("claude-code", "PreToolUse", "user/.claude/settings.json"),
        ("claude-code", "PermissionRequest", "project/.claude/settings.json"),
        ("claude-code", "PreToolUse", "project/.claude/settings.local.json"),
        ("claude-code", "PreToolUse", "machine/managed-settings.json"),
        ("claude-code", "PreToolUse", "machine/managed-settings.d/their.json"),
        ("claude-code", "PreToolUse", "user/.claude/plugins/cache/market/plugin/1.0/hooks/hooks.json"),
        ("codex", "PreToolUse", "user/.codex/hooks.json"),
        ("gemini", "BeforeTool", "project/.gemini/settings.json"),
        ("gemini", "BeforeTool", "user/.gemini/extensions/their/hooks/hooks.json"),
        ("copilot", "preToolUse", "user/.copilot/hooks/their.json"),
        ("copilot", "PreToolUse", "project/.claude/settings.json"),
    ],
)
def test_a_hook_of_others_is_found_in_every_layer(tmp_path: Path, assistant: str, event: str, name: str) -> None:
    stands(tmp_path / name, event, {"matcher": "*", "hooks": [LINT]})
    found = find_other_hooks(assistant, [place(tmp_path)] * 2, ())
    assert [(hook.event, hook.path) for hook in found] == [(event, str(tmp_path / name))]


def test_hooks_of_copilot_stand_without_a_group(tmp_path: Path) -> None:
    stands(tmp_path / "project/.github/hooks/their.json", "preToolUse", {"type": "command", "bash": "lint"})
    assert len(find_other_hooks("copilot", [place(tmp_path)], ())) == 1


def test_ours_and_those_that_are_asked_afterwards_are_none(tmp_path: Path) -> None:
    path = tmp_path / "project/.claude/settings.json"
    stands(path, "PreToolUse", {"matcher": "*", "hooks": [LINT]})
    stands(tmp_path / "user/.claude/settings.json", "PostToolUse", {"hooks": [LINT]})
    assert (
        find_other_hooks("claude-code", [place(tmp_path)], [Hook("PreToolUse", str(path), LINT, {"matcher": "*"})])
        == []
    )


def test_the_folder_of_settings_that_a_variable_names_counts(tmp_path: Path) -> None:
    stands(tmp_path / "elsewhere/settings.json", "PreToolUse", {"hooks": [LINT]})
    stands(tmp_path / "above/.gemini/settings.json", "BeforeTool", {"hooks": [LINT]})
    assert len(find_other_hooks("claude-code", [place(tmp_path, config=str(tmp_path / "elsewhere"))], ())) == 1
    assert len(find_other_hooks("gemini", [place(tmp_path, config=str(tmp_path / "above"))], ())) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hooks": 5}', '{"hooks": {"PreToolUse": [5, {"hooks": [5]}]}}'])
def test_a_file_that_says_nothing_has_no_hooks(tmp_path: Path, text: str) -> None:
    path = tmp_path / "project/.claude/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert find_other_hooks("claude-code", [place(tmp_path)], ()) == []


def test_without_a_group_there_is_no_hook_of_claude_code(tmp_path: Path) -> None:
    stands(tmp_path / "project/.claude/settings.json", "PreToolUse", LINT)
    assert find_other_hooks("claude-code", [place(tmp_path)], ()) == []
