"""What stands in the settings by now: ours only if it is what was written, or would be."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from remit.adapters.diagnosis.registration import Registered, registered
from remit.adapters.protection.plan import Added, Block, Change, Entry, Whole
from remit.adapters.protection.records import Written
from tests.adapters.hooks.scenes import PROTECTION, protection

URL = f"http://127.0.0.1:8765/v1/hooks/claude-code/{PROTECTION}"
HOOK = {"type": "http", "url": URL, "onFailure": "block"}
ASKING = {"matcher": "*", "hooks": [HOOK]}
ENDING = {"hooks": [{"type": "http", "url": URL}]}
SETTINGS: dict[str, Any] = {"hooks": {"PreToolUse": [ASKING], "SessionEnd": [ENDING]}}


def looked(tmp_path: Path, now: object, *, name: str = "settings.json", text: str | None = None) -> Registered:
    path = tmp_path / name
    written = json.dumps(SETTINGS) if text is None else text
    path.write_text(now if isinstance(now, str) else json.dumps(now), encoding="utf-8")
    after = hashlib.sha256(written.encode()).hexdigest()
    file = Written(path=str(path), kind="json", before=None, after=after)
    changes: dict[str, Change] = {
        "settings.json": Added(
            str(path),
            (Entry(("hooks", "PreToolUse"), ASKING), Entry(("hooks", "SessionEnd"), ENDING)),  # type: ignore[arg-type]
        ),
        "hooks.toml": Block(str(path), "hooks", written),
        "plugin.js": Whole(str(path), written),
    }
    return registered(structs.replace(protection(tmp_path), files=(file,)), [changes[name]])


def test_a_file_as_it_was_written_has_our_hooks(tmp_path: Path) -> None:
    found = looked(tmp_path, SETTINGS)
    assert [(hook.event, hook.says["url"]) for hook in found.hooks] == [("PreToolUse", URL), ("SessionEnd", URL)]
    assert found.faults == ()


def test_what_others_have_added_does_not_matter(tmp_path: Path) -> None:
    others = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}
    now = {"model": "opus", "hooks": {**SETTINGS["hooks"], "PreToolUse": [others, ASKING]}}
    assert looked(tmp_path, now) == looked(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    "asking",
    [
        [],
        [{"matcher": "*", "hooks": [{**HOOK, "onFailure": "allow"}]}],
        [{"matcher": "*", "hooks": [{**HOOK, "url": f"http://example.org/{PROTECTION}"}]}],
        [{"matcher": "*", "hooks": [{"type": "command", "command": f"touch /tmp/{PROTECTION}"}]}],
        [{"matcher": "*", "hooks": [{**HOOK, "async": True}]}],
    ],
)
def test_a_hook_that_is_missing_or_another_is_a_fault_and_not_ours(tmp_path: Path, asking: list[Any]) -> None:
    found = looked(tmp_path, {"hooks": {**SETTINGS["hooks"], "PreToolUse": asking}})
    assert [hook.event for hook in found.hooks] == ["SessionEnd"]
    assert len(found.faults) == 1
    assert "PreToolUse" in found.faults[0]


@pytest.mark.parametrize("now", ["", "{", "[]", "null", "\x00", '{"a":' * 5000])
def test_a_file_that_says_something_else_is_a_fault(tmp_path: Path, now: str) -> None:
    found = looked(tmp_path, now)
    assert (found.hooks, len(found.faults)) == ((), 1)


def test_a_group_whose_matcher_was_changed_is_a_fault(tmp_path: Path) -> None:
    found = looked(tmp_path, {"hooks": {**SETTINGS["hooks"], "PreToolUse": [{**ASKING, "matcher": "Nothing"}]}})
    assert len(found.faults) == 1


def test_a_file_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    file = Written(path=str(tmp_path / "nowhere"), kind="json", before=None, after="")
    assert len(registered(structs.replace(protection(tmp_path), files=(file,)), ()).faults) == 1
    assert len(registered(protection(tmp_path), ()).faults) == 1


def test_hooks_in_toml_are_found(tmp_path: Path) -> None:
    text = f'[[hooks.PreToolUse]]\nmatcher = ".*"\n[[hooks.PreToolUse.hooks]]\ncommand = "run {PROTECTION}"\n'
    found = looked(tmp_path, 'model = "x"\n' + text, name="hooks.toml", text=text)
    assert [(hook.event, hook.says["command"]) for hook in found.hooks] == [("PreToolUse", f"run {PROTECTION}")]
    assert found.faults == ()


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
