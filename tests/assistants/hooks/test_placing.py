"""The folder that a session may work in: an existing directory by its real path, and none that holds everything."""

import pwd
from pathlib import Path

import pytest

from remit.assistants.handlers import home_directories, resolve_folder
from remit.claims.mission import Mission, narrow
from remit.governor.folders import mission_in_folder, mission_without_folder

MISSION = Mission(
    agent_id="claude-code", mission="Help", resource_scope=(".", "src", "a:b", "*.py", "/srv/x", "https://a.example")
)


def test_a_directory_is_taken_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("project")
    for named in ("project", "link", "link/sub/..", "./project/"):
        assert resolve_folder(f"{tmp_path}/{named}", ()).folder == str(tmp_path.resolve() / "project")


@pytest.mark.parametrize("named", ["gone", "file", "dangling", "project/**", "[p]roject", "pro*", "loop", "project\0"])
def test_what_is_not_a_directory_is_refused(named: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    found = resolve_folder(f"{tmp_path}/{named}", ())
    assert (found.folder, "does not exist, or is not a directory" in found.refusal) == (None, True)


@pytest.mark.parametrize("named", [None, "", "project", ".", "~"])
def test_what_is_not_absolute_is_refused(named: str | None) -> None:
    assert resolve_folder(named, ()).refusal == "its start did not name an absolute folder"


@pytest.mark.parametrize("name", ["two\nlines", "\udcff", "right\u202eleft", "${HOME}", " "])
def test_a_name_that_no_passport_can_say_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    found = resolve_folder(str(tmp_path / name), ())
    assert found.folder is None
    assert "cannot be part of a resource scope" in found.refusal


def test_a_home_directory_and_what_holds_one_is_refused_and_what_lies_in_one_is_not(tmp_path: Path) -> None:
    home = tmp_path.resolve() / "homes" / "me"
    (home / "project").mkdir(parents=True)
    for folder in (home, home.parent):
        assert "home directory, or contains one" in resolve_folder(str(folder), (str(home),)).refusal
    assert resolve_folder(str(home / "project"), (str(home),)).folder == str(home / "project")


def test_homes_are_known_by_their_real_paths_too(tmp_path: Path) -> None:
    real = tmp_path.resolve() / "disk" / "me"
    real.mkdir(parents=True)
    (tmp_path / "me").symlink_to(real)
    homes = home_directories(str(tmp_path / "me"))
    assert {str(tmp_path / "me"), str(real)} <= homes
    for folder in (tmp_path / "me", real, real.parent):
        assert resolve_folder(str(folder), homes).folder is None


def test_the_homes_of_all_users_are_known() -> None:
    homes = home_directories(None)
    assert all(entry.pw_dir in homes for entry in pwd.getpwall() if entry.pw_dir == str(Path(entry.pw_dir)))


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr", "/usr/bin", "/tmp", "/var", "/dev", "/proc", "/proc/self"])
def test_directories_of_the_system_are_refused(folder: str) -> None:
    assert resolve_folder(folder, ()).folder is None


def test_entries_are_written_out_with_the_folder_as_a_literal() -> None:
    placed = mission_in_folder(MISSION, (), "/w/a*[1]")
    inside = "/w/a[*][[]1]"
    assert placed.resource_scope == (
        inside, f"{inside}/src", f"{inside}/a:b", f"{inside}/*.py", "/srv/x", "https://a.example",
    )  # fmt: skip
    assert placed.cwd == "/w/a*[1]"
    assert narrow(placed, placed).resource_scope == placed.resource_scope


@pytest.mark.parametrize("folder", [None, "/", "/home/me", "/home", "/etc", "/a/../b", "relative"])
def test_without_a_folder_to_work_in_nothing_may_be_touched(folder: str | None) -> None:
    assert mission_in_folder(MISSION, ("/home/me",), folder) == mission_without_folder(MISSION)
    assert (mission_without_folder(MISSION).cwd, mission_without_folder(MISSION).resource_scope) == (None, ())
