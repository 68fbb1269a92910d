"""Settings that were tampered with are in force again, whatever was put in their place, and nothing else is changed."""

import fcntl
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remit.assistants.monitor.file_restore import MAX_READ
from remit.assistants.monitor.restorer import REPAIRS, WINDOW_S
from remit.assistants.records import Protections
from remit.ledger.home import open_home
from tests.assistants.protection.places import ID, Scene, protection
from tests.assistants.protection.test_restorer import THEIRS, Watch, protect

pytestmark = pytest.mark.slow

OFF = b'{"disableAllHooks": true}'
NOBODY = 65534
Tamper = Callable[[Scene], None]


@pytest.fixture(params=["root", "user"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Give a folder to work in, as whoever runs the tests, and where that is root also as another user."""
    if request.param == "root" or os.geteuid() != 0:
        if request.param == "root" and os.geteuid() != 0:
            pytest.skip("the tests are not run by root")
        yield tmp_path
        return
    folder = tempfile.mkdtemp()
    os.chown(folder, NOBODY, NOBODY)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield Path(folder)
    finally:
        os.seteuid(0)
        os.setegid(0)
        shutil.rmtree(folder)


@pytest.fixture
def scene(place: Path) -> Scene:
    """Give a project that is protected, with settings of others."""
    scene = Scene.at(place)
    scene.write(json.dumps(THEIRS, indent=2).encode())
    scene.settings.chmod(0o640)
    protect(scene)
    return scene


def renamed_in(scene: Scene, data: bytes, mode: int) -> None:
    """Put another file in the place of the settings, as `mv` does."""
    new = scene.folder / "new"
    new.write_bytes(data)
    new.chmod(mode)
    new.rename(scene.settings)


def with_a_second_link(scene: Scene) -> None:
    (scene.folder / "other").write_bytes(OFF)
    scene.settings.unlink()
    scene.settings.hardlink_to(scene.folder / "other")


def a_link(scene: Scene) -> None:
    (scene.folder / "other").write_bytes(OFF)
    scene.settings.unlink()
    scene.settings.symlink_to(scene.folder / "other")


def a_directory(scene: Scene) -> None:
    scene.settings.unlink()
    (scene.settings / "inner").mkdir(parents=True)


def a_pipe(scene: Scene) -> None:
    scene.settings.unlink()
    os.mkfifo(scene.settings)


def in_a_read_only_folder(scene: Scene) -> None:
    renamed_in(scene, OFF, 0o444)
    scene.settings.parent.chmod(0o555)


def in_a_closed_folder(scene: Scene) -> None:
    renamed_in(scene, OFF, 0o444)
    scene.settings.parent.chmod(0)


def in_another_folder(scene: Scene) -> None:
    scene.settings.parent.rename(scene.folder / "away")
    scene.settings.parent.mkdir()
    scene.settings.write_bytes(OFF)


def behind_a_link(scene: Scene) -> None:
    scene.settings.parent.rename(scene.folder / "away")
    (scene.folder / "other").mkdir()
    (scene.folder / "other" / scene.settings.name).write_bytes(OFF)
    scene.settings.parent.symlink_to(scene.folder / "other")


def behind_a_file(scene: Scene) -> None:
    scene.settings.parent.rename(scene.folder / "away")
    scene.settings.parent.write_bytes(b"x")


WAYS: dict[str, Tamper] = {
    "read-only": lambda scene: renamed_in(scene, OFF, 0o444),
    "unreadable": lambda scene: renamed_in(scene, OFF, 0),
    "large": lambda scene: renamed_in(scene, OFF + b" " * MAX_READ, 0o644),
    "second link": with_a_second_link,
    "link": a_link,
    "directory": a_directory,
    "pipe": a_pipe,
    "read-only folder": in_a_read_only_folder,
    "closed folder": in_a_closed_folder,
    "another folder": in_another_folder,
    "folder behind a link": behind_a_link,
    "file for a folder": behind_a_file,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_hooks_are_in_force_again_whatever_stands_in_the_place_of_the_settings(scene: Scene, way: Tamper) -> None:
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
    mode = scene.settings.stat().st_mode
    way(scene)
    assert [(gap.put_back, gap.why) for gap in watch.look()] == [(True, "")]
    found = scene.settings.lstat()
    assert (found.st_mode, found.st_nlink) == (mode, 1)
    assert json.loads(scene.settings.read_bytes())["hooks"] == before["hooks"]
    assert watch.look() == []
    others = [path for name in ("other", "away") for path in scene.folder.glob(f"{name}*") if path.is_file()]
    assert {path.read_bytes() for path in others} <= {OFF}


def test_what_a_readable_file_held_beside_our_part_is_kept(scene: Scene) -> None:
    watch, before = Watch(scene), json.loads(scene.settings.read_bytes())
    renamed_in(scene, b'{"model": "x"}', 0o444)
    (gap,) = watch.look()
    assert (json.loads(scene.settings.read_bytes()), gap.displaced) == (
        {name: value for name, value in before.items() if name not in THEIRS} | {"model": "x"},
        (),
    )


@pytest.mark.parametrize("data", [b"{ not JSON", b"{}" + b" " * MAX_READ], ids=["illegible", "large"])
def test_a_file_that_cannot_be_merged_is_kept_aside_for_a_person(scene: Scene, data: bytes) -> None:
    watch, before = Watch(scene), scene.settings.read_bytes()
    renamed_in(scene, data, 0o644)
    (gap,) = watch.look()
    assert scene.settings.read_bytes() == before
    (aside,) = (scene.folder.parent / "home" / "set-aside").iterdir()
    assert (aside.read_bytes(), aside.stat().st_mode & 0o777) == (data[:MAX_READ], 0o600)
    assert str(aside) in gap.displaced[0]


def test_files_that_are_kept_aside_are_few(scene: Scene) -> None:
    watch = Watch(scene)
    for number in range(30):
        renamed_in(scene, b"{ %d" % number, 0o644)
        watch.look()
    kept = sorted((scene.folder.parent / "home" / "set-aside").iterdir())
    assert [file.read_bytes() for file in kept] == [b"{ %d" % number for number in range(10, 30)]


def test_a_directory_that_had_to_make_way_is_named_and_keeps_what_is_in_it(scene: Scene) -> None:
    watch = Watch(scene)
    a_directory(scene)
    (scene.settings / "inner" / "file").write_bytes(b"x")
    (gap,) = watch.look()
    (moved,) = scene.settings.parent.glob("*.remit-aside-*")
    assert ((moved / "inner" / "file").read_bytes(), moved.name in gap.displaced[0]) == (b"x", True)


@pytest.mark.parametrize("broken", ["content", "link", "target"])
def test_settings_that_a_person_has_linked_stay_linked(place: Path, broken: str) -> None:
    scene = Scene.at(place)
    scene.write(b"{}")
    target = place / "dotfiles" / "settings.json"
    target.parent.mkdir()
    scene.settings.rename(target)
    scene.settings.symlink_to(target)
    protect(scene)
    watch, before = Watch(scene), target.read_bytes()
    if broken == "link":
        scene.settings.unlink()
        scene.settings.write_bytes(OFF)
    else:
        target.unlink()
        if broken == "content":
            target.write_bytes(OFF)
    if os.geteuid() == 0:
        assert [(gap.put_back, "root does not write" in gap.why) for gap in watch.look()] == [(False, True)]
        return
    assert [gap.put_back for gap in watch.look()] == [True]
    found = json.loads(scene.settings.read_bytes())
    assert (scene.settings.readlink(), found["hooks"]) == (target, json.loads(before)["hooks"])


def test_a_folder_that_a_person_has_linked_stays_linked_unless_root_would_write_through_it(place: Path) -> None:
    scene = Scene.at(place)
    scene.write(b"{}")
    scene.settings.parent.rename(place / "dotfiles")
    scene.settings.parent.symlink_to(place / "dotfiles")
    protect(scene)
    watch, before = Watch(scene), scene.settings.read_bytes()
    scene.settings.parent.unlink()
    assert [gap.put_back for gap in watch.look()] == [os.geteuid() != 0]
    if os.geteuid() != 0:
        assert (scene.settings.parent.readlink(), scene.settings.read_bytes()) == (place / "dotfiles", before)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def test_nothing_is_written_where_a_link_on_the_way_to_linked_settings_leads(place: Path) -> None:
    scene = Scene.at(place)
    scene.write(b"{}")
    target = place / "dotfiles" / "inner" / "settings.json"
    target.parent.mkdir(parents=True)
    scene.settings.rename(target)
    scene.settings.symlink_to(target)
    protect(scene)
    watch = Watch(scene)
    (place / "elsewhere" / "inner").mkdir(parents=True)
    (place / "dotfiles").rename(place / "away")
    (place / "dotfiles").symlink_to(place / "elsewhere")
    assert [gap.put_back for gap in watch.look()] == [False]
    assert (files_in(place / "elsewhere"), tampered(watch)) == ([], {ID: False})


def test_nothing_is_written_where_a_link_on_the_way_to_the_protected_folder_leads(place: Path) -> None:
    (place / "outer" / "project").mkdir(parents=True)
    scene = Scene(place / "outer" / "project", Protections(open_home(place / "home")))
    protect(scene)
    watch = Watch(scene)
    (place / "elsewhere" / "project").mkdir(parents=True)
    (place / "outer").rename(place / "away")
    (place / "outer").symlink_to(place / "elsewhere")
    assert [gap.put_back for gap in watch.look()] == [False]
    assert (files_in(place / "elsewhere"), tampered(watch)) == ([], {ID: False})


def test_another_folder_in_the_place_of_the_protected_one_is_not_written_to(scene: Scene) -> None:
    watch = Watch(scene)
    scene.folder.rename(scene.folder.with_name("away"))
    scene.folder.mkdir()
    assert [gap.put_back for gap in watch.look()] == [False]
    assert (list(scene.folder.iterdir()), tampered(watch)) == ([], {ID: False})


def test_settings_behind_a_chain_of_links_are_not_written(place: Path) -> None:
    scene = Scene.at(place)
    scene.write(b"{}")
    scene.settings.parent.rename(place / "dotfiles")
    scene.settings.parent.symlink_to(place / "dotfiles")
    scene.settings.rename(place / "settings.json")
    scene.settings.symlink_to(place / "settings.json")
    protect(scene)
    watch = Watch(scene)
    (place / "settings.json").write_bytes(OFF)
    assert [gap.put_back for gap in watch.look()] == [False]
    assert (place / "settings.json").read_bytes() == OFF


@pytest.mark.skipif(os.geteuid() != 0, reason="the tests are not run by root")
def test_root_writes_nothing_into_a_folder_of_a_user_who_does_not_own_the_settings(tmp_path: Path) -> None:
    scene = Scene.at(tmp_path)
    protect(scene)
    watch = Watch(scene)
    scene.settings.unlink()
    os.chown(scene.settings.parent, NOBODY, NOBODY)
    assert [gap.put_back for gap in watch.look()] == [False]
    assert (list(scene.settings.parent.iterdir()), tampered(watch)) == ([], {ID: False})


def test_a_frozen_file_is_replaced_where_the_system_lets_us(scene: Scene) -> None:
    watch = Watch(scene)
    renamed_in(scene, OFF, 0o644)
    with scene.settings.open("rb") as file:
        try:
            fcntl.ioctl(file, 0x40086602, struct.pack("l", 0x10))
        except OSError:
            pytest.skip("files cannot be frozen here")
    assert [gap.put_back for gap in watch.look()] == [True]


def test_a_lock_that_somebody_holds_does_not_keep_settings_from_being_put_back(scene: Scene) -> None:
    watch, before = Watch(scene), scene.settings.read_bytes()
    renamed_in(scene, b"{", 0o644)
    with scene.protections.locked():
        assert watch.look() == []
        assert [gap.put_back for gap in watch.look(1.5)] == [True]
    assert scene.settings.read_bytes() == before


def test_whoever_undoes_holds_the_lock_and_is_waited_for(scene: Scene) -> None:
    watch, kept = Watch(scene), scene.protections.get(ID)
    assert kept is not None
    with scene.protections.locked():
        renamed_in(scene, json.dumps(THEIRS).encode(), 0o640)
        assert watch.look() == []
        scene.protections.remove(ID)
    assert watch.look() == []
    assert json.loads(scene.settings.read_bytes()) == THEIRS


def tampered(watch: Watch) -> dict[str, bool]:
    return {name: one.in_force for name, one in watch.restorer.tampered().items()}


def test_a_protection_that_is_put_back_too_often_counts_as_tampered_with(scene: Scene) -> None:
    watch = Watch(scene)
    for number in range(REPAIRS):
        assert tampered(watch) == {}, number
        renamed_in(scene, OFF, 0o444)
        watch.look()
    assert tampered(watch) == {ID: True}
    watch.look(WINDOW_S / 2)
    assert tampered(watch) == {ID: True}
    watch.look(WINDOW_S)
    assert tampered(watch) == {}


def test_one_change_now_and_then_is_no_tampering(scene: Scene) -> None:
    watch = Watch(scene)
    for _ in range(3 * REPAIRS):
        renamed_in(scene, OFF, 0o444)
        assert [gap.put_back for gap in watch.look(0.1 + WINDOW_S / (REPAIRS - 1))] == [True]
    assert tampered(watch) == {}


def test_a_protection_that_cannot_be_put_back_counts_as_tampered_with_until_it_is_in_place(scene: Scene) -> None:
    watch, away = Watch(scene), scene.folder.with_name("away")
    scene.folder.rename(away)
    assert [gap.put_back for gap in watch.look()] == [False]
    assert tampered(watch) == {ID: False}
    watch.look(2 * WINDOW_S)
    assert tampered(watch) == {ID: False}
    away.rename(scene.folder)
    watch.look(1.5)
    assert tampered(watch) == {ID: True}
    watch.look(WINDOW_S)
    assert tampered(watch) == {}


def test_whoever_protects_again_begins_anew(scene: Scene) -> None:
    watch = Watch(scene)
    for _ in range(REPAIRS):
        renamed_in(scene, OFF, 0o444)
        watch.look()
    assert tampered(watch)
    protect(scene, generation=7)
    watch.look(1.5)
    assert tampered(watch) == {}


@pytest.mark.parametrize("lasts", [True, False])
def test_hooks_that_another_file_turns_off_count_as_tampering_once_it_has_lasted(place: Path, lasts: bool) -> None:
    scene, found = Scene.at(place), [""]
    layer = scene.folder / ".claude" / "settings.json"
    protect(scene, guards=(str(layer),))
    watch = Watch(scene, lambda _: found[0])
    layer.write_bytes(OFF)
    found[0] = "hooks are turned off"
    assert [gap.put_back for gap in watch.look()] == [False]
    assert tampered(watch) == {}
    found[0] = found[0] if lasts else ""
    watch.look(1.5)
    assert tampered(watch) == ({ID: False} if lasts else {})


def with_another_layer(place: Path) -> tuple[Watch, Path]:
    """Return a restorer, and another file in which hooks can be turned off."""
    scene = Scene.at(place)
    layer = scene.folder / ".claude" / "settings.json"
    protect(scene, guards=(str(layer),))
    return Watch(scene, lambda _: "hooks are turned off" if layer.exists() and layer.read_bytes() == OFF else ""), layer


def test_hooks_that_are_turned_off_for_moments_again_and_again_count_as_tampering(place: Path) -> None:
    watch, layer = with_another_layer(place)
    told = list[bool]()
    for number in range(REPAIRS):
        assert tampered(watch) == {}, number
        layer.write_bytes(OFF)
        told += [gap.put_back for gap in watch.look(0.6)]
        layer.write_bytes(b"{}")
        told += [gap.put_back for gap in watch.look(0.6)]
    assert (told, tampered(watch)) == ([False], {ID: True})
    watch.look(WINDOW_S)
    assert tampered(watch) == {}


def test_hooks_that_are_turned_off_again_soon_after_it_was_told_count_as_tampering_once_it_lasts(place: Path) -> None:
    watch, layer = with_another_layer(place)
    layer.write_bytes(OFF)
    assert [gap.put_back for gap in watch.look()] == [False]
    layer.write_bytes(b"{}")
    assert watch.look() == []
    layer.write_bytes(OFF)
    assert watch.look(2.0) + watch.look(1.0) == []
    assert tampered(watch) == {ID: False}
    assert [gap.put_back for gap in watch.look(WINDOW_S)] == [False]


@pytest.mark.parametrize("name", ["managed-settings.json", "managed-settings.d/50.json", "settings.json"])
@pytest.mark.parametrize("is_there", [True, False])
def test_settings_that_are_added_to_or_changed_in_a_folder_that_is_read_are_looked_at(
    place: Path, name: str, is_there: bool
) -> None:
    scene, layer = Scene.at(place), place / "machine" / name
    if is_there:
        layer.parent.mkdir(parents=True)
        layer.write_bytes(b"{}")
    protect(scene, guards=(str(place / "machine"), str(place / "machine" / "managed-settings.d")))
    watch = Watch(scene, lambda _: "hooks are turned off" if layer.exists() and layer.read_bytes() == OFF else "")
    watch.look(10.0)
    layer.parent.mkdir(parents=True, exist_ok=True)
    layer.write_bytes(OFF)
    assert [gap.put_back for gap in watch.look()] == [False]
    watch.look(1.0)
    assert tampered(watch) == {ID: False}


def test_records_of_before_end_sessions_upon_tampering(scene: Scene) -> None:
    record = scene.folder.parent / "home" / "protections" / f"{ID}.json"
    says = json.loads(record.read_bytes())
    del says["on_tamper"]
    record.write_text(json.dumps(says), encoding="utf-8")
    kept = scene.protections.get(ID)
    assert kept is not None
    assert (kept.on_tamper, protection().on_tamper) == ("end", "end")


def test_a_file_of_ours_that_is_broken_is_one_finding_and_not_also_an_obstacle(place: Path) -> None:
    scene = Scene.at(place)
    protect(scene, guards=(str(scene.settings),))
    watch = Watch(scene, lambda _: "not JSON" if scene.settings.read_bytes() == b"{" else "")
    renamed_in(scene, b"{", 0o644)
    assert [gap.put_back for gap in watch.look()] == [True]
