"""Files of others: read, replaced as a whole, and left alone where anything speaks against it."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.assistants.install.files import adding_path, read_file, remove_file, replace_file
from remit.errors import FieldInvalid, HomeUnsafe, JsonTooLarge, StateCorrupt


def made(path: Path, data: bytes = b"old", mode: int = 0o640) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = made(tmp_path / "file")
    replace_file(read_file(str(path)), b"new", mode=0o600)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_new_file_gets_its_mode_whatever_the_umask_is_and_its_folders_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    found = read_file(str(path))
    assert found.missing == (str(tmp_path / "a"), str(tmp_path / "a" / "b"))
    before = os.umask(0o077)
    try:
        replace_file(found, b"new", mode=0o644)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o644, 0o755]


def test_what_was_made_is_removed_but_for_folders_that_others_use(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    found = read_file(str(path))
    replace_file(found, b"new")
    made(tmp_path / "a" / "other")
    remove_file(read_file(str(path)), found.missing)
    assert [one.name for one in tmp_path.rglob("*")] == ["a", "other"]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    target, link = made(tmp_path / "target"), tmp_path / "link"
    link.symlink_to("target")
    replace_file(read_file(str(link)), b"new")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"new")


def test_a_link_that_leads_nowhere_yet_leads_to_the_new_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("folder/target")
    found = read_file(str(link))
    replace_file(found, b"new")
    assert (link.is_symlink(), link.read_bytes()) == (True, b"new")
    remove_file(read_file(str(link)), found.missing)
    assert [one.name for one in tmp_path.iterdir()] == ["link"]


def read_only(path: Path) -> None:
    made(path, mode=0o444)


def second_name(path: Path) -> None:
    path.hardlink_to(made(path.with_name("other")))


REFUSED: dict[str, Callable[[Path], object]] = {
    "read-only": read_only,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a second name": second_name,
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_plain_file_to_write_to_is_refused(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "file")
    with pytest.raises(FieldInvalid) as refused:
        read_file(str(tmp_path / "file"))
    assert refused.value.code == "field_invalid"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(JsonTooLarge) as refused:
        read_file(str(made(tmp_path / "file", b"x" * (1024 * 1024 + 1))))
    assert refused.value.code == "json_too_large"


@pytest.mark.parametrize("before", [b"old", None])
def test_what_another_program_writes_meanwhile_is_not_lost(before: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if before is not None:
        made(path, before)
    found = read_file(str(path))
    made(path, b"theirs")
    with pytest.raises(StateCorrupt) as refused:
        replace_file(found, b"new")
    assert refused.value.code == "state_corrupt"
    with pytest.raises(StateCorrupt):
        remove_file(found, ())
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"theirs", [path])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HomeUnsafe) as refused:
        replace_file(read_file(str(tmp_path / "file")), b"new")
    assert refused.value.code == "home_unsafe"


def test_what_is_wrong_with_a_file_names_it_once_and_keeps_its_advice() -> None:
    for place, named in (("$.a", "b/c.json $.a"), ("b/c.json", "b/c.json")):
        told = FieldInvalid("is wrong", place=place)
        told.add_note("Put it right.")
        with pytest.raises(FieldInvalid) as refused, adding_path("/a/b/c.json"):
            raise told
        assert (refused.value.place, refused.value.__notes__) == (named, ["Put it right."])
