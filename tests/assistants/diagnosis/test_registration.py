"""What stands in the settings by now: ours only if it is what was written, or would be."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from remit.assistants.doctor.registration import RegistrationState, check_registration, sets_no_proxy
from remit.assistants.install.plan import Entry, FileChange, JsonEdit, Member, OwnFile, TomlBlock
from remit.assistants.records import FileKind, WrittenFile
from tests.assistants.hooks.scenes import PROTECTION, protection

URL = f"http://127.0.0.1:8765/v1/hooks/claude-code/{PROTECTION}"
HOOK = {"type": "http", "url": URL, "onFailure": "block"}
ASKING = {"matcher": "*", "hooks": [HOOK]}
ENDING = {"hooks": [{"type": "http", "url": URL}]}
KINDS: dict[str, FileKind] = {"settings.json": "json", "hooks.toml": "toml", "plugin.js": "whole"}
SETTINGS: dict[str, Any] = {"off": {"skills": True}, "hooks": {"PreToolUse": [ASKING], "SessionEnd": [ENDING]}}


def looked(tmp_path: Path, now: object, *, name: str = "settings.json", text: str | None = None) -> RegistrationState:
    path = tmp_path / name
    written = json.dumps(SETTINGS) if text is None else text
    path.write_text(now if isinstance(now, str) else json.dumps(now), encoding="utf-8")
    after = hashlib.sha256(written.encode()).hexdigest()
    file = WrittenFile(path=str(path), kind=KINDS[name], before=None, after=after)
    changes: dict[str, FileChange] = {
        "settings.json": JsonEdit(
            str(path),
            (Entry(("hooks", "PreToolUse"), ASKING), Entry(("hooks", "SessionEnd"), ENDING)),  # type: ignore[arg-type]
            members=(Member(("off", "skills"), value=True),),
        ),
        "hooks.toml": TomlBlock(str(path), "hooks", written),
        "plugin.js": OwnFile(str(path), written),
    }
    return check_registration(structs.replace(protection(tmp_path), files=(file,)), [changes[name]])


def test_a_file_as_it_was_written_has_our_hooks(tmp_path: Path) -> None:
    found = looked(tmp_path, SETTINGS)
    assert [(hook.event, hook.says["url"]) for hook in found.hooks] == [("PreToolUse", URL), ("SessionEnd", URL)]
    assert found.faults == ()


def test_what_others_have_added_leaves_ours_in_force_and_is_told(tmp_path: Path) -> None:
    others = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}
    now = {**SETTINGS, "model": "opus", "hooks": {**SETTINGS["hooks"], "PreToolUse": [others, ASKING]}}
    assert looked(tmp_path, now) == looked(tmp_path, SETTINGS)._replace(changed=("settings.json",))


@pytest.mark.parametrize(
    "now",
    [
        {"hooks_off": SETTINGS["hooks"]},
        {"disabled": SETTINGS},
        [SETTINGS],
        {"hooks": [SETTINGS["hooks"]]},
        {"hooks": {"hooks": SETTINGS["hooks"]}},
        {"hooks": {"PreToolUse": {"0": ASKING}, "SessionEnd": [[ENDING]]}},
        {"hooks": {"PreToolUse": [HOOK], "SessionEnd": [{"hooks": [ENDING]}]}},
    ],
)
def test_hooks_at_another_place_are_none(tmp_path: Path, now: object) -> None:
    found = looked(tmp_path, now)
    assert found.hooks == ()
    assert any("PreToolUse" in fault for fault in found.faults)


@pytest.mark.parametrize(
    "wrong",
    [
        {"permissions": 5},
        {"env": 5},
        {"model": 5},
        {"permissions": {"allow": "Bash"}},
        {"permissions": {"deny": [5]}},
        {"permissions": {"defaultMode": 5}},
        {"cleanupPeriodDays": "x"},
        {"notes": {"PreToolUse": [ASKING]}},
        {"hooks": {**SETTINGS["hooks"], "PreToolUse": [{"matcher": "[", "hooks": "x"}, ASKING]}},
        {"hooks": {**SETTINGS["hooks"], "PreToolUse": [{"matcher": 5, "hooks": []}, ASKING]}},
        {"hooks": {**SETTINGS["hooks"], "PreToolUse": ["x", ASKING]}},
        {"hooks": {**SETTINGS["hooks"], "Stop": {}}},
        {"hooks": {**SETTINGS["hooks"], "Stop": [{"hooks": [{"type": "unheard of"}]}]}},
        {"hooks": {**SETTINGS["hooks"], "Stop": [{"hooks": [{"type": "command"}]}]}},
        {"hooks": {**SETTINGS["hooks"], "Stop": [{"hooks": [{**HOOK, "timeout": "5"}]}]}},
    ],
)
def test_what_makes_an_assistant_drop_the_whole_file_is_a_fault(tmp_path: Path, wrong: dict[str, Any]) -> None:
    assert len(looked(tmp_path, {**SETTINGS, **wrong}).faults) == 1


@pytest.mark.parametrize(
    "asking",
    [
        [],
        [{"matcher": "*", "hooks": [{**HOOK, "onFailure": "continue"}]}],
        [{"matcher": "*", "hooks": [{**HOOK, "url": f"http://example.org/{PROTECTION}"}]}],
        [{"matcher": "*", "hooks": [{"type": "command", "command": f"touch /tmp/{PROTECTION}"}]}],
        [{"matcher": "*", "hooks": [{**HOOK, "async": True}]}],
    ],
)
def test_a_hook_that_is_missing_or_another_is_a_fault_and_not_ours(tmp_path: Path, asking: list[Any]) -> None:
    found = looked(tmp_path, {**SETTINGS, "hooks": {**SETTINGS["hooks"], "PreToolUse": asking}})
    assert [hook.event for hook in found.hooks] == ["SessionEnd"]
    assert len(found.faults) == 1
    assert "PreToolUse" in found.faults[0]


@pytest.mark.parametrize("now", ["", "{", "[]", "null", "\x00", '{"a":' * 5000])
def test_a_file_that_says_something_else_is_a_fault(tmp_path: Path, now: str) -> None:
    found = looked(tmp_path, now)
    assert (found.hooks, len(found.faults)) == ((), 2)


def test_a_group_whose_matcher_was_changed_is_a_fault(tmp_path: Path) -> None:
    found = looked(
        tmp_path, {**SETTINGS, "hooks": {**SETTINGS["hooks"], "PreToolUse": [{**ASKING, "matcher": "Nothing"}]}}
    )
    assert len(found.faults) == 1


@pytest.mark.parametrize("off", [{}, [], None, {"skills": False}, {"skills": 1}, {"skills": "true"}])
@pytest.mark.parametrize("is_as_written", [False, True], ids=["changed", "as written by an earlier version"])
def test_what_is_not_set_beside_the_hooks_is_a_fault(tmp_path: Path, off: object, is_as_written: bool) -> None:
    now = json.dumps({**SETTINGS, "off": off})
    found = looked(tmp_path, now, text=now if is_as_written else None)
    assert [hook.event for hook in found.hooks] == ["PreToolUse", "SessionEnd"]
    assert len(found.faults) == 1
    assert "off.skills" in found.faults[0]


@pytest.mark.parametrize(
    ("env", "excepts"),
    [
        ({"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "*"}, True),
        ({"NO_PROXY": "127.0.0.1,localhost"}, False),
        (5, False),
    ],
)
def test_a_hub_is_excepted_from_proxies_by_both_names(tmp_path: Path, env: object, excepts: bool) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"env": env}), encoding="utf-8")
    file = WrittenFile(path=str(path), kind="json", before=None, after="")
    assert sets_no_proxy(structs.replace(protection(tmp_path), files=(file,))) is excepts


def test_a_file_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    file = WrittenFile(path=str(tmp_path / "nowhere"), kind="json", before=None, after="")
    assert len(check_registration(structs.replace(protection(tmp_path), files=(file,)), ()).faults) == 1
    assert len(check_registration(protection(tmp_path), ()).faults) == 1


def test_hooks_in_toml_are_found(tmp_path: Path) -> None:
    text = f'[[hooks.PreToolUse]]\nmatcher = ".*"\n[[hooks.PreToolUse.hooks]]\ncommand = "run {PROTECTION}"\n'
    found = looked(tmp_path, 'model = "x"\n' + text, name="hooks.toml", text=text)
    assert [(hook.event, hook.says["command"]) for hook in found.hooks] == [("PreToolUse", f"run {PROTECTION}")]
    assert found.faults == ()


def test_lines_within_a_text_are_none(tmp_path: Path) -> None:
    text = f"[features]\na = false\n# {PROTECTION}\n"
    assert len(looked(tmp_path, f'x = """\n{text}"""\n', name="hooks.toml", text=text).faults) == 1


@pytest.mark.parametrize(("now", "faults"), [("plugin", 0), ("plugin; // changed", 1)])
def test_a_plugin_is_whole_or_changed(tmp_path: Path, now: str, faults: int) -> None:
    assert len(looked(tmp_path, now, name="plugin.js", text="plugin").faults) == faults


@pytest.mark.parametrize(
    ("now", "faults"),
    [("x = 1\n[features]\na = false\n# {mark}", 0), ("x = 1\n# {mark}", 1), ("[features]\na = false", 1)],
)
def test_lines_without_hooks_must_still_stand_among_those_of_others(tmp_path: Path, now: str, faults: int) -> None:
    found = looked(tmp_path, now.format(mark=PROTECTION), name="hooks.toml", text="[features]\na = false\n")
    assert len(found.faults) == faults
