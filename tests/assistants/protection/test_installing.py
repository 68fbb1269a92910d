"""Protecting and undoing: byte for byte, or nothing but ours; and after an error as if nothing had been."""

import json
import os
from pathlib import Path

import pytest
from msgspec import structs

from remit.assistants.install.plan import FileChange, OwnFile, TomlBlock
from remit.assistants.records import Protections
from remit.errors import FieldInvalid, InputError, StateCorrupt
from remit.ledger.home import open_home
from tests.assistants.protection.places import ID, Scene, added, entry, plan_of
from tests.assistants.protection.test_jsonedit import OFF, REFUSED, SHAPES

OTHER = "prot-ffffffffffff"


def everything(folder: Path) -> dict[str, bytes | None]:
    """Return what lies in a folder: the content of files, and None for folders."""
    return {
        str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("data", [*SHAPES.values(), b"", b" \n", None], ids=[*SHAPES.keys(), "empty", "blank", "none"])
def test_settings_of_every_shape_are_protected_and_given_back(data: bytes | None, tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    if data is not None:
        scene.write(data)
    before = everything(scene.folder)
    scene.protect()
    assert ID in scene.settings.read_text("utf-8")
    scene.undo()
    assert (everything(scene.folder), scene.protections.all()) == (before, [])


@pytest.mark.parametrize(("data", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_settings_that_are_refused_are_left_as_they_are(data: bytes, error: type[InputError], tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(data)
    with pytest.raises(error) as refused:
        scene.protect()
    assert refused.value.code == error.code
    assert refused.value.place.startswith(".claude/settings.local.json")
    assert (scene.settings.read_bytes(), scene.protections.all()) == (data, [])


@pytest.mark.parametrize("target", [b'{\n  "a": 1\n}', None], ids=["a link", "a link that leads nowhere"])
def test_settings_behind_a_link_are_protected_and_given_back(target: bytes | None, tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.settings.parent.mkdir()
    scene.settings.symlink_to("../dotfiles.json")
    if target is not None:
        (scene.folder / "dotfiles.json").write_bytes(target)
    scene.protect()
    assert scene.settings.is_symlink()
    assert ID in (scene.folder / "dotfiles.json").read_text()
    scene.undo()
    assert scene.settings.is_symlink()
    assert (scene.settings.read_bytes() if target else scene.settings.exists()) == (target or False)


def test_protecting_twice_is_protecting_once(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(SHAPES["other hooks"])
    scene.protect()
    once = scene.settings.read_bytes()
    scene.protect()
    assert scene.settings.read_bytes() == once
    scene.undo()
    assert scene.settings.read_bytes() == SHAPES["other hooks"]


def test_protecting_again_keeps_what_was_changed_between(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(b'{"a": 1}')
    scene.protect()
    scene.settings.write_bytes(scene.settings.read_bytes().replace(b'"a": 1', b'"a": 2'))
    again = scene.settings.read_bytes()
    scene.protect()
    assert scene.settings.read_bytes() == again
    scene.undo()
    assert scene.settings.read_bytes() == b'{"a": 2}'


def test_of_settings_that_were_changed_since_only_ours_is_taken_out(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(b'{"a": 1}')
    scene.protect()
    changed = json.loads(scene.settings.read_bytes())
    changed["hooks"]["PreToolUse"].insert(0, {"hooks": ["theirs"]})
    scene.settings.write_text(json.dumps(changed))
    scene.undo()
    assert json.loads(scene.settings.read_bytes()) == {"a": 1, "hooks": {"PreToolUse": [{"hooks": ["theirs"]}]}}


def test_a_file_that_holds_nothing_but_ours_goes_even_if_it_was_written_otherwise(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.protect()
    scene.settings.write_text(json.dumps(json.loads(scene.settings.read_bytes())))
    scene.undo()
    assert everything(scene.folder) == {}


def test_undoing_tells_what_it_has_come_to(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    told = []
    for after in (None, b'{"a": 2}', SHAPES["other members"]):
        scene.write(SHAPES["other members"])
        scene.protect()
        if after is None:
            scene.settings.unlink()
        else:
            scene.settings.write_bytes(after)
        told += [one.what.split()[0:2] for one in scene.undo()]
        assert (scene.settings.read_bytes() if scene.settings.exists() else None) == after
    assert told == [["was", "gone"], ["changed", "since,"], ["was", "as"]]


def test_two_protections_in_one_file_do_not_touch_each_other(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(b"{}")
    scene.protect(ID)
    scene.protect(OTHER)
    scene.undo(ID)
    text = scene.settings.read_text()
    assert (ID in text, OTHER in text) == (False, True)
    scene.undo(OTHER)
    # Whose it was, the home that is left cannot know: it stays, because it harms nobody.
    assert json.loads(scene.settings.read_bytes())[OFF] is True
    assert "hooks" not in json.loads(scene.settings.read_bytes())


def test_what_two_protections_count_on_stays_until_the_last_is_undone(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(SHAPES["the member off"])
    for name in (ID, OTHER, ID):
        scene.protect(name)
    scene.undo(OTHER)
    assert json.loads(scene.settings.read_bytes())[OFF] is True
    scene.undo(ID)
    assert scene.settings.read_bytes() == SHAPES["the member off"]


@pytest.mark.parametrize("again", [0, 1, 2])
@pytest.mark.parametrize(("was", "left"), [(b'{"a": 1}', {}), (SHAPES["the member off"], {OFF: False})])
def test_of_a_file_that_was_changed_since_a_member_is_given_back(
    was: bytes, left: dict[str, bool], again: int, tmp_path: Path
) -> None:
    scene = Scene.at(tmp_path)
    scene.write(was)
    scene.protect()
    for number in range(2, 3 + again):
        scene.settings.write_bytes(scene.settings.read_bytes().replace(b'"a": %d' % (number - 1), b'"a": %d' % number))
        if number < 2 + again:
            scene.protect()
    scene.undo()
    assert json.loads(scene.settings.read_bytes()) == {"a": 2 + again, **left}


def test_a_member_that_its_owner_has_changed_since_is_left_and_protecting_again_sets_it(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(b'{"a": 1}')
    for _ in range(2):
        scene.protect()
        assert json.loads(scene.settings.read_bytes())[OFF] is True
        text = scene.settings.read_text().replace(f'"{OFF}": true', f'"{OFF}": null')
        scene.settings.write_text(text)
    scene.undo()
    assert json.loads(scene.settings.read_bytes()) == {"a": 1, OFF: None}


def test_a_file_of_ours_is_made_and_removed_and_one_of_others_stays(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    plan = plan_of(OwnFile(str(scene.folder / "plugin" / "remit.js"), f"// {ID}\n", 0o644))
    scene.protect(plan=plan)
    scene.protect(plan=plan)
    scene.undo()
    assert everything(scene.folder) == {}
    (scene.folder / "plugin").mkdir()
    (scene.folder / "plugin" / "remit.js").write_text("theirs")
    with pytest.raises(FieldInvalid) as refused:
        scene.protect(plan=plan)
    assert (refused.value.code, scene.protections.all()) == ("field_invalid", [])


def several(scene: Scene) -> tuple[FileChange, ...]:
    folder = scene.folder
    return (
        added(folder / "a.json", entry()),
        TomlBlock(str(folder / "b.toml"), "hooks", "[hooks]"),
        OwnFile(str(folder / "made" / "c.js"), f"// {ID}"),
        added(folder / "a.json", entry(where=("other",))),
    )


def test_what_is_left_to_change_afterwards_is_undone_with_the_rest(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    (scene.folder / "b.toml").write_text("x = 1\n")
    before = everything(scene.folder)
    seen = list[bytes]()

    def settle() -> tuple[FileChange, ...]:
        seen.append((scene.folder / "b.toml").read_bytes())
        return (TomlBlock(str(scene.folder / "b.toml"), "trust", "[trust]"),)

    for _ in range(2):
        scene.protect(plan=plan_of(*several(scene), settle=settle))
        text = (scene.folder / "b.toml").read_text()
        assert (text.count("[hooks]"), text.count("[trust]")) == (1, 1)
    assert [b"[hooks]" in one for one in seen] == [True, True]
    assert len(json.loads((scene.folder / "a.json").read_bytes())) == 2
    scene.undo()
    assert everything(scene.folder) == before


@pytest.mark.parametrize("again", [False, True])
def test_after_an_error_all_is_as_it_was(again: bool, tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    (scene.folder / "b.toml").write_text("x = 1\n")
    if again:
        scene.protect(plan=plan_of(*several(scene)))
    before, known = everything(tmp_path), scene.protections.all()

    def settle() -> tuple[FileChange, ...]:
        raise FieldInvalid("cannot be trusted")

    with pytest.raises(FieldInvalid):
        scene.protect(plan=plan_of(*several(scene)[1:], settle=settle))
    after = everything(tmp_path)
    assert scene.protections.all() == known
    assert {name: data for name, data in after.items() if name.startswith("project")} == {
        name: data for name, data in before.items() if name.startswith("project")
    }


def test_nothing_is_written_if_one_file_of_several_is_refused(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    os.mkfifo(scene.folder / "pipe")
    with pytest.raises(FieldInvalid) as refused:
        scene.protect(plan=plan_of(*several(scene), added(scene.folder / "pipe", entry())))
    assert refused.value.code == "field_invalid"
    assert (list(everything(scene.folder)), scene.protections.all()) == (["pipe"], [])


def test_no_record_of_a_protection_shows_its_token(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    kept = scene.protect()
    assert "secret-of" not in scene.settings.read_text() + repr(kept)


def closed_by_first_release(scene: Scene) -> None:
    """Leave a file as the first release did, which closed it because a token was in it."""
    scene.write(b"{}")
    scene.settings.chmod(0o644)
    kept = scene.protect()
    scene.settings.chmod(0o600)
    files = tuple(structs.replace(written, closed=True) for written in kept.files)
    scene.protections.put(structs.replace(kept, files=files, generation=0))


def test_a_file_that_the_first_release_closed_is_open_again_once_no_token_is_in_it(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    closed_by_first_release(scene)
    scene.protect()
    assert scene.settings.stat().st_mode & 0o777 == 0o644
    scene.undo()
    assert (scene.settings.stat().st_mode & 0o777, scene.settings.read_bytes()) == (0o644, b"{}")


def test_a_file_that_the_first_release_closed_is_open_again_once_it_is_undone(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    closed_by_first_release(scene)
    scene.undo()
    assert (scene.settings.stat().st_mode & 0o777, scene.settings.read_bytes()) == (0o644, b"{}")


def test_a_mode_that_others_have_given_a_file_stays(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    closed_by_first_release(scene)
    scene.settings.chmod(0o700)
    scene.undo()
    assert scene.settings.stat().st_mode & 0o777 == 0o700


def test_hooks_that_others_share_stay_when_they_are_no_longer_counted_on(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    shared = scene.folder / ".claude" / "settings.json"
    scene.protect(level="project")
    before = shared.read_bytes()
    mine = Scene(scene.folder, Protections(open_home(tmp_path / "another home")))
    for _ in range(2):
        mine.protect(level="project", adopted=True)
        assert shared.read_bytes() == before
    mine.undo()
    assert shared.read_bytes() == before
    mine.protect(level="project", adopted=True)
    shared.write_bytes(before + b"\n")
    mine.undo()
    assert shared.read_bytes() == before + b"\n"


def test_hooks_of_this_home_that_it_does_not_know_any_more_are_taken_out(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    path = scene.protections.wire_path(OTHER)
    stale = {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"run {at}"}]} for at in (path, f"/x{OTHER}")]}
    }
    for act in (scene.protect, scene.undo):
        if act is scene.undo:
            scene.protect()
        scene.write(json.dumps(stale).encode())
        act()
        assert OTHER not in scene.settings.read_text()
    assert json.loads(scene.settings.read_bytes()) == {}


def test_hooks_of_another_home_and_of_a_known_protection_stay(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    foreign = "prot-eeeeeeeeeeee"
    scene.protect(OTHER)
    known = json.loads(scene.settings.read_bytes())
    paths = (f"/another/home/protections/{foreign}.wire.json", scene.protections.wire_path(OTHER))
    known["hooks"]["Stop"] = [{"hooks": [{"type": "command", "command": path}]} for path in paths]
    scene.write(json.dumps(known).encode())
    scene.protect()
    assert all(name in scene.settings.read_text() for name in (ID, OTHER, foreign))
    scene.undo()
    assert all(name in scene.settings.read_text() for name in (OTHER, foreign))


def test_a_damaged_record_is_replaced_by_protecting_again(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    scene.write(b'{"a": 1}')
    scene.protect()
    record = tmp_path / "home" / "protections" / f"{ID}.json"
    record.write_bytes(b"{")
    with pytest.raises(StateCorrupt):
        scene.protections.get(ID)
    scene.protect()
    assert scene.settings.read_text().count("PreToolUse") == 1
    scene.undo()
    assert "hooks" not in json.loads(scene.settings.read_bytes())
