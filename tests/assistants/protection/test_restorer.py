"""What is ours in files of assistants stays there while the Hub runs, and nothing of others is touched for it."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remit.assistants.claude_code.settings import ClaudeCodePlanner
from remit.assistants.install.acceptance import SettingsReader, find_invalid
from remit.assistants.install.install import install
from remit.assistants.install.plan import OwnFile, Plan, TomlBlock
from remit.assistants.monitor.fragments import find_fragment
from remit.assistants.monitor.obstacles import files_to_watch, find_obstacle
from remit.assistants.monitor.restorer import REPAIRS, WINDOW_S, Gap, SettingsRestorer
from remit.assistants.monitor.token_rotation import replace_tokens
from remit.assistants.records import Level, Protection, Protections
from remit.assistants.registry import PLANNERS
from remit.ledger.home import open_home
from tests.assistants.protection.places import ID, Scene, added, entry, plan_of, protection, wire
from tests.assistants.protection.planning import Drawing
from tests.assistants.protection.test_jsonedit import OFF, SHAPES
from tests.releases.home import first_release

pytestmark = pytest.mark.slow

THEIRS = {"permissions": {"allow": ["Bash(ls)"]}}


def _raise(error: Exception) -> None:
    raise error


def protect(scene: Scene, name: str = ID, *, plan: Plan | None = None, **members: Any) -> Protection:
    """Carry out a plan in the folder of a scene: that of Claude Code, if no other is given."""
    made = plan or ClaudeCodePlanner().plan(scene.place(), wire(name))
    kept = protection(name, **{"folder": str(scene.folder), "version": "2.1.325", **members})
    with scene.protections.locked():
        return install(scene.protections, kept, made, wire(name).content())


class Watch:
    """A restorer of a scene, and a clock that goes on with every look."""

    def __init__(
        self,
        scene: Scene,
        obstacle: Callable[[Protection], str] = lambda _: "",
        reads: Callable[[Protection], Iterable[str]] = lambda one: one.guards,
    ) -> None:
        self.restorer = SettingsRestorer(scene.protections, obstacle, _raise, reads)
        self.now = 0.0
        assert self.look() == []

    def look(self, after: float = 0.2) -> list[Gap]:
        """Return what is found after some seconds: by two looks, because what cannot be read is given a second one."""
        self.now += after
        return [*self.restorer.check(self.now), *self.restorer.check(self.now)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Give a project that is protected, with settings of others."""
    scene = Scene.at(tmp_path)
    scene.write(json.dumps(THEIRS, indent=2).encode())
    protect(scene)
    return scene


def toml_scene(tmp_path: Path) -> tuple[Scene, Path]:
    """Return a project with a TOML file of others in which a block is ours."""
    scene, file = Scene.at(tmp_path), tmp_path / "project" / "config.toml"
    file.write_text("a = 1\n", encoding="utf-8")
    protect(scene, plan=plan_of(TomlBlock(str(file), "hooks", "[[hooks.Stop]]\ncommand = 'x'")))
    return scene, file


def test_what_nobody_changes_is_left_alone(scene: Scene) -> None:
    watch, before = Watch(scene), scene.settings.stat()
    assert [gap for _ in range(20) for gap in watch.look()] == []
    assert scene.settings.stat() == before


def test_a_change_of_others_is_silent_and_stays(scene: Scene) -> None:
    watch = Watch(scene)
    changed = json.loads(scene.settings.read_bytes()) | {"permissions": {"allow": ["Bash(ls)", "Bash(cat)"]}}
    scene.settings.write_text(json.dumps(changed), encoding="utf-8")
    assert watch.look() == []
    assert json.loads(scene.settings.read_bytes()) == changed


def test_hooks_that_were_taken_out_are_put_back_beside_what_others_have_written(scene: Scene) -> None:
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
    scene.settings.write_text('{"model": "x", "hooks": {"Stop": []}}', encoding="utf-8")
    (gap,) = watch.look()
    assert (gap.put_back, gap.path, "hooks.PreToolUse" in gap.missing) == (True, str(scene.settings), True)
    found, theirs = json.loads(scene.settings.read_bytes()), {"model": "x", "hooks": {"Stop": [], **before["hooks"]}}
    assert found == {name: value for name, value in before.items() if name not in THEIRS} | theirs
    assert watch.look() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [('"timeout": 30', '"timeout": 0'), ('"matcher": "*"', '"matcher": "-"'), ("PreToolUse", "Stop")],
    ids=["when it gives up", "what it is asked about", "when it is asked"],
)
def test_a_hook_that_was_changed_is_put_right(scene: Scene, old: str, new: str) -> None:
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
    text = scene.settings.read_text("utf-8")
    scene.settings.write_text(text.replace(old, new), encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert json.loads(scene.settings.read_bytes()) == before


@pytest.mark.parametrize("broken", [None, b"", b"{", b"{} // x", b"[1]", b'{"a": 1, "a": 2}', b" " * (1 << 19)])
def test_a_file_that_is_gone_or_cannot_take_it_any_more_is_as_it_last_was(scene: Scene, broken: bytes | None) -> None:
    scene.settings.write_bytes(scene.settings.read_bytes() + b"\n\n")
    scene.settings.chmod(0o640)
    watch, before = Watch(scene), scene.settings.read_bytes()
    scene.settings.unlink()
    if broken is None:
        scene.settings.parent.rmdir()
    else:
        scene.settings.write_bytes(broken)
    assert [gap.put_back for gap in watch.look()] == [True]
    assert (scene.settings.read_bytes(), scene.settings.stat().st_mode & 0o777) == (before, 0o640)


def test_a_file_that_is_written_in_two_steps_gets_until_the_next_look(scene: Scene) -> None:
    watch, whole = Watch(scene), scene.settings.read_bytes()
    scene.settings.write_bytes(whole[:40])
    assert watch.restorer.check(1.0) == []
    scene.settings.write_bytes(whole)
    assert watch.look(2.0) == []


@pytest.mark.parametrize("off", [{"disableAllHooks": True}, {"hooksConfig": {"enabled": False}}], ids=["flag", "deep"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_hooks_that_are_turned_off_in_the_file_itself_are_turned_on_again(
    shape: bytes, first: bool, off: dict[str, Any], tmp_path: Path
) -> None:
    scene = Scene.at(tmp_path)
    scene.write(shape)
    # Of an assistant of which it is not known what else it accepts.
    protect(scene, plan=plan_of(added(scene.settings, entry())), assistant="another")
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes().decode("utf-8-sig"))
    before |= {"z": "changed as well"}
    scene.settings.write_text(json.dumps(off | before if first else before | off, indent=2), encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert json.loads(scene.settings.read_bytes()) in (before, before | {"hooksConfig": {}})


HIDDEN = {"PreToolUse": [{"hooks": [{"type": "command", "command": "true"}]}]}
NOT_ACCEPTED: dict[str, tuple[dict[str, Any], str]] = {
    "permissions": ({"permissions": 7}, "permissions"),
    "a rule": ({"permissions": {"allow": "Bash(ls)"}}, "permissions.allow"),
    "a mode": ({"permissions": {"allow": ["Bash(ls)"], "defaultMode": "all"}}, "permissions.defaultMode"),
    "a number": ({"cleanupPeriodDays": "x"}, "cleanupPeriodDays"),
    "a number of another kind": ({"cleanupPeriodDays": 0}, "cleanupPeriodDays"),
    "an integer that JavaScript does not have": ({"cleanupPeriodDays": 1e300}, "cleanupPeriodDays"),
    "null": ({"model": None}, "model"),
    "variables": ({"env": []}, "env"),
    "an internal member": ({"quietHours": {"start": "late"}}, "quietHours.start"),
    "a source that is not checked by its shape alone": (
        {"strictKnownMarketplaces": [{"source": "npm", "package": "../x"}]},
        "strictKnownMarketplaces[0]",
    ),
    "a credential with a pattern": (
        {"sandbox": {"credentials": {"envVars": [{"name": "A", "mode": "mask", "extract": "("}]}}},
        "sandbox.credentials.envVars[0]",
    ),
    "a hook of no kind": ({"hooks": {"PreToolUse": [{"hooks": [{"type": "bogus"}]}]}}, "hooks.PreToolUse[1]"),
    "a group that is none": ({"hooks": {"Stop": [7]}}, "hooks.Stop[0]"),
    "an event that is none": ({"hooks": {"Stop": 7}}, "hooks.Stop"),
    "hooks in an unknown member": ({"notes": HIDDEN}, "notes"),
    "hooks in another event": ({"hooks": {"Note": [HIDDEN]}}, "hooks.Note"),
}


def joined(settings: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return settings with more in them: groups of hooks behind those that are there."""
    events = dict(settings["hooks"])
    for event, groups in more.get("hooks", {}).items():
        events[event] = [*events[event], *groups] if event in events else groups
    return settings | more | {"hooks": events}


@pytest.mark.parametrize(("wrong", "named"), NOT_ACCEPTED.values(), ids=NOT_ACCEPTED.keys())
def test_a_value_for_which_the_whole_file_would_be_dropped_is_taken_out_and_the_file_kept_aside(
    scene: Scene, wrong: dict[str, Any], named: str
) -> None:
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
    changed = json.dumps(joined(before, wrong) | {"outputStyle": "short"})
    scene.settings.write_text(changed, encoding="utf-8")
    (gap,) = watch.look()
    assert (gap.put_back, any(one.startswith("an accepted value of") and named in one for one in gap.missing)) == (
        True,
        True,
    )
    found = json.loads(scene.settings.read_bytes())
    assert [*find_invalid(SettingsReader("claude-code", "2.1.325"), found)] == []
    assert {event: groups for event, groups in found["hooks"].items() if groups} == before["hooks"]
    assert found["outputStyle"] == "short"
    (kept,) = gap.displaced
    assert Path(kept.rpartition(" ")[2]).read_text("utf-8") == changed
    assert watch.look() + watch.look(2.0) == []


def test_a_value_for_which_the_file_would_be_dropped_is_found_when_the_hub_starts(scene: Scene) -> None:
    before = json.loads(scene.settings.read_bytes())
    scene.settings.write_text(json.dumps(before | {"cleanupPeriodDays": "x"}), encoding="utf-8")
    restorer = SettingsRestorer(scene.protections, lambda _: "", _raise, lambda _: ())
    assert [gap.put_back for gap in restorer.check(0.0)] == [True]
    assert json.loads(scene.settings.read_bytes()) == before


def test_values_for_which_the_file_would_be_dropped_again_and_again_count_as_tampering(scene: Scene) -> None:
    watch, text = Watch(scene), scene.settings.read_text("utf-8")
    for _ in range(REPAIRS):
        scene.settings.write_text(text.replace("{", '{"model": 7, ', 1), encoding="utf-8")
        assert [gap.put_back for gap in watch.look()] == [True]
    assert set(watch.restorer.tampered()) == {ID}


@pytest.mark.parametrize(
    "more",
    [
        {"permissions": {"allow": ["Bash(ls)"], "deny": ["Read(.env)"], "defaultMode": "plan", "later": 1}},
        {"env": {"A": "1", "B": 2}},
        {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true", "timeout": 1.5}]}]}},
        {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}]}},
        {"hooks": {"PostToolUse": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:8000/x"}]}]}},
        {"statusLine": {"type": "command", "command": "date"}, "model": "opus", "cleanupPeriodDays": 30.0},
        {"a member of a later version": {"x": [1, {"y": None}]}},
        {"attribution": False, "effortLevel": "max", "theme": "another"},
        {
            "enabledPlugins": {"a@b": True},
            "extraKnownMarketplaces": {"b": {"source": {"source": "github", "repo": "o/r"}}},
        },
        {"sandbox": {"enabled": True, "network": {"allowedDomains": ["example.org"]}}},
    ],
)
def test_settings_that_a_user_may_have_are_left_alone(scene: Scene, more: dict[str, Any]) -> None:
    watch = Watch(scene)
    changed = json.dumps(joined(json.loads(scene.settings.read_bytes()), more))
    scene.settings.write_text(changed, encoding="utf-8")
    assert [gap for _ in range(20) for gap in watch.look()] == []
    assert scene.settings.read_text("utf-8") == changed


def test_what_only_older_versions_drop_the_file_for_is_taken_out_for_those(tmp_path: Path) -> None:
    found = dict[str, list[bool]]()
    for version in ("2.1.325", "2.1.197", ""):
        (top := tmp_path / f"version {version}").mkdir()
        scene = Scene.at(top)
        protect(scene, version=version)
        watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
        scene.settings.write_text(json.dumps(before | {"attribution": False}), encoding="utf-8")
        found[version] = [gap.put_back for gap in watch.look()]
    assert found == {"2.1.325": [], "2.1.197": [True], "": [True]}


def test_a_switch_that_claude_code_was_given_is_set_again(scene: Scene) -> None:
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
    scene.settings.write_text(json.dumps(before | {"disableAllHooks": True}), encoding="utf-8")
    assert [(gap.missing, gap.put_back) for gap in watch.look()] == [(("disableAllHooks",), True)]
    assert json.loads(scene.settings.read_bytes()) == before


def test_what_hooks_count_on_is_set_again_even_if_it_was_not_us_who_set_it(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(json.dumps({OFF: True}).encode())
    protect(scene)
    watch = Watch(scene)
    scene.settings.write_bytes(scene.settings.read_bytes().replace(b"true", b"false", 1))
    assert [(gap.missing, gap.put_back) for gap in watch.look()] == [((OFF,), True)]
    assert json.loads(scene.settings.read_bytes())[OFF] is True


def test_settings_that_others_have_changed_are_known_again_by_another_hub(scene: Scene) -> None:
    changed = json.loads(scene.settings.read_bytes()) | {"model": "x"}
    scene.settings.write_text(json.dumps(changed), encoding="utf-8")
    watch = Watch(scene)
    scene.settings.write_text(json.dumps(THEIRS | {"model": "x"}), encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert json.loads(scene.settings.read_bytes()) == changed


@pytest.mark.parametrize("broken", [None, b"{}", b"{"])
def test_what_was_never_seen_in_force_is_told_and_not_written(scene: Scene, broken: bytes | None) -> None:
    scene.settings.unlink()
    if broken is not None:
        scene.settings.write_bytes(broken)
    restorer = SettingsRestorer(scene.protections, lambda _: "", _raise, lambda _: ())
    gaps = [gap for now in range(300) for gap in restorer.check(now)]
    assert [gap.put_back for gap in gaps] == [False]
    assert (scene.settings.read_bytes() if scene.settings.exists() else None) == broken


def test_a_hook_that_only_names_the_protection_is_not_taken_for_ours(scene: Scene) -> None:
    kept = scene.protections.get(ID)
    assert kept is not None
    forged = scene.settings.read_bytes().replace(b'"timeout": 30', b'"timeout": 0')
    assert find_fragment(kept.files[0], ID, forged) is None


def test_undoing_is_not_fought(scene: Scene) -> None:
    watch = Watch(scene)
    scene.undo()
    assert watch.look() == []
    assert json.loads(scene.settings.read_bytes()) == THEIRS


def test_protecting_again_is_not_fought(scene: Scene) -> None:
    watch = Watch(scene)
    other = plan_of(added(scene.settings, entry()))
    protect(scene, plan=other)
    after = scene.settings.read_bytes()
    assert watch.look() + watch.look(2.0) == []
    scene.settings.unlink()
    assert [gap.put_back for gap in watch.look()] == [True]
    assert scene.settings.read_bytes() == after


def test_undoing_gives_back_what_was_before_also_after_it_was_put_back(scene: Scene) -> None:
    watch = Watch(scene)
    scene.settings.write_bytes(json.dumps(THEIRS, indent=2).encode())
    assert [gap.put_back for gap in watch.look()] == [True]
    scene.undo()
    assert json.loads(scene.settings.read_bytes()) == THEIRS


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(scene: Scene) -> None:
    watch = Watch(scene)
    scene.settings.unlink()
    os.mkfifo(scene.settings)
    assert [gap.put_back for gap in watch.look()] == [True]


def test_what_comes_and_goes_and_cannot_be_put_back_is_told_once_a_minute(scene: Scene, tmp_path: Path) -> None:
    watch, told = Watch(scene), list[Gap]()
    for _ in range(10):
        scene.folder.rename(tmp_path / "away")
        told += watch.look()
        (tmp_path / "away").rename(scene.folder)
        told += watch.look()
    assert [gap.put_back for gap in told] == [False]


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    protect(scene)
    watch = Watch(scene)
    scene.folder.rename(tmp_path / "elsewhere")
    assert [gap.put_back for gap in watch.look()] == [False]
    assert not scene.folder.exists()


def test_what_is_put_back_is_no_more_open_to_others_than_it_was(scene: Scene) -> None:
    scene.settings.chmod(0o600)
    watch = Watch(scene)
    scene.settings.unlink()
    scene.settings.write_bytes(b"{}")
    scene.settings.chmod(0o666)
    assert [gap.put_back for gap in watch.look()] == [True]
    assert scene.settings.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_broken_again_and_again_is_put_back_each_time_and_told_a_few_times_a_minute(
    scene: Scene,
) -> None:
    watch, told, before = Watch(scene), list[Gap](), scene.settings.read_bytes()
    for _ in range(int(WINDOW_S / 0.5) - 1):
        scene.settings.write_bytes(b"{")
        told += watch.look(0.5)
        assert scene.settings.read_bytes() == before
    assert [gap.put_back for gap in told] == [True] * (REPAIRS + 1)


def test_a_block_that_was_taken_out_is_put_back_and_other_lines_stay(tmp_path: Path) -> None:
    scene, file = toml_scene(tmp_path)
    watch = Watch(scene)
    file.write_text("a = 2\nb = 3\n", encoding="utf-8")
    assert [(gap.missing, gap.put_back) for gap in watch.look()] == [(("hooks",), True)]
    text = file.read_text("utf-8")
    assert (text.startswith("a = 2\nb = 3\n# >>> remit"), "command = 'x'" in text) == (True, True)


def test_a_block_inside_of_a_string_is_not_in_force(tmp_path: Path) -> None:
    scene, file = toml_scene(tmp_path)
    watch, block = Watch(scene), file.read_text("utf-8").removeprefix("a = 1\n")
    file.write_text(f'a = """\n{block}"""\n', encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert file.read_text("utf-8").endswith(block)


def test_a_block_that_lost_its_marks_is_put_back_with_them(tmp_path: Path) -> None:
    scene, file = toml_scene(tmp_path)
    watch, before = Watch(scene), file.read_text("utf-8")
    file.write_text("\n".join(line for line in before.splitlines() if "remit" not in line), encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert file.read_text("utf-8").endswith(before.removeprefix("a = 1\n"))


def test_toml_that_contradicts_the_block_is_as_it_last_was(tmp_path: Path) -> None:
    scene, file = toml_scene(tmp_path)
    watch, before = Watch(scene), file.read_bytes()
    file.write_text("hooks = false\n", encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert file.read_bytes() == before


@pytest.mark.parametrize("other", [None, b"", b"export const Other = 1\n"])
def test_a_file_of_ours_alone_is_as_it_was(tmp_path: Path, other: bytes | None) -> None:
    scene, file = Scene.at(tmp_path), tmp_path / "project" / "plugin.js"
    protect(scene, plan=plan_of(OwnFile(str(file), f"// {ID}\n")))
    watch = Watch(scene)
    file.unlink()
    if other is not None:
        file.write_bytes(other)
    assert [gap.put_back for gap in watch.look()] == [True]
    assert file.read_text("utf-8") == f"// {ID}\n"


def test_a_file_that_names_protections_without_end_is_as_it_last_was(tmp_path: Path) -> None:
    scene, file = toml_scene(tmp_path)
    watch, before = Watch(scene), file.read_bytes()
    file.write_text(f"# >>> remit {ID} hooks:\n" * 4000, encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert file.read_bytes() == before


def test_hooks_that_are_turned_off_in_another_layer_are_told_once(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    layer = scene.folder / ".claude" / "settings.json"
    plan = ClaudeCodePlanner().plan(scene.place("user"), wire())
    protect(scene, plan=plan, level="user", guards=(str(layer),))
    obstacle = partial(find_obstacle, user_home=str(tmp_path / "user"), config=lambda _: "")
    watch = Watch(scene, obstacle)
    layer.parent.mkdir()
    layer.write_text('{"disableAllHooks": true}', encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [False]
    layer.write_text('{"disableAllHooks": true, "model": "x"}', encoding="utf-8")
    assert watch.look() + watch.look(2 * WINDOW_S) == []
    assert "disableAllHooks" in layer.read_text("utf-8")


@pytest.mark.parametrize("assistant", sorted(PLANNERS))
def test_nothing_keeps_the_hooks_of_an_assistant_from_running_that_was_just_protected(
    assistant: str, tmp_path: Path
) -> None:
    drawing = Drawing(tmp_path, PLANNERS[assistant])
    scene = Scene.at(tmp_path)
    plan = drawing.plan("local", version="2.1.325")._replace(settle=None)
    kept = protect(scene, plan=plan, assistant=assistant, guards=plan.guards)
    assert kept.files
    assert Watch(scene, partial(find_obstacle, user_home=str(tmp_path / "user"), config=lambda _: "")).look() == []


# What turns hooks off, and the level of settings for which that is looked at.
OFF_ELSEWHERE: dict[str, tuple[str, Level, str, str]] = {
    "another file of hooks of Copilot": ("copilot", "user", "user/.copilot/hooks/zz.json", '{"disableAllHooks": true}'),
    "another file of hooks in the project": (
        "copilot",
        "local",
        "project/.github/hooks/zz.json",
        '{"disableAllHooks": true}',
    ),
    "settings of Copilot": ("copilot", "user", "user/.copilot/settings.json", '{"disableAllHooks": true}'),
    "features of Codex": ("codex", "local", "user/.codex/config.toml", "[features]\nhooks = false\n"),
    "settings of Gemini": ("gemini", "local", "user/.gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
    "settings of the project": (
        "claude-code",
        "user",
        "project/.claude/settings.json",
        '{"disableAllHooks": true}',
    ),
}


def planned(tmp_path: Path, assistant: str, level: Level) -> tuple[Scene, Watch]:
    """Return a project in which an assistant is protected at a level, with a watch as the Hub has it."""
    scene, user = Scene.at(tmp_path), tmp_path / "user"
    user.mkdir()
    place = scene.place(level)
    plan = PLANNERS[assistant].plan(place, replace(wire(), assistant=assistant))._replace(settle=None)
    protect(scene, plan=plan, assistant=assistant, level=level, guards=plan.guards)
    obstacle = partial(find_obstacle, user_home=str(user), config=lambda _: "")
    return scene, Watch(scene, obstacle, partial(files_to_watch, user_home=str(user), config=lambda _: ""))


@pytest.mark.parametrize(("assistant", "level", "name", "text"), OFF_ELSEWHERE.values(), ids=OFF_ELSEWHERE.keys())
def test_what_turns_hooks_off_in_any_file_that_is_read_is_found_when_it_is_written(
    tmp_path: Path, assistant: str, level: Level, name: str, text: str
) -> None:
    _, watch = planned(tmp_path, assistant, level)
    # No change is waited for any more.
    assert watch.look(10.0) + watch.look(10.0) == []
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [False]
    watch.look(2.0)
    assert set(watch.restorer.tampered()) == {ID}


@pytest.mark.parametrize("assistant", sorted(PLANNERS))
def test_a_file_of_any_assistant_that_it_cannot_read_or_that_holds_no_hooks_is_put_back(
    assistant: str, tmp_path: Path
) -> None:
    scene, watch = planned(tmp_path, assistant, "local")
    kept = scene.protections.get(ID)
    assert kept is not None
    for written in kept.files:
        file = Path(written.path)
        for broken in (b"{", b"[]", b'{"hooks": 7}', b'{"hooks": []}', b"hooks = 7\n", b"[[hooks"):
            file.write_bytes(broken)
            assert [gap.put_back for gap in watch.look(WINDOW_S)] == [True]
            assert (ID.encode() in file.read_bytes(), watch.look()) == (True, [])


def test_hooks_of_codex_are_put_back_at_the_place_at_which_they_are_trusted(tmp_path: Path) -> None:
    scene, watch = planned(tmp_path, "codex", "local")
    file = scene.folder / ".codex" / "hooks.json"
    before, other = json.loads(file.read_bytes()), {"matcher": "x", "hooks": [{"type": "command", "command": "true"}]}
    shifted = {**before["hooks"], "PreToolUse": [other, other | {"matcher": "y"}, *before["hooks"]["PreToolUse"]]}
    file.write_text(json.dumps({"hooks": shifted}), encoding="utf-8")
    (gap,) = watch.look()
    assert (gap.put_back, gap.missing) == (True, ("the place of hooks.PreToolUse",))
    expected = [*before["hooks"]["PreToolUse"], other, other | {"matcher": "y"}]
    assert json.loads(file.read_bytes()) == {"hooks": {**before["hooks"], "PreToolUse": expected}}
    assert watch.look() + watch.look(2.0) == []


def test_hooks_of_codex_behind_those_of_others_are_not_moved_up(tmp_path: Path) -> None:
    scene, file = Scene.at(tmp_path), tmp_path / "project" / "hooks.json"
    other = {"hooks": [{"type": "command", "command": "true"}]}
    file.write_text(json.dumps({"hooks": {"PreToolUse": [other]}}), encoding="utf-8")
    protect(scene, plan=plan_of(added(file, entry())), assistant="codex")
    watch, before = Watch(scene), json.loads(file.read_bytes())
    file.write_text(json.dumps({"hooks": {"PreToolUse": [before["hooks"]["PreToolUse"][1]]}}), encoding="utf-8")
    assert [gap.put_back for gap in watch.look()] == [True]
    assert json.loads(file.read_bytes()) == before


def test_a_group_behind_ours_is_left_alone(tmp_path: Path) -> None:
    scene, watch = planned(tmp_path, "codex", "local")
    file = scene.folder / ".codex" / "hooks.json"
    changed = json.loads(file.read_bytes())
    changed["hooks"]["PreToolUse"].append({"hooks": [{"type": "command", "command": "true"}]})
    file.write_text(json.dumps(changed), encoding="utf-8")
    assert [gap for _ in range(20) for gap in watch.look()] == []


def test_an_unknown_member_in_the_file_of_hooks_of_codex_is_taken_out(tmp_path: Path) -> None:
    scene, watch = planned(tmp_path, "codex", "local")
    file = scene.folder / ".codex" / "hooks.json"
    before = json.loads(file.read_bytes())
    file.write_text(json.dumps(before | {"x": 1}), encoding="utf-8")
    assert [(gap.put_back, gap.missing) for gap in watch.look()] == [(True, ("an accepted value of x",))]
    assert json.loads(file.read_bytes()) == before


def test_an_error_with_one_file_keeps_nobody_from_looking_after_the_others(tmp_path: Path) -> None:
    scene, errors = Scene.at(tmp_path), list[Exception]()
    files = [scene.folder / "a.json", scene.folder / "b.json"]
    for name, file in zip((ID, "prot-ffffffffffff"), files, strict=True):
        protect(scene, name, plan=plan_of(added(file, entry(name))))
    restorer = SettingsRestorer(scene.protections, lambda _: "", errors.append, lambda _: ())
    restorer.check(0.0)
    for file in files:
        file.write_bytes(b'{"x": 1}')
    (tmp_path / "home" / "protections" / f"{ID}.json").write_bytes(b"{")
    assert [gap.path for gap in restorer.check(0.5)] == [str(files[1])]
    assert [type(error).__name__ for error in errors] == ["StateCorrupt"]


@pytest.mark.parametrize("is_changed_by_others", [False, True])
def test_a_token_of_the_first_release_that_was_replaced_is_not_put_back(
    tmp_path: Path, is_changed_by_others: bool
) -> None:
    kept = first_release(tmp_path)
    settings = kept.project / ".claude" / "settings.local.json"
    if is_changed_by_others:
        changed = json.loads(settings.read_bytes()) | {"model": "x"}
        settings.write_text(json.dumps(changed), encoding="utf-8")
    with open_home(kept.home) as home:
        watch = Watch(Scene(kept.project, Protections(home)))
        before = settings.read_bytes()
        old = before.partition(b"Bearer ")[2].partition(b'"')[0].decode()
        done = replace_tokens(Protections(home), lambda _: {old: "the-new-token"})
        assert sorted((one.changed, one.why) for one in done) == [((), ""), ((str(settings),), "")]
        assert [gap for _ in range(20) for gap in watch.look(after=0.5)] == []
    assert settings.read_bytes() == before.replace(old.encode(), b"the-new-token")
